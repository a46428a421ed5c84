package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// Publishers and consumers speak AMQP 1.0 in some rounds and AMQP 0-9-1 in others, as the seed says: so messages are published,
// die and are found by clients of either. Audits take turns too.

// dialTen opens a connection with a session. Whoever gets it runs it.
func (c *clients) dialTen() (*client10.Session, error) {
	conn, err := client10.Dial(c.addr, client10.Options{Container: "crash", Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	return conn.Begin(1000)
}

// failedTen notes an end that the server's death, or its stop, does not explain.
func (c *clients) failedTen(err error, who string) {
	switch {
	case err == nil, !errors.Is(err, client10.ErrEnded) && !errors.Is(err, client10.ErrBadFrame):
	case strings.Contains(err.Error(), "Connection forced"): // RabbitMQ's words, with amqp:internal-error
	case c.faulty && strings.Contains(err.Error(), amqp10.ConditionInternalError):
	default:
		c.ledger.fault("%s: %v", who, err)
	}
}

// runTen is run over AMQP 1.0.
func (p *publisher) runTen(ctx context.Context, c *clients, message func(r *rand.Rand) publishing) {
	s, err := c.dialTen()
	if err != nil {
		return
	}
	var mu sync.Mutex
	ids := map[uint32]string{} // by delivery-id
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.failedTen(s.Run(), p.name)
	}()
	defer func() {
		// A round ends with the server's death: until then outcomes may come.
		<-over
		s.Close()
	}()
	k, err := s.Sender("", func(id uint32, state amqp10.Value) {
		mu.Lock()
		name := ids[id]
		mu.Unlock()
		c.ledger.note(name, func(m *known) {
			switch state.Descriptor() {
			case amqp10.DescriptorAccepted:
				m.fate = confirmed
			case amqp10.DescriptorRejected:
				m.fate = refused
			default:
				c.ledger.faults = append(c.ledger.faults, fmt.Sprintf("%s: the outcome is %s", m.id, state.Descriptor()))
			}
		})
	})
	if err != nil {
		return
	}
	rng := c.rng(p.name)
	for n := 0; n < p.limit && ctx.Err() == nil; n++ {
		out := message(rng)
		id := fmt.Sprintf("%s-%d", p.name, p.next)
		c.ledger.add(&known{id: id, publisher: p.name, seq: p.next, lines: out.lines})
		p.next++
		size, maxFrame := rng.IntN(300), uint32(1<<20)
		if rng.IntN(100) == 0 {
			size, maxFrame = rng.IntN(200_000), 4096 // several frames
		}
		body := content(id, size)
		cut := rng.IntN(len(body))
		m := client10.Message{ID: id, Durable: true, Priority: -1, TTL: -1, To: client10.Queue(out.key), Data: [][]byte{body}}
		if cut%2 == 0 {
			m.Data = [][]byte{body[:cut], body[cut:]}
		}
		if out.exchange != "" {
			m.To = client10.Exchange(out.exchange, out.key)
		}
		if out.expiration != "" {
			_, _ = fmt.Sscan(out.expiration, &m.TTL)
		}
		err := k.Send(m.Append(nil), false, maxFrame, func(number uint32) {
			mu.Lock()
			ids[number] = id
			mu.Unlock()
		})
		if err != nil {
			return
		}
		if burst := max(p.burst, 50); n%burst == burst-1 {
			wait(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
		}
	}
}

// outcomeOf is what a consumer says over AMQP 1.0 for a deed; nil if it says nothing.
func outcomeOf(does deed, r *rand.Rand) amqp10.Composite {
	switch does {
	case ack, slowly, ackSoFar:
		return &amqp10.Accepted{}
	case reject, nackSoFar:
		if r.IntN(3) == 0 {
			return &amqp10.Modified{UndeliverableHere: true}
		}
		return &amqp10.Rejected{Error: &amqp10.Error{Condition: []byte("test:failed"), Description: []byte("it failed")}}
	case again:
		return &amqp10.Modified{DeliveryFailed: true}
	case nackReturn:
		if r.IntN(3) == 0 {
			return &amqp10.Modified{}
		}
		return &amqp10.Released{}
	}
	return nil
}

// runTen is run over AMQP 1.0: its credit is such that it holds no more than the prefetch count.
func (k *consumer) runTen(ctx context.Context, c *clients) {
	s, err := c.dialTen()
	if err != nil {
		return
	}
	type held struct {
		name string
		id   uint32
	}
	rng := c.rng(k.queue)
	var open []held // not settled, in order
	deliveries := make(chan *client10.Delivery, k.prefetch+1)
	go func() { // ends with the connection
		defer close(deliveries)
		c.failedTen(s.Run(), "consumer of "+k.queue)
	}()
	defer func() {
		s.Close()
		for range deliveries { // until Run ends
		}
	}()
	link, err := s.Receiver(k.queue, false, func(d *client10.Delivery) { deliveries <- d })
	if err != nil || link.Credit(uint32(k.prefetch)) != nil {
		return
	}
	left := k.prefetch // of its credit
	for d := range deliveries {
		left--
		m, err := client10.Read(d.Payload)
		if err != nil {
			c.ledger.fault("a message of %s: %v", k.queue, err)
			return
		}
		c.ledger.note(m.ID, func(m *known) { m.delivered++ })
		open = append(open, held{m.ID, d.ID})
		settled := open[len(open)-1:]
		does := k.decide(rng, &amqp.Delivery{MessageId: m.ID})
		if does == nackSoFar || does == ackSoFar {
			settled = open
		}
		for _, h := range settled { // before it is sent: see run
			c.ledger.note(h.name, func(m *known) {
				switch does {
				case ack, ackSoFar, slowly:
					m.acked = append(m.acked, c.covers(k.queue)...)
				case reject, again, nackSoFar:
					m.rejects++
				}
			})
		}
		if does == slowly {
			wait(ctx, time.Duration(rng.IntN(10))*time.Millisecond)
		}
		state := outcomeOf(does, rng)
		if state == nil {
			continue // it stays in open: a later range covers it
		}
		if s.Settle(settled[0].id, settled[len(settled)-1].id, state) != nil {
			return
		}
		open = open[:len(open)-len(settled)]
		if left+len(open) <= k.prefetch/2 {
			left = k.prefetch - len(open)
			if link.Credit(uint32(left)) != nil {
				return
			}
		}
	}
}

// placeOfTen is placeOf over AMQP 1.0.
func placeOfTen(queue string, payload []byte) (id string, c place) {
	c = place{queue: queue, deaths: map[string]int64{}}
	m, err := client10.Read(payload)
	if m == nil {
		c.fault = err.Error()
		return "", c
	}
	if err != nil {
		c.fault = err.Error()
	} else if !intact(m.ID, m.Body) {
		c.fault = "its body is not what was published"
	}
	for i, d := range m.Deaths {
		c.deaths[d.Queue+"/"+d.Reason] += int64(d.Count)
		if i == 0 {
			c.latest = d.Queue + "/" + d.Reason
		}
	}
	return m.ID, c
}

// drainTen has all queues send what they have to one session, settled.
func (l *life) drainTen(addr string, found chan<- drained, done <-chan struct{}) (end func(), err error) {
	c := &clients{addr: addr, ledger: l.ledger}
	s, err := c.dialTen()
	if err != nil {
		return nil, err
	}
	go func() { // ends with the connection, which the audit ends
		c.failedTen(s.Run(), "audit")
	}()
	var links []*client10.Link
	for _, q := range l.s.queues {
		link, err := s.Receiver(q.name, true, func(d *client10.Delivery) {
			id, at := placeOfTen(q.name, d.Payload)
			select {
			case found <- drained{id, at}:
			case <-done:
			}
		})
		if err != nil {
			return s.Close, fmt.Errorf("consume %s: %w", q.name, err)
		}
		links = append(links, link)
	}
	for _, link := range links { // not before: who attaches a link waits, and nobody hears of messages yet
		if err := link.Credit(1 << 24); err != nil {
			return s.Close, err
		}
	}
	return s.Close, nil
}
