package partition

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
)

// fanout is a queue whose dead go to many queues of the other kind.
func fanout(source queue.Config, targets int) (defs []definition, names []string) {
	other := quorum
	if source.Type == queue.Quorum {
		other = classic
	}
	defs = []definition{mailQueue("source", source, "x", false)}
	for i := range targets {
		names = append(names, fmt.Sprint("target ", i))
		defs = append(defs, mailQueue(names[i], other, "", false))
	}
	return defs, names
}

// A dead letter to many queues of another log has one copy of its body there, in memory and in the journal, and each
// queue has the message once. That also holds after a crash before or after the other log has taken it.
func TestADeathOfManyQueuesHasItsBodyOnce(t *testing.T) {
	const targets, size = 50, 1 << 20
	for _, source := range []queue.Config{classic, quorum} {
		t.Run(source.Type.String(), func(t *testing.T) {
			defs, names := fanout(source, targets)
			routes := table{"x": names}
			fs := vfs.NewCrashableMem()
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(1, 1))
			crashed := map[string]*vfs.MemFS{} // the first time at each step
			w := startQueues(t, fs, 1, func(step string) {
				mu.Lock()
				defer mu.Unlock()
				if (step == FailMailSent || step == FailMailTaken) && crashed[step] == nil {
					crashed[step] = crash(fs, rng)
				}
			}, defs, routes)
			e := message.Envelope{Serial: 1, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: size, Persistent: true}
			body, record := w.n.bodies.Alloc(e.Size())
			text := e.Put(record)
			for i := range text {
				text[i] = byte(i * 7)
			}
			message.Record(record).Seal()
			record = bytes.Clone(record)
			_ = w.n.Await(w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["source"]}, Body: body, TTL: 1, Priority: -1}}))
			arrived := func(w *mailWorld) {
				w.await("all have it", func() bool {
					for _, name := range names {
						if w.n.CountsNow(w.queues[name]).Ready != 1 {
							return false
						}
					}
					return w.n.CountsNow(w.queues["source"]).Transit == 0
				})
				var history []byte
				for _, name := range names {
					found := 0
					_, _, err := w.n.Browse(w.queues[name], queue.Cursor{}, 9, func(_ queue.View, r message.Record, h []byte) bool {
						if found++; !bytes.Equal(r, record) {
							t.Errorf("%s has another message, of %d bytes", name, len(r))
						}
						if history == nil {
							history = bytes.Clone(h)
						}
						if !bytes.Equal(h, history) {
							t.Errorf("%s has another history: %x, want %x", name, h, history)
						}
						return true
					})
					if err != nil || found != 1 {
						t.Errorf("%s has %d messages: %v", name, found, err)
					}
				}
				if h, err := deadletter.Parse(history); err != nil || len(h.Deaths) != 1 {
					t.Errorf("the history is %+v: %v", h, err)
				}
			}
			arrived(w)
			if most := int64(4 * size); w.n.bodies.Memory() > most { // each of two groups has its own
				t.Errorf("%d bytes are in memory for one message of %d", w.n.bodies.Memory(), size)
			}
			written := int64(0)
			for _, s := range w.j.Segments() {
				written += int64(s.Bytes)
			}
			if written > 4*size {
				t.Errorf("the journal has %d bytes for one message of %d", written, size)
			}
			mu.Lock()
			lives := []*vfs.MemFS{crashed[FailMailSent], crashed[FailMailTaken], crash(fs, rng)}
			mu.Unlock()
			w.stop()
			for i, fs := range lives {
				w := startQueues(t, fs, uint64(i+2), nil, defs, routes)
				arrived(w)
				w.stop()
			}
		})
	}
}

