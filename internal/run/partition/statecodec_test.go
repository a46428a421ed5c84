package partition

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/bodies"
)

// hash is a hash of the group's state, without the index of its last entry. REQUIRES: the partition is held.
func (g *group) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(g.appendState(nil))
	return h.Sum64()
}

// appendMeta appends the state without entries. REQUIRES: the partition is held.
func (g *group) appendMeta(b []byte) []byte {
	return g.image((*queue.Machine).NowRest, g.node.locate).append(b, nil)
}

// stored stores bytes of a message. The reference is the caller's.
func stored(b *bodies.Store, record []byte) message.Ref {
	ref, room := b.Alloc(len(record))
	copy(room, record)
	return ref
}

// history is the stored form of a history, or nothing, or bytes that are none.
func (c chooser) history() []byte {
	switch c.IntN(4) {
	case 0:
		return nil
	case 1:
		return append([]byte{0xff}, c.text()...)
	}
	h := deadletter.History{Exchange: c.text(), Keys: []string{c.text()}}
	for range c.IntN(3) {
		h.Record(&deadletter.Event{Queue: c.text(), Reason: deadletter.Expired, Time: c.moment(), Expiration: max(c.moment(), 0) - 1, Exchange: c.text()})
	}
	return h.Append(nil)
}

func (c chooser) reason() deadletter.Reason {
	return []deadletter.Reason{deadletter.Expired, deadletter.Rejected, deadletter.MaxLen, deadletter.DeliveryLimit}[c.IntN(4)]
}

func (c chooser) targetsAsked() (list []uint64) {
	for range c.IntN(3) {
		list = append(list, c.uint64())
	}
	return list
}

// fillMail fills mail with what outboxes and inboxes may have, with extreme values. sources are the queues it may
// come from.
func (c chooser) fillMail(o *outboxes, n *Node, sources []uint64) {
	entry := func(number uint64) outbox.Entry {
		e := outbox.Entry{
			Number: number, Target: c.uint64(), Source: sources[c.IntN(len(sources))], ID: c.id(), Flags: outbox.Flags(c.uint64()), Reason: c.reason(),
			VHost: message.VHost(c.text()), Failed: c.uint32(), Body: stored(n.bodies, c.record()), History: storeHistory(n.bodies, c.history()),
		}
		if c.bool() {
			e.Reason = 0
		}
		return e
	}
	for range c.IntN(4) {
		s := outbox.State{To: c.uint64(), First: c.uint64(), Closed: c.bool()}
		for k := range uint64(c.IntN(4)) {
			s.Entries = append(s.Entries, entry(s.First+k))
		}
		for range c.IntN(3) {
			s.Stranded = append(s.Stranded, entry(c.uint64()))
		}
		if o.Find(s.To) == nil {
			o.Restore(&s, o.tally)
		}
	}
	for range c.IntN(4) {
		o.RestoreInbox(c.uint64(), c.uint64(), c.refusals())
	}
}

// groupByChance gives a group everything that it may have, with extreme values.
func groupByChance(c chooser, n *Node, entries bool) *group {
	g := n.groups[0].group
	g.applied, g.clock = c.uint64(), c.moment()
	sources := []uint64{c.uint64()}
	number := c.Uint64() >> 8
	for range c.IntN(4) {
		inc := c.uint64()
		if g.p.queues[inc] != nil {
			continue
		}
		sources = append(sources, inc)
		settings, dead := c.settings()
		q := g.newQueue(inc, &create{message.VHost(c.text()), c.text(), c.config(), settings, dead}, g.clock)
		for range c.IntN(4) * bit(entries) {
			r := queue.Restored{DiedAt: c.moment(), NotBefore: c.moment(), Returned: c.bool()}
			r.Body, r.History = stored(n.bodies, c.record()), storeHistory(n.bodies, c.history())
			r.Size, r.Redelivered, r.Due, r.Counts = c.uint32(), c.bool(), c.moment(), queue.Counts{Deliveries: c.uint32(), Acquired: c.uint32()}
			if c.bool() {
				r.Held = c.reason()
			}
			q.m.Restore(queue.ID(c.IntN(32))<<56|queue.ID(1+c.IntN(1000)), &r)
		}
		for range c.IntN(4) {
			id := c.id()
			for _, target := range c.targetsAsked() {
				q.waiting.ask(id, target)
			}
			for _, target := range c.targetsAsked() {
				q.waiting.take(id, target)
			}
			q.waiting.note(id, c.bool())
		}
		for range c.IntN(3) {
			number++
			k := &queue.Consumer{Number: number, Origin: c.uint64(), Tag: c.text(), NoAck: c.bool(), Exclusive: c.bool(), Metered: true, Priority: c.int64(), Prefetch: c.small(), Timeout: c.moment()}
			g.consumers[number] = &seat{q: q, c: k}
			q.m.Attach(g.clock, k)
		}
	}
	for number := range uint64(c.IntN(3) * len(g.p.queues)) {
		d := g.depart(c.uint64(), number)
		for _, q := range g.sorted() {
			if len(d.queues) == 0 || c.bool() {
				d.hush(q)
			}
		}
		for _, s := range g.seats() {
			if at := d.of[s.q]; at != nil && c.bool() {
				at.add(s)
			}
		}
	}
	for node := range c.IntN(4) {
		g.processes = append(g.processes, process{NewOrigin(uint64(node)*255, int64(c.Uint32())), c.uint64()})
	}
	c.fillMail(g.p.outboxes, n, sources)
	return g
}

