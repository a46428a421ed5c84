package partition

import (
	"testing"

	"bartleby.mq/internal/core/queue"
)

// DL-12.7: one command takes back only a slice of timed-out deliveries, because the other commands of its group wait
// meanwhile. A command of an earlier release does what it did when it was decided.
func TestDL_12_7_ACommandTakesOnlySoManyBack(t *testing.T) {
	const messages = sliceLimit + 10
	for _, c := range []struct {
		version byte
		left    int
	}{{timeoutsVersion - 1, 0}, {timeoutsVersion, messages - sliceLimit}} {
		f := newFleet(t, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}}, nil)
		q := f.queues["q"]
		consumer := &queue.Consumer{Tag: "c", Target: &client{}, Timeout: 1000, Prefetch: messages}
		if ok, err := f.leader.Attach(q, consumer, func() {}); !ok {
			t.Fatal(err)
		}
		for range messages {
			f.publish("q", nil, -1)
		}
		f.quiesce()
		if n := q.m.Totals(); n.Out != messages {
			t.Fatalf("%d are out", n.Out)
		}
		f.now.Add(5000)
		_ = q.group().tell(func(w *commandWriter) {
			w.b[0] = c.version
			w.op(cmdTick, q.Incarnation)
		})
		f.quiesce()
		if n := q.m.Totals(); n.Out != c.left {
			t.Errorf("%d are left by a command of version %d, want %d", n.Out, c.version, c.left)
		}
		f.agree()
		f.work() // the rest is due
		if n := q.m.Totals(); n.Out != 0 {
			t.Errorf("%d are left in the end", n.Out)
		}
		f.agree()
	}
}
