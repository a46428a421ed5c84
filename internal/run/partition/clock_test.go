package partition

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/cluster"
)

// A clock that is a day ahead for one command does not stop a group's time until other clocks get there: not on a
// replica that goes on, and not on one that starts from a snapshot.
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
			g, fatal = restored(t, g)
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

// The same for messages that wait after a failure, also if an earlier message got its moment meanwhile, and for
// deliveries that time out.
func TestRetriesAndTimeoutsOutliveAClockThatWasAhead(t *testing.T) {
	const day, now, wait = 24 * 3600 * 1000, 1_750_000_000_000, 100_000
	const consumer = 5
	id := func(seq uint64) queue.ID { return queue.ID(3<<56 | seq) }
	for _, restart := range []bool{false, true} {
		for _, meanwhile := range []bool{false, true} {
			for _, what := range []string{"retry", "timeout"} {
				if what == "timeout" && meanwhile {
					continue // an open fault: deliveries of a consumer are checked in their order, and the first is not due for a day
				}
				t.Run(fmt.Sprintf("%s, restart %t, meanwhile %t", what, restart, meanwhile), func(t *testing.T) {
					n, fatal := follower(t)
					g, number := n.groups[0].group, uint64(0)
					apply := func(at int64, build func(w *commandWriter)) {
						var w commandWriter
						w.begin(7, at)
						build(&w)
						number++
						g.Apply([]cluster.Entry{{Index: number, Term: 1, Data: append([]byte(nil), w.numbered(number)...)}})
					}
					publish := func(w *commandWriter) {
						w.publish(-1, 3, 0, recordFor(1, "a"))
						w.uint(1)
						w.uint(1)
					}
					end := func(w *commandWriter, seq uint64) {
						if what == "retry" {
							w.giveBack(1, consumer, id(seq), queue.ReturnNack, nil, 0)
						}
					}
					apply(now, func(w *commandWriter) {
						w.create(&Queue{Incarnation: 1, VHost: "/", Name: "q", wanted: wanted{settings(func(s *queue.Settings) {
							s.Retry = queue.Retry{Type: queue.RetryAll, Min: wait, Max: wait}
						}), DeadLetter{}}})
						c := queue.Consumer{Number: consumer, Tag: "c", Prefetch: 10}
						if what == "timeout" {
							c.Timeout = wait
						}
						w.attach(1, &c, 10)
					})
					apply(now+day, func(w *commandWriter) {
						w.op(cmdTouch, 1)
						if meanwhile {
							publish(w)
							end(w, 1)
						}
					})
					if restart {
						g, fatal = restored(t, g)
					}
					apply(now+1, func(w *commandWriter) {
						publish(w)
						seq := uint64(1)
						if meanwhile {
							seq = 2
						}
						end(w, seq)
					})
					q := g.p.queues[1]
					before := q.m.Totals()
					if due := q.m.NextDue(); due > now+2+wait { // a wait ends with the next millisecond
						t.Errorf("the message is due %d ms too late", due-now-1-wait)
					}
					apply(now+wait, func(w *commandWriter) { w.op(cmdTick, 1) })
					if early := q.m.Totals(); early != before {
						t.Errorf("before its time it went from %+v to %+v", before, early)
					}
					apply(now+2+wait, func(w *commandWriter) { w.op(cmdTick, 1) })
					after := q.m.Totals()
					moved := before.Out-after.Out == 1 // back from its consumer, or from its wait
					if what == "retry" {
						moved = before.Delayed-after.Delayed == 1
					}
					if !moved || *fatal != nil {
						t.Errorf("at its time it went from %+v to %+v; %v", before, after, *fatal)
					}
				})
			}
		}
	}
}

// restored is the group on another node that has begun with a snapshot of g, and the node's fatal error, if any.
func restored(t *testing.T, g *group) (*group, *error) {
	t.Helper()
	state, err := g.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	n, fatal := follower(t)
	if err := n.groups[0].group.Restore(state, 0); err != nil {
		t.Fatal(err)
	}
	return n.groups[0].group, fatal
}
