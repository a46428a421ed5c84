package partition

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/core/queue"
)

// DL-13.10: at-least-once is switched off while a death is held and another log was asked to take it. It arrives
// once. If its target refused, it is retried like any death, beyond the limit of a quorum queue (DL-6.12).
func TestHeldDeathWhenAtLeastOnceEnds(t *testing.T) {
	for _, source := range []queue.Config{quorum, classic} {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprintf("from %v, target full %t", source.Type, full), func(t *testing.T) {
				limit := int64(10)
				if full {
					limit = 0
				}
				held := func(s *queue.Settings) { s.DeadLetter, s.AtLeastOnce, s.Overflow = true, true, queue.RejectPublish }
				dead := DeadLetter{Exchange: "x"}
				f := newFleet(t, []definition{
					{"q", source, settings(held), dead},
					{"f", quorum, settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = limit, queue.RejectPublish }), DeadLetter{}},
				}, table{"x": {"f"}})
				if f.queues["q"].part.outboxes == f.queues["f"].part.outboxes {
					t.Fatal("both are in one log")
				}
				f.die("q", 1)
				if c := f.leader.Counts(f.queues["q"]); c.Held != 1 {
					t.Fatalf("%d deaths are held", c.Held)
				}
				f.leader.Configure(f.queues["q"], settings(func(s *queue.Settings) { held(s); s.AtLeastOnce = false }), dead)
				f.quiesce()
				for f.route() {
				}
				f.leader.RetryAllHeld()
				f.work()
				f.leader.RetryAllHeld() // the one that was refused
				f.work()
				if n := f.ready("f"); n != 1 {
					t.Errorf("it is %d times in its target", n)
				}
				if c := f.leader.Counts(f.queues["q"]); c.Messages() != 0 {
					t.Errorf("its queue has %d messages", c.Messages())
				}
				f.agree()
			})
		}
	}
}
