package partition

import (
	"testing"

	"bartleby.mq/internal/core/queue"
)

// DL-8.4: one command lets only a slice of expired heads of a strict queue die, because the other commands of its
// group wait meanwhile. A command of an earlier release does what it did when it was decided.
func TestDL_8_4_ACommandLetsOnlySoManyHeadsDie(t *testing.T) {
	const messages = sliceLimit + 10
	strict := quorum
	strict.Strict = true
	for _, c := range []struct {
		version byte
		left    int
	}{{headsVersion - 1, 0}, {headsVersion, messages - sliceLimit}} {
		f := newFleet(t, []definition{{"q", strict, queue.Unlimited(), DeadLetter{}}}, nil)
		q := f.queues["q"]
		for range messages {
			f.publish("q", nil, 1000)
		}
		f.quiesce()
		f.now.Add(5000)
		tick := func(version byte) {
			_ = q.group().tell(func(w *commandWriter) {
				w.b[0] = version
				w.op(cmdTick, q.Incarnation)
			})
			f.quiesce()
		}
		tick(c.version)
		if left := q.m.Totals().Ready; left != c.left {
			t.Errorf("%d are left by a command of version %d, want %d", left, c.version, c.left)
		}
		f.agree()
		f.work() // the rest is due
		if left := q.m.Totals().Ready; left != 0 {
			t.Errorf("%d are left in the end", left)
		}
		f.agree()
	}
}
