package crash

import (
	"context"
	"fmt"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// transactions publishes in pairs, each pair in one transaction, and moves
// messages on by transactions of an ack and a publish. A transaction is one frame
// of the journal, or one command of a group: a pair is there or not, and a moved message is in one place.
func transactions() *scenario {
	var pairs atomic.Int64
	next := 0
	return &scenario{
		name: "transactions", covers: oneLine,
		// Transactions are whole in one log: the queues are of one type, and quorum
		// queues of these names are in one group.
		queues: []declared{{name: "left"}, {name: "right1"}, {name: "moved"}}, alike: true,
		history: func(m *known, c place, _ int) error { return died(c, nil, "") },
		work: func(l *life) []worker {
			return []worker{
				func(ctx context.Context, c *clients) { publishPairs(ctx, c, &next, &pairs) },
				func(ctx context.Context, c *clients) { moveOn(c, "left", "moved") },
			}
		},
	}
}

// publishPairs publishes one message to the left and one to the right at a time.
func publishPairs(ctx context.Context, c *clients, next *int, pairs *atomic.Int64) {
	ch, done := txChannel(c)
	if ch == nil {
		return
	}
	defer done()
	for n := 0; n < 500 && ctx.Err() == nil; n++ {
		pair := int(pairs.Add(1))
		var ids []string
		for _, queue := range []string{"left", "right1"} {
			id := fmt.Sprintf("tx-%d", *next)
			c.ledger.add(&known{id: id, publisher: "tx", seq: *next, lines: it, tx: pair})
			*next++
			ids = append(ids, id)
			if ch.Publish("", queue, false, false, amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Body: content(id, 50)}) != nil {
				return
			}
		}
		if err := ch.TxCommit(); err != nil {
			c.failed(err, "tx.commit of a pair")
			return
		}
		for _, id := range ids {
			c.ledger.note(id, func(m *known) { m.fate = confirmed })
		}
	}
	wait(ctx, 1<<40)
}

// moveOn takes messages out of one queue and publishes them to another. What it
// acks is not acked to the ledger: the message must not be lost by it.
func moveOn(c *clients, from, to string) {
	ch, done := txChannel(c)
	if ch == nil {
		return
	}
	defer done()
	if ch.Qos(20, 0, false) != nil {
		return
	}
	deliveries, err := ch.Consume(from, "", false, false, false, false, nil)
	if err != nil {
		c.failed(err, "consume "+from)
		return
	}
	n := 0
	for d := range deliveries {
		out := amqp.Publishing{MessageId: d.MessageId, DeliveryMode: amqp.Persistent, Body: d.Body}
		if ch.Publish("", to, false, false, out) != nil || d.Ack(false) != nil {
			return
		}
		if n++; n%5 == 0 {
			if err := ch.TxCommit(); err != nil {
				c.failed(err, "tx.commit of a move")
				return
			}
		}
	}
}

// txChannel opens a connection with a channel in transaction mode; ch is nil if
// the server is dead.
func txChannel(c *clients) (ch *amqp.Channel, done func()) {
	conn, err := dial(c.addr)
	if err != nil {
		return nil, nil
	}
	done = func() { _ = conn.Close() }
	if ch, err = conn.Channel(); err != nil {
		done()
		return nil, nil
	}
	if err := ch.Tx(); err != nil {
		c.failed(err, "tx.select")
		done()
		return nil, nil
	}
	return ch, done
}
