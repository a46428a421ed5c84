package partition

import (
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// Deaths behind one that cannot be read are routed and forgotten: nobody walks over them again.
func TestNothingIsKeptBehindADeathThatCannotBeRead(t *testing.T) {
	const messages = 3 * sliceLimit
	for _, source := range []queue.Config{classic, quorum} {
		t.Run(source.Type.String(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			defs := []definition{
				{"source", source, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}},
				mailQueue("target", source, "", false),
			}
			w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, defs, table{"x": {"target"}}, func(*mailWorld) {})
			defer w.stop()
			q := w.queues["source"]
			serial := message.Serial(0)
			publish := func() {
				serial++
				w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial), TTL: 0, Priority: -1}})
				w.n.Settle(q)
			}
			leaveDead(t, w, q, publish)
			for range messages {
				publish()
			}
			within(t, "what died behind it has left", func() {
				for w.n.Counts(w.queues["target"]).Ready < messages {
					runtime.Gosched()
				}
				w.n.SettleDeaths(q)
			})
			q.part.mu.Lock()
			defer q.part.mu.Unlock()
			if got := q.m.Waiting(); q.m.HasDeaths() || got != 0 {
				t.Errorf("%d deaths are looked at each time, want none", got)
			}
			if got := q.m.Totals().Dying; got != 1 {
				t.Errorf("%d are dead in the queue, want 1", got)
			}
		})
	}
}
