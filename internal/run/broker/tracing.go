package broker

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// Tracing copies what clients publish to a virtual host, and what its queues deliver, to topology.TraceExchange, as RabbitMQ's
// firehose does. The copies go through Broker.traces, so that no traced client waits for them or learns of their fate.

// tracingBytes is how many bytes of copies may wait to be published.
const tracingBytes = 32 << 20

// traceTo are the virtual hosts whose messages are copied, nil if there are none.
type traceTo map[message.VHost]bool

// retap notes where copies and events lead since a change. REQUIRES: topo is held for writing.
func (b *Broker) retap() {
	if now := b.Events.Enabled && b.state.EventsLead(b.Events.VHost); b.eventful.Swap(now) != now {
		if e := b.ear.Load(); e != nil {
			e.Bound()
		}
	}
	traced := traceTo(b.state.TracedTo())
	if traced == nil {
		if b.traced.Load() != nil {
			b.traced.Store(nil)
		}
		return
	}
	b.traced.Store(&traced)
}

// Traced says whether what the client publishes and gets is copied. Any goroutine may call it.
func (c *Connection) Traced() bool {
	t := c.b.traced.Load()
	return t != nil && (*t)[c.VHost]
}

// tracePublish copies a message that was routed to queues.
func (c *Connection) tracePublish(p *Publication, targets []*partition.Queue) {
	var queues []string
	if len(p.Exchange) == 0 && c.b.Strict {
		for _, key := range p.DistinctKeys() { // RabbitMQ takes each key for a queue
			queues = append(queues, string(key))
		}
	} else {
		for _, q := range targets {
			queues = append(queues, q.Name)
		}
	}
	slices.Sort(queues)
	c.TracePublish(p, queues...)
}

// TracePublish copies a message that was published, and says which queues it was routed to. REQUIRES: Traced, and Check was called.
func (c *Connection) TracePublish(p *Publication, queues ...string) {
	routed := make(amqp091.Array, len(queues))
	for i, name := range queues {
		routed[i] = name
	}
	props := p.Props
	raw := p.Canonical()
	if p.edited {
		props, _ = amqp091.ParseProps(raw)
	}
	c.trace(traced{
		key: "publish." + string(p.Exchange), exchange: p.Exchange, keys: slices.Concat([][]byte{p.Key}, p.MoreKeys()), props: &props,
		channel: p.Channel, body: p.Body, size: p.Size, more: []amqp091.RawField{headerField("routed_queues", routed)},
	})
}

// A TracedDelivery is a message on its way to a client.
type TracedDelivery struct {
	Queue         string
	Exchange, Key []byte // of its latest publish or death
	Properties    []byte // as the client gets them
	Record        message.Record
	History       *deadletter.History // nil if nothing has happened to it
	Redelivered   bool
	Channel       uint16
}

// TraceDelivery copies a message that is delivered. Any goroutine may call it, with nothing locked but what is inside a
// connection. REQUIRES: Traced.
func (c *Connection) TraceDelivery(d *TracedDelivery) {
	props, err := amqp091.ParseProps(d.Properties)
	if err != nil { // checked when it was published
		return
	}
	keys := [][]byte{d.Key}
	if d.History == nil || !d.History.Placed() {
		for _, key := range partition.AppendCC(nil, props.Headers) {
			keys = append(keys, []byte(key))
		}
		keys = append(keys, message.ShortStrings(d.Record.BCC())...)
	} else {
		for _, key := range d.History.Keys[1:] {
			keys = append(keys, []byte(key))
		}
	}
	redelivered := int32(0)
	if d.Redelivered {
		redelivered = 1
	}
	body := convert.Body(d.Record)
	c.trace(traced{
		key: "deliver." + d.Queue, exchange: d.Exchange, keys: keys, props: &props, channel: d.Channel, body: [][]byte{body}, size: len(body),
		more: []amqp091.RawField{headerField("redelivered", redelivered)},
	})
}

// traceShown copies a message that the connection shows to its caller.
func (c *Connection) traceShown(g *Got, s *Shown) {
	if !c.Traced() {
		return
	}
	d := TracedDelivery{
		Queue: g.Queue.Name, Exchange: []byte(s.Exchange), Key: []byte(s.Key), Properties: s.Properties, Record: s.record, Redelivered: s.Redelivered, Channel: 1,
	}
	if h, err := deadletter.Parse(deathstore.Brief(c.b.bodies, g.History)); err == nil {
		d.History = &h
	}
	c.TraceDelivery(&d)
}

// traced is a message to be copied.
type traced struct {
	key      string
	exchange []byte
	keys     [][]byte
	props    *amqp091.Props
	channel  uint16
	body     [][]byte
	size     int
	more     []amqp091.RawField
}

// trace copies a message, unless it is a copy itself.
func (c *Connection) trace(t traced) {
	if string(t.exchange) == string(topology.TraceExchange) {
		return
	}
	keys := make(amqp091.Array, len(t.keys))
	for i, key := range t.keys {
		keys[i] = string(key)
	}
	fields := append([]amqp091.RawField{
		headerField("channel", int32(cmp.Or(t.channel, 1))), // what has no channel shows one, as in RabbitMQ
		headerField("connection", cmp.Or(c.Name, c.pid(0))),
		headerField("exchange_name", string(t.exchange)),
		headerField("node", c.b.NodeName),
		{Key: "properties", Encoded: amqp091.AppendPropsTable(nil, t.props)},
		headerField("routing_keys", keys),
		headerField("user", c.User),
		headerField("vhost", string(c.VHost)),
	}, t.more...)
	n := notice{
		vhost: c.VHost, exchange: topology.TraceExchange, key: message.CutName(t.key), headers: fields, body: t.body, size: t.size,
	}
	c.b.traces.send(&n)
}

// headerField is a header with its encoded value.
func headerField(key string, value any) amqp091.RawField {
	return amqp091.RawField{Key: key, Encoded: amqp091.AppendValue(nil, value)}
}
