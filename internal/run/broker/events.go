package broker

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// Events are messages to topology.EventExchange about what happens on the node, as those of RabbitMQ's plugin
// rabbitmq_event_exchange. Whoever makes something happen calls Notify when it has happened. The events leave through
// Broker.events, so that nothing waits for them.

// EventExchange says whether there is an exchange for events, and in which virtual host; "": none.
type EventExchange struct {
	Enabled bool
	VHost   message.VHost
}

// eventBytes is how many bytes of events may wait to be published.
const eventBytes = 8 << 20

// internalUser is RabbitMQ's name of whoever does what no user has asked for.
const internalUser = "rmq-internal"

// hasEvents says whether a client that has this access would get events. They tell of every virtual host and every user, so
// that a permission in one virtual host is not enough: the user needs a tag that shows the node (mayMonitor). RabbitMQ, whose
// operators enable the plugin, and strict mode ask for the permission only.
func (b *Broker) hasEvents(a topology.Access, r topology.Resource) bool {
	return a == topology.Read && r.Kind == topology.ExchangeResource && r.Name == string(topology.EventExchange) && r.VHost == b.Events.VHost && b.Events.Enabled && !b.Strict
}

// mayMonitor says whether the user sees the whole node: administrators do, and those with the tag monitoring. REQUIRES: topo is held.
func (c *Connection) mayMonitor() bool {
	u, ok := c.account()
	if c.elsewhere != nil {
		return ok && slices.ContainsFunc(c.id.Tags, showsNode)
	}
	return ok && slices.ContainsFunc(u.Tags, showsNode)
}

func showsNode(t auth.Tag) bool { return t == auth.Administrator || t == auth.Monitoring }

// ensureEventExchange makes the exchange for events, if there is to be one, and its virtual host is there.
func (b *Broker) ensureEventExchange() error {
	if !b.Events.Enabled {
		return nil
	}
	return b.change(func() error { return b.state.EnsureEventExchange(b.Events.VHost) })
}

// Ear hears events as they happen, beside whoever has bound something to the exchange. None of its functions may wait, or take a lock
// that comes before those of partitions: see Notify.
type Ear struct {
	Wants func(key string) bool // whether it is to hear events with this key
	Hear  func(key string, at time.Time, facts amqp091.Table)
	Bound func() // Eventful has changed
}

// Listen sets who hears events; nil: nobody does.
func (b *Broker) Listen(e *Ear) { b.ear.Store(e) }

// Eventful says whether anything is bound to the exchange for events.
func (b *Broker) Eventful() bool { return b.eventful.Load() }

// told says whether events are told to anybody.
func (b *Broker) told() bool { return b.eventful.Load() || b.ear.Load() != nil }

// Notify publishes an event, if anybody has bound something to the exchange or listens; else it does not call facts. key is the routing key; the
// facts become headers. Their values must be of field types (see amqp091.Field): numbers are int64 where RabbitMQ has numbers. No fact may be a password.
// Any goroutine may call it, with the locks of broker, partitions and groups held; facts must take no lock.
func (b *Broker) Notify(key string, facts func() amqp091.Table) {
	ear, bound := b.ear.Load(), b.eventful.Load()
	heard := ear != nil && ear.Wants(key)
	if !heard && !bound {
		return
	}
	now, told := time.Now(), facts()
	if heard {
		ear.Hear(key, now, told)
	}
	if !bound {
		return
	}
	at := uint64(now.Unix())
	persistent := uint8(2)
	n := notice{
		vhost: b.Events.VHost, exchange: topology.EventExchange, key: message.CutName(key),
		properties: amqp091.PropertyList{DeliveryMode: &persistent, Timestamp: &at},
		headers:    []amqp091.RawField{headerField("timestamp_in_ms", now.UnixMilli())},
	}
	for _, f := range told {
		n.headers = append(n.headers, headerField(f.Key, f.Value))
	}
	b.events.send(&n)
}

// fact is a field of an event.
func fact(key string, value any) amqp091.Field { return amqp091.Field{Key: key, Value: value} }

