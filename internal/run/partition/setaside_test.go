package partition

import (
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/bodyfile"
)

// A message whose record is lost on its way to another log does not hold up later messages. It is stranded, and set
// aside at the next retry. If its queue holds it for its targets, the queue finds out.
func TestMailPassesLostRecord(t *testing.T) {
	for _, tc := range []struct {
		name          string
		source, other queue.Config
		held          bool
	}{
		{"from a group", quorum, classic, false},
		{"from the local partitions", classic, quorum, false},
		{"from a group that holds it", quorum, classic, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := dying("q", tc.source, "x")
			if d.settings.AtLeastOnce = tc.held; tc.held {
				d.settings.Overflow = queue.RejectPublish
			}
			f := newFleet(t, []definition{d, {"target", tc.other, queue.Unlimited(), DeadLetter{}}}, table{"x": {"target"}})
			n := f.leader
			n.Aside = bodyfile.NewAside(f.fs, "set-aside")
			f.die("q", 5)
			nowhere := message.MakeLocation(message.InKeep, 77, 32)
			eachOutbox(n, func(b *outbox.Outbox) {
				e := &b.Waiting()[1]
				n.bodies.Release(e.Body)
				e.Body = n.bodies.Adopt(nowhere)
				if !tc.held {
					return
				}
				q := f.queues["q"]
				v, _ := q.m.View(e.ID)
				q.m.Relocate(e.ID, v.Body, n.bodies.Adopt(nowhere))
				n.bodies.Release(v.Body)
			})
			f.work()
			if got := f.ready("target"); got != 4 {
				t.Fatalf("%d messages have arrived, want 4", got)
			}
			if got := n.Stranded(); got != 1 && !tc.held {
				t.Errorf("%d are stranded, want 1", got)
			}
			n.RetryAllHeld()
			f.work()
			if c := n.Counts(f.queues["q"]); c.Messages() != 0 || c.Stats.SetAside != 1 || n.SetAsides() != 1 || n.Aside.Count() != 1 {
				t.Errorf("%d messages are left, %d of the queue and %d of all were set aside, in %d files; want 0, 1, 1 and 1",
					c.Messages(), c.Stats.SetAside, n.SetAsides(), n.Aside.Count())
			}
			if live, _ := n.bodies.Live(nowhere.Space(), nowhere.Segment()); live != 0 {
				t.Errorf("%d references to the place are left", live)
			}
			f.agree()
		})
	}
}
