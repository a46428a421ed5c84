package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/client10"
)

// dial connects to the round's server. Heartbeats are off: the test pauses nothing
// that long, and they would only blur what the server does.
func dial(addr string) (*amqp.Connection, error) {
	return amqp.DialConfig("amqp://guest:guest@"+addr+"/", amqp.Config{Heartbeat: -1, Locale: "en_US"})
}

// refusal returns what the server had against a request, nil for an error that a
// server's death explains.
func refusal(err error) error {
	var e *amqp.Error
	if errors.As(err, &e) && e.Server && e.Code != amqp.ConnectionForced {
		return err
	}
	return nil
}

// content makes the body of a message, so that the audit can tell whether it is the same.
func content(id string, size int) []byte {
	return bytes.Repeat([]byte(id), 1+size/len(id))
}

// publisher publishes until ctx ends or the server does, and notes every answer.
type publisher struct {
	name  string
	next  int // seq, over all rounds of a life
	burst int // messages before it takes breath; 0: 50
	limit int // messages a round at most
	// delays says that its messages have delays, which AMQP 1.0 has no header for.
	delays bool
}

// publishing is one message that a publisher wants to publish.
type publishing struct {
	exchange, key string
	expiration    string
	delay         int // milliseconds, where the exchange delays
	lines         []string
}

func (p *publisher) run(ctx context.Context, c *clients, message func(r *rand.Rand) publishing) {
	if !p.delays && c.speaksTen(p.name) {
		p.runTen(ctx, c, message)
		return
	}
	conn, err := dial(c.addr)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	if ch.Confirm(false) != nil {
		return
	}
	answers := ch.NotifyPublish(make(chan amqp.Confirmation, 1<<14))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	ids := []string{""} // by delivery tag
	answer := func(a amqp.Confirmation) {
		c.ledger.note(ids[a.DeliveryTag], func(m *known) {
			if m.fate = refused; a.Ack {
				m.fate = confirmed
			}
		})
	}
	rng := c.rng(p.name)
	for n := 0; n < p.limit && ctx.Err() == nil; n++ {
		out := message(rng)
		id := fmt.Sprintf("%s-%d", p.name, p.next)
		c.ledger.add(&known{id: id, publisher: p.name, seq: p.next, lines: out.lines})
		p.next++
		size := rng.IntN(300)
		if rng.IntN(100) == 0 {
			size = rng.IntN(200_000) // several frames
		}
		ids = append(ids, id)
		m := amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Expiration: out.expiration, Body: content(id, size)}
		if out.delay > 0 {
			m.Headers = amqp.Table{"x-delay": out.delay}
		}
		err := ch.Publish(out.exchange, out.key, false, false, m)
		if err != nil {
			break
		}
		if burst := max(p.burst, 50); n%burst == burst-1 {
			wait(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
		}
		for more := true; more; {
			select {
			case a, ok := <-answers:
				if more = ok; ok {
					answer(a)
				}
			default:
				more = false
			}
		}
	}
	// A round ends with the server's death: until then, and out of the socket's
	// buffer after it, answers may come.
	for a := range answers {
		answer(a)
	}
	c.closedBy(<-closed, p.name)
}

// wait sleeps unless ctx ends first.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// deed is what a consumer does with a delivery.
type deed uint8

const (
	hold       deed = iota // nothing: it goes back when the server dies
	ack                    //
	reject                 // basic.reject, requeue=false
	again                  // basic.reject, requeue=true
	nackSoFar              // basic.nack multiple, requeue=false
	ackSoFar               // basic.ack multiple
	slowly                 // ack, after a while
	nackReturn             // basic.nack, requeue=true
)

// consumer consumes a queue and does as decide says.
type consumer struct {
	queue    string
	prefetch int
	decide   func(r *rand.Rand, d *amqp.Delivery) deed
}

func (k *consumer) run(ctx context.Context, c *clients) {
	if c.speaksTen(k.queue) {
		k.runTen(ctx, c)
		return
	}
	conn, err := dial(c.addr)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if ch.Qos(k.prefetch, 0, false) != nil {
		return
	}
	deliveries, err := ch.Consume(k.queue, "", false, false, false, false, nil)
	if err != nil {
		c.failed(err, "consume "+k.queue)
		return
	}
	rng := c.rng(k.queue)
	var open []string // ids not settled, in order
	for d := range deliveries {
		c.ledger.note(d.MessageId, func(m *known) { m.delivered++ })
		open = append(open, d.MessageId)
		settled := open[len(open)-1:]
		does := k.decide(rng, &d)
		if does == nackSoFar || does == ackSoFar {
			settled = open
		}
		// Noted before it is sent: what was sent may be done even if the answer is never known.
		for _, id := range settled {
			c.ledger.note(id, func(m *known) {
				switch does {
				case ack, ackSoFar, slowly:
					m.acked = append(m.acked, c.covers(k.queue)...)
				case reject, again, nackSoFar:
					m.rejects++
				}
			})
		}
		switch does {
		case ack:
			err = d.Ack(false)
		case slowly:
			wait(ctx, time.Duration(rng.IntN(10))*time.Millisecond)
			err = d.Ack(false)
		case ackSoFar:
			err = d.Ack(true)
		case reject:
			err = d.Reject(false)
		case again:
			err = d.Reject(true)
		case nackSoFar:
			err = d.Nack(true, false)
		case nackReturn:
			err = d.Nack(false, true)
		case hold:
			continue // it stays in open: a later nack of all covers it
		}
		if err != nil {
			return
		}
		if len(settled) == len(open) {
			open = open[:0]
		} else {
			open = open[:len(open)-1]
		}
	}
	c.closedBy(<-closed, "consumer of "+k.queue)
}

// intact says whether a body is what was published: see content.
func intact(id string, body []byte) bool {
	want := []byte(id)
	return len(body) > 0 && len(body)%len(want) == 0 && bytes.Equal(body, bytes.Repeat(want, len(body)/len(want)))
}

// placeOf reads what the audit needs of a delivery.
func placeOf(queue string, d *amqp.Delivery) place {
	c := place{queue: queue, deaths: map[string]int64{}}
	body := d.Body
	if d.Type == "amqp-1.0" { // one that AMQP 0-9-1 has no form for
		if m, err := client10.Read(d.Body); err == nil {
			body = m.Body
		}
	}
	if !intact(d.MessageId, body) {
		c.fault = "its body is not what was published"
	}
	list, _ := d.Headers["x-death"].([]any)
	for i, each := range list {
		t, _ := each.(amqp.Table)
		queue, _ := t["queue"].(string)
		reason, _ := t["reason"].(string)
		n, _ := t["count"].(int64)
		c.deaths[queue+"/"+reason] += n
		if i == 0 {
			c.latest = queue + "/" + reason
		}
	}
	if d.Expiration != "" && len(list) > 0 {
		c.fault = "it has died and still has its expiration (DL-8.10)"
	}
	return c
}

// millis is a TTL as a message carries it.
func millis(n int) string { return strconv.Itoa(n) }
