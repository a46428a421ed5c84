package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// steps of the system's clock, each back or forth.
var clockSteps = []time.Duration{10 * time.Second, 50 * time.Second, 2 * time.Hour, 5 * 365 * 24 * time.Hour}

// clock is the system's clock as the servers of a life see it, and what must come to pass whatever it shows: messages whose
// time is over in a moment, on every way that one waits. A probe that does not come within patience stands still.
type clock struct {
	file  string
	wrong time.Duration

	waiting map[string]bool // confirmed probes that have not come
	next    int
}

// patience is how long a probe may take. It is much more than any of them waits, and less than most steps of the clock.
const patience = 30 * time.Second

// probed are the queues in which probes wait, each in its own way, and come to the queue "came" when they have.
var probed = []declared{
	{name: "came", kind: "classic"},
	{name: "soon", kind: "classic", args: to("", "came", "x-message-ttl", 100)},
	{name: "soon-quorum", kind: "quorum", args: to("", "came", "x-message-ttl", 100)},
	{name: "later", kind: "classic", args: to("", "came"), bound: "delays", later: true}, // rejected when it comes
	// Returned once, it comes back after a while, and is rejected then.
	{name: "retried", kind: "quorum", args: to("", "came", "x-delayed-retry-type", "all", "x-delayed-retry-min", 100, "x-delayed-retry-max", 100)},
	// Delivered and not settled, it is taken back; rejected when it comes again.
	{name: "timed-out", kind: "quorum", args: to("", "came", "x-consumer-timeout", 100)},
}

func newClock(dir string) (*clock, error) {
	c := &clock{file: filepath.Join(dir, "clock"), waiting: map[string]bool{}}
	return c, c.set(0)
}

// set makes the clock wrong by so much, for servers that run and for those that start.
func (c *clock) set(wrong time.Duration) error {
	c.wrong = wrong
	whole := c.file + ".new"
	if err := os.WriteFile(whole, []byte(strconv.FormatInt(wrong.Milliseconds(), 10)), 0o644); err != nil {
		return err
	}
	return os.Rename(whole, c.file) // a server never reads half of it
}

// step moves the clock, or now and then puts it right.
func (l *life) step() {
	by := clockSteps[l.rng.IntN(len(clockSteps))]
	if l.rng.IntN(2) == 0 {
		by = -by
	}
	to := l.clock.wrong + by
	if l.rng.IntN(4) == 0 || to.Abs() > 2*clockSteps[len(clockSteps)-1] {
		to = 0
	}
	if err := l.clock.set(to); err != nil {
		l.t.Error(err)
	}
	l.stepped++
}

// stepUnder moves the clock of a running server, with probes on both sides of the step. It lasts about as long as a round without.
func (l *life) stepUnder(n *node.Node, duration time.Duration) {
	began := time.Now()
	err := l.clock.probe(n, false)
	l.step()
	if err == nil {
		err = l.clock.probe(n, l.rng.IntN(2) == 0) // else the next life has what waits
	}
	if err != nil && !errors.Is(err, errStill) {
		select {
		case <-n.Ended():
			return // which is why
		case <-time.After(patience):
		}
	}
	if err != nil {
		l.t.Errorf("%s: %v", l.s.name, err)
		return
	}
	select {
	case <-n.Ended():
	case <-time.After(duration - time.Since(began)):
	}
}

// errStill is the error of a probe that does not come.
var errStill = errors.New("stands still")

// probe publishes a message for each way to wait, and, if all is true, waits until they and all before them have come.
func (c *clock) probe(n *node.Node, all bool) error {
	conn, err := dial(n.AMQP)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := (&scenario{queues: probed}).declare(conn, kindsOf(probed)); err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return err
	}
	for _, q := range probed[1:] {
		c.next++
		m := amqp.Publishing{MessageId: fmt.Sprintf("%s-%d", q.name, c.next), DeliveryMode: amqp.Persistent}
		key := q.name
		if q.later {
			m.Headers, key = amqp.Table{"x-delay": 100}, ""
		}
		answer, err := ch.PublishWithDeferredConfirm(q.bound, key, false, false, m)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		ok, err := answer.WaitContext(ctx)
		cancel()
		if err != nil || !ok {
			return fmt.Errorf("probe %s: not confirmed: %w", m.MessageId, err)
		}
		c.waiting[m.MessageId] = true
	}
	if !all {
		return nil
	}
	came, err := consumeFrom(conn, "came")
	if err != nil {
		return err
	}
	later, err := consumeFrom(conn, "later")
	if err != nil {
		return err
	}
	retried, err := consumeFrom(conn, "retried")
	if err != nil {
		return err
	}
	late, err := consumeFrom(conn, "timed-out")
	if err != nil {
		return err
	}
	still := time.NewTimer(patience)
	defer still.Stop()
	for len(c.waiting) > 0 {
		var d amqp.Delivery
		var ok bool
		var finish func(*amqp.Delivery) error
		select {
		case d, ok = <-came:
			finish = func(d *amqp.Delivery) error {
				delete(c.waiting, d.MessageId)
				return d.Ack(false)
			}
		case d, ok = <-later:
			finish = func(d *amqp.Delivery) error { return d.Reject(false) }
		case d, ok = <-retried:
			finish = func(d *amqp.Delivery) error { return d.Nack(false, !d.Redelivered) }
		case d, ok = <-late:
			if !ok { // cancelled, when its delivery was taken back
				if late, err = consumeFrom(conn, "timed-out"); err != nil {
					return err
				}
				continue
			}
			finish = func(d *amqp.Delivery) error {
				if !d.Redelivered {
					return nil
				}
				return d.Reject(false)
			}
		case <-still.C:
			return fmt.Errorf("the clock is wrong by %v: %w: %v", c.wrong, errStill, slices.Sorted(maps.Keys(c.waiting)))
		}
		if !ok {
			return amqp.ErrClosed
		}
		if err := finish(&d); err != nil {
			return err
		}
	}
	return nil
}

func kindsOf(queues []declared) map[string]string {
	kinds := map[string]string{}
	for _, q := range queues {
		kinds[q.name] = q.kind
	}
	return kinds
}

// consumeFrom consumes a queue on a channel of its own.
func consumeFrom(conn *amqp.Connection, queue string) (<-chan amqp.Delivery, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	return ch.Consume(queue, "", false, false, false, false, nil)
}
