package api_test

import (
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// shown is a consumer that says whose it is, if its queue can be looked at meanwhile.
type shown struct {
	idle
	t     *testing.T
	b     *broker.Broker
	q     broker.QueueInfo
	asked *atomic.Int64
}

func (s *shown) Info() broker.ConsumerInfo {
	s.asked.Add(1)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		s.b.Counts(s.q)
	}()
	select {
	case <-looked:
	case <-time.After(10 * time.Second):
		s.t.Error("a consumer is shown with its queue locked")
	}
	return broker.ConsumerInfo{User: "guest"}
}

// Lists of queues name the consumers that have one to themselves, and make nothing of all the others.
func TestListsOfQueuesDoNotShowConsumers(t *testing.T) {
	n := start(t)
	n.must("PUT", "/queues/%2F/shared", `{"durable":true}`)
	n.must("PUT", "/queues/%2F/exclusive", `{"durable":true}`)
	n.must("PUT", "/queues/%2F/single", `{"durable":true,"arguments":{"x-single-active-consumer":true}}`)
	n.must("PUT", "/queues/%2F/quorum", `{"durable":true,"arguments":{"x-queue-type":"quorum","x-single-active-consumer":true}}`)
	var asked atomic.Int64
	c := n.b.As("guest", "/")
	for _, k := range []struct {
		queue, tag string
		exclusive  bool
	}{
		{"shared", "a", false}, {"shared", "b", false}, {"exclusive", "a", true},
		{"single", "a", false}, {"single", "b", false}, {"quorum", "a", false}, {"quorum", "b", false},
	} {
		target := &shown{t: t, b: n.b, asked: &asked}
		n.b.Read(func(s *topology.State, _ *auth.Users) {
			v, _ := s.VHost("/")
			q, _ := v.Queue(message.QueueName(k.queue))
			target.q = broker.Describe(q)
		})
		consumer := &queue.Consumer{Target: target, Tag: k.tag, Exclusive: k.exclusive}
		rt, err := c.Consume(message.QueueName(k.queue), consumer, func(*partition.Queue) {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Cancel(rt, consumer, nil) })
	}
	got := map[string][]any{}
	for _, q := range n.must("GET", "/queues", "").list(t) {
		got[q["name"].(string)] = []any{q["consumers"], q["exclusive_consumer_tag"], q["single_active_consumer_tag"]}
	}
	same(t, "consumers, exclusive tag, active tag", got, map[string][]any{
		"shared": {2, nil, nil}, "exclusive": {1, "a", nil}, "single": {2, nil, "a"}, "quorum": {2, nil, "a"},
	})
	if asked.Load() != 0 {
		t.Errorf("%d consumers were asked whose they are for a list that does not show it", asked.Load())
	}
	list := n.must("GET", "/consumers", "").list(t)
	if len(list) != 7 || asked.Load() != 7 {
		t.Errorf("%d consumers, %d were asked; want 7", len(list), asked.Load())
	}
}
