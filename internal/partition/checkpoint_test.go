package partition

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// A checkpoint is written when so many operations are in the journal, however few bytes
// and however little time they took; and not again before there are as many more.
func TestCheckpointsByOperations(t *testing.T) {
	w := open(t, vfs.NewCrashableMem(), []definition{{"q", classic, queue.Unlimited(), DeadLetter{}}}, nil, 1_700_000_000_000, nil)
	w.n.CheckpointOperations = 200 // of which a message takes two here, with the hash of its queue
	q, serial := w.queues["q"], message.Serial(0)
	publish := func(n int) {
		for range n {
			serial++
			w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1}})
		}
		if err := w.j.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	written := func(want bool) {
		t.Helper()
		if got := w.n.checkpointIfDue(time.Now()); got != want {
			t.Errorf("after %d messages a checkpoint is written: %v", serial, got)
		}
	}
	publish(99)
	written(false)
	publish(1)
	written(true)
	written(false)
	publish(99)
	written(false)
	// Each entry of a run of settlements is one.
	if n, err := w.n.Purge(q); n != 199 || err != nil {
		t.Fatal(n, err)
	}
	written(true)
	w.close()
}
