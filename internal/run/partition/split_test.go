package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
)

// However large the messages of a batch or of a slice of deaths are, no frame grows far beyond its bound: the journal
// panics at more than 1 GiB.
func TestFramesAreBounded(t *testing.T) {
	const messages, size = 200, 100 << 10
	defs := []definition{
		{"in", classic, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 }), DeadLetter{Exchange: "out"}},
		{"out", quorum, queue.Unlimited(), DeadLetter{}},
	}
	fs := vfs.NewCrashableMem()
	w := open(t, fs, defs, table{"out": {"out"}}, 1_700_000_000_000, nil)
	ops := make([]Op, messages)
	for i := range ops {
		// Half of them are transient: a death writes those inline.
		ops[i] = Op{Kind: Publish, Targets: []*Queue{w.queues["in"]}, Body: w.record(message.Serial(i+1), i%2 == 0, size), TTL: -1, Priority: -1}
	}
	w.n.Run(ops)
	w.now += 1000
	w.settle()
	if c := w.n.Counts(w.queues["out"]); c.Ready != messages {
		t.Fatalf("%d messages died, want %d", c.Ready, messages)
	}
	w.close()
	w = newWorld(t, fs, defs, w.routes, w.now, nil)
	largest := 0
	err := w.j.Recover(0, func(_ journal.Pos, payload []byte) error {
		largest = max(largest, len(payload))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if largest > frameBytes+2*size {
		t.Errorf("the largest frame has %d bytes, want %d and one message more at most", largest, frameBytes)
	}
	w.close()
	w = open(t, fs, defs, w.routes, w.now, nil)
	if c := w.n.Counts(w.queues["out"]); c.Ready != messages {
		t.Errorf("%d messages are there after recovery, want %d", c.Ready, messages)
	}
	w.close()
}
