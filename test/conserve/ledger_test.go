package conserve

import (
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

// story is a ledger that hears of events which no broker had a part in.
type story struct {
	t  *testing.T
	l  *ledger
	w  *world
	ch *channel
}

const body = "what was published"

// newStory has a queue a, whose dead letters go to b, and a channel that both are declared on.
func newStory(t *testing.T) *story {
	l := newLedger()
	l.counted = true
	spec := func(dlx string) *queueSpec {
		return &queueSpec{durable: true, dlx: dlx, dlrk: "b", ttl: -1, maxLen: -1, expires: -1, limit: -1}
	}
	w := &world{slots: []*slot{{"a", []*queueSpec{spec("")}}, {"b", []*queueSpec{spec("none")}}}}
	s := &story{t: t, l: l, w: w}
	s.ch = s.channel(confirming)
	for _, slot := range w.slots {
		s.declare(slot)
	}
	return s
}

func (s *story) declare(slot *slot) {
	s.l.specs[slot.name] = slot.variants
	s.l.declares[slot.name] = append(s.l.declares[slot.name], s.done("declare", slot.name))
}

// queue adds a queue whose dead letters have nowhere to go.
func (s *story) queue(name string) *queueSpec {
	spec := &queueSpec{durable: true, dlx: "none", ttl: -1, maxLen: -1, expires: -1, limit: -1}
	added := &slot{name, []*queueSpec{spec}}
	s.w.slots = append(s.w.slots, added)
	s.declare(added)
	return spec
}

func (s *story) channel(m mode) *channel {
	c := &client{l: s.l, name: "client", chans: map[uint16]*channel{}}
	ch := &channel{c: c, num: 1, mode: m, unconfirmed: map[uint64]*message{}, consumers: map[string]*consumer{}}
	c.chans[1] = ch
	ch.act("open", "").done = s.l.tick()
	return ch
}

// done is something that was said and answered.
func (s *story) done(what, queue string) *act {
	a := s.ch.act(what, queue)
	a.done = s.l.tick()
	return a
}

// consumer is a new channel of a new client that consumes a queue.
func (s *story) consumer(queue string) *channel {
	ch := s.channel(confirming)
	s.l.clients = append(s.l.clients, ch.c)
	ch.act("consume", queue).done = s.l.tick()
	ch.consumers[queue] = &consumer{ch: ch, queue: queue, last: map[*channel]*message{}}
	return ch
}

// publish publishes to the queue a, confirmed.
func (s *story) publish(id string) *message {
	m := &message{id: id, act: s.ch.act("publish", "a"), key: "a", body: crc32.ChecksumIEEE([]byte(body)), size: len(body), persistent: true, expiration: -1}
	s.l.publishing(s.ch, m)
	s.l.confirmed(s.ch, s.ch.published, false, true)
	return m
}

// unanswered publishes to the queue a on a channel that is closed before there is a confirm.
func (s *story) unanswered(id string) {
	m := &message{id: id, act: s.ch.act("publish", "a"), key: "a", body: crc32.ChecksumIEEE([]byte(body)), size: len(body), persistent: true, expiration: -1}
	s.l.publishing(s.ch, m)
	s.ch.act("close", "")
	m.act.done = s.l.tick() // by close-ok
	s.l.channelEnded(s.ch)
}

// deliver has the message come out of a queue, after deaths.
func (s *story) deliver(ch *channel, id, queue, text string, redelivered bool, deaths ...string) *delivery {
	mode, priority := uint8(2), uint8(0)
	headers := amqp091.Table{{Key: "id", Value: id}}
	var list amqp091.Array
	for _, from := range deaths {
		list = append(list, amqp091.Table{{Key: "queue", Value: from}, {Key: "reason", Value: "rejected"}, {Key: "count", Value: int64(1)}})
	}
	if len(list) > 0 {
		headers = append(headers, amqp091.Field{Key: "x-death", Value: list}, amqp091.Field{Key: "x-first-death-queue", Value: deaths[len(deaths)-1]})
	}
	x := &content{props: amqp091.PropertyList{MessageID: &id, DeliveryMode: &mode, Priority: &priority, Headers: headers}, body: []byte(text)}
	tag := uint64(len(ch.settled) + len(ch.outstanding) + 1)
	s.l.delivered(ch, ch.consumers[queue], queue, tag, redelivered, false, x)
	if len(ch.outstanding) == 0 {
		return nil
	}
	return ch.outstanding[len(ch.outstanding)-1]
}

// kill ends the node, and with it the channel.
func (s *story) kill() {
	s.l.channelEnded(s.ch)
	s.l.kills = append(s.l.kills, s.l.tick())
}

// failedOnce has the message come with the word that one delivery of it has failed.
func (s *story) failedOnce(ch *channel, id, queue string) {
	mode, priority := uint8(2), uint8(0)
	x := &content{props: amqp091.PropertyList{MessageID: &id, DeliveryMode: &mode, Priority: &priority, Headers: amqp091.Table{{Key: "id", Value: id}, {Key: "x-delivery-count", Value: int64(1)}}}, body: []byte(body)}
	s.l.delivered(ch, nil, queue, 1, true, false, x)
}

func (s *story) settle(d *delivery, how settlement, what string) {
	a := d.ch.act(what, "")
	s.l.settling(d.ch, a, d.tag, false, how)
	a.done = s.l.tick()
}

// rejectedIntoItself has a queue that dead-letters to itself, and a message rejected there twice.
func (s *story) rejectedIntoItself() {
	s.w.slots[0].variants[0].dlrk = "a"
	s.publish("m")
	s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle reject")
	s.settle(s.deliver(s.ch, "m", "a", body, false, "a"), rejected, "settle reject")
}

// purge purges a queue, of so many messages.
func (s *story) purge(queue string, count int) {
	a := s.done("purge", queue)
	a.count = count
	s.l.purges[queue] = append(s.l.purges[queue], a)
}

// drain finds the message at the end.
func (s *story) drain(id, queue string, redelivered bool, deaths ...string) {
	s.l.takenOut(s.deliver(s.channel(plain), id, queue, body, redelivered, deaths...))
}

// complains checks that the ledger finds the fault, or none if it is empty.
func (s *story) complains(fault string) {
	s.t.Helper()
	faults := s.l.settleAll(s.w)
	if fault == "" && len(faults) > 0 || fault != "" && !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, fault) }) {
		s.t.Errorf("the ledger complains of %q, want %q", faults, fault)
	}
}

func TestLedgerFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		tell  func(*story)
		fault string
	}{
		"found by the drain": {func(s *story) { s.publish("m"); s.drain("m", "a", false) }, ""},
		"nowhere":            {func(s *story) { s.publish("m") }, "lost"},
		"nowhere, confirmed by a queue that may refuse": {func(s *story) {
			s.w.slots[0].variants[0].overflow = "reject-publish"
			s.publish("m")
		}, "lost"},
		"nowhere, on a channel that was closed at once, of a queue that may refuse": {func(s *story) {
			s.w.slots[0].variants[0].overflow = "reject-publish"
			s.unanswered("m")
		}, ""},
		"nowhere, on a channel that was closed at once": {func(s *story) { s.unanswered("m") }, "lost"},
		"twice at the end": {func(s *story) {
			s.publish("m")
			s.drain("m", "a", false)
			s.drain("m", "b", false, "a")
		}, "doubled"},
		"acknowledged and there": {func(s *story) {
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), acked, "settle ack")
			s.drain("m", "a", true)
		}, "after it was settled"},
		"with two clients": {func(s *story) {
			s.publish("m")
			s.deliver(s.ch, "m", "a", body, false)
			s.drain("m", "a", true)
		}, "two clients at once"},
		"back after its channel": {func(s *story) {
			s.publish("m")
			s.deliver(s.ch, "m", "a", body, false)
			s.l.channelEnded(s.ch)
			s.drain("m", "a", true)
		}, ""},
		"back without the flag": {func(s *story) {
			s.publish("m")
			s.deliver(s.ch, "m", "a", body, false)
			s.l.channelEnded(s.ch)
			s.drain("m", "a", false)
		}, "without the flag redelivered"},
		"back over a kill, which forgets that it was delivered": {func(s *story) {
			s.publish("m")
			s.deliver(s.ch, "m", "a", body, true) // the first time to a client that ended before it read
			s.kill()
			s.drain("m", "a", false)
		}, ""},
		"with two clients after a kill": {func(s *story) {
			s.publish("m")
			s.deliver(s.ch, "m", "a", body, true)
			s.kill()
			s.deliver(s.channel(confirming), "m", "a", body, false)
			s.drain("m", "a", true)
		}, "two clients at once"},
		"back without the flag on a channel opened later": {func(s *story) {
			s.publish("m")
			s.deliver(s.ch, "m", "a", body, true)
			s.l.channelEnded(s.ch)
			s.drain("m", "a", false)
		}, "without the flag redelivered"},
		"read by another before its channel, which ends": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.ch.closes(s.l.tick())
			s.deliver(other, "m", "a", body, true)
			s.deliver(s.ch, "m", "a", body, false) // it was before, and is read later
			s.l.channelEnded(s.ch)
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, ""},
		"read by another before its channel, which does not end": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.deliver(other, "m", "a", body, true)
			s.deliver(s.ch, "m", "a", body, false)
			s.l.channelEnded(other)
		}, "two clients at once"},
		"with two clients, the first of which closes its channel later": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.deliver(s.ch, "m", "a", body, false)
			s.deliver(other, "m", "a", body, true)
			s.ch.closes(s.l.tick())
			s.l.channelEnded(s.ch)
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, "two clients at once"},
		"back to another before its channel hears that it is closed": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.done("consume", "a")
			s.deliver(s.ch, "m", "a", body, false)
			s.ch.send("get", "none", amqp091.BasicGet{})
			s.deliver(other, "m", "a", body, true)
			s.l.channelClosed(s.ch, &amqp091.ChannelClose{ReplyCode: 404})
			s.ch.closes(s.l.tick()) // with its connection, at the end
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, ""},
		"with two clients, the first of which does what its channel is closed for later": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.deliver(s.ch, "m", "a", body, false)
			s.deliver(other, "m", "a", body, true)
			s.ch.send("get", "none", amqp091.BasicGet{})
			s.l.channelClosed(s.ch, &amqp091.ChannelClose{ReplyCode: 404})
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, "two clients at once"},
		"requeued to its channel and then to another, while the channel ends": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.settle(s.deliver(s.ch, "m", "a", body, false), requeued, "settle nack requeue")
			s.ch.closes(s.l.tick())
			s.deliver(other, "m", "a", body, true)
			s.deliver(s.ch, "m", "a", body, true) // it was before, and is read later
			s.l.channelEnded(s.ch)
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, ""},
		"requeued to its channel and then to another, while the server closes the channel, which is read later": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.done("consume", "a")
			s.settle(s.deliver(s.ch, "m", "a", body, false), requeued, "settle nack requeue")
			s.ch.send("get", "none", amqp091.BasicGet{})
			s.deliver(other, "m", "a", body, true)
			s.deliver(s.ch, "m", "a", body, true) // it was before
			s.l.channelClosed(s.ch, &amqp091.ChannelClose{ReplyCode: 404})
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, ""},
		"with another, and then on a channel that does later what the server closes it for": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.done("consume", "a")
			s.settle(s.deliver(s.ch, "m", "a", body, false), requeued, "settle nack requeue")
			s.deliver(other, "m", "a", body, true)
			s.ch.send("get", "none", amqp091.BasicGet{})
			s.deliver(s.ch, "m", "a", body, true)
			s.l.channelClosed(s.ch, &amqp091.ChannelClose{ReplyCode: 404})
			s.l.channelEnded(other)
		}, "two clients at once"},
		"with another, and then on a channel that ends later": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.settle(s.deliver(s.ch, "m", "a", body, false), requeued, "settle nack requeue")
			s.deliver(other, "m", "a", body, true)
			s.ch.closes(s.l.tick())
			s.deliver(s.ch, "m", "a", body, true)
			s.l.channelEnded(s.ch)
		}, "two clients at once"},
		"with another, and then on a channel of a connection that ends before it could hear that the server has closed it": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.done("consume", "a")
			s.deliver(s.ch, "m", "a", body, false)
			s.ch.send("get", "b", amqp091.BasicGet{Queue: "b"}, amqp091.BasicGetOkID, amqp091.BasicGetEmptyID) // there is no such queue
			s.failedOnce(other, "m", "a")
			s.l.connectionEnded(s.ch.c)
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, ""},
		"with another, and then on a channel of a connection that ends with nothing to be answered": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.deliver(s.ch, "m", "a", body, false)
			s.deliver(other, "m", "a", body, true)
			s.l.connectionEnded(s.ch.c)
		}, "two clients at once"},
		"without acknowledgement to a channel that its client closes": {func(s *story) {
			s.publish("m")
			s.done("consume!", "a")
			s.ch.closing = true
			s.l.channelEnded(s.ch)
		}, "lost"},
		"without acknowledgement to a channel that the server closes": {func(s *story) {
			s.publish("m")
			s.done("consume!", "a")
			s.ch.byPeer = true
			s.l.channelEnded(s.ch)
		}, "lost"},
		"recovered from its channel, which reads it after another": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.settle(s.deliver(s.ch, "m", "a", body, false), requeued, "settle nack requeue")
			a := s.ch.send("recover", "", amqp091.BasicRecover{Requeue: true}, amqp091.BasicRecoverOkID)
			s.deliver(other, "m", "a", body, true)
			s.deliver(s.ch, "m", "a", body, true) // it was before, and is read later
			s.l.settling(s.ch, a, 0, true, requeued)
			s.ch.waiting = nil
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, ""},
		"acknowledged by a client that may not have been heard, and dead": {func(s *story) {
			s.w.slots[0].variants[0].ttl = 0
			s.publish("m")
			d := s.deliver(s.ch, "m", "a", body, false)
			s.l.settling(s.ch, s.ch.act("settle ack", ""), d.tag, false, acked)
			s.l.connectionEnded(s.ch.c)
			s.drain("m", "b", true, "a")
		}, ""},
		"acknowledged, and dead": {func(s *story) {
			s.w.slots[0].variants[0].ttl = 0
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), acked, "settle ack")
			s.l.connectionEnded(s.ch.c)
			s.drain("m", "b", true, "a")
		}, "doubled"},
		"refused as a dead letter, and dead of that": {func(s *story) {
			s.queue("c")
			b := s.w.slots[1].variants[0]
			b.dlx, b.dlrk, b.maxLen, b.overflow = "", "c", 1, "reject-publish-dlx"
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle nack")
			s.drain("m", "c", false, "b", "a")
		}, ""},
		"failed with a channel that the server closes, which is read later": {func(s *story) {
			s.publish("m")
			other := s.channel(confirming)
			s.done("consume", "a")
			s.deliver(s.ch, "m", "a", body, false)
			s.failedOnce(other, "m", "a")
			s.ch.byPeer = true
			s.l.channelEnded(s.ch)
			s.l.channelEnded(other)
			s.drain("m", "a", true)
		}, ""},
		"failed, and nothing ended": {func(s *story) {
			s.publish("m")
			s.failedOnce(s.ch, "m", "a")
			s.l.connectionEnded(s.ch.c)
			s.drain("m", "a", true)
		}, "x-delivery-count"},
		"damaged": {func(s *story) {
			s.publish("m")
			s.l.takenOut(s.deliver(s.ch, "m", "a", "something else", false))
		}, "damaged"},
		"never published": {func(s *story) { s.deliver(s.ch, "m", "a", body, false) }, "never published"},
		"elsewhere":       {func(s *story) { s.publish("m"); s.drain("m", "b", false) }, "not routed to"},
		"rejected and at its target": {func(s *story) {
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle nack")
			s.drain("m", "b", false, "a")
		}, ""},
		"rejected and nowhere": {func(s *story) {
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle nack")
		}, "lost"},
		"deleted with its queue": {func(s *story) {
			s.publish("m")
			s.l.deletes["a"] = append(s.l.deletes["a"], s.done("delete", "a"))
			s.l.deletes["a"][0].count = 1
		}, ""},
		"more deleted than was there": {func(s *story) {
			s.publish("m")
			s.publish("n")
			s.l.deletes["a"] = append(s.l.deletes["a"], s.done("delete", "a"))
			s.l.deletes["a"][0].count = 1
		}, "explains no more"},
		"rejected before its queue was deleted": {func(s *story) {
			s.publish("m")
			s.l.consumed["a"] = true
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle nack")
			s.l.deletes["a"] = append(s.l.deletes["a"], s.done("delete", "a"))
		}, "lost"},
		"died without a target, counted": {func(s *story) {
			s.w.slots[0].variants[0].ttl, s.w.slots[0].variants[0].dlx = 1, "none"
			s.publish("m")
			s.l.deaths = 1
		}, ""},
		"died without a target, counted, under a policy that was there before its queue": {func(s *story) {
			own := s.w.slots[0].variants[0]
			own.ttl, own.dlx, own.dlrk = 1, "none", ""
			s.l.specs["a"] = []*queueSpec{{policy: true, dlx: "none", ttl: -1, maxLen: 5, expires: -1, limit: -1}, own}
			s.publish("m")
			s.l.deaths = 1
		}, ""},
		"kept for itself as a target, under a policy": {func(s *story) {
			own := s.w.slots[0].variants[0]
			own.dlrk, own.atLeastOnce, own.overflow = "a", true, "reject-publish"
			s.l.specs["a"] = []*queueSpec{own, {policy: true, dlx: "none", ttl: 0, maxLen: -1, expires: -1, limit: -1}}
			s.publish("m")
			s.l.held["a"] = 1
		}, ""},
		"kept for itself as a target, under a policy that was there before its queue and names the same target": {func(s *story) {
			own := s.w.slots[0].variants[0]
			own.dlrk, own.atLeastOnce, own.overflow = "a", true, "reject-publish"
			s.l.specs["a"] = []*queueSpec{{policy: true, dlx: "", dlrk: "a", ttl: -1, maxLen: -1, expires: -1, limit: -1}, own}
			s.publish("m").expiration = 20
			s.l.held["a"] = 1
		}, ""},
		"two dead with themselves as a target, and one of them kept": {func(s *story) {
			own := s.w.slots[0].variants[0]
			own.dlrk, own.atLeastOnce, own.overflow = "a", true, "reject-publish"
			s.l.specs["a"] = []*queueSpec{{policy: true, dlx: "", dlrk: "a", ttl: -1, maxLen: -1, expires: -1, limit: -1}, own}
			s.publish("m").expiration = 20
			s.publish("n").expiration = 20
			s.l.held["a"] = 1
		}, "explains no more"},
		"kept by its queue without a reason, under a policy that names the same target": {func(s *story) {
			own := s.w.slots[0].variants[0]
			own.atLeastOnce, own.overflow = true, "reject-publish"
			s.l.specs["a"] = []*queueSpec{{policy: true, dlx: "", dlrk: "b", ttl: -1, maxLen: -1, expires: -1, limit: -1}, own}
			s.publish("m").expiration = 20
			s.l.held["a"] = 1
		}, "lost"},
		"died into b by its key, and from there into b again, while a queue of its first key is purged": {func(s *story) {
			b := s.w.slots[1].variants[0]
			b.dlx, b.dlrk = "", ""
			s.publish("m").expiration = 1
			s.settle(s.deliver(s.ch, "m", "b", body, false, "a"), rejected, "settle reject")
			s.drain("m", "b", false, "b", "a")
		}, ""},
		"rejected twice into its own queue, which is purged then": {func(s *story) {
			s.rejectedIntoItself()
			s.purge("a", 1)
		}, ""},
		"rejected round two queues, of which the first is purged then": {func(s *story) {
			b := s.w.slots[1].variants[0]
			b.dlx, b.dlrk = "", "a"
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle reject")
			s.settle(s.deliver(s.ch, "m", "b", body, false, "a"), rejected, "settle reject")
			s.settle(s.deliver(s.ch, "m", "a", body, false, "b", "a"), rejected, "settle reject")
			s.settle(s.deliver(s.ch, "m", "b", body, false, "a", "b", "a"), rejected, "settle reject")
			s.purge("a", 1)
		}, ""},
		"rejected twice into its own queue, which is deleted then": {func(s *story) {
			s.rejectedIntoItself()
			s.l.deletes["a"] = append(s.l.deletes["a"], s.done("delete", "a"))
			s.l.deletes["a"][0].count = 1
		}, ""},
		"rejected twice into its own queue, and nowhere": {func(s *story) { s.rejectedIntoItself() }, "lost"},
		"rejected twice into its own queue, which was purged before it came": {func(s *story) {
			s.purge("a", 1)
			s.rejectedIntoItself()
		}, "lost"},
		"rejected twice into its own queue, which was empty when it was purged": {func(s *story) {
			s.rejectedIntoItself()
			s.purge("a", 0)
		}, "explains no more"},
		"rejected twice, in no circle, before its queues are purged": {func(s *story) {
			b := s.w.slots[1].variants[0]
			b.dlx, b.dlrk = "", "c"
			s.queue("c")
			s.publish("m")
			s.settle(s.deliver(s.ch, "m", "a", body, false), rejected, "settle reject")
			s.settle(s.deliver(s.ch, "m", "b", body, false, "a"), rejected, "settle reject")
			s.purge("a", 1)
			s.purge("b", 1)
		}, "lost"},
		"stranded, as its target went": {func(s *story) {
			s.w.slots[0].variants[0].ttl = 1
			s.publish("m")
			s.l.deletes["b"] = append(s.l.deletes["b"], s.done("delete", "b"))
			s.l.held["a"] = 1
		}, ""},
		"two dead, as their target went, and one of them stranded": {func(s *story) {
			s.w.slots[0].variants[0].ttl = 1
			s.publish("m")
			s.publish("n")
			s.l.deletes["b"] = append(s.l.deletes["b"], s.done("delete", "b"))
			s.l.held["a"] = 1
		}, "explains no more"},
		"stranded, and its target was there": {func(s *story) {
			s.w.slots[0].variants[0].ttl = 1
			s.publish("m")
			s.l.held["a"] = 1
		}, "lost"},
		"died without a target, not counted": {func(s *story) {
			s.w.slots[0].variants[0].ttl, s.w.slots[0].variants[0].dlx = 1, "none"
			s.publish("m")
		}, "explains no more"},
		"confirmed and lost by a kill": {func(s *story) { s.publish("m"); s.l.kills = append(s.l.kills, s.l.tick()) }, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			c.tell(s)
			s.complains(c.fault)
		})
	}
}

