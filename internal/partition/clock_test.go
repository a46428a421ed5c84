package partition

import (
	"testing"

	"bartleby.mq/internal/cluster"
	"bartleby.mq/internal/queue"
)

// A clock that is a day ahead for one command does not stop the time of a group until
// the others have got there: neither for who goes on, nor for who starts from a snapshot.
func TestAClockThatWasAheadStopsNothing(t *testing.T) {
	const day, now = 24 * 3600 * 1000, 1_750_000_000_000
	for _, restart := range []bool{false, true} {
		n, fatal := follower(t)
		g, number := n.groups[0].group, uint64(0)
		apply := func(at int64, build func(w *commandWriter)) {
			var w commandWriter
			w.begin(7, at)
			build(&w)
			number++
			g.Apply([]cluster.Entry{{Index: number, Term: 1, Data: append([]byte(nil), w.numbered(number)...)}})
		}
		apply(now, func(w *commandWriter) {
			w.create(&Queue{Incarnation: 1, VHost: "/", Name: "q", wanted: wanted{settings(func(s *queue.Settings) {
				s.TTL, s.Retry = 1000, queue.Retry{Type: queue.RetryAll, Min: 100, Max: 100}
			}), DeadLetter{}}})
		})
		apply(now+day, func(w *commandWriter) { w.op(cmdTouch, 1) })
		if restart {
			state, err := g.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			other, otherFatal := follower(t)
			if err := other.groups[0].group.Restore(state, 0); err != nil {
				t.Fatal(err)
			}
			g, fatal = other.groups[0].group, otherFatal
		}
		apply(now+1, func(w *commandWriter) {
			w.publish(-1, -1, 0, recordFor(1, "a"))
			w.uint(1)
			w.uint(1)
		})
		q := g.p.queues[1]
		if q.m.NextDue() > now+5000 {
			t.Errorf("restart %v: the message is due %d ms too late", restart, q.m.NextDue()-now-1001)
		}
		apply(now+2000, func(w *commandWriter) { w.op(cmdTick, 1) })
		if ready := q.m.Totals().Ready; *fatal != nil || ready != 0 {
			t.Errorf("restart %v: %d messages outlive their time; %v", restart, ready, *fatal)
		}
		// Clocks that differ a little do not make time go back.
		apply(now+1000, func(w *commandWriter) { w.op(cmdTouch, 1) })
		if g.clock != now+2000 {
			t.Errorf("restart %v: the clock is %d", restart, g.clock-now)
		}
	}
}