// Loads are limited by their bytes. One large message to many queues is one command for each group; many large
// messages are as many commands as they need. Messages on disk are in memory once meanwhile.
func TestALoadCountsARecordOnce(t *testing.T) {
	const targets, size = 40, sendBytes * 2
	defs, names := fanout(classic, targets)
	f := newFleet(t, defs, table{"x": names})
	n := f.leader
	n.bodies.Attach(bodies.Disk{Journal: n.Journal})
	for s := range message.Serial(2) {
		n.Run([]Op{{Kind: Publish, Targets: []*Queue{f.queues["source"]}, Body: heavy(n, s+1, size), TTL: 10, Priority: -1}})
	}
	f.now.Add(20)
	for f.route() {
	}
	var before []uint64
	for _, l := range f.logs {
		before = append(before, l.index)
	}
	n.outboxes.mu.Lock()
	waiting := 0
	for _, box := range n.outboxes.Outboxes() {
		waiting += len(box.Waiting())
		for i := range box.Waiting() {
			e := &box.Waiting()[i]
			var ok bool
			if e.Body, ok = n.bodies.Cool(e.Body); !ok {
				t.Fatal("it is not in the journal")
			}
		}
	}
	n.outboxes.mu.Unlock()
	if waiting != 2*targets {
		t.Fatalf("%d are on their way, want %d", waiting, 2*targets)
	}
	for k, names := range [][]string{groupNames(f, names, 1), groupNames(f, names, 2)} {
		was := n.bodies.Memory()
		s := n.outboxes
		b, _ := s.load(k)
		if err := s.warm(&b); err != nil {
			t.Fatal(err)
		}
		if len(b.Entries) != len(names) {
			t.Errorf("a load has %d entries, want those of the first message, %d", len(b.Entries), len(names))
		}
		if more := n.bodies.Memory() - was; more > 2*size {
			t.Errorf("a load takes %d bytes of memory for a message of %d", more, size)
		}
		s.release(b.Entries)
		if more := n.bodies.Memory() - was; more > size {
			t.Errorf("%d bytes are left in memory", more)
		}
	}
	f.work()
	for k, l := range f.logs {
		l.mu.Lock()
		if commands := l.index - before[k]; commands != 2 || l.most > 2*size {
			t.Errorf("group %d: %d commands, the largest of %d bytes, want two of about %d", k+1, commands, l.most, size)
		}
		l.mu.Unlock()
	}
	for _, name := range names {
		if got := f.ready(name); got != 2 {
			t.Errorf("%s has %d messages, want 2", name, got)
		}
	}
	f.agree()
}

func groupNames(f *fleet, names []string, group uint64) (list []string) {
	for _, name := range names {
		if f.queues[name].Group == group {
			list = append(list, name)
		}
	}
	return list
}

// likeBefore is a load of an outbox: records and histories, some the same as in the entry before, to queues of which
// 3 is full and 9 is gone.
func likeBefore() (all []incoming, records [][]byte) {
	first, second := recordFor(1, "first"), recordFor(2, "second")
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}}
	history := h.Append(nil)
	h.Exchange = "y"
	other := h.Append(nil)
	for _, r := range [][]byte{first, second} {
		message.Record(r).Seal()
	}
	return []incoming{
		{target: 1, history: history, record: first},
		{target: 9, history: history, record: first, sameHistory: true, sameRecord: true},
		{target: 3, history: history, record: first, sameHistory: true, sameRecord: true},
		{target: 2, history: history, record: first, sameHistory: true, sameRecord: true},
		{target: 1, history: other, record: first, sameRecord: true},
		{target: 9, history: other, record: second, sameHistory: true},
		{target: 2, history: other, record: second, sameHistory: true, sameRecord: true},
		{target: 2, record: second, sameRecord: true},
	}, [][]byte{first, second}
}

// finds checks that a queue has these entries of likeBefore, and no others.
func finds(t *testing.T, what string, n *Node, q *Queue, all []incoming, want ...int) {
	t.Helper()
	q.part.mu.Lock()
	defer q.part.mu.Unlock()
	found := 0
	q.m.Browse(queue.Cursor{}, 99, func(v queue.View) bool {
		if found < len(want) {
			in := all[want[found]]
			if !bytes.Equal(n.bodies.Bytes(v.Body), in.record) || !bytes.Equal(n.historyBytes(v.History), in.history) {
				t.Errorf("%s: queue %d: entry %d is not the one sent as %d", what, q.Incarnation, found, want[found])
			}
		}
		found++
		return true
	})
	if found != len(want) {
		t.Errorf("%s: queue %d has %d entries, want %d", what, q.Incarnation, found, len(want))
	}
}