func TestShrinkingLeavesWhatFails(t *testing.T) {
	var ops []op
	for i := range 40 {
		ops = append(ops, op{index: i})
	}
	fewer := shrink(ops, time.Now().Add(time.Minute), func(part []op) bool {
		has := func(n int) bool { return slices.ContainsFunc(part, func(o op) bool { return o.index == n }) }
		return has(7) && has(8) && has(31)
	})
	if got := list(fewer); got != "7-8,31" {
		t.Errorf("shrunk to %s, want 7-8,31", got)
	}
	again, err := parse("7-8,31", ops)
	if err != nil || list(again) != "7-8,31" {
		t.Errorf("read back: %s, %v", list(again), err)
	}
}

func TestASeedRepeats(t *testing.T) {
	for i := range 40 {
		seed := seeds(920000, 20000)(i)
		a, b := generate(seed, options{kills: true}), generate(seed, options{kills: true})
		if x, y := a.describe(a.ops), b.describe(b.ops); len(x) != len(y) {
			t.Errorf("seed %d draws two episodes:\n%s\n%s", seed, x, y)
		}
	}
}

// What is settled behind a rollback, in the same write, is all that the rollback puts back, too.
func TestLedgerSettlesWhatARollbackPutsBack(t *testing.T) {
	s := newStory(t)
	s.publish("m")
	s.publish("n")
	ch := s.channel(transactional)
	s.settle(s.deliver(ch, "m", "a", body, false), rejected, "settle nack")
	rollback := ch.act("rollback", "")
	s.l.finish(ch, rollback, false)
	n := s.deliver(ch, "n", "a", body, false)
	s.l.settling(ch, ch.act("settle nack", ""), n.tag, true, requeued)
	rollback.onAnswer(nil)
	if len(ch.outstanding) != 0 {
		t.Errorf("%d deliveries are taken to be unsettled", len(ch.outstanding))
	}
}