func bit(set bool) int {
	if set {
		return 1
	}
	return 0
}

// FuzzGroupsAreReadBackEqual: a snapshot or a checkpoint of a group restores the group, and the restored group has
// the same one.
func FuzzGroupsAreReadBackEqual(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := choosing(seed)
		n, _ := follower(t)
		g := groupByChance(c, n, true)
		state, err := g.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		other, _ := follower(t)
		back := other.groups[0].group
		if err := back.Restore(state, 0); err != nil {
			t.Fatal("the snapshot: ", err)
		}
		if again, err := back.Snapshot(); err != nil || !bytes.Equal(again, state) {
			t.Fatalf("%v; the snapshot was\n%.2000x, is\n%.2000x", err, state, again)
		}
		sameMail(t, g.p.outboxes, back.p.outboxes, n, other)

		n, _ = follower(t)
		g = groupByChance(c, n, false)
		meta := g.appendMeta(nil)
		other, _ = follower(t)
		back = other.groups[0].group
		if err := back.restoreMeta(meta); err != nil {
			t.Fatal("the checkpoint: ", err)
		}
		if err := back.restoreRests(); err != nil {
			t.Fatal("the rest of the queues in the checkpoint: ", err)
		}
		if again := back.appendMeta(nil); !bytes.Equal(again, meta) {
			t.Fatalf("the checkpoint was\n%.2000x, is\n%.2000x", meta, again)
		}
		sameMail(t, g.p.outboxes, back.p.outboxes, n, other)
	})
}

// sameMail compares mail field by field, in case the writer forgets one.
func sameMail(t *testing.T, wrote, read *outboxes, from, to *Node) {
	t.Helper()
	plain := func(o *outboxes, n *Node) (list []any) {
		entry := func(e outbox.Entry) any {
			body, history := string(n.bodies.Bytes(e.Body)), string(n.historyBytes(e.History))
			e.Body, e.History = 0, 0
			return []any{e, body, history}
		}
		for _, b := range o.Outboxes() {
			s := b.State()
			list = append(list, []any{"out", s.To, s.First, s.Closed, len(s.Entries)})
			for _, e := range slices.Concat(s.Entries, s.Stranded) {
				list = append(list, entry(e))
			}
		}
		for _, b := range o.Inboxes() {
			list = append(list, []any{"in", b.From(), b.Last(), slices.Clip(append(outbox.Refusals{}, b.Refusals()...))})
		}
		return list
	}
	if w, r := plain(wrote, from), plain(read, to); !reflect.DeepEqual(w, r) {
		t.Fatalf("the outboxes were\n%.2000v, are\n%.2000v", w, r)
	}
}

// recovering is a recovery that has read nothing yet.
func recovering(n *Node) *recovery {
	r := &recovery{node: n, queues: map[uint64]*Queue{}}
	r.hold = n.lock(n.parts...)
	return r
}

func (r *recovery) ended() {
	r.node.release(r.hold)
	r.node.finish(r.hold)
}

