package partition

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// A checkpoint does not hold all partitions while it copies consumers of replicated queues and their deliveries; it
// holds one group at a time, for slices. The copies are as of the cut, whatever happens then.
func TestACheckpointCollectsConsumersInSlices(t *testing.T) {
	const deliveries, consumers = 5 * sliceLimit, 3 * sliceLimit
	var cut atomic.Pointer[func()]
	w := startQueues(t, vfs.NewCrashableMem(), 1, func(point string) {
		if point == FailCheckpointCut {
			if f := cut.Swap(nil); f != nil {
				(*f)()
			}
		}
	}, []definition{full("q", quorum, 2*deliveries), full("more", quorum, 1)}, table{})
	defer w.stop()
	q, more := w.queues["q"], w.queues["more"]
	g := q.part.group
	if more.part != q.part {
		t.Fatal("the queues are of two groups")
	}
	publish := func(n int) {
		for s := range n {
			w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(message.Serial(s + 1)), TTL: -1, Priority: -1}})
		}
	}
	var holds client
	attach := func(q *Queue, c *queue.Consumer) *queue.Consumer {
		c.Target, c.Tag, c.Timeout = &holds, "c", 3_600_000
		if ok, err := w.n.Attach(q, c, func() {}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return c
	}
	first := attach(q, &queue.Consumer{Priority: 1})
	second := attach(q, &queue.Consumer{})
	var seats []Seat
	for range consumers {
		seats = append(seats, Seat{more, attach(more, &queue.Consumer{Prefetch: 1})})
	}
	publish(deliveries)
	within(t, "all is delivered", func() {
		for w.n.Counts(q).Out < deliveries {
			runtime.Gosched()
		}
	})
	got := holds.take()
	give := func(from, to int, kind OpKind) {
		for ; from < to; from++ {
			w.n.Run([]Op{{Kind: kind, Queue: q, ID: got[from].d.ID, Consumer: first, How: queue.ReturnNack}})
		}
		w.n.Settle(q)
	}
	give(0, 10, Ack)
	var want []byte
	change := func() {
		h := w.n.lock(g.p)
		want = g.appendMeta(nil)
		w.n.unlock(h)
		give(10, 20, Ack)
		give(20, 30, Return)
		w.n.Quit([]Seat{{q, second}, seats[5]}, nil)()
		attach(more, &queue.Consumer{})
		if c, err := w.n.Delete(more, nil); err != nil {
			t.Error(err)
		} else {
			w.n.Deleted(more, c)
		}
	}
	for _, p := range w.n.all {
		p.mu.Lock()
		p.longest = 0
		p.mu.Unlock()
	}
	cut.Store(&change)
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	for _, p := range w.n.all {
		p.mu.Lock()
		if p.longest > 2*sliceLimit {
			t.Errorf("a partition was held for %d entries", p.longest)
		}
		p.mu.Unlock()
	}
	value, _, err := w.n.Index.Get(nil, groupKey(g.id))
	if err != nil {
		t.Fatal(err)
	}
	fr := frameReader{all: value}
	_, _ = fr.bytes()
	if len(want) < 3*deliveries || !bytes.Equal(value[fr.at:], want) {
		t.Errorf("the checkpoint has %d bytes of the group, at the cut there were %d, or others", len(value)-fr.at, len(want))
	}
}
