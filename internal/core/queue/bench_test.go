package queue

import (
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

type nobody struct{ last ID }

func (n *nobody) Deliver(_ *Consumer, d *Delivery) bool      { n.last = d.ID; return true }
func (n *nobody) Removed(ID, message.Ref, message.Ref, bool) {}
func (n *nobody) Died(deadletter.Reason, bool)               {}
func (n *nobody) Returned(ID, Counts, int64)                 {}
func (n *nobody) TookBack(*Consumer, ID)                     {}
func (n *nobody) Active(*Consumer, bool, int)                {}
func (n *nobody) TimedOut(*Consumer, int)                    {}
func (n *nobody) Broke(BreakerChange, Broken)                {}
func (n *nobody) Ended(ID, deadletter.Reason, bool)          {}

// A message in, out to a consumer, and acknowledged, behind a number of messages that no consumer takes.
func BenchmarkEnqueueDeliverAck(b *testing.B) {
	for name, config := range map[string]Config{"classic": {MaxPriority: -1}, "quorum": {Type: Quorum}} {
		b.Run(name, func(b *testing.B) {
			sink := &nobody{}
			m := New(config, Unlimited(), &Pages{}, sink, 1)
			c := &Consumer{Prefetch: 100}
			m.Attach(1, c)
			e := Entry{Content: Content{Body: 1, Size: 10, Logged: true}, Priority: -1, TTL: 60_000}
			b.ReportAllocs()
			for now := int64(1_700_000_000_000); b.Loop(); now++ {
				id, _ := m.Enqueue(now, &e)
				m.Flow(now, id)
				if !m.Ack(now, sink.last, c) {
					b.Fatal("was not delivered")
				}
			}
		})
	}
}

// A backlog of a million: filling and draining it by basic.get.
func BenchmarkBacklog(b *testing.B) {
	m := New(Config{MaxPriority: -1}, Unlimited(), &Pages{}, &nobody{}, 1)
	e := Entry{Content: Content{Body: 1, Size: 10}, Priority: -1, TTL: -1}
	const depth = 1_000_000
	for range depth {
		m.Enqueue(1, &e)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Enqueue(1, &e)
		m.Flow(1, 0)
		if _, ok := m.Get(1, true); !ok {
			b.Fatal("empty")
		}
	}
}