// FuzzLocalMailIsReadBackEqual: a checkpoint of the local partitions' mail restores it.
func FuzzLocalMailIsReadBackEqual(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := choosing(seed)
		n, _ := follower(t)
		sources := []uint64{c.uint64()}
		n.Create(&Queue{Incarnation: sources[0], VHost: "/", Name: "q", Durable: true}, queue.Config{Durable: true, MaxPriority: -1}, queue.Unlimited(), DeadLetter{})
		q := n.parts[0].queues[sources[0]]
		c.fillMail(n.outboxes, n, append(sources, c.uint64()))
		for range c.IntN(4) {
			id := c.id()
			for _, target := range c.targetsAsked() {
				q.waiting.take(id, target)
			}
		}
		value := n.appendLocal(nil)
		other, _ := follower(t)
		r := recovering(other)
		defer r.ended()
		if err := r.readLocal(value); err != nil {
			t.Fatal(err)
		}
		sameMail(t, n.outboxes, other.outboxes, n, other)
		if got := r.queue(q.Incarnation).waiting.taken; len(got) != len(q.waiting.taken) || len(got) > 0 && !reflect.DeepEqual(got, q.waiting.taken) {
			t.Fatalf("those that have taken held deaths were %v, are %v", q.waiting.taken, got)
		}
	})
}

// FuzzDecodeLocal: nonsense instead of the local partitions' mail is an error.
func FuzzDecodeLocal(f *testing.F) {
	for seed := range uint64(20) {
		c := choosing(seed)
		n, _ := follower(f)
		c.fillMail(n.outboxes, n, []uint64{1, 2})
		f.Add(n.appendLocal(nil))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		n, _ := follower(t)
		r := recovering(n)
		defer r.ended()
		_ = r.readLocal(value)
	})
}

// FuzzDecodeGroup: nonsense instead of a group's state in a checkpoint is an error.
func FuzzDecodeGroup(f *testing.F) {
	for seed := range uint64(20) {
		n, _ := follower(f)
		f.Add(groupByChance(choosing(seed), n, false).appendMeta(nil))
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		n, _ := follower(t)
		if g := n.groups[0].group; g.restoreMeta(state) == nil {
			_ = g.restoreRests()
		}
	})
}

// A checkpoint's record of itself is read back equal.
func TestACheckpointIsReadBackEqual(t *testing.T) {
	for seed := range uint64(300) {
		c := choosing(seed)
		wrote := checkpoint{Version: c.uint32(), Cut: journal.Pos(c.uint64()), At: time.UnixMilli(c.Int64N(1 << 47)).UTC(), Generation: c.uint64()}
		for range c.IntN(3) {
			wrote.Files = append(wrote.Files, bodyFile{Space: message.Space(c.IntN(message.Spaces)), Segment: c.uint32(), Placed: c.int64()})
		}
		if c.bool() {
			wrote.Declared = &store.Reach{Log: c.uint64(), Pos: journal.Pos(c.uint64())}
		}
		value, err := json.Marshal(wrote)
		var read checkpoint
		if err == nil {
			err = json.Unmarshal(value, &read)
		}
		if err != nil || !reflect.DeepEqual(wrote, read) {
			t.Fatalf("%v: wrote %+v, read %+v", err, wrote, read)
		}
	}
}

// So is the note of how far the declarations are on disk, and nothing else is taken for one.
func TestANoteOfDeclarationsIsReadBackEqual(t *testing.T) {
	for _, v := range extremes {
		for _, pos := range extremes {
			n, _ := follower(t)
			at := store.Reach{Log: uint64(v), Pos: journal.Pos(pos)}
			n.Declared(at)
			if err := n.Journal.Flush(); err != nil {
				t.Fatal(err)
			}
			noted := n.declared.last()
			if pos == 0 {
				if noted != nil {
					t.Errorf("%+v is noted as %+v", at, noted)
				}
				continue
			}
			if noted == nil || *noted != at {
				t.Errorf("%+v is noted as %+v", at, noted)
			}
		}
	}
	for size := range declaredBytes + 3 {
		if b := bytes.Repeat([]byte{declaredFirstByte}, size); IsDeclared(b) != (size == declaredBytes) {
			t.Errorf("%d bytes are a note: %v", size, IsDeclared(b))
		}
	}
	if r := ReadDeclared(bytes.Repeat([]byte{0xff}, declaredBytes)); r.Log != math.MaxUint64 || r.Pos != math.MaxUint64 {
		t.Errorf("read %+v", r)
	}
}

// Keys of pages are read back equal, in the order of pages.
func TestKeysOfPagesAreReadBackEqual(t *testing.T) {
	for seed := range uint64(300) {
		c := choosing(seed)
		inc, id := c.uint64(), index.PageID{Lane: c.IntN(256), Number: c.uint64(), Version: c.uint32()}
		gotInc, got, ok := splitPageKey(appendPageKey(nil, keyPage, inc, id))
		if !ok || gotInc != inc || got != id {
			t.Fatalf("wrote %d %+v, read %d %+v", inc, id, gotInc, got)
		}
	}
}
