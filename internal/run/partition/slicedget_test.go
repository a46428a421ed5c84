package partition

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/core/queue"
)

// BR-9.10, DL-8.4: a get lets due messages die in slices, with other commands in between, and returns no expired
// message.
func TestBR_9_10_AGetLetsOnlySoManyDieAtATime(t *testing.T) {
	const messages, most = 5*sliceLimit + 10, 2 * sliceLimit
	for _, source := range []queue.Config{classic, quorum} {
		for _, strict := range []bool{false, true} {
			source.Strict = strict
			t.Run(fmt.Sprintf("%s, strict %v", source.Type, strict), func(t *testing.T) {
				f := newFleet(t, []definition{{"q", source, queue.Unlimited(), DeadLetter{}}}, nil)
				q := f.queues["q"]
				for range messages {
					f.publish("q", nil, 1000)
				}
				f.publish("q", nil, -1)
				f.quiesce()
				f.now.Add(5000)
				rounds, left := 0, messages+1
				step := func() (again bool) {
					ok := false
					if q.Replicated() {
						_ = q.group().tell(func(w *commandWriter) { q.part.driver.getting(true).write(w, q.Incarnation) })
						f.quiesce()
						ok, again = q.m.Totals().Ready == 0, q.m.Totals().Ready > 0
					} else {
						var a ask
						_ = q.part.driver.do(q, q.part.driver.getting(true), &a)
						ok, again = a.ok, a.again
					}
					now := q.m.Totals().Ready
					if left-now > most+1 {
						t.Errorf("%d went in one hold, want %d at most", left-now, most)
					}
					left = now
					if ok == again {
						t.Errorf("got %v, and again %v", ok, again)
					}
					return again
				}
				for rounds = 1; step(); rounds++ {
				}
				if rounds < messages/most || left != 0 {
					t.Errorf("%d holds, %d are left; want %d holds and none", rounds, left, messages/most)
				}
			})
		}
	}
}

// A command of many ticks handles a slice over all its queues, and about one more, because their group waits
// meanwhile. The rest comes with the next command.
func TestACommandOfManyTicksHandlesASlice(t *testing.T) {
	const queues, each = 8, sliceLimit / 2
	var defs []definition
	for k := range queues {
		defs = append(defs, definition{fmt.Sprint(k), quorum, queue.Unlimited(), DeadLetter{}})
	}
	f := newFleet(t, defs, nil)
	for k := range queues {
		for range each {
			f.publish(fmt.Sprint(k), nil, 1000)
		}
	}
	f.quiesce()
	f.now.Add(5000)
	ready := func() (n int) {
		for _, q := range f.queues {
			n += q.m.Totals().Ready
		}
		return n
	}
	_ = f.queues["0"].group().tell(func(w *commandWriter) {
		for k := range queues {
			w.op(cmdTick, f.queues[fmt.Sprint(k)].Incarnation)
		}
	})
	f.quiesce()
	want := (queues - 2) * each
	if left := ready(); left != want {
		t.Errorf("%d are left by a command, want %d", left, want)
	}
	f.agree()
	f.work()
	if left := ready(); left != 0 {
		t.Errorf("%d are left in the end", left)
	}
	f.agree()
}
