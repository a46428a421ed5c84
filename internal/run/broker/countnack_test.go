package broker

import (
	"log/slog"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// DL-11.5: a nack with requeue counts as a failed delivery, unless the node is strict or its operator says otherwise. What
// the node starts with is in force for the queues that are there already, if these were not made by a strict one. A message
// that was only looked at has not failed.
func TestDL_11_5_ANackCountsUnlessTheNodeIsStrict(t *testing.T) {
	yes, no := new(bool), new(bool)
	*yes = true
	for _, c := range []struct {
		name            string
		before, after   Options
		counts, counts2 bool
	}{
		{"default", Options{}, Options{}, true, true},
		{"strict", Options{Strict: true}, Options{Strict: true}, false, false},
		{"made strict", Options{Strict: true}, Options{}, false, false},
		{"switched off", Options{}, Options{CountNack: no}, true, false},
		{"switched on", Options{Strict: true}, Options{Strict: true, CountNack: yes}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk()
			node := startWith(t, d, c.before)
			mustDeclare(t, node, "work", append(toDLQ, amqp091.Field{Key: "x-queue-type", Value: "quorum"}, amqp091.Field{Key: "x-delivery-limit", Value: int32(0)})...)
			mustDeclare(t, node, "marker", amqp091.Field{Key: "x-queue-type", Value: "quorum"})
			for _, counts := range []bool{c.counts, c.counts2} {
				if !offer(t, node, "work", "m") {
					t.Fatal("not routed")
				}
				if err := node.Take("work", 1, AckRequeues, func(*Shown) (bool, error) { return true, nil }); err != nil {
					t.Fatal(err)
				}
				g, ok, err := node.Get("work", false)
				if err != nil || !ok {
					t.Fatalf("after it was looked at: %v, %v", ok, err)
				}
				node.b.release(&g.Delivery)
				node.Run([]partition.Op{{Kind: partition.Return, Queue: g.Queue, ID: g.ID, Consumer: g.By, How: queue.ReturnNack}})
				if left := holds(t, node, "work"); left != map[bool]int{true: 0, false: 1}[counts] {
					t.Errorf("%d messages are left after a nack over the limit, and it counts is %v", left, counts)
				}
				if _, err := node.Purge("work"); err != nil {
					t.Fatal(err)
				}
				if !offer(t, node, "marker", "m") { // with it all that was before is on disk
					t.Fatal("not routed")
				}
				node = startWith(t, d.crash(), c.after)
			}
		})
	}
}

// DL-11.6: a dead letter that died of its limit brings its count along. Where a nack counts, the limit begins anew in each queue,
// and a nack drops nothing: a message in a parking queue without a dead-letter exchange stays there, however often somebody
// looks at it. A reject drops it then, and the log says so, once for a queue. Strict queues do as RabbitMQ 4.3.
func TestDL_11_6_AParkedMessageIsNotDroppedByANack(t *testing.T) {
	yes := true
	for _, c := range []struct {
		name                    string
		options                 Options
		first, nacked, rejected int // messages that are parked after one nack, after three, and after a reject
	}{
		{"default", Options{}, 1, 1, 0},
		{"RabbitMQ 4.3", Options{Strict: true}, 0, 0, 0},
		{"strict, and nacks count", Options{Strict: true, CountNack: &yes}, 1, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var logged lockedBuffer
			c.options.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			node := startWith(t, newDisk(), c.options)
			quorum, limit := amqp091.Field{Key: "x-queue-type", Value: "quorum"}, amqp091.Field{Key: "x-delivery-limit", Value: int32(1)}
			mustDeclare(t, node, "park", quorum, limit)
			mustDeclare(t, node, "work", quorum, limit, amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "park"})
			failing := func(name message.QueueName, how After) {
				t.Helper()
				if err := node.Take(name, 1, how, func(*Shown) (bool, error) { return true, nil }); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if !offer(t, node, "work", "m") {
					t.Fatal("not routed")
				}
				failing("work", RejectRequeues)
				failing("work", RejectRequeues)
				eventually(t, "it is parked", func() bool { return holds(t, node, "park") == 1 })
				failing("park", NackRequeues)
				first := holds(t, node, "park")
				failing("park", NackRequeues)
				failing("park", NackRequeues)
				nacked := holds(t, node, "park")
				failing("park", RejectRequeues)
				if rejected := holds(t, node, "park"); first != c.first || nacked != c.nacked || rejected != c.rejected {
					t.Errorf("%d, %d and %d messages are parked after a nack, three, and a reject; want %d, %d and %d", first, nacked, rejected, c.first, c.nacked, c.rejected)
				}
			}
			if n := strings.Count(logged.String(), "failed more often than the delivery limit of their queue"); n != 1 {
				t.Errorf("the log says %d times that messages are dropped, want once:\n%s", n, logged.String())
			}
		})
	}
}