// Whatever becomes of an entry, later entries with the same record and history have them. Each log keeps them once,
// and releases them with the last entry.
func TestAnEntryHasTheRecordOfTheOneBefore(t *testing.T) {
	all, records := likeBefore()
	full := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	const most = 2 + 2*2 // records, histories, and for each history the shared part
	limits := []queue.Settings{queue.Unlimited(), queue.Unlimited(), full}
	for _, taken := range []uint64{0, 1, 3, 5, 6} { // before, by another command
		what := fmt.Sprint(taken, " taken before")
		var one, two []int // of queue 1 and of queue 2
		var refused outbox.Refusals
		for i, in := range all {
			switch number := uint64(i + 1); {
			case number <= taken:
			case in.target == 1:
				one = append(one, i)
			case in.target == 2:
				two = append(two, i)
			case in.target == 3:
				refused = append(refused, outbox.Refusal{Number: number, Why: outbox.Full})
			default:
				refused = append(refused, outbox.Refusal{Number: number, Why: outbox.Gone})
			}
		}

		n, fatal := follower(t)
		g := n.groups[0].group
		var w commandWriter
		w.begin(7, 1000)
		for i, s := range limits {
			w.create(&Queue{Incarnation: uint64(i + 1), VHost: "/", Name: "q", wanted: wanted{s, DeadLetter{}}})
		}
		g.Apply([]cluster.Entry{{Index: 1, Term: 1, Data: bytes.Clone(w.numbered(1))}})
		empty := n.bodies.Held()
		g.p.outboxes.RestoreInbox(2, taken, nil)
		w.begin(7, 1000)
		w.outIn(2, 0, 1, len(all))
		for i := range all {
			w.sent(&all[i])
		}
		command := bytes.Clone(w.numbered(2))
		for _, r := range records {
			if k := bytes.Count(command, r); k != 1 {
				t.Errorf("a record is %d times in the command", k)
			}
		}
		g.Apply([]cluster.Entry{{Index: 2, Term: 1, Data: command}})
		if box := g.p.outboxes.From(2); *fatal != nil || box.Last() != uint64(len(all)) || !slices.Equal(box.Refusals(), refused) {
			t.Errorf("%s: %v, %+v, want refused %v", what, *fatal, box, refused)
		}
		finds(t, what, n, g.p.queues[1], all, one...)
		finds(t, what, n, g.p.queues[2], all, two...)
		if held := n.bodies.Held() - empty; held > most {
			t.Errorf("%s: %d allocations are held for two records and two histories", what, held)
		}
		w.begin(7, 1000)
		w.op(cmdPurge, 1)
		w.op(cmdPurge, 2)
		g.Apply([]cluster.Entry{{Index: 3, Term: 1, Data: w.numbered(3)}})
		for g.p.bury() {
		}
		if held := n.bodies.Held(); held != empty {
			t.Errorf("%s: %d allocations are left, %d were there before", what, held, empty)
		}

		l := newFleet(t, []definition{{"1", classic, limits[0], DeadLetter{}}, {"2", classic, limits[1], DeadLetter{}}, {"3", classic, full, DeadLetter{}}}, nil)
		n = l.leader
		empty = n.bodies.Held()
		n.outboxes.RestoreInbox(2, taken, nil)
		b := load{Load: outbox.Load{To: localLog | 1}, from: 2}
		for i, in := range all {
			e := outbox.Entry{Number: uint64(i + 1), Target: in.target, Flags: outbox.Move}
			if before := len(b.Entries) - 1; in.sameRecord {
				e.Body = b.Entries[before].Body
				n.bodies.Retain(e.Body, 1)
			} else {
				var mem []byte
				e.Body, mem = n.bodies.Alloc(len(in.record))
				copy(mem, in.record)
			}
			if before := len(b.Entries) - 1; in.sameHistory {
				e.History = b.Entries[before].History
				n.bodies.Retain(e.History, 1)
			} else {
				e.History = storeHistory(n.bodies, in.history)
			}
			b.Entries = append(b.Entries, e)
		}
		upTo, got, err := n.outboxes.receive(&b)
		n.outboxes.release(b.Entries)
		if err != nil || upTo != uint64(len(all)) || !slices.Equal(got, refused) {
			t.Errorf("%s: local: %v, up to %d, refused %v, want %v", what, err, upTo, got, refused)
		}
		finds(t, what, n, l.queues["1"], all, one...)
		finds(t, what, n, l.queues["2"], all, two...)
		if held := n.bodies.Held() - empty; held > most {
			t.Errorf("%s: local: %d allocations are held for two records and two histories", what, held)
		}
		for _, name := range []string{"1", "2"} {
			if _, err := n.Purge(l.queues[name]); err != nil {
				t.Fatal(err)
			}
		}
		for l.route() {
		}
		if held := n.bodies.Held(); held != empty {
			t.Errorf("%s: local: %d allocations are left, %d were there before", what, held, empty)
		}
	}
}

