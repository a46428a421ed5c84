package partition

import (
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
)

// everyFrame is a frame with every operation, in an order that makes sense.
func everyFrame() []byte {
	e := message.Envelope{Serial: 7, Key: []byte("key"), Properties: []byte{0, 0}, BodySize: 3}
	r := make([]byte, e.Size())
	copy(e.Put(r), "\a\a\a")
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}}
	h.Record(&deadletter.Event{Queue: "q", Reason: deadletter.Expired, Time: 5, Expiration: -1})
	history := h.Append(nil)
	id := func(seq uint64) queue.ID { return queue.ID(seq) }
	q4 := func(seq uint64) queue.ID { return queue.ID(4<<56 | seq) } // of a quorum queue

	var f frame
	f.reset()
	f.publish(1, r, 3)
	f.target(1, id(1), 0)
	f.target(1, id(2), 1_700_000_000_000)
	f.target(2, q4(1), 0)
	f.deliver(1, id(1))
	f.deliver(1, id(2))
	f.deliver(2, q4(1))
	f.comeBack(2, q4(1), queue.Counts{Deliveries: 1, Acquired: 2}, 1_700_000_000_500)
	f.hold(2, q4(1), uint8(deadletter.Expired), 9)
	_, own, _ := deadletter.Divide(history, nil, nil)
	f.move(1, id(1), &carried{3, 4, own, history}, false, 1)
	f.moveTarget(2, q4(2), 0, 1, 5)
	f.move(2, q4(1), &carried{3, 4, own, history}, true, 1)
	f.moveTarget(1, id(3), 0, 1, 5)
	f.move(1, id(3), &carried{5, 4, own, history}, true, 1)
	f.moveTarget(1, id(5), 0, 1, 5)
	f.b = append(f.b, opCut)
	f.enter(&entered{queue: 1, id: id(4), history: history, record: r, recordRef: 1})
	e2 := entered{queue: 2, id: q4(3), record: r, recordRef: 1}
	e2.r.Returned, e2.r.Redelivered, e2.r.Counts.Acquired = true, true, 1
	f.enter(&e2)
	e3 := entered{queue: 99, id: id(1), record: r, recordRef: 1}
	e3.r.Out = true
	f.enter(&e3)
	f.settle(2, q4(2))
	f.settle(2, q4(3))
	f.settle(1, id(2))
	f.settle(1, id(3))
	return append([]byte(nil), f.bytes()...)
}

// redo writes one frame into a journal and recovers a node from it.
func redo(t testing.TB, payload []byte) (*world, error) {
	fs := vfs.NewMem()
	j, err := journal.Open(journal.Options{FS: fs, Dir: "journal", SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Recover(0, func(journal.Pos, []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := j.Commit(j.Append(payload)); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, fs, []definition{
		{"c", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}},
		{"q", quorum, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}},
	}, table{"x": {"q"}}, 1_700_000_000_000, nil)
	w.lenient.Store(true)
	return w, w.n.Recover()
}

// The frame with everything is repeated, from its beginning to its end.
func TestFrameRoundTrip(t *testing.T) {
	w, err := redo(t, everyFrame())
	if err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.check(0)
	found := map[string]int{}
	for _, places := range w.find() {
		for _, p := range places {
			found[p.queue]++
		}
	}
	// In c entries 4 and 5 are left; in q the held one.
	if found["c"] != 2 || found["q"] != 1 {
		t.Errorf("messages by queue are %v", found)
	}
	_ = w.j.Close()
}

// A frame of another version is refused as a whole.
func TestFramesOfOtherVersionsAreRefused(t *testing.T) {
	payload := everyFrame()
	for payload[0] = range byte(9) {
		w, err := redo(t, payload)
		if known := payload[0] == frameVersion; known != (err == nil) {
			t.Errorf("version %d: %v", payload[0], err)
		}
		_ = w.j.Close()
	}
}

// A frame that is cut short anywhere counts up to there.
func TestFrameTruncated(t *testing.T) {
	whole := everyFrame()
	clean := 0
	for n := range len(whole) {
		w, err := redo(t, whole[:n])
		if err != nil && n > 0 {
			t.Errorf("%d bytes of the frame: %v", n, err)
		}
		if err == nil {
			if _, passed := w.n.Senseless(); passed == 0 {
				clean++
			}
			w.settle()
			w.check(0)
		}
		_ = w.j.Close()
	}
	if clean < 10 || clean > 30 {
		t.Errorf("%d of %d beginnings of the frame are frames", clean, len(whole))
	}
}

// Recovery returns an error or a sound node, whatever a frame contains.
func FuzzFrame(f *testing.F) {
	f.Add(everyFrame()[1:])
	f.Add([]byte{opSettle, 1, 1, 255, 255, 3})
	f.Add([]byte{opHold, 1, 1, 200, 1})
	f.Fuzz(func(t *testing.T, operations []byte) {
		w, err := redo(t, append([]byte{frameVersion}, operations...))
		if err == nil {
			w.settle()
			w.check(0)
		}
		_ = w.j.Close()
	})
}

// Runs of entries become one operation, and end where a reader requires it.
func TestFrameRuns(t *testing.T) {
	var f frame
	f.reset()
	for i := range uint64(maxRun + 10) {
		f.settle(1, queue.ID(i+1))
	}
	f.settle(1, math.MaxUint64>>8)
	f.settle(2, 1)
	f.deliver(2, 2)
	b := f.bytes()
	r := &frameReader{all: b, at: 1}
	var runs []uint64
	for r.more() {
		r.byte()
		r.uint()
		r.id()
		runs = append(runs, r.run())
	}
	want := []uint64{maxRun, 10, 1, 1, 1}
	if r.bad || len(runs) != len(want) {
		t.Fatalf("runs are %v, want %v", runs, want)
	}
	for i := range want {
		if runs[i] != want[i] {
			t.Errorf("runs are %v, want %v", runs, want)
		}
	}
}
