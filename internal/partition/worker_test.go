package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// What is due does not go ahead of routing for ever: so many deaths wait, and the
// others die when these have been routed.
func TestDeathsWaitForRouting(t *testing.T) {
	defs := []definition{
		{"in", classic, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 }), DeadLetter{Exchange: "out"}},
		{"out", classic, queue.Unlimited(), DeadLetter{}},
	}
	w := open(t, vfs.NewCrashableMem(), defs, table{"out": {"out"}}, 1_700_000_000_000, nil)
	const messages = 3 * mostWaiting
	ops := make([]Op, messages)
	for i := range ops {
		ops[i] = Op{Kind: Publish, Targets: []*Queue{w.queues["in"]}, Body: w.record(message.Serial(i+1), true, 10), TTL: -1, Priority: -1}
	}
	w.n.Run(ops)
	w.now += 1000
	in := w.queues["in"]
	p := in.part
	for range 2 * messages / sliceLimit {
		p.tick()
	}
	if n := in.m.Waiting(); n < mostWaiting || n >= mostWaiting+sliceLimit {
		t.Errorf("%d deaths wait, want about %d", n, mostWaiting)
	}
	if len(p.timers) != 0 {
		t.Error("the worker has something to do before they are routed")
	}
	p.routeLater()
	if n := in.m.Waiting(); n >= mostWaiting || len(p.timers) != 1 {
		t.Errorf("when %d deaths wait the worker has %d queues to look at, want 1", n, len(p.timers))
	}
	w.settle()
	if c := w.n.Counts(w.queues["out"]); c.Ready != messages {
		t.Errorf("%d messages died, want %d", c.Ready, messages)
	}
	w.check(0)
	w.close()
}
