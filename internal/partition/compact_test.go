package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// A file out of which messages go quickly is left alone: soon it is empty. One that
// has come to rest half empty is not.
func TestCompactionLeavesFilesThatEmptyThemselves(t *testing.T) {
	w := open(t, vfs.NewCrashableMem(), []definition{{"q", classic, queue.Unlimited(), DeadLetter{}}}, nil, 1000, nil)
	q := w.queues["q"]
	const n = 200
	for serial := range message.Serial(n) {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 1000), TTL: -1, Priority: -1}})
	}
	var ids []queue.ID
	for range n {
		d, _, ok, err := w.n.Get(q, false)
		if !ok || err != nil {
			t.Fatalf("Get: %v, %v", ok, err)
		}
		w.n.bodies.Release(d.Body)
		ids = append(ids, d.ID)
	}
	settle := func(from, to int) { // of every ten
		for i, id := range ids {
			if i%10 >= from && i%10 < to {
				w.n.Run([]Op{{Kind: Ack, Queue: q, ID: id}})
			}
		}
	}
	compacts := func(when string, want bool) {
		t.Helper()
		if err := w.n.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if did, err := w.n.Compact(); did != want || err != nil {
			t.Errorf("%s: Compact says %v, %v, want %v", when, did, err, want)
		}
	}
	settle(0, 2)
	compacts("8 of 10 live", false)
	settle(2, 5)
	compacts("5 of 10, it were 8", false)
	compacts("still 5", true)
	if c := w.n.Counts(q); c.Out != n/2 {
		t.Errorf("%d messages are out, want %d", c.Out, n/2)
	}
	w.check(0)
}
