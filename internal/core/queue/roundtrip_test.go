package queue

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// draw chooses values that a queue saves, mostly extreme ones.
type draw struct{ *rand.Rand }

func drawing(seed uint64) draw { return draw{rand.New(rand.NewPCG(seed, 2))} }

func pick[T any](d draw, all ...T) T { return all[d.IntN(len(all))] }

func (d draw) bool() bool { return d.IntN(2) == 0 }

func (d draw) uint32() uint32 {
	return pick(d, 0, 1, 255, 256, math.MaxInt32, 1<<31, math.MaxUint32, d.Uint32())
}

func (d draw) uint64() uint64 {
	return pick(d, 0, 1, 127, 128, math.MaxUint32, 1<<32, 1<<53, math.MaxInt64, 1<<63, math.MaxUint64, d.Uint64())
}

func (d draw) int64() int64 { return int64(d.uint64()) }

// moment chooses a moment, 0 included. far is one that no test reaches.
func (d draw) moment() int64 {
	return pick(d, 0, 1, 1000, math.MaxUint32, math.MaxUint32+1, 1<<53, moment.Last-1, moment.Last, d.Int64N(moment.Last))
}

func (d draw) reason() deadletter.Reason {
	return pick(d, deadletter.Expired, deadletter.Rejected, deadletter.MaxLen, deadletter.DeliveryLimit)
}

// body chooses a place in memory or on disk that no other entry has.
func (d draw) body(n int) message.Ref {
	ref := message.Ref(pick(d, 0, 1<<32, 1<<61, 1<<62, d.Uint64N(1<<62))+uint64(n)) | diskBit
	if d.bool() {
		return name(ref)
	}
	return ref
}

// queueByChance is a queue with every kind of entry, with extreme values.
func queueByChance(d draw, log index.Log) (*Machine, *shelf) {
	s := newShelf()
	config := Config{Type: Classic, Durable: true, MaxPriority: pick(d, -1, 0, 9, 255)}
	if log == index.Commands {
		config = Config{Type: Quorum, Durable: true, MaxPriority: -1, Strict: d.bool(), SingleActive: d.bool()}
	}
	settings := Unlimited()
	settings.DeadLetter = true
	m := New(config, settings, &Pages{Log: log, Hash: s.Bytes}, &restored{}, d.moment())
	m.SetCold(s)
	m.pages.Begin(1)
	m.refusing, m.lastUse = log == index.Commands && d.bool(), d.moment()
	begin := pick[uint64](d, 1, 255, 256, 1<<32, 1<<55)
	for n := range pick(d, 1, 4, 60, 600) {
		r := Restored{Returned: d.bool()}
		r.Body, r.Size, r.Redelivered, r.Due = d.body(n+1), d.uint32(), d.bool(), d.moment()
		r.Counts = pick(d, Counts{}, Counts{Deliveries: d.uint32(), Acquired: d.uint32()})
		if d.bool() {
			r.History = message.Ref(pick(d, 1+d.Uint64N(20), 1+d.Uint64N(1<<40)))
		}
		switch d.IntN(6) {
		case 0:
			r.Out = true
		case 3:
			r.Offered = true
		case 1:
			r.NotBefore = d.moment()
		case 2:
			r.Held, r.DiedAt = d.reason(), d.moment()
		}
		id := index.MakeID(d.IntN(m.Terms.Levels), begin+d.Uint64N(pick[uint64](d, 1, 300, 2000)))
		m.Restore(id, &r)
		p := m.Find(id)
		switch state := p.State(); {
		case log.SavesOwners() && state == index.Out:
			m.GiveTo(p, pick(d, 0, d.uint32()))
		case state == index.Ready && d.IntN(4) == 0:
			m.die(d.moment(), id, p, d.reason(), nil)
		}
	}
	return m, s
}

// save writes a checkpoint of the queue, and returns its version.
func save(m *Machine) (version uint32) {
	version = m.pages.Cut()
	for c, done := (index.SaveCursor{}), false; !done; {
		c, done = m.SaveSome(c, 3)
	}
	m.pages.CutDone()
	return version
}

