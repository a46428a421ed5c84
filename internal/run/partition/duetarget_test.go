package partition

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// A message is moved to a queue that has room by its ready messages, while delayed ones are due that nobody has
// looked at. Once it was asked for, it is let in.
func TestAMoveToAQueueThatDueMessagesFillIsNotLost(t *testing.T) {
	fs := vfs.NewMem()
	defs := []definition{{"src", classic, queue.Unlimited(), DeadLetter{}}, full("dst", classic, 2)}
	w := open(t, fs, defs, nil, 1_700_000_000_000, nil)
	serial := message.Serial(0)
	publish := func(q string, delay int64) {
		serial++
		ops := []Op{{Kind: Publish, Targets: []*Queue{w.queues[q]}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1, Delay: delay}}
		w.n.Run(ops)
		if ops[0].Refused {
			t.Fatal("refused")
		}
	}
	publish("dst", 0)
	publish("dst", 1000)
	publish("src", 0)
	publish("src", 0)
	w.settle()
	w.now += 1002 // due, but the worker has not run
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: "src"}
	var moves []Move
	_, _, _ = w.n.Browse(w.queues["src"], queue.Cursor{}, 10, func(v queue.View, _ message.Record, _ []byte) bool {
		moves = append(moves, Move{ID: v.ID, Targets: []*Queue{w.queues["dst"]}, History: h.Append(nil)})
		return true
	})
	moved, err := w.n.Move(context.Background(), w.queues["src"], moves)
	t.Log(moved, err)
	found := w.find()
	for s := message.Serial(1); s <= serial; s++ {
		t.Log(s, found[s])
		if len(found[s]) == 0 {
			t.Errorf("message %d is lost; the moves say %v", s, moved)
		}
	}
	w.check(0)
}

// The same for a stranded message that is relocated to a classic queue.
func TestARelocationToAQueueThatDueMessagesFillIsNotLost(t *testing.T) {
	f := newFleet(t, []definition{
		dying("q", classic, "x"), {"gone", quorum, queue.Unlimited(), DeadLetter{}}, full("dst", classic, 2),
	}, table{"x": {"gone"}})
	f.die("q", 1)
	f.remove("gone")
	f.routes["x"] = nil
	f.work()
	if n := f.leader.Stranded(); n != 1 {
		t.Fatal("stranded:", n)
	}
	publish := func(delay int64) {
		f.serial++
		e := message.Envelope{Serial: f.serial, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 8, Persistent: true}
		ref, b := f.leader.bodies.Alloc(e.Size())
		e.Put(b)
		message.Record(b).Seal()
		f.leader.Run([]Op{{Kind: Publish, Targets: []*Queue{f.queues["dst"]}, Body: ref, TTL: -1, Priority: -1, Delay: delay}})
	}
	publish(0)
	publish(1000)
	f.now.Add(1002)
	moved, err := f.leader.Relocate(t.Context(), Relocation{VHost: "/", Target: f.queues["dst"]})
	t.Log("moved", moved, err, "stranded", f.leader.Stranded(), f.places())
	if n := len(f.places()); n != 3 && f.leader.Stranded() != 1 {
		t.Errorf("%d of 3 messages are left, none is stranded", n)
	}
}

// And for one that is routed again by itself.
func TestAStrandedMessageRoutedToAQueueThatDueMessagesFillIsNotLost(t *testing.T) {
	f := newFleet(t, []definition{
		dying("q", classic, "x"), {"gone", quorum, queue.Unlimited(), DeadLetter{}}, full("dst", classic, 2),
	}, table{"x": {"gone"}})
	f.die("q", 1)
	f.remove("gone")
	f.routes["x"] = nil
	f.work()
	publish := func(delay int64) {
		f.serial++
		e := message.Envelope{Serial: f.serial, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 8, Persistent: true}
		ref, b := f.leader.bodies.Alloc(e.Size())
		e.Put(b)
		message.Record(b).Seal()
		f.leader.Run([]Op{{Kind: Publish, Targets: []*Queue{f.queues["dst"]}, Body: ref, TTL: -1, Priority: -1, Delay: delay}})
	}
	publish(0)
	publish(1000)
	f.now.Add(1002)
	f.routes["x"] = []string{"dst"}
	f.leader.RetryStranded()
	if n := len(f.places()); n != 3 && f.leader.Stranded() != 1 {
		t.Errorf("%d of 3 messages are left, none is stranded: %v", n, f.leader.Counts(f.queues["q"]).Stats.Dead)
	}
}
