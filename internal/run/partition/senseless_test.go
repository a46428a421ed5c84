package partition

import (
	"bytes"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/cluster"
)

func recordFor(serial message.Serial, text string) []byte {
	e := message.Envelope{Serial: serial, Key: []byte("key"), Properties: []byte{0, 0}, BodySize: len(text)}
	r := make([]byte, e.Size())
	copy(e.Put(r), text)
	return r
}

// Content of a frame that makes no sense, although its checksum is right, is skipped, and everything around it
// counts. An earlier release has written negative moments, and records whose lengths had overflowed.
func TestWhatMakesNoSenseInAFrameIsPassedOver(t *testing.T) {
	torn := recordFor(9, "torn")
	torn[16], torn[17], torn[18], torn[19] = 0xff, 0xff, 0xff, 0xff // lengths that do not add up
	if message.CheckRecord(torn) == nil {
		t.Fatal("the record is none of those meant")
	}
	negative := uint64(1<<63 + 12345)
	for name, c := range map[string]struct {
		write func(f *frame)
		rest  bool // the rest of the frame is known
		want  int  // number of messages of c
	}{
		"a negative moment of a return": {func(f *frame) {
			f.deliver(1, 1)
			f.begin(opReturn)
			for _, v := range []uint64{1, 1, 1, 1, negative} {
				f.uint(v)
			}
		}, true, 2},
		"a negative moment of a publish": {func(f *frame) {
			f.begin(opPublish)
			f.record(0, recordFor(9, "x"))
			for _, v := range []uint64{2, 1, 7, negative, 1, 8, 5} {
				f.uint(v)
			}
		}, true, 2},
		"a record whose lengths wrapped": {func(f *frame) {
			f.begin(opPublish)
			f.uint(uint64(len(torn)))
			f.b = append(f.b, torn...)
			for _, v := range []uint64{1, 1, 7, 0} {
				f.uint(v)
			}
		}, true, 2},
		"an entry of a lane that is not there": {func(f *frame) {
			f.publish(0, recordFor(9, "x"), 1)
			f.target(1, 255<<56|1, 0)
		}, true, 2},
		"a reason that is none":     {func(f *frame) { f.hold(1, 1, 200, 5) }, true, 2},
		"a run without end":         {func(f *frame) { f.begin(opSettle); f.uint(1); f.uint(1); f.uint(1 << 40) }, true, 2},
		"an operation that is none": {func(f *frame) { f.begin(99) }, false, 1},
		"a length beyond the frame": {func(f *frame) { f.begin(opPublish); f.uint(1 << 30) }, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var f frame
			f.reset()
			f.publish(0, recordFor(1, "before"), 1)
			f.target(1, 1, 0)
			c.write(&f)
			f.publish(0, recordFor(2, "behind"), 1)
			f.target(1, 2, 0)
			payload := bytes.Clone(f.bytes())
			w, err := redo(t, payload)
			if err != nil {
				t.Fatal(err)
			}
			w.settle()
			if name != "a negative moment of a publish" { // its other target may be there or not
				if got := w.n.Counts(w.queues["c"]).Ready; got != c.want {
					t.Errorf("%d messages are there, want %d", got, c.want)
				}
			}
			list, total := w.n.Senseless()
			if total != 1 || len(list) != 1 || list[0].Pos == 0 || list[0].From <= 1 || list[0].To <= list[0].From {
				t.Errorf("set aside: %d: %+v", total, list)
			}
			if whole := list[0].To == len(payload); whole == c.rest {
				t.Errorf("passed over up to %d of %d", list[0].To, len(payload))
			}
			w.check(0)
			_ = w.j.Close()
		})
	}
}