// doneBy is the fact that says who has done something.
func doneBy(user string) amqp091.Field { return fact("user_who_performed_action", user) }

// argumentFacts are arguments as RabbitMQ shows them in events: each as the text of an Erlang term.
func argumentFacts(args amqp091.Table) amqp091.Array {
	list := amqp091.Array{}
	for _, f := range args {
		list = append(list, erlterm.Format(argumentTerm(f)))
	}
	return list
}

func argumentTerm(f amqp091.Field) erlterm.Tuple {
	return erlterm.Tuple{f.Key, erlterm.Atom(amqp091.TypeName(f.Value)), valueTerm(f.Value)}
}

func valueTerm(v any) any {
	switch v := v.(type) {
	case amqp091.Table:
		list := []any{}
		for _, f := range v {
			list = append(list, argumentTerm(f))
		}
		return list
	case amqp091.Array:
		list := []any{}
		for _, e := range v {
			list = append(list, erlterm.Tuple{erlterm.Atom(amqp091.TypeName(e)), valueTerm(e)})
		}
		return list
	case amqp091.Decimal:
		return erlterm.Tuple{int64(v.Scale), int64(v.Value)}
	}
	return v
}

// jsonFact is a JSON value as RabbitMQ shows it in events, without passwords of addresses.
func jsonFact(v any) any {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool, int64:
		return v
	case float64:
		return float32(v)
	case string:
		return withoutPassword(v)
	case map[string]any:
		if len(v) == 0 {
			return amqp091.Array{}
		}
		t := amqp091.Table{}
		for _, k := range sortedKeys(v) {
			t = append(t, fact(message.CutName(k), jsonFact(v[k])))
		}
		return t
	case []any:
		list := amqp091.Array{}
		for _, e := range v {
			list = append(list, jsonFact(e))
		}
		return list
	}
	return fmt.Sprint(v)
}

// pid stands for the Erlang process of a connection, or of one of its channels.
func (c *Connection) pid(channel uint16) string {
	_, number, _ := strings.Cut(c.owner, "\x00")
	return fmt.Sprintf("<%s.%d.%s.%d>", c.b.NodeName, c.b.started.Unix(), number, channel)
}

