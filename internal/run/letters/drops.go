package letters

import (
	"slices"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// Drop is messages that the broker let go of without delivering and without moving them, since the last
// DropWatch.Take: dead letters of a queue, or what was published to an exchange that led nowhere.
type Drop struct {
	VHost message.VHost
	// Queue is where they died, and Reason why. Both, and Incarnation, are zero for messages that no queue has taken.
	Queue       message.QueueName
	Incarnation uint64 // of the queue
	Reason      deadletter.Reason
	Why         string // deadletter.Outcome's, or DropUnroutable
	Count       uint64
	// An example: where it was published to, and what it says of itself. All are zero if there is none; of an
	// unroutable message only the exchange is known.
	Exchange   string
	Keys       []string
	MessageID  string
	Type       string
	Size       int // of the body, in bytes
	HasExample bool
}

// DropUnroutable is the Drop.Why of a message that was published without mandatory and reached no queue.
const DropUnroutable = "unroutable"

// DropWatch notes what is dropped.
type DropWatch struct {
	b    *broker.Broker
	wake chan struct{}
}

// WatchDrops begins to note drops. It is called once, before the node serves.
func WatchDrops(b *broker.Broker) *DropWatch {
	w := &DropWatch{b, make(chan struct{}, 1)}
	wake := func() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	b.Node().WatchDrops(wake)
	b.OnUnroutable(wake)
	return w
}

// Wake gets a value when Take has something to report.
func (w *DropWatch) Wake() <-chan struct{} { return w.wake }

// End ends what WatchDrops has begun. Take is called once more after it.
func (w *DropWatch) End() {
	w.b.OnUnroutable(nil)
	w.b.Node().UnwatchDrops()
}

// Take returns what was dropped since the last call. What went with a deleted queue or exchange is not in it. REQUIRES: one goroutine
// at a time.
func (w *DropWatch) Take() []Drop {
	var list []Drop
	w.b.Node().TakeDrops(func(d *partition.Dropped) {
		drop := Drop{VHost: d.Queue.VHost, Queue: message.QueueName(d.Queue.Name), Incarnation: d.Queue.Incarnation, Reason: d.Reason, Why: d.Outcome.String(), Count: d.Count}
		if d.Record != nil {
			drop.show(d.Record, d.History)
		}
		list = append(list, drop)
	})
	w.b.TakeUnroutable(func(vhost message.VHost, exchange message.ExchangeName, count uint64) {
		list = append(list, Drop{VHost: vhost, Why: DropUnroutable, Count: count, Exchange: string(exchange)})
	})
	return list
}

// maxDropKeys is how many keys of an example are kept: a header CC may have very many, and one message may be dropped by very many queues.
const maxDropKeys = 8

// show describes the example. Where it was first published is where people know it from.
func (d *Drop) show(rec message.Record, history []byte) {
	d.HasExample, d.Size = true, rec.BodySize()
	d.Exchange, d.Keys = string(rec.Exchange()), []string{string(rec.Key())}
	if h, err := deadletter.Parse(history); err == nil {
		if exchange, keys, ok := h.Origin(); ok {
			d.Exchange, d.Keys = exchange, slices.Clone(keys[:min(len(keys), maxDropKeys)])
		}
	}
	if subject, typ := convert.Named(rec); typ != nil {
		d.Type = string(typ)
	} else {
		d.Type = string(subject)
	}
	if props, err := amqp091.DecodeProps(rec.Properties()); err == nil {
		if props.MessageID != nil {
			d.MessageID = *props.MessageID
		}
		if props.Type != nil && *props.Type != "amqp-1.0" { // that says how the body is encoded
			d.Type = *props.Type
		}
	}
}
