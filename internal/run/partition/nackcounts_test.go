package partition

import (
	"testing"

	"bartleby.mq/internal/core/queue"
)

// DL-12.3: the delayed retry `returned` delays a nack that counts, as in RabbitMQ.
func TestDL_12_3_ANackThatCountsIsDelayedByReturned(t *testing.T) {
	s := queue.Unlimited()
	s.CountNack, s.Retry = true, queue.Retry{Type: queue.RetryReturned, Min: 1000}
	f := newFleet(t, []definition{{"q", quorum, s, DeadLetter{}}}, nil)
	q := f.queues["q"]
	consumer := &queue.Consumer{Tag: "c", Target: &client{}, Prefetch: 1}
	if ok, err := f.leader.Attach(q, consumer, func() {}); !ok {
		t.Fatal(err)
	}
	f.publish("q", nil, -1)
	f.quiesce()
	held := q.m.HeldBy(consumer)
	if len(held) != 1 {
		t.Fatalf("the consumer has %d messages", len(held))
	}
	_ = q.group().tell(func(w *commandWriter) {
		w.giveBack(q.Incarnation, consumer.Number, held[0].ID, queue.ReturnNack, nil, 0)
	})
	f.quiesce()
	if n := q.m.Totals(); n.Delayed != 1 {
		t.Errorf("%d are delayed, want 1", n.Delayed)
	}
	f.agree()
}
