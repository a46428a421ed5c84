package partition

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
)

// frameTrips has, for each operation of a frame, a function that writes a random one and what must be read of it.
var frameTrips = map[byte]func(chooser, *frame) Operation{
	opPublish: func(c chooser, f *frame) (o Operation) {
		ref, r := c.kept()
		o = Operation{Kind: "publish", Record: len(r), Serial: message.Record(r).Serial()}
		o.Targets = c.entries()
		o.Count = uint64(len(o.Targets))
		f.publish(ref, r, len(o.Targets))
		for _, t := range o.Targets {
			f.target(t.Queue, t.ID, c.moment())
		}
		return o
	},
	opSettle: func(c chooser, f *frame) Operation {
		return c.run("settle", f.settle)
	},
	opDeliver: func(c chooser, f *frame) Operation {
		return c.run("deliver", f.deliver)
	},
	opReturn: func(c chooser, f *frame) Operation {
		o := c.entry("return")
		f.comeBack(o.Queue, o.First, queue.Counts{Deliveries: c.uint32(), Acquired: c.uint32()}, c.int64())
		return o
	},
	opDelay: func(c chooser, f *frame) Operation {
		o := c.entry("delay")
		f.delay(o.Queue, o.First, c.int64())
		return o
	},
	opMove: func(c chooser, f *frame) Operation {
		o := c.entry("move")
		o.Keeps, o.Targets = c.bool(), c.entries()
		b := c.bytes()
		f.move(o.Queue, o.First, &carried{message.Ref(c.uint64()), 0, b, b}, o.Keeps, len(o.Targets))
		for _, t := range o.Targets {
			f.moveTarget(t.Queue, t.ID, c.moment(), c.uint32(), c.uint32())
		}
		return o
	},
	opAlike: func(c chooser, f *frame) Operation {
		o := c.entry("move")
		f.history, f.common = 8, 9
		f.move(o.Queue, o.First, &carried{7, 9, c.bytes(), c.bytes()}, false, 0)
		return o
	},
	opEnter: func(c chooser, f *frame) Operation {
		o := c.entry("enter")
		ref, r := c.kept()
		e := entered{queue: o.Queue, id: o.First, history: c.bytes(), historyRef: message.Ref(c.IntN(2)), record: r, recordRef: ref}
		o.Record, o.Serial, o.Reason = len(r), message.Record(r).Serial(), []deadletter.Reason{0, deadletter.Expired, deadletter.DeliveryLimit}[c.IntN(3)]
		e.r.Redelivered, e.r.Out, e.r.Returned, e.r.Offered, e.r.Held = c.bool(), c.bool(), c.bool(), c.bool(), o.Reason
		e.r.Due, e.r.NotBefore, e.r.DiedAt = c.int64(), c.int64(), c.int64()
		e.r.Counts = queue.Counts{Deliveries: c.uint32(), Acquired: c.uint32()}
		f.enter(&e)
		return o
	},
	opHold: func(c chooser, f *frame) Operation {
		o := c.entry("hold")
		o.Reason = deadletter.Expired
		f.hold(o.Queue, o.First, uint8(o.Reason), c.int64())
		return o
	},
	opNote: func(c chooser, f *frame) Operation {
		o := c.entry("note")
		f.note(o.Queue, o.First, c.bytes())
		return o
	},
	opMailOut: func(c chooser, f *frame) Operation {
		o := c.entry("mailOut")
		target, at := c.uint64(), c.id()
		o.Targets, o.Reason = []Target{{Queue: target}}, deadletter.Rejected
		f.mailOut(c.uint64(), &outbox.Entry{Number: c.uint64(), Target: target, Source: o.Queue, ID: o.First, Flags: outbox.Flags(c.uint64()), Reason: o.Reason, Failed: c.uint32(), VHost: message.VHost(c.text()), History: message.Ref(c.IntN(2))}, func(message.Ref) []byte { return c.bytes() }, at)
		if at == 0 {
			ref, r := c.kept()
			f.record(ref, r)
			o.Record, o.Serial = len(r), message.Record(r).Serial()
		} else {
			o.First = at
		}
		return o
	},
	opMailAck: func(c chooser, f *frame) Operation {
		f.mailAck(c.uint64(), c.uint64(), c.refusals())
		return Operation{Kind: "mailAck"}
	},
	opMailIn: func(c chooser, f *frame) Operation {
		f.mailIn(c.uint64(), c.uint64(), outbox.Answer(c.uint64()), c.uint64())
		return Operation{Kind: "mailIn"}
	},
	opMailBack: func(c chooser, f *frame) Operation {
		f.mailBack(c.uint64(), c.uint64())
		return Operation{Kind: "mailBack"}
	},
	opTally: func(c chooser, f *frame) Operation {
		change := jobChange{queue: c.uint64(), job: c.uint64() | 1, outcome: JobOutcome(c.IntN(int(jobOutcomes))), n: c.uint64() | 1, logged: true}
		f.tally(&change)
		r := frameReader{all: tallyOperands(&change)}
		if got := r.tally(); got != change || r.bad || r.more() {
			panic(fmt.Sprintf("%+v is read as %+v", change, got))
		}
		return Operation{Kind: "tally", Queue: change.queue, Count: change.n}
	},
	opHash: func(c chooser, f *frame) Operation {
		q := c.uint64()
		f.hash(q, c.uint64())
		return Operation{Kind: "hash", Queue: q}
	},
	opClock: func(c chooser, f *frame) Operation {
		f.clock(c.int64())
		return Operation{Kind: "clock"}
	},
	opCut: func(_ chooser, f *frame) Operation {
		f.begin(opCut)
		return Operation{Kind: "cut"}
	},
}

