package partition

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// DL-13.6: when a change of a classic queue's policy returns, its held deaths were retried with the new settings,
// even if the change itself made messages die. So a deletion right after it loses none.
func TestHeldDeathsAreTriedBeforeAPolicyChangeReturns(t *testing.T) {
	held := settings(func(s *queue.Settings) { s.DeadLetter, s.AtLeastOnce, s.Overflow = true, true, queue.RejectPublish })
	full := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	const messages = 3 * sliceLimit
	for _, ready := range []int{0, 10} {
		t.Run(fmt.Sprintf("%d ready", ready), func(t *testing.T) {
			w := open(t, vfs.NewMem(), []definition{
				{"q", classic, held, DeadLetter{Exchange: "x"}}, {"full", classic, full, DeadLetter{}}, {"other", classic, queue.Unlimited(), DeadLetter{}},
			}, table{"x": {"full"}, "y": {"other"}}, 1000, nil)
			q, other := w.queues["q"], w.queues["other"]
			for i := range messages + ready {
				ttl := int64(-1)
				if i < messages {
					ttl = 5
				}
				w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(message.Serial(i+1), true, 10), TTL: ttl, Priority: -1}})
			}
			w.now += 10
			w.settle()
			if n := w.n.Counts(q).Held; n != messages {
				t.Fatalf("%d are held, want %d", n, messages)
			}
			w.n.Configure(q, settings(func(s *queue.Settings) { s.DeadLetter, s.MaxLength = true, 5 }), DeadLetter{Exchange: "y"})
			if c := w.n.Counts(q); c.Held != 0 {
				t.Errorf("%d are held still", c.Held)
			}
			if n, want := w.n.Counts(other).Ready, messages+max(0, ready-5); n != want {
				t.Errorf("the other target has %d, want %d", n, want)
			}
		})
	}
}
