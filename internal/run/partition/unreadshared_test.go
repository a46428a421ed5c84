package partition

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/run/bodies"
)

// A dead letter on its way to two queues of another log that cannot be read for long is not lost: it goes to both
// once it can be read.
func TestSharedMailWaitsForUnreadRecord(t *testing.T) {
	for _, tc := range []struct {
		name          string
		source, other queue.Config
	}{
		{"from a group", quorum, classic},
		{"from the local partitions", classic, quorum},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var unread atomic.Bool
			u := newFleet(t, []definition{
				dying("q", tc.source, "x"),
				{"a", tc.other, queue.Unlimited(), DeadLetter{}}, {"b", tc.other, queue.Unlimited(), DeadLetter{}},
			}, table{"x": {"a", "b"}})
			keep, err := bodyfile.OpenKeep(errorfs.Wrap(u.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if unread.Load() && (op.Kind == errorfs.OpOpen || op.Kind == errorfs.OpFileReadAt) {
					return syscall.EMFILE
				}
				return nil
			})), "keep", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(keep.Close)
			n := u.leader
			n.bodies.Attach(bodies.Disk{Journal: n.Journal, Keep: keep})
			u.die("q", 5)
			out, err := keep.Create()
			if err != nil {
				t.Fatal(err)
			}
			var at message.Location
			var serial message.Serial
			eachOutbox(n, func(b *outbox.Outbox) {
				for i := range b.Waiting() {
					was := b.Waiting()[i].Body
					record := message.Record(n.bodies.Bytes(was))
					if at == 0 && i > 1 {
						offset, err := out.Append(record)
						if err != nil {
							t.Fatal(err)
						}
						at, serial = message.MakeLocation(message.InKeep, out.Number(), offset), record.Serial()
					}
					if at != 0 && record.Serial() == serial {
						b.Waiting()[i].Body = n.bodies.Adopt(at)
						n.bodies.Release(was)
					}
				}
			})
			if err := out.Finish(); err != nil {
				t.Fatal(err)
			}
			unread.Store(true)
			try := func() {
				for _, o := range n.allOutboxes() {
					o.sendAll()
				}
				u.quiesce()
			}
			try()
			u.now.Add(sendWaits.Milliseconds() + 1)
			try()
			unread.Store(false)
			n.RetryAllHeld()
			u.work()
			for _, name := range []string{"a", "b"} {
				if c := n.Counts(u.queues[name]); c.Ready != 5 {
					t.Errorf("%s has %d messages of 5", name, c.Ready)
				}
			}
			c := n.Counts(u.queues["q"])
			t.Logf("source: %d messages, stranded %d, set aside %d, dead %v", c.Messages(), c.Stranded, c.Stats.SetAside, c.Stats.Dead)
		})
	}
}