// checkpointed saves the whole queue and returns what a start makes of it.
func checkpointed(t *testing.T, m *Machine, s *shelf) *Machine {
	t.Helper()
	version := save(m)
	s.saved(version)
	back := New(m.config, m.settings, &Pages{Log: m.pages.Log, Hash: s.Bytes}, &restored{}, m.born)
	if err := s.restore(back, version); err != nil {
		t.Fatal(err)
	}
	return back
}

// told is everything that is kept of each entry, as text; for a dying entry that is not kept as such, what is kept
// instead.
func told(m *Machine) (all []string) {
	m.Each(false, func(id ID, p index.Place) {
		state, counts := m.Kept(p)
		var owner uint32
		var row index.Side
		var c Content
		p.Read(&c)
		if state == index.Out && m.pages.Log.SavesOwners() {
			owner = p.Owner()
		}
		if s := m.Side(p); s != nil {
			row.TTL = s.TTL
			if state == index.Dying || state == index.Held {
				row.Reason, row.DiedAt = s.Reason, s.DiedAt
			}
		}
		all = append(all, fmt.Sprint(id, state, c.Logged, c.Redelivered, name(c.Body), c.Size, m.Moment(p), owner, c.History, counts, row.TTL, row.Reason, row.DiedAt))
	})
	return all
}

func sameLines(t *testing.T, what string, wrote, read []string) {
	t.Helper()
	for i := range max(len(wrote), len(read)) {
		if i >= len(wrote) || i >= len(read) || wrote[i] != read[i] {
			t.Fatalf("%s: of %d entries %d are read; entry %d was %v, is %v", what, len(wrote), len(read), i, wrote[min(i, len(wrote)):min(i+1, len(wrote))], read[min(i, len(read)):min(i+1, len(read))])
		}
	}
}

// FuzzPagesAreReadBackEqual: a checkpoint of a queue (pages, summaries, deltas and the rest) restores the queue,
// whatever the values are.
func FuzzPagesAreReadBackEqual(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := drawing(seed)
		m, s := queueByChance(d, pick(d, index.Commands, index.Outcomes))
		for round := range 3 { // the second has smaller and split pages
			what := fmt.Sprintf("checkpoint %d", round+1)
			wrote, totals, returns := told(m), m.Totals(), m.Returned()
			back := checkpointed(t, m, s)
			if err := back.Check(); err != nil && m.pages.Log == index.Outcomes { // the consumers are not restored yet
				t.Fatalf("%s: %v", what, err)
			}
			if m.pages.Log == index.Commands && back.Totals() != totals {
				t.Fatalf("%s: the totals were %+v, are %+v", what, totals, back.Totals())
			}
			sameLines(t, what, wrote, told(back))
			if back.StateHash() != m.StateHash() || !slices.Equal(back.Returned(), returns) {
				t.Fatalf("%s: the hash was %x and is %x, the returns were %v and are %v", what, m.StateHash(), back.StateHash(), returns, back.Returned())
			}
			if !slices.Equal(back.Next(), m.Next()) {
				t.Fatalf("%s: the lanes go on with the numbers %d, want %d", what, back.Next(), m.Next())
			}
			var ids []ID
			m.Each(false, func(id ID, p index.Place) {
				if p.State() == index.Ready && d.IntN(3) == 0 {
					ids = append(ids, id)
				}
			})
			for _, id := range ids {
				m.Remove(id, m.Find(id))
			}
			if d.bool() {
				m.SweepAgain(true)
				m.PutAway(math.MaxInt, true)
			}
		}
	})
}

// withConsumers adds consumers that hold the deliveries that are out, and detached ones.
func withConsumers(d draw, m *Machine) {
	number := uint64(0)
	for range d.IntN(5) {
		number += 1 + d.Uint64N(1<<60)
		c := &Consumer{
			Number: number, Tag: pick(d, "", "t", strings.Repeat("t", 255), "\x00", "\xff"), NoAck: d.bool(), Exclusive: d.bool(), Metered: d.bool(),
			Priority: d.int64(), Prefetch: int(d.uint32()), Timeout: d.moment(),
		}
		m.cs.attach(c)
		c.order, c.stale, c.credit = d.uint64(), int(d.uint32()), int(d.uint32())
		c.out = 1 + int(d.uint32())
		for range d.IntN(3) {
			c.outs = append(c.outs, outstanding{ID(d.uint64()), d.uint32(), d.moment()})
		}
		if d.IntN(3) == 0 {
			m.cs.detach(c)
		}
	}
	m.cs.count = d.uint64()
}

