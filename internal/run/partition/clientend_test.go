package partition

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// While a client's deliveries come back into one queue, another of its queues delivers to others as soon as it has
// its own deliveries back, and not before.
func TestAQueueThatAClientLeavesWaitsForNoOther(t *testing.T) {
	defs := []definition{{"long", classic, queue.Unlimited(), DeadLetter{}}, {"own", classic, queue.Unlimited(), DeadLetter{}}, {"none", classic, queue.Unlimited(), DeadLetter{}}}
	w := open(t, vfs.NewMem(), defs, nil, 1_700_000_000_000, nil)
	long, own, none, serial := w.queues["long"], w.queues["own"], w.queues["none"], message.Serial(0)
	publish := func(q *Queue) {
		serial++
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1}})
	}
	attach := func(s *client, q *Queue) *queue.Consumer {
		c := &queue.Consumer{Target: s, Tag: "c"}
		if ok, err := w.n.Attach(q, c, func() {}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return c
	}
	var leaves, stays client
	seats := []Seat{{long, attach(&leaves, long)}, {own, attach(&leaves, own)}, {none, attach(&leaves, none)}}
	publish(own)
	const deliveries = 3 * sliceLimit
	for range deliveries {
		publish(long)
	}
	for _, q := range []*Queue{own, none} {
		attach(&stays, q)
	}
	all := leaves.take()
	if len(all) != deliveries+1 {
		t.Fatal(len(all))
	}
	walks := 0
	returns := func(yield func(Delivered) bool) {
		walks++
		for i, d := range all {
			if walks == 2 && i == 0 {
				publish(none)
				if got := stays.take(); len(got) != 1 || got[0].q != none {
					t.Errorf("before anything came back the one who stays had %d messages, want that of the queue in which the leaving had none", len(got))
				}
			}
			if walks == 2 && i == 2*sliceLimit {
				if got := stays.take(); len(got) != 1 || got[0].q != own || !got[0].d.Redelivered {
					t.Errorf("while others came back: %+v, want the one message of a queue that is complete", got)
				}
			}
			c := seats[0].Consumer
			if d.q == own {
				c = seats[1].Consumer
			}
			if !yield(Delivered{d.q, d.d.ID, c}) {
				return
			}
		}
	}
	w.n.Quit(seats, returns)()
	if walks != 2 || len(leaves.take()) != 0 {
		t.Errorf("%d walks; the leaving got something back", walks)
	}
	for _, q := range []*Queue{long, own, none} {
		if n := w.n.Counts(q); n.Ready+n.Out != map[*Queue]int{long: deliveries, own: 1, none: 1}[q] {
			t.Errorf("%s: %+v", q.Name, n)
		}
	}
}
