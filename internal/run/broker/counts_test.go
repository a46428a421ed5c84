package broker

import (
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// What a start repeats was counted by the previous process: counters begin at 0 with the node, on quorum queues as on
// classic ones (BR-15.13, DL-18.1).
func TestARestartCountsNothingAgain(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			d := newDisk()
			c := start(t, d, nil)
			mustDeclare(t, c, "dlq", amqp091.Field{Key: "x-queue-type", Value: kind})
			mustDeclare(t, c, "work", append([]amqp091.Field{{Key: "x-queue-type", Value: kind}}, toDLQ...)...)
			if !offer(t, c, "work", "dies") || !offer(t, c, "work", "stays") {
				t.Fatal("not routed")
			}
			kill(t, c, "work")
			eventually(t, "the dead letter moves", func() bool { return holds(t, c, "dlq") == 1 })
			if !offer(t, c, "work", "stays too") { // the journal has the move when it has this
				t.Fatal("not routed")
			}
			after := start(t, d.crash(), nil)
			if work, dlq := holds(t, after, "work"), holds(t, after, "dlq"); work != 2 || dlq != 1 {
				t.Fatalf("%d messages are left and %d dead letters, want 2 and 1", work, dlq)
			}
			for _, s := range after.b.CountQueues() {
				if s.Counts.Stats != (partition.Stats{}) {
					t.Errorf("queue %q counts %+v", s.Queue.Name, s.Counts.Stats)
				}
			}
			for kind := range queue.Quorum + 1 {
				if n := after.b.Node().Deaths(kind, partition.AtMostOnce, deadletter.Rejected); n != 0 {
					t.Errorf("%d deaths in %v queues were counted again", n, kind)
				}
			}
		})
	}
}

// A message that was returned without a failure is ready when the node starts, as it was: no consumer had it when the
// node ended, so nothing has failed (DL-11.3, DL-12.3, DL-22.1).
func TestARestartIsNoFailureOfWhatHadComeBack(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			d := newDisk()
			c := start(t, d, nil)
			mustDeclare(t, c, "work",
				amqp091.Field{Key: "x-queue-type", Value: kind},
				amqp091.Field{Key: "x-delayed-retry-type", Value: "failed"}, amqp091.Field{Key: "x-delayed-retry-min", Value: int32(60_000)})
			if !offer(t, c, "work", "m") {
				t.Fatal("not routed")
			}
			if err := c.Take("work", 1, AckRequeues, func(*Shown) (bool, error) { return true, nil }); err != nil { // nothing failed
				t.Fatal(err)
			}
			if !offer(t, c, "work", "n") { // the journal has the return when it has this
				t.Fatal("not routed")
			}
			after := start(t, d.crash(), nil)
			for _, s := range after.b.CountQueues() {
				if s.Counts.Ready != 2 || s.Counts.Delayed != 0 {
					t.Errorf("%d messages are ready and %d wait, want 2 and 0", s.Counts.Ready, s.Counts.Delayed)
				}
			}
		})
	}
}
