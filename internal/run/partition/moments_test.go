package partition

import (
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
)

// The worker of a queue whose next moment is ages away sleeps.
func TestTheWorkerSleepsUntilAMomentAgesAway(t *testing.T) {
	for _, span := range []int64{1 << 53, 1 << 62, math.MaxInt64 - 1, math.MaxInt64} {
		defs := []definition{{"q", classic, settings(func(s *queue.Settings) { s.Expires = span }), DeadLetter{}}}
		w := open(t, vfs.NewCrashableMem(), defs, nil, 1_700_000_000_000, nil)
		p := w.queues["q"].part
		if got := p.untilDue(); got != lookAgain {
			t.Errorf("expires %d: the worker sleeps %v, want the longest sleep", span, got)
		}
		if at := w.queues["q"].due; at < w.now || at > moment.Never {
			t.Errorf("expires %d: due at %d", span, at)
		}
		w.close()
	}
}
