package broker

import (
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// Drop is messages that the broker let go of without delivering and without moving them, since TakeDrops was last
// called: dead letters of a queue, or what was published to an exchange that led nowhere.
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

// WatchDrops begins to note drops. The channel gets a value when TakeDrops has something to report. It is called once,
// before the node serves.
func (b *Broker) WatchDrops() <-chan struct{} {
	b.dropWake = make(chan struct{}, 1)
	b.node.WatchDrops(b.wakeDrops)
	b.watchesDrops.Store(true)
	return b.dropWake
}

// UnwatchDrops ends what WatchDrops has begun. TakeDrops is called once more after it.
func (b *Broker) UnwatchDrops() {
	b.watchesDrops.Store(false)
	b.node.UnwatchDrops()
}

// wakeDrops says that there is something to take. It does not block.
func (b *Broker) wakeDrops() {
	select {
	case b.dropWake <- struct{}{}:
	default:
	}
}

// unroutable notes that messages reached no queue.
func (b *Broker) unroutable(t *Traffic, dropped uint64) {
	if t.UnroutableDropped.Add(dropped); dropped > 0 && b.watchesDrops.Load() {
		b.wakeDrops()
	}
}

// TakeDrops returns what was dropped since the last call. What went with a deleted queue or exchange is not in it.
// REQUIRES: WatchDrops was called; one goroutine at a time.
func (b *Broker) TakeDrops() []Drop {
	var list []Drop
	b.node.TakeDrops(func(d *partition.Dropped) {
		drop := Drop{VHost: d.Queue.VHost, Queue: message.QueueName(d.Queue.Name), Incarnation: d.Queue.Incarnation, Reason: d.Reason, Why: d.Outcome.String(), Count: d.Count}
		if d.Record != nil {
			drop.show(d.Record, d.History)
		}
		list = append(list, drop)
	})
	if now := b.Totals.dropped(); now != b.toldUnroutable {
		b.toldUnroutable = now
		list = b.takeUnroutable(list)
	}
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

// takeUnroutable appends what exchanges have dropped since the last call.
func (b *Broker) takeUnroutable(list []Drop) []Drop {
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			v.EachExchange(func(x *topology.Exchange) {
				st := b.statsOf(x)
				now := st.Dropped.Load()
				if n := now - st.told; n > 0 {
					st.told = now
					list = append(list, Drop{VHost: v.Name, Why: DropUnroutable, Count: n, Exchange: string(x.Name)})
				}
			})
		}
	})
	return list
}
