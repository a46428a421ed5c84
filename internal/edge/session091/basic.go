package session091

import (
	"bytes"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

func (ch *channel) basicQos(m *amqp091.BasicQos) error {
	if m.PrefetchSize != 0 {
		return fail(amqp091.CodeNotImplemented, "prefetch_size!=0 (%d)", m.PrefetchSize)
	}
	if m.Global && ch.c.broker.GlobalQos {
		ch.gate.limit.Store(int64(m.PrefetchCount))
		if !ch.sharing {
			ch.sharing = true
			ch.share()
		}
		ch.pumpGated()
	} else {
		ch.prefetch = int(m.PrefetchCount) // BR-9.8, BR-9.9
		ch.shown.prefetch.Store(int64(m.PrefetchCount))
	}
	ch.reply(amqp091.BasicQosOk{}, false)
	return nil
}

// share puts the channel's consumers under its shared limit, which already counts their deliveries.
func (ch *channel) share() {
	of := map[*partition.Queue][]*queue.Consumer{}
	ch.mu.Lock()
	for _, k := range ch.consumers {
		if k.limited {
			of[k.q] = append(of[k.q], &k.Consumer)
		}
	}
	ch.mu.Unlock()
	for q, list := range of {
		ch.c.link.Share(q, list, &ch.gate)
	}
}

// pumpGated makes each queue with consumers under the channel's shared limit deliver again, until the limit is
// reached. The order is random, so that no queue is always last. Any goroutine may call it while it holds no lock.
func (ch *channel) pumpGated() {
	ch.mu.Lock()
	queues := make([]*partition.Queue, 0, len(ch.queues))
	for q := range ch.queues {
		queues = append(queues, q)
	}
	ch.mu.Unlock()
	for _, q := range queues {
		if ch.gate.full() {
			return // the next settlement calls pumpGated again
		}
		ch.c.link.Open(q, &ch.gate)
	}
}

// pumpGated calls it for the channels in which settlements have made room.
func (c *conn) pumpGated() {
	for _, ch := range c.ungated {
		ch.ungated = false
		ch.pumpGated()
	}
	clear(c.ungated)
	c.ungated = c.ungated[:0]
}

func (ch *channel) basicConsume(m *amqp091.BasicConsume) error {
	c := ch.c
	if m.Queue == broker.ReplyTo {
		return ch.consumeReplies(m)
	}
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if _, live := c.broker.Requester(string(name)); live {
		return fail(amqp091.CodePreconditionFailed, "only creator channel may consume from %s", topology.Resource{VHost: c.link.VHost, Kind: topology.QueueResource, Name: string(name)})
	}
	q, err := c.link.Find(name, topology.Read)
	if err != nil {
		return err
	}
	decl := q.Decl
	tag := m.ConsumerTag
	if tag == "" {
		tag = broker.RandomName("amq.ctag-")
	}
	ch.mu.Lock()
	_, used := ch.consumers[tag]
	count := len(ch.consumers)
	ch.mu.Unlock()
	if used { // the tag of the reply consumer may be used, as in RabbitMQ
		return fail(amqp091.CodeNotAllowed, "attempt to reuse consumer tag '%s'", tag)
	}
	if c.MaxChannelConsumers > 0 && count >= c.MaxChannelConsumers {
		return fail(amqp091.CodeNotAllowed, "reached maximum (%d) of consumers per channel", c.MaxChannelConsumers)
	}
	k := &consumer{ch: ch, tag: tag, queued: name, limited: c.broker.GlobalQos && !m.NoAck && decl.Type != topology.Quorum}
	k.Consumer = queue.Consumer{Target: k, Tag: tag, NoAck: m.NoAck, Exclusive: m.Exclusive, Prefetch: ch.prefetch}
	if err := k.arguments(decl, m.Arguments); err != nil {
		return err
	}
	if ch.sharing {
		if decl.Type == topology.Quorum {
			return fail(amqp091.CodeNotImplemented, "%s does not support global qos", decl.Resource())
		}
		if k.limited {
			k.Gate = &ch.gate
		}
	}
	_, err = c.link.Consume(name, &k.Consumer, func(q *partition.Queue) {
		k.q = q
		ch.mu.Lock()
		ch.enter(k)
		ch.mu.Unlock()
		ch.reply(amqp091.BasicConsumeOk{ConsumerTag: tag}, m.NoWait)
	})
	return err
}

// arguments reads the arguments of basic.consume (BR-9.2), and keeps them for the management API.
func (k *consumer) arguments(decl *topology.Queue, args amqp091.Table) error {
	if v, ok := args.Get("x-priority"); ok {
		n, isInt := amqp091.Int64(v)
		if !isInt {
			return fail(amqp091.CodePreconditionFailed, `invalid arg 'x-priority' for %s: "expected integer, got %s"`, decl.Resource(), amqp091.TypeName(v))
		}
		k.Priority = n
	}
	if v, ok := args.Get("x-consumer-timeout"); ok {
		if decl.Type != topology.Quorum {
			return fail(amqp091.CodePreconditionFailed, "invalid arg 'x-consumer-timeout' for %s of queue type rabbit_classic_queue", decl.Resource())
		}
		n, isInt := amqp091.Int64(v)
		if !isInt {
			return fail(amqp091.CodePreconditionFailed, `invalid arg 'x-consumer-timeout' for %s: "expected integer, got %s"`, decl.Resource(), amqp091.TypeName(v))
		}
		if n < 0 {
			return fail(amqp091.CodePreconditionFailed, "invalid arg 'x-consumer-timeout' for %s: {value_negative,%d}", decl.Resource(), n)
		}
		k.Timeout = n
	}
	for _, arg := range []string{"x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"} {
		if _, ok := args.Get(arg); ok {
			return fail(amqp091.CodePreconditionFailed, "invalid arg '%s' for %s of queue type rabbit_%s_queue", arg, decl.Resource(), decl.Type)
		}
	}
	if len(args) == 0 {
		return nil
	}
	k.args = bytes.Clone(amqp091.AppendTable(nil, args)) // a clone, without spare capacity
	return topology.CheckArguments(args)
}

// consumeReplies makes the channel a requester (BR-12.1).
func (ch *channel) consumeReplies(m *amqp091.BasicConsume) error {
	if !m.NoAck {
		return fail(amqp091.CodePreconditionFailed, "reply consumer cannot acknowledge")
	}
	if ch.requester != "" {
		return fail(amqp091.CodePreconditionFailed, "reply consumer already set")
	}
	tag := m.ConsumerTag
	if tag == "" {
		tag = broker.RandomName("amq.ctag-")
	}
	ch.mu.Lock()
	_, used := ch.consumers[tag]
	ch.mu.Unlock()
	if used {
		return fail(amqp091.CodeNotAllowed, "attempt to reuse consumer tag '%s'", tag)
	}
	ch.replies = &requester{ch: ch, tag: tag}
	ch.requester = ch.c.broker.AddRequester(ch.replies)
	ch.reply(amqp091.BasicConsumeOk{ConsumerTag: tag}, m.NoWait)
	return nil
}

func (ch *channel) basicCancel(m *amqp091.BasicCancel) error {
	ok := amqp091.BasicCancelOk{ConsumerTag: m.ConsumerTag}
	if ch.requester != "" && m.ConsumerTag == ch.replies.tag {
		ch.c.broker.RemoveRequester(ch.requester)
		ch.replies.end()
		ch.requester, ch.replies = "", nil
		ch.reply(ok, m.NoWait)
		return nil
	}
	ch.mu.Lock()
	k := ch.consumers[m.ConsumerTag]
	if k != nil {
		ch.leave(k)
	}
	ch.mu.Unlock()
	if k == nil {
		ch.reply(ok, m.NoWait) // BR-9.12
		return nil
	}
	answered := false
	ch.c.link.Cancel(k.q, &k.Consumer, func() {
		answered = true
		ch.reply(ok, m.NoWait)
	})
	if !answered { // the queue was deleted at the same time
		ch.reply(ok, m.NoWait)
	}
	ch.c.link.NotifyConsumerGone(k.q, k.tag, ch.number, true)
	return nil
}

func (ch *channel) basicGet(m *amqp091.BasicGet) error {
	if ch.c.sock.Dead() {
		return errBroken // it could not be answered, and unanswered gets would pile up
	}
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	g, ok, err := ch.get(message.QueueName(name), m.NoAck)
	if err != nil {
		return err
	}
	if !ok {
		ch.gotNothing(g.Queue)
		ch.reply(amqp091.BasicGetEmpty{}, false)
		return nil
	}
	it := item{kind: itemGet, ch: ch, q: g.Queue, d: g.Delivery, left: uint32(g.Left)}
	ch.untagged.Add(1)
	ch.c.deliver(&it)
	return ch.c.makeRoom()
}

// get gets a readable message, and sets aside messages that are lost on disk. It must do so here: later the holder of
// the pen may be the goroutine that applies a group's commands, and that cannot wait for a command.
func (ch *channel) get(name message.QueueName, noAck bool) (g broker.Got, ok bool, err error) {
	store, node := ch.c.broker.Bodies(), ch.c.broker.Node()
	for {
		if g, ok, err = ch.c.link.Get(name, noAck); err != nil || !ok {
			return g, false, err
		}
		warm, unread := store.Warm(g.Body)
		if unread == nil {
			g.Body = warm
			return g, true, nil
		}
		if !bodies.Lost(unread) || !node.SetAside(g.Queue, &g.Delivery, g.By, unread) {
			return g, true, nil // encoding it will fail and end the connection
		}
		store.Release(g.Body)
		store.Release(g.History)
	}
}

// basicRecover requeues all unsettled deliveries of the channel, and all deliveries in the output before
// the answer, because the client cannot distinguish them (BR-9.11).
func (ch *channel) basicRecover(requeue, async bool) error {
	if !requeue {
		return fail(amqp091.CodeNotImplemented, "requeue=false")
	}
	c := ch.c
	ch.mu.Lock()
	last := ch.nextTag
	ch.notes.drop(c)
	if !async {
		c.putRecovered(ch) // before the messages come again
	}
	for more := true; more; ch.mu.Lock() {
		c.settling = ch.unacked.takeUpTo(last, maxOps, c.settling[:0])
		ch.mu.Unlock()
		for i := range c.settling {
			u := &c.settling[i]
			ch.freed(u.consumer)
			c.addOp(partition.Op{Kind: partition.Return, Queue: u.q, ID: u.id, Consumer: u.consumer, How: queue.ReturnRecover}, opOwner{})
		}
		more = len(c.settling) == maxOps
		clear(c.settling)
	}
	ch.mu.Unlock()
	c.flushOps()
	return nil
}