// FuzzSnapshotsAreReadBackEqual: a snapshot restores the queue, and the restored queue has the same snapshot.
func FuzzSnapshotsAreReadBackEqual(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := drawing(seed)
		m, _ := queueByChance(d, index.Commands)
		sound := m.Check() == nil // otherwise deliveries have slots of no consumer
		withConsumers(d, m)
		bytesOf := func(ref message.Ref) []byte { return binary.AppendUvarint(nil, uint64(ref)) }
		entries, rest := m.AppendEntries(nil, bytesOf, bytesOf), m.AppendRest(nil)
		back := New(m.config, m.settings, &Pages{Log: index.Commands}, &restored{}, m.born)
		keep := func(b []byte, _ bool, _ int) (message.Ref, error) {
			ref, _ := binary.Uvarint(b)
			return message.Ref(ref), nil
		}
		left, err := back.RestoreEntries(append(bytes.Clone(entries), "left"...), keep)
		if err != nil || string(left) != "left" {
			t.Fatalf("the entries: %v, %q is left", err, left)
		}
		if left, err = back.RestoreRest(append(bytes.Clone(rest), "left"...), func(*Consumer) {}); err != nil || string(left) != "left" {
			t.Fatalf("the rest: %v, %q is left", err, left)
		}
		if err := back.Check(); err != nil && sound && len(m.cs.slots) == 0 {
			t.Fatal(err)
		}
		sameLines(t, "the snapshot", told(m), told(back))
		if again := back.AppendEntries(nil, bytesOf, bytesOf); !bytes.Equal(again, entries) {
			t.Fatalf("the entries were\n%x, are\n%x", entries, again)
		}
		if again := back.AppendRest(nil); !bytes.Equal(again, rest) {
			t.Fatalf("the rest was\n%x, is\n%x", rest, again)
		}
	})
}

// FuzzDecodeSnapshot: nonsense instead of a snapshot is an error, and takes no more memory than its own size.
func FuzzDecodeSnapshot(f *testing.F) {
	bytesOf := func(ref message.Ref) []byte { return binary.AppendUvarint(nil, uint64(ref)) }
	for seed := range uint64(20) {
		d := drawing(seed)
		m, _ := queueByChance(d, index.Commands)
		withConsumers(d, m)
		f.Add(m.AppendEntries(nil, bytesOf, bytesOf), m.AppendRest(nil))
	}
	f.Fuzz(func(t *testing.T, entries, rest []byte) {
		m := New(Config{Type: Quorum, Durable: true, MaxPriority: -1}, Unlimited(), &Pages{Log: index.Commands}, &restored{}, 1)
		if _, err := m.RestoreEntries(entries, func([]byte, bool, int) (message.Ref, error) { return diskBit, nil }); err != nil {
			return
		}
		if _, err := m.RestoreRest(rest, func(*Consumer) {}); err != nil {
			return
		}
		_ = m.AppendRest(m.AppendEntries(nil, bytesOf, bytesOf))
	})
}

// FuzzRestoreMeta: nonsense instead of a queue's state beside its pages is an error.
func FuzzRestoreMeta(f *testing.F) {
	for seed := range uint64(20) {
		m, s := queueByChance(drawing(seed), index.Log(1-seed%2))
		save(m)
		for _, b := range s.metas {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := New(Config{Type: Quorum, Durable: true, MaxPriority: -1}, Unlimited(), &Pages{}, &restored{}, 1)
		err := m.RestoreMeta(b)
		if list, _ := m.Listed(); err == nil && len(list) > len(b) {
			t.Fatalf("%d returns of %d bytes", len(list), len(b))
		}
	})
}