// kept chooses a record and its reference: often one that the operation before may have had.
func (c chooser) kept() (message.Ref, []byte) {
	if c.bool() {
		return 1, choosing(1).record()
	}
	return message.Ref(c.Uint64() | 2), c.record()
}

// tallyOperands are the bytes behind the code of the operation.
func tallyOperands(c *jobChange) []byte {
	var f frame
	f.tally(c)
	return f.b[1:]
}

func (c chooser) entry(kind string) Operation {
	return Operation{Kind: kind, Queue: c.uint64(), First: c.id(), Count: 1}
}

func (c chooser) entries() (list []Target) {
	for range c.IntN(4) {
		list = append(list, Target{c.uint64(), c.id()})
	}
	return list
}

// run writes that consecutive entries were settled or delivered.
func (c chooser) run(kind string, write func(uint64, queue.ID)) Operation {
	o := c.entry(kind)
	o.Count = []uint64{1, 2, 255, maxRun}[c.IntN(4)]
	for k := range o.Count {
		write(o.Queue, o.First+queue.ID(k))
	}
	return o
}

// Every operation of a frame has a round trip here, so that a new one gets its own.
func TestEveryOperationOfAFrameHasARoundTrip(t *testing.T) {
	const unused = 9 // no longer written
	for code := byte(1); code < opEnd; code++ {
		if frameTrips[code] == nil && code != unused {
			t.Errorf("operation %d has none", code)
		}
	}
}

// FuzzFramesAreReadBackEqual: everything that is written into one frame, in any order, is read back as written, to
// its end, by the reader with which recovery skips operations.
func FuzzFramesAreReadBackEqual(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := choosing(seed)
		var fr frame
		fr.reset()
		var wrote, read []string
		for _, i := range c.Perm(opEnd - 1) {
			if write := frameTrips[byte(1+i)]; write != nil {
				o := write(c, &fr)
				fr.endRun()
				wrote = append(wrote, fmt.Sprintf("%+v", o))
			}
		}
		err := ReadOperations(fr.bytes(), func(o *Operation) { read = append(read, fmt.Sprintf("%+v", *o)) })
		if err != nil {
			t.Fatalf("%v, after %v", err, read)
		}
		for i, w := range wrote {
			if i >= len(read) || read[i] != w {
				t.Fatalf("operation %d: wrote %.400s, read %.400s", i, w, read[min(i, len(read)-1)])
			}
		}
		if len(read) != len(wrote) {
			t.Fatalf("%d operations are read of %d", len(read), len(wrote))
		}
	})
}

// FuzzARecoveredEntryIsAsItWas: recovery makes of an entry what a frame says of it.
func FuzzARecoveredEntryIsAsItWas(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := choosing(seed)
		later := func() int64 { // than the real clock, so that nothing happens
			if c.bool() {
				return 0
			}
			return max(c.moment(), 1<<42)
		}
		h := deadletter.History{Exchange: "x", Keys: []string{"k"}}
		history := h.Append(nil)
		var fr frame
		fr.reset()
		r := c.record()
		id := func(seq uint64) queue.ID { return 4<<56 | queue.ID(seq) }
		due, counts, notBefore := later(), queue.Counts{Deliveries: c.uint32(), Acquired: max(c.uint32(), 1)}, later()
		fr.publish(1, r, 2)
		fr.target(2, id(1), due)
		fr.target(2, id(2), due)
		fr.deliver(2, id(1))
		fr.comeBack(2, id(1), counts, notBefore)
		wait := max(later(), 1<<42)
		fr.delay(2, id(2), wait)
		e := entered{queue: 2, id: id(3), history: history, record: r, recordRef: 1}
		e.r.Due, e.r.NotBefore, e.r.Redelivered, e.r.Returned = later(), later(), true, true
		e.r.Counts = queue.Counts{Deliveries: c.uint32(), Acquired: max(c.uint32(), 1)}
		fr.enter(&e)
		noted := deadletter.Noted(nil, &deadletter.Note{Cause: deadletter.Cause{Error: "why"}})
		fr.note(2, id(2), noted)
		w, err := redo(t, fr.bytes())
		defer func() { _ = w.j.Close() }()
		if err != nil {
			t.Fatal(err)
		}
		if _, n := w.n.Senseless(); n != 0 {
			t.Fatalf("%d operations make no sense", n)
		}
		m := w.queues["q"].m
		for want, got := range map[string]string{
			fmt.Sprint(1, due, counts, notBefore):             entryOf(m, id(1)),
			fmt.Sprint(2, due, queue.Counts{}, wait):          entryOf(m, id(2)),
			fmt.Sprint(3, e.r.Due, e.r.Counts, e.r.NotBefore): entryOf(m, id(3)),
		} {
			if got != want {
				t.Errorf("wrote %s, recovered %s", want, got)
			}
		}
		if v, ok := m.View(id(3)); !ok || string(w.n.historyBytes(v.History)) != string(history) {
			t.Error("the history is another")
		}
		if v, ok := m.View(id(2)); !ok || string(w.n.historyBytes(v.History)) != string(noted) {
			t.Error("the history of what was noted is another")
		}
	})
}

func entryOf(m *queue.Machine, id queue.ID) string {
	v, _ := m.View(id)
	return fmt.Sprint(v.ID.Seq(), v.Due, v.Counts, v.NotBefore)
}