// A recovery takes place at once, and a rollback puts nothing of it back (BR-9.11).
func TestLedgerTakesNoRecoveryBack(t *testing.T) {
	s := newStory(t)
	s.publish("m")
	ch := s.channel(transactional)
	s.deliver(ch, "m", "a", body, false)
	s.l.settling(ch, ch.act("recover", ""), 0, true, requeued)
	s.l.finish(ch, ch.act("rollback", ""), false)
	if len(ch.outstanding) != 0 {
		t.Errorf("%d deliveries are taken to be unsettled", len(ch.outstanding))
	}
}

// A message that came back twice to a quorum queue stands behind those that came back once
// (BR-9.13), also if nobody has heard of the second end yet. Else a single active consumer gets
// what was published first, first (BR-9.5).
func TestLedgerKnowsTheOrderOfReturns(t *testing.T) {
	for name, c := range map[string]struct {
		quorum, asked bool
		fault         string
	}{
		"the second end was asked for": {quorum: true, asked: true},
		"nobody has asked":             {quorum: true, fault: "published later"},
		"a classic queue":              {asked: true, fault: "published later"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			spec := s.w.slots[0].variants[0]
			spec.quorum, spec.single = c.quorum, true
			s.publish("m")
			s.publish("n")
			first, second, third := s.consumer("a"), s.consumer("a"), s.consumer("a")
			s.deliver(first, "m", "a", body, false)
			s.deliver(first, "n", "a", body, false)
			s.l.channelEnded(first)
			s.deliver(second, "m", "a", body, true) // and no more, by its prefetch
			if c.asked {
				second.closes(s.l.tick())
			}
			s.settle(s.deliver(third, "n", "a", body, true), acked, "settle ack")
			s.settle(s.deliver(third, "m", "a", body, true), acked, "settle ack")
			s.l.channelEnded(second)
			s.complains(c.fault)
		})
	}
}
