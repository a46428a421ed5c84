package broker

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-7.9, DL-2.2: whatever becomes due while its queue is deleted, each message reaches the dead-letter queue or is
// counted by the deletion. The deletions come at about the moment at which messages are due.
func TestADeletionLosesNoDeath(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			const rounds, messages = 200, 5
			c := open(t, Options{})
			mustDeclare(t, c, "dead")
			deleted := 0
			for round := range rounds {
				name := fmt.Sprint("q", round)
				mustDeclare(t, c, name, amqp091.Field{Key: "x-queue-type", Value: kind}, amqp091.Field{Key: "x-message-ttl", Value: int64(3)},
					amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dead"})
				began := time.Now()
				for i := range messages {
					publish(t, c, "", name, fmt.Sprint(i), amqp091.PropertyList{DeliveryMode: new(uint8(2))})
				}
				for time.Since(began) < 2900*time.Microsecond+time.Duration(round)*5*time.Microsecond {
				}
				n, err := c.DeleteQueue(message.QueueName(name), false, false)
				if err != nil {
					t.Fatal(err)
				}
				deleted += n
			}
			arrived := 0
			for until := time.Now().Add(5 * time.Second); arrived+deleted < rounds*messages && time.Now().Before(until); time.Sleep(time.Millisecond) {
				q, err := c.PassiveQueue("dead")
				if err != nil {
					t.Fatal(err)
				}
				arrived = q.Messages
			}
			if arrived+deleted != rounds*messages {
				t.Errorf("of %d messages %d were deleted with their queues and %d arrived", rounds*messages, deleted, arrived)
			}
		})
	}
}

// A message that dies after a deletion has waited for earlier deaths, while it waits to change the topology, is not
// lost either.
func TestADeletionLetsGoWhatDiesMeanwhile(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			c := open(t, Options{})
			mustDeclare(t, c, "dead")
			mustDeclare(t, c, "q", amqp091.Field{Key: "x-queue-type", Value: kind}, amqp091.Field{Key: "x-dead-letter-exchange", Value: ""},
				amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dead"})
			publish(t, c, "", "q", "a", amqp091.PropertyList{DeliveryMode: new(uint8(2))})
			g, ok, err := c.Get("q", false)
			if err != nil || !ok {
				t.Fatalf("get: %t, %v", ok, err)
			}
			defer c.b.bodies.Release(g.Body)
			defer c.b.bodies.Release(g.History)
			looks, looked := make(chan struct{}), make(chan struct{})
			go func() {
				c.b.topo.RLock()
				close(looks)
				<-looked
				c.b.topo.RUnlock()
			}()
			<-looks
			deleted := make(chan error, 1)
			go func() {
				_, err := c.DeleteQueue("q", false, false)
				deleted <- err
			}()
			rejected := make(chan struct{})
			go func() {
				defer close(rejected)     // once it is routed, perhaps
				for c.b.topo.TryRLock() { // until somebody waits to write
					c.b.topo.RUnlock()
					runtime.Gosched()
				}
				c.Run([]partition.Op{{Kind: partition.Reject, Queue: g.Queue, ID: g.ID, Consumer: g.By, Failed: true}})
			}()
			for until := time.Now().Add(5 * time.Second); c.b.node.Counts(g.Queue).Dying == 0 && time.Now().Before(until); runtime.Gosched() {
			}
			close(looked)
			<-rejected
			if err := <-deleted; err != nil {
				t.Fatal(err)
			}
			for until := time.Now().Add(5 * time.Second); ready(t, c, "dead") == 0; runtime.Gosched() {
				if time.Now().After(until) {
					t.Fatal("the dead letter is nowhere")
				}
			}
		})
	}
}
