package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// taker is a consumer's side that keeps only the last delivery.
type taker struct {
	n    *Node
	last queue.ID
}

func (s *taker) Deliver(_ *Queue, _ *queue.Consumer, d *queue.Delivery) bool {
	s.last = d.ID
	s.n.bodies.Release(d.Body)
	s.n.bodies.Release(d.History)
	return true
}

func (s *taker) Flush()                                {}
func (s *taker) QueueGone(*Queue, *queue.Consumer)     {}
func (s *taker) TimedOut(*Queue, *queue.Consumer, int) {}

func benchWorld(b testing.TB) *world {
	return open(b, vfs.NewMem(), []definition{
		{"in", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "out"}},
		{"out", classic, settings(func(s *queue.Settings) { s.MaxLength = 1000 }), DeadLetter{}},
	}, table{"out": {"out"}}, 1_700_000_000_000, nil)
}

// Publish, deliver and acknowledge through a node, one message a batch.
func BenchmarkPublishDeliverAck(b *testing.B) {
	for name, persistent := range map[string]bool{"transient": false, "persistent": true} {
		b.Run(name, func(b *testing.B) {
			w := benchWorld(b)
			q, s := w.queues["in"], &taker{n: w.n}
			c := &queue.Consumer{Target: s, Prefetch: 100}
			if _, err := w.n.Attach(q, c, func() {}); err != nil {
				b.Fatal(err)
			}
			publish := []Op{{Kind: Publish, Targets: []*Queue{q}, TTL: -1, Priority: -1}}
			ack := []Op{{Kind: Ack, Queue: q, Consumer: c}}
			b.ReportAllocs()
			for b.Loop() {
				publish[0].Body = w.record(1, persistent, 100)
				w.n.Run(publish)
				ack[0].ID = s.last
				w.n.Run(ack)
			}
			_ = w.j.Close()
		})
	}
}

// A message that is rejected and moves to its dead-letter queue.
func BenchmarkRejectMove(b *testing.B) {
	w := benchWorld(b)
	q, s := w.queues["in"], &taker{n: w.n}
	c := &queue.Consumer{Target: s, Prefetch: 1000}
	if _, err := w.n.Attach(q, c, func() {}); err != nil {
		b.Fatal(err)
	}
	const batch = 100
	publish, reject := make([]Op, batch), make([]Op, batch)
	b.ReportAllocs()
	serial, targets := message.Serial(0), []*Queue{q}
	for b.Loop() {
		for i := range publish {
			serial++
			publish[i] = Op{Kind: Publish, Targets: targets, TTL: -1, Priority: -1, Body: w.record(serial, true, 100)}
		}
		w.n.Run(publish)
		for i := range reject {
			reject[i] = Op{Kind: Reject, Queue: q, Consumer: c, ID: s.last - queue.ID(batch-1-i)}
		}
		w.n.Run(reject)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/message")
	_ = w.j.Close()
}
