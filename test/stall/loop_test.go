package stall

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Two queues that dead-letter to each other: A overflows into B, B expires into A.
// No rejection is in it, so the cycle is cut (DL-9.2): the messages are dropped,
// and the server comes to rest.
func TestLoopWithoutRejectionComesToRest(t *testing.T) {
	c := newClient(t)
	loop(c, amqp.Table{"x-message-ttl": 50})
	b := watch(t)
	const messages = 2000
	c.fill("A", messages)
	c.until("B", 0)
	c.until("A", 1)
	s := stop(t, b)
	t.Logf("the bystander: %s", s)
	atRest(t)
}

// A overflows into B, and a consumer on B rejects back to A for ever, as it may
// (DL-9.1). Whoever has nothing to do with it is served.
func TestLoopWithRejectionDoesNotHurt(t *testing.T) {
	c := newClient(t)
	loop(c, nil)
	consumer := newClient(t)
	if err := consumer.Qos(100, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := consumer.Consume("B", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	rejected := make(chan int, 1)
	go func() { // ends with the consumer's channel
		n := 0
		for d := range deliveries {
			if d.Reject(false) == nil {
				n++
			}
		}
		rejected <- n
	}()
	c.fill("A", 500)
	b := watch(t)
	time.Sleep(time.Second) // of the loop
	s := stop(t, b)
	_ = consumer.Close()
	n := <-rejected
	t.Logf("%d rejections; the bystander: %s", n, s)
	// Undisturbed it is close to a thousand: this is no bound, only a sign of life.
	if len(s) < 20 {
		t.Errorf("the bystander had %d messages back in a second", len(s))
	}
	if n == 0 {
		t.Error("nothing was rejected: there was no loop")
	}
	atRest(t)
}

// loop declares A and B. more are arguments of B.
func loop(c *client, more amqp.Table) {
	c.t.Helper()
	c.declare("A", amqp.Table{"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "B"})
	args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "A"}
	for k, v := range more {
		args[k] = v
	}
	c.declare("B", args)
}

// idleShare is how much of one processor a server may use that has nothing to do.
const idleShare = 0.2

// atRest waits until the server does next to nothing.
func atRest(t *testing.T) {
	t.Helper()
	share := 0.0
	for range 20 {
		before, err := server.Usage()
		if err != nil {
			t.Fatal(err)
		}
		const span = 300 * time.Millisecond
		time.Sleep(span)
		after, err := server.Usage()
		if err != nil {
			t.Fatal(err)
		}
		if share = float64(after.CPU-before.CPU) / float64(span); share < idleShare {
			return
		}
	}
	t.Errorf("with nothing to do the server uses %.2f of a processor, want %.2f at most", share, idleShare)
}