// hostFact is an address as Erlang prints it.
func hostFact(host string) string {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	var parts []string
	if addr = addr.Unmap(); addr.Is4() {
		for _, n := range addr.As4() {
			parts = append(parts, strconv.Itoa(int(n)))
		}
	} else {
		b := addr.As16()
		for i := 0; i < len(b); i += 2 {
			parts = append(parts, strconv.Itoa(int(b[i])<<8|int(b[i+1])))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (b *Broker) notifyExchange(x *topology.ExchangeDecl, by string) {
	b.Notify("exchange.created", func() amqp091.Table {
		return amqp091.Table{
			fact("name", string(x.Name)), fact("vhost", string(x.VHost)), fact("type", string(x.Type)), fact("durable", x.Durable),
			fact("auto_delete", x.AutoDelete), fact("internal", x.Internal), fact("arguments", argumentFacts(x.Arguments)), fact("policy", ""), doneBy(by),
		}
	})
}

func (b *Broker) notifyQueue(q *topology.Queue, owner *Connection, by string) {
	b.Notify("queue.created", func() amqp091.Table {
		args := slices.Clone(q.Arguments)
		if _, ok := args.Get("x-queue-type"); !ok {
			args = append(args, fact("x-queue-type", string(q.Type)))
		}
		t := amqp091.Table{
			fact("name", string(q.Name)), fact("vhost", string(q.VHost)), fact("durable", q.Durable), fact("auto_delete", q.AutoDelete),
			fact("exclusive", q.Exclusive), fact("type", typeFact(q)), fact("arguments", argumentFacts(args)), doneBy(by),
		}
		if q.Type != topology.Quorum {
			pid := ""
			if q.Exclusive {
				pid = owner.pid(0)
			}
			t = append(t, fact("owner_pid", pid), fact("leader", b.NodeName), fact("members", amqp091.Array{b.NodeName}))
		}
		return t
	})
}

func typeFact(q *topology.Queue) string { return "rabbit_" + string(q.Type) + "_queue" }

// notifyRemoved tells of what went with an object, which was removed by a user.
func (b *Broker) notifyRemoved(r topology.Removed, by string) {
	if r.Queue != nil {
		b.tellDeleted(r.Queue)
	}
	if !b.told() {
		return
	}
	for _, x := range r.Exchanges {
		b.Notify("exchange.deleted", func() amqp091.Table {
			return amqp091.Table{fact("name", string(x.Name)), fact("vhost", string(x.VHost)), doneBy(by)}
		})
	}
	for _, binding := range r.Bindings {
		b.notifyBinding("binding.deleted", binding, by)
	}
	if q := r.Queue; q != nil {
		b.Notify("queue.deleted", func() amqp091.Table {
			return amqp091.Table{fact("name", string(q.Name)), fact("vhost", string(q.VHost)), fact("type", typeFact(q)), doneBy(by)}
		})
	}
}

func (b *Broker) notifyBinding(key string, binding *topology.Binding, by string) {
	b.Notify(key, func() amqp091.Table {
		to, kind := binding.Destination(), "queue"
		if to.Kind == topology.ExchangeResource {
			kind = "exchange"
		}
		return amqp091.Table{
			fact("source_name", string(binding.SourceName())), fact("source_kind", "exchange"), fact("vhost", string(binding.VHost)),
			fact("destination_name", to.Name), fact("destination_kind", kind), fact("routing_key", string(binding.Key)),
			fact("arguments", argumentFacts(binding.Arguments)), doneBy(by),
		}
	})
}

// notifyOpened tells of a connection that is open.
func (c *Connection) notifyOpened() {
	c.b.Notify("connection.created", func() amqp091.Table {
		st := ConnectionStatus{Peer: c.Peer}
		if c.client != nil {
			st = c.client.Status()
		}
		t := amqp091.Table{
			fact("type", "network"), fact("pid", c.pid(0)), fact("name", c.Name), fact("node", c.b.NodeName), fact("port", int64(c.Port)), fact("peer_port", int64(c.PeerPort)),
			fact("host", hostFact(c.Host)), fact("peer_host", hostFact(c.PeerHost)), fact("auth_mechanism", st.Mechanism), fact("timeout", int64(st.Heartbeat/time.Second)),
			fact("frame_max", int64(st.FrameMax)), fact("channel_max", int64(st.ChannelMax)), fact("client_properties", argumentFacts(st.Properties)),
			fact("connected_at", c.Since.UnixMilli()), fact("protocol", c.Peer.version()), fact("user", c.User), fact("vhost", string(c.VHost)),
			fact("peer_cert_serial_number", ""), fact("ssl_key_exchange", ""), fact("ssl_hash", ""), doneBy(c.User),
		}
		if st.Container != "" {
			t = append(t, fact("container_id", st.Container))
		}
		return append(append(t, tlsFacts(st.TLS, "")...), c.providedName(st.Properties)...)
	})
}

// version is the protocol as RabbitMQ's events have it.
func (p *Peer) version() string {
	switch p.Protocol {
	case "AMQP 1-0":
		return "{1,0}"
	case "Web AMQP 1-0":
		return "{'Web AMQP',{1,0}}"
	}
	return "{0,9,1}"
}

// tlsFacts are of the handshake of TLS; a text that is not known is left out if absent is not "".
func tlsFacts(t *TLS, absent string) (facts amqp091.Table) {
	facts = amqp091.Table{fact("ssl", t != nil)}
	if t == nil {
		t = new(TLS)
	}
	for _, f := range []amqp091.Field{
		fact("ssl_protocol", t.Protocol), fact("ssl_cipher", t.Cipher), fact("peer_cert_subject", t.Subject), fact("peer_cert_issuer", t.Issuer), fact("peer_cert_validity", t.Validity),
	} {
		if f.Value != "" || absent == "" {
			facts = append(facts, f)
		}
	}
	return facts
}

// providedName is the name that a client has given its connection, if it has.
func (c *Connection) providedName(properties amqp091.Table) amqp091.Table {
	v, _ := properties.Get("connection_name")
	if name, ok := v.(string); ok {
		return amqp091.Table{fact("user_provided_name", name)}
	}
	return nil
}

func (c *Connection) notifyClosed() {
	c.b.Notify("connection.closed", func() amqp091.Table {
		var properties amqp091.Table
		if c.client != nil {
			properties = c.client.Status().Properties
		}
		return append(amqp091.Table{
			fact("name", c.Name), fact("pid", c.pid(0)), fact("node", c.b.NodeName), fact("client_properties", argumentFacts(properties)),
		}, c.providedName(properties)...)
	})
}

// NotifyChannel tells of a channel that was opened.
func (c *Connection) NotifyChannel(number uint16) {
	c.b.Notify("channel.created", func() amqp091.Table {
		return amqp091.Table{
			fact("pid", c.pid(number)), fact("name", fmt.Sprintf("%s (%d)", c.Name, number)), fact("connection", c.pid(0)), fact("number", int64(number)),
			fact("user", c.User), fact("vhost", string(c.VHost)), doneBy(c.User),
		}
	})
}

// NotifyChannelClosed tells of a channel that is closed, and how many consumers it had.
func (c *Connection) NotifyChannelClosed(number uint16, consumers int) {
	c.b.Notify("channel.closed", func() amqp091.Table {
		return amqp091.Table{fact("pid", c.pid(number)), doneBy(c.User), fact("consumer_count", int64(consumers))}
	})
}

func (c *Connection) notifyConsumer(q *partition.Queue, k *queue.Consumer) {
	c.b.Notify("consumer.created", func() amqp091.Table {
		var info ConsumerInfo
		if i, ok := k.Target.(Informant); ok {
			info = i.Info()
		}
		return amqp091.Table{
			fact("consumer_tag", k.Tag), fact("exclusive", k.Exclusive), fact("ack_required", !k.NoAck), fact("channel", c.pid(info.Number)),
			fact("queue", q.Name), fact("vhost", string(q.VHost)), fact("prefetch_count", int64(k.Prefetch)), fact("arguments", argumentFacts(info.Arguments)), doneBy(c.User),
		}
	})
}

// NotifyConsumerGone tells of a consumer that was cancelled, by its client or since its queue is gone.
func (c *Connection) NotifyConsumerGone(q *partition.Queue, tag string, channel uint16, byClient bool) {
	c.b.Notify("consumer.deleted", func() amqp091.Table {
		t := amqp091.Table{fact("consumer_tag", tag), fact("channel", c.pid(channel)), fact("queue", q.Name), fact("vhost", string(q.VHost))}
		if byClient {
			t = append(t, doneBy(c.User))
		}
		return t
	})
}

// NotifyLogin tells of a client that has tried to log in.
func (b *Broker) NotifyLogin(user, mechanism string, peer *Peer, t *TLS, succeeded bool) {
	key := "user.authentication.failure"
	if succeeded {
		key = "user.authentication.success"
	}
	b.Notify(key, func() amqp091.Table {
		facts := amqp091.Table{
			fact("connection_type", "network"), fact("name", user), fact("host", hostFact(peer.Host)), fact("connection_name", peer.Name),
			fact("peer_host", hostFact(peer.PeerHost)), fact("peer_port", int64(peer.PeerPort)), fact("protocol", peer.version()), fact("auth_mechanism", mechanism),
		}
		if !succeeded {
			facts = append(facts, fact("error", fmt.Sprintf("user '%s' - invalid credentials", user)))
		}
		return append(facts, tlsFacts(t, "left out")...)
	})
}

// notifyAlarms tells of the alarms that are set or cleared.
func (b *Broker) notifyAlarms(before, now Alarm) {
	for a, source := range map[Alarm]string{Memory: "memory", Disk: "disk"} {
		if before&a == now&a {
			continue
		}
		key := "alarm.set"
		if now&a == 0 {
			key = "alarm.cleared"
		}
		b.Notify(key, func() amqp091.Table { return amqp091.Table{fact("source", source), fact("node", b.NodeName)} })
	}
}