// The rest of a command that makes no sense has no effect on any replica, and a waiting caller gets an error.
func TestWhatMakesNoSenseInACommandIsPassedOverByEveryReplica(t *testing.T) {
	torn := recordFor(9, "torn")
	torn[16], torn[17], torn[18], torn[19] = 0xff, 0xff, 0xff, 0xff
	command := func(number uint64, build func(w *commandWriter)) []byte {
		var w commandWriter
		w.begin(7, 1000)
		build(&w)
		return bytes.Clone(w.numbered(number))
	}
	publish := func(w *commandWriter, r []byte) {
		w.publish(-1, -1, 0, r)
		w.uint(1)
		w.uint(1)
	}
	negative := command(6, func(w *commandWriter) { publish(w, recordFor(6, "e")) })
	negative[momentAt+7] = 0x80
	entries := []cluster.Entry{
		{Index: 1, Term: 1, Data: command(1, func(w *commandWriter) {
			w.create(&Queue{Incarnation: 1, VHost: "/", Name: "q", wanted: wanted{queue.Unlimited(), DeadLetter{}}})
			publish(w, recordFor(1, "a"))
		})},
		{Index: 2, Term: 1, Data: command(2, func(w *commandWriter) {
			publish(w, recordFor(2, "b"))
			publish(w, torn)
			publish(w, recordFor(3, "c"))
		})},
		{Index: 3, Term: 1, Data: command(3, func(w *commandWriter) { w.b = append(w.b, 99) })},
		{Index: 4, Term: 1, Data: command(4, func(w *commandWriter) { w.op(cmdAttach, 1) })},
		{Index: 5, Term: 1, Data: []byte{commandVersion, 1, 2}},
		{Index: 6, Term: 1, Data: command(5, func(w *commandWriter) { publish(w, recordFor(4, "d")) })},
	}
	var hashes []uint64
	for range 2 {
		n, fatal := follower(t)
		var kept []Senseless
		n.KeepSenseless = func(s Senseless) error { kept = append(kept, s); return nil }
		g := n.groups[0].group
		g.Apply(entries)
		if *fatal != nil {
			t.Fatal(*fatal)
		}
		if ready := g.p.queues[1].m.Totals().Ready; ready != 3 || len(kept) != 4 || !bytes.Equal(kept[0].Frame, entries[1].Data) || kept[0].Index != 2 || g.applied != 6 {
			t.Errorf("%d messages, want a, b and d; %d set aside, want 4: %+v", ready, len(kept), kept)
		}
		hashes = append(hashes, g.hash())
		g.Apply([]cluster.Entry{{Index: 7, Term: 1, Data: append([]byte{commandVersion + 1}, entries[0].Data[1:]...)}})
		if *fatal == nil {
			t.Error("a command of a later release is passed over")
		}
	}
	if hashes[0] != hashes[1] {
		t.Error("the replicas differ")
	}
}

// Entries from another log are answered even if they make no sense: otherwise they would be sent for ever.
func TestARecordOfAnotherLogThatMakesNoSenseIsRefused(t *testing.T) {
	torn := recordFor(9, "torn")
	torn[16], torn[17], torn[18], torn[19] = 0xff, 0xff, 0xff, 0xff
	n, fatal := follower(t)
	g := n.groups[0].group
	var w commandWriter
	w.begin(7, 1000)
	w.create(&Queue{Incarnation: 1, VHost: "/", Name: "q", wanted: wanted{queue.Unlimited(), DeadLetter{}}})
	w.op(cmdOutIn, 2)
	w.uint(0)
	w.uint(1)
	w.uint(3)
	for _, r := range [][]byte{recordFor(1, "a"), torn, recordFor(2, "b")} {
		w.uint(1)
		w.b = append(w.b, 0)
		w.uint(0)
		w.raw(nil)
		w.raw(r)
	}
	g.Apply([]cluster.Entry{{Index: 1, Term: 1, Data: w.numbered(1)}})
	if box := g.p.outboxes.From(2); *fatal != nil || box.Last() != 3 || len(box.Refusals()) != 1 || box.Refusals()[0] != (outbox.Refusal{Number: 2, Why: outbox.Gone}) || g.p.queues[1].m.Totals().Ready != 2 {
		t.Errorf("%v: %+v, %+v", *fatal, box, g.p.queues[1].m.Totals())
	}
}
