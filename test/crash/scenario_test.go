package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// scenario is one way for messages to die, and what must be true of it.
type scenario struct {
	name string
	// queues are declared in this order, with the exchanges they are bound to.
	queues []declared
	// covers says which lines a copy in the queue stands for.
	covers func(queue string) []string
	// history says what is wrong with the deaths of a copy; nil: nothing ever is.
	history func(m *known, c place, kills int) error
	alike   bool // all queues are of the type of the first
	// ordered are queues in which each publisher's messages stand as published.
	ordered []string
	// work returns what runs in every round; it is called once for a life.
	work func(l *life) []worker
}

// declared is a durable queue of a scenario.
type declared struct {
	name  string
	kind  string // "classic" or "quorum"; "": as the seed says
	args  amqp.Table
	bound string // a fanout exchange; "": none
	later bool   // which delays messages
}

// worker is a client that works until ctx ends or the server dies.
type worker func(ctx context.Context, c *clients)

// clients is what the clients of one round share.
type clients struct {
	addr   string // of AMQP
	http   string // of the management API
	ledger *ledger
	covers func(queue string) []string
	seed   uint64
	faulty bool // the disk fails: a message that cannot be read ends a connection
}

// rng is the chance of one client, which depends on no other's.
func (c *clients) rng(name string) *rand.Rand {
	sum := c.seed
	for _, b := range []byte(name) {
		sum = sum*1099511628211 + uint64(b)
	}
	return rand.New(rand.NewPCG(c.seed, sum))
}

// speaksTen says whether a client speaks AMQP 1.0 in this round.
func (c *clients) speaksTen(name string) bool { return c.rng(name+"/protocol").IntN(2) == 0 }

// closedBy notes a channel that the server closed for a reason of its own.
func (c *clients) closedBy(err *amqp.Error, who string) {
	if err != nil {
		c.failed(err, who)
	}
}

// failed notes an error that the server's death does not explain.
func (c *clients) failed(err error, who string) {
	e := refusal(err)
	var refused *amqp.Error
	if c.faulty && errors.As(e, &refused) && refused.Code == amqp.InternalError {
		return
	}
	if e != nil {
		c.ledger.fault("%s: %v", who, e)
	}
}

// run runs the workers and returns a function that waits for them.
func (c *clients) run(ctx context.Context, workers []worker) (wait func()) {
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() { w(ctx, c) })
	}
	return all.Wait
}

// declare makes or finds the scenario's queues. Declaring again is an error if
// anything is not as it was, so this also checks what a restart brought back.
func (s *scenario) declare(conn *amqp.Connection, kinds map[string]string) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, q := range s.queues {
		args := amqp.Table{"x-queue-type": kinds[q.name]}
		for k, v := range q.args {
			args[k] = v
		}
		if _, err := ch.QueueDeclare(q.name, true, false, false, false, args); err != nil {
			return fmt.Errorf("declare %s: %w", q.name, err)
		}
		if q.bound == "" {
			continue
		}
		kind, args := "fanout", amqp.Table(nil)
		if q.later {
			kind, args = "x-delayed-message", amqp.Table{"x-delayed-type": "fanout"}
		}
		if err := ch.ExchangeDeclare(q.bound, kind, true, false, false, false, args); err != nil {
			return fmt.Errorf("declare exchange %s: %w", q.bound, err)
		}
		if err := ch.QueueBind(q.name, "", q.bound, false, nil); err != nil {
			return fmt.Errorf("bind %s: %w", q.name, err)
		}
	}
	return ch.Close()
}

// to makes a queue's arguments: its dead letters go to the exchange given.
func to(exchange, key string, more ...any) amqp.Table {
	t := amqp.Table{"x-dead-letter-exchange": exchange}
	if key != "" {
		t["x-dead-letter-routing-key"] = key
	}
	for i := 0; i < len(more); i += 2 {
		t[more[i].(string)] = more[i+1]
	}
	return t
}

// oneLine is the covers of scenarios in which no message divides.
func oneLine(string) []string { return []string{"it"} }

var it = []string{"it"}

// died checks the deaths of a copy against what its place implies.
func died(c place, want map[string]int64, latest string) error {
	if len(c.deaths) != len(want) {
		return fmt.Errorf("in %s it has died of %v, want %v", c.queue, c.deaths, want)
	}
	for k, n := range want {
		if c.deaths[k] != n {
			return fmt.Errorf("in %s it has died of %v, want %v", c.queue, c.deaths, want)
		}
	}
	if c.latest != latest {
		return fmt.Errorf("in %s it died last of %s, want %s", c.queue, c.latest, latest)
	}
	return nil
}

// diedOnce is the history of a source with one dead letter queue.
func diedOnce(source, reason string) func(*known, place, int) error {
	return func(m *known, c place, _ int) error {
		if c.queue == source {
			return died(c, nil, "")
		}
		cause := source + "/" + reason
		if reason == "rejected" && m.rejects == 0 {
			return fmt.Errorf("it is in %s and nobody rejected it", c.queue)
		}
		return died(c, map[string]int64{cause: 1}, cause)
	}
}
