package partition

import (
	"testing"

	"bartleby.mq/internal/core/queue"
)

// DL-8.4: one command lets only a slice of expired heads of a strict queue die, because the other commands of its
// group wait meanwhile.
func TestDL_8_4_ACommandLetsOnlySoManyHeadsDie(t *testing.T) {
	const messages = sliceLimit + 10
	strict := quorum
	strict.Strict = true
	f := newFleet(t, []definition{{"q", strict, queue.Unlimited(), DeadLetter{}}}, nil)
	q := f.queues["q"]
	for range messages {
		f.publish("q", nil, 1000)
	}
	f.quiesce()
	f.now.Add(5000)
	_ = q.group().tell(func(w *commandWriter) { w.op(cmdTick, q.Incarnation) })
	f.quiesce()
	if left := q.m.Totals().Ready; left != messages-sliceLimit {
		t.Errorf("%d are left by a command, want %d", left, messages-sliceLimit)
	}
	f.agree()
	f.work() // the rest is due
	if left := q.m.Totals().Ready; left != 0 {
		t.Errorf("%d are left in the end", left)
	}
	f.agree()
}

// DL-12.7: one command takes back only a slice of timed-out deliveries, because the other commands of its group wait
// meanwhile.
func TestDL_12_7_ACommandTakesOnlySoManyBack(t *testing.T) {
	const messages = sliceLimit + 10
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
	_ = q.group().tell(func(w *commandWriter) { w.op(cmdTick, q.Incarnation) })
	f.quiesce()
	if n := q.m.Totals(); n.Out != messages-sliceLimit {
		t.Errorf("%d are left by a command, want %d", n.Out, messages-sliceLimit)
	}
	f.agree()
	f.work() // the rest is due
	if n := q.m.Totals(); n.Out != 0 {
		t.Errorf("%d are left in the end", n.Out)
	}
	f.agree()
}