// An empty record means that of the entry before, and so not in the first entry.
func TestARecordThatIsNoneIsRefused(t *testing.T) {
	for _, c := range []struct {
		what    string
		number  int // of the entry without a record
		again   bool
		last    uint64 // last number that is answered
		ready   int
		refused outbox.Refusals
	}{
		{"the first", 0, false, 2, 1, outbox.Refusals{{Number: 1, Why: outbox.Gone}}},
		{"the second", 1, false, 2, 2, nil},
		{"the first, with the history of none", 0, true, 0, 0, nil},
	} {
		n, fatal := follower(t)
		senseless := 0
		n.KeepSenseless = func(Senseless) error { senseless++; return nil }
		g := n.groups[0].group
		var w commandWriter
		w.begin(7, 1000)
		w.create(&Queue{Incarnation: 1, VHost: "/", Name: "q", wanted: wanted{queue.Unlimited(), DeadLetter{}}})
		w.outIn(2, 0, 1, 2)
		for i := range 2 {
			w.uint(1)
			var flags byte
			if c.again && i == c.number {
				flags = mailAgain
			}
			w.b = append(w.b, flags)
			w.uint(0)
			if flags == 0 {
				w.raw(nil)
			}
			if i == c.number {
				w.raw(nil)
			} else {
				w.raw(recordFor(message.Serial(i), "a"))
			}
		}
		g.Apply([]cluster.Entry{{Index: 1, Term: 1, Data: w.numbered(1)}})
		box := g.p.outboxes.From(2)
		if ready := g.p.queues[1].m.Totals().Ready; *fatal != nil || box.Last() != c.last || ready != c.ready || !slices.Equal(box.Refusals(), c.refused) || senseless > 0 != c.again {
			t.Errorf("%s: %v, %d ready, %+v, %d set aside", c.what, *fatal, ready, box, senseless)
		}
	}
}

// A message that a repair without an index brings back also has the record of the entry before it.
func TestASalvageReadsTheRecordOfTheEntryBefore(t *testing.T) {
	n, _ := follower(t)
	n.Repair.KeepUndeclared = true
	g := n.groups[0].group
	all, records := likeBefore()
	var w commandWriter
	w.begin(7, 1000)
	w.outIn(2, 0, 1, len(all))
	for i := range all {
		w.sent(&all[i])
	}
	data := w.numbered(1)
	h := n.lock(n.parts...)
	s := &salvager{recovery: &recovery{node: n, hold: h}}
	base := journal.Pos(message.MakeLocation(message.InJournal, 1, 1000))
	if err := s.command(g, &cluster.Entry{Index: 1, Term: 1, Data: data, At: base}); err != nil {
		t.Fatal(err)
	}
	n.unlock(h)
	for inc, want := range map[uint64][]int{1: {0, 4}, 2: {3, 6, 7}, 3: {2}, 9: {1, 5}} {
		var found []int
		g.p.queues[inc].m.Browse(queue.Cursor{}, 99, func(v queue.View) bool {
			k := slices.IndexFunc(records, func(r []byte) bool { return bytes.Equal(r, all[want[len(found)]].record) })
			at := message.Location(base) + message.Location(bytes.Index(data, records[k]))
			if v.Body != at.Ref() || !bytes.Equal(n.historyBytes(v.History), all[want[len(found)]].history) {
				t.Errorf("queue %d: entry %d lies at %v, want %v", inc, len(found), v.Body.Location(), at)
			}
			found = append(found, want[len(found)])
			return true
		})
		if !slices.Equal(found, want) {
			t.Errorf("queue %d has %v, want %v", inc, found, want)
		}
	}
}
