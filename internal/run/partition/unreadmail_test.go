package partition

import (
	"slices"
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

// unreadMail is a queue whose dead are on their way to a target in another log. One of them is in a file that cannot
// be read, for a reason that may pass.
type unreadMail struct {
	*fleet
	unread atomic.Bool
	serial message.Serial // of that one
}

func newUnreadMail(t *testing.T, source, other queue.Config, held bool) *unreadMail {
	d := dying("q", source, "x")
	if d.settings.AtLeastOnce = held; held {
		d.settings.Overflow = queue.RejectPublish
	}
	u := &unreadMail{fleet: newFleet(t, []definition{d, {"target", other, queue.Unlimited(), DeadLetter{}}}, table{"x": {"target"}})}
	keep, err := bodyfile.OpenKeep(errorfs.Wrap(u.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if u.unread.Load() && (op.Kind == errorfs.OpOpen || op.Kind == errorfs.OpFileReadAt) {
			return syscall.EMFILE
		}
		return nil
	})), "keep", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(keep.Close)
	u.leader.bodies.Attach(bodies.Disk{Journal: u.leader.Journal, Keep: keep})
	u.die("q", 5)
	u.onDisk(keep, 1, held)
	u.unread.Store(true)
	return u
}

// onDisk moves the record of the i-th entry on its way to a file of the keep.
func (u *unreadMail) onDisk(keep *bodyfile.Keep, i int, held bool) {
	n := u.leader
	out, err := keep.Create()
	if err != nil {
		u.t.Fatal(err)
	}
	eachOutbox(n, func(b *outbox.Outbox) {
		e := &b.Waiting()[i]
		record := message.Record(n.bodies.Bytes(e.Body))
		u.serial = record.Serial()
		offset, err := out.Append(record)
		if err != nil {
			u.t.Fatal(err)
		}
		n.bodies.Release(e.Body)
		at := message.MakeLocation(message.InKeep, out.Number(), offset)
		e.Body = n.bodies.Adopt(at)
		if !held {
			return
		}
		q := u.queues["q"]
		v, _ := q.m.View(e.ID)
		q.m.Relocate(e.ID, v.Body, n.bodies.Adopt(at))
		n.bodies.Release(v.Body)
	})
	if err := out.Finish(); err != nil {
		u.t.Fatal(err)
	}
}

// try runs each sender once, and says whether everything was sent.
func (u *unreadMail) try() (all bool) {
	all = true
	for _, o := range u.leader.allOutboxes() {
		all = o.sendAll() && all
	}
	u.quiesce()
	return all
}

// arrived returns the messages of the target, in order.
func (u *unreadMail) arrived() (list []message.Serial) {
	_, _, err := u.leader.Browse(u.queues["target"], queue.Cursor{}, 100, func(_ queue.View, r message.Record, _ []byte) bool {
		list = append(list, r.Serial())
		return true
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return list
}

// A message on its way that cannot be read for a moment holds up only later ones, and the order stays. After a while
// it holds up nothing: later messages pass it, and it goes when it can be read, at a retry of stranded messages.
func TestMailWaitsForUnreadRecordForAWhile(t *testing.T) {
	for _, tc := range []struct {
		name          string
		source, other queue.Config
		held          bool
	}{
		{"from a group", quorum, classic, false},
		{"from the local partitions", classic, quorum, false},
		{"from a group that holds it", quorum, classic, true},
		{"from the local partitions that hold it", classic, quorum, true},
	} {
		for _, long := range []bool{false, true} {
			name := tc.name + ", for a moment"
			if long {
				name = tc.name + ", for long"
			}
			t.Run(name, func(t *testing.T) {
				u := newUnreadMail(t, tc.source, tc.other, tc.held)
				want := []message.Serial{u.serial - 1}
				expect := func(when string) {
					t.Helper()
					if got := u.arrived(); !slices.Equal(got, want) {
						t.Fatalf("%s: %v have arrived, want %v", when, got, want)
					}
				}
				for range 2 {
					if u.try() {
						t.Fatal("the senders say that they have sent all")
					}
					expect("while it cannot be read")
					u.now.Add(sendWaits.Milliseconds() - 1)
				}
				if long {
					u.now.Add(1)
					u.try()
					want = append(want, u.serial+1, u.serial+2, u.serial+3)
					expect("after a while")
					want = append(want, u.serial)
				} else {
					want = append(want, u.serial, u.serial+1, u.serial+2, u.serial+3)
				}
				u.unread.Store(false)
				u.leader.RetryAllHeld()
				u.work()
				expect("when it can be read")
				if c := u.leader.Counts(u.queues["q"]); c.Messages() != 0 || c.Transit != 0 || c.Stranded != 0 || c.Stats.SetAside != 0 {
					t.Errorf("%+v is left", c)
				}
				u.agree()
			})
		}
	}
}

// The time counts from when everything could be read.
func TestMailWaitsAnewForAnotherUnreadRecord(t *testing.T) {
	u := newUnreadMail(t, quorum, classic, false)
	box := func() (since int64) {
		for _, o := range u.leader.allOutboxes() {
			for _, t := range o.unread {
				since = max(since, t)
			}
		}
		return since
	}
	u.try()
	if since := box(); since != u.now.Load() {
		t.Errorf("cannot be read since %d, want %d", since, u.now.Load())
	}
	u.unread.Store(false)
	u.work()
	if since := box(); since != 0 {
		t.Errorf("all could be read, and something cannot since %d", since)
	}
}
