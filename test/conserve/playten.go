package conserve

import (
	"fmt"
	"math/rand/v2"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// dial opens the connection of a client.
func (p *player) dial(name string, speaksTen bool) (*client, error) {
	if !speaksTen {
		return connect(p.l, p.t.amqp, p.vhost, name)
	}
	frame := []uint32{512, 1024, 8192, 1 << 17}[p.serial%4]
	return connectTen(p.l, p.t.amqp, p.vhost, name, frame)
}

// chanceOf is what an operation has by chance in AMQP 1.0 alone: the same each time it is played.
func (p *player) chanceOf(o *op) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed, 1<<32+uint64(o.index)))
}

// stepTen plays an operation of a client of AMQP 1.0. What that protocol has no word for is not said.
func (p *player) stepTen(ch *channel, o *op) {
	l, r := p.l, p.chanceOf(o)
	switch o.verb {
	case doPublish:
		p.publishTen(ch, o, r)
	case doDeclare, doBind, doDelete, doPurge:
		p.manageTen(ch, o)
	case doConsume:
		l.mu.Lock()
		if !ch.ended {
			p.consume(ch, o.queue, o.noAck, o.prefetch)
		}
		l.mu.Unlock()
	case doGet:
		p.getTen(ch, o)
	case doCancel:
		l.mu.Lock()
		if k := ch.receiver(o.queue); k != nil && !ch.ended {
			k.consumer.cancelled = true
			l.unordered[o.queue] = true
			a := ch.detachLink(k, "cancel", r.IntN(4) > 0)
			own := func(d *delivery) bool { return d.consumer == k.consumer }
			l.settlingThose(ch, a, requeued, own)
			a.onAnswer = func(amqp091.Method) { l.settlingThose(ch, a, requeued, own) } // what was on its way goes back as well
		}
		l.mu.Unlock()
	case doCredit:
		l.mu.Lock()
		if k := ch.receiver(o.queue); k != nil && !ch.ended && k.draining == nil {
			ch.credit(k, uint32(o.prefetch), o.multiple)
		}
		l.mu.Unlock()
	case doSettle:
		l.mu.Lock()
		if !ch.ended {
			p.settleTen(ch, o, r)
		}
		l.mu.Unlock()
	case doCloseChannel:
		l.mu.Lock()
		if !ch.ended {
			ch.wait(ch.sayTen("close", "", &amqp10.End{}))
			ch.closes(l.ticks)
		}
		l.mu.Unlock()
	}
	if !o.hold {
		ch.c.flush(o.cut)
	}
}

// receiver is a link from a queue that stands, as far as the client knows.
func (ch *channel) receiver(queue string) (found *link) {
	for h := range uint32(60) {
		k := ch.ten.links[h]
		if k != nil && !k.sends && k.consumer != nil && k.consumer.queue == queue && !k.ended && k.detach == nil {
			return k
		}
	}
	return nil
}

// openLink waits until there is credit for n messages on a link that sends, and room for some frames; false if there never will be.
func (p *player) openLink(ch *channel, k *link, n int) bool {
	const frames = 60 // as many as the largest message has
	usable := false
	ready := func() bool {
		usable = !ch.ended && !k.ended && k.detach == nil
		return !usable || k.attached && int32(k.limit-k.count) >= int32(n) && int32(ch.ten.room-ch.ten.nextOut) >= frames
	}
	p.l.mu.Lock()
	now := ready()
	p.l.mu.Unlock()
	if now {
		return usable
	}
	ch.c.flush(0)
	if !p.until(patience, ready) {
		p.l.fault("%s: hangs: no credit to send to %q", ch.c.name, k.target)
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return ready() && usable
}

// sender is a link to an address.
func (p *player) sender(ch *channel, target string) *link {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if ch.ended {
		return nil
	}
	for h := range uint32(60) {
		if k := ch.ten.links[h]; k != nil && k.sends && k.target == target && !k.ended && k.detach == nil {
			return k
		}
	}
	return ch.attachSender("publish link", target)
}

// publishTen publishes over a link to the queue or exchange, or over one to none, whose messages say where they go.
func (p *player) publishTen(ch *channel, o *op, r *rand.Rand) {
	address := client10.Queue(o.key)
	if o.exchange != "" {
		address = client10.Exchange(o.exchange, o.key)
	}
	target, to := address, ""
	if p.possibleRoutes(o.exchange, o.key) == nil || r.IntN(2) == 0 {
		target, to = "", address
	}
	k := p.sender(ch, target)
	if k == nil {
		return
	}
	most := []uint32{512, 1500, 20000}[r.IntN(3)]
	for n := range max(1, o.count) {
		if !p.openLink(ch, k, 1) {
			return
		}
		p.l.mu.Lock()
		if !ch.ended && !k.ended {
			p.transfer(ch, k, o, fmt.Sprintf("m%d.%d", o.index, n), to, most, r)
		}
		p.l.mu.Unlock()
	}
}

// transfer publishes one message. REQUIRES: mu.
func (p *player) transfer(ch *channel, k *link, o *op, id, to string, most uint32, r *rand.Rand) {
	body := p.body(o, id)
	m := newMessage(o, id, o.exchange, o.key, body, false)
	m.mandatory = true // the outcome tells of those without a route
	cut := 0
	if len(body) > 0 {
		cut = r.IntN(len(body))
	}
	out := client10.Message{
		ID: id, Durable: o.persistent, Priority: o.priority, TTL: o.expiration, To: to, Properties: map[string]string{"id": id}, Data: [][]byte{body[:cut], body[cut:]},
	}
	ch.published++
	m.act = ch.act("publish", o.key)
	m.act.message = m
	settled := ch.mode == plain
	t := amqp10.Transfer{
		Handle: k.handle, DeliveryID: amqp10.Some(uint32(ch.published)), DeliveryTag: []byte(id), MessageFormat: amqp10.Some[uint32](0), Settled: amqp10.Some(settled),
	}
	payload := out.Append(nil)
	for sent := 0; ; {
		ch.c.out, sent = amqp10.AppendTransfer(ch.c.out, ch.num, &t, min(most, ch.c.ten.conn.PeerMaxFrame), sent, payload)
		ch.ten.nextOut++
		if sent == len(payload) {
			break
		}
		t = amqp10.Transfer{Handle: k.handle}
	}
	k.count++
	p.l.publishing(ch, m)
}

// getTen has a queue give as many messages as it has, up to a number, and waits for the end of that.
func (p *player) getTen(ch *channel, o *op) {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch.ended {
		return
	}
	l.unordered[o.queue] = true
	k := ch.receiver(o.queue)
	if k == nil {
		k = p.receive(ch, o.queue, o.noAck)
	}
	if k != nil && k.draining == nil {
		ch.credit(k, uint32(o.count), true)
	}
}

// receive attaches a link from a queue. REQUIRES: mu.
func (p *player) receive(ch *channel, queue string, noAck bool) *link {
	s := &consumer{ch: ch, queue: queue, noAck: noAck, began: p.l.tick(), last: map[*channel]*message{}}
	k := ch.attachReceiver(s)
	if k != nil {
		p.consumes(s, k.attach)
	}
	return k
}

// settleTen says an outcome of some deliveries: of one, or of a range.
func (p *player) settleTen(ch *channel, o *op, r *rand.Rand) {
	if len(ch.outstanding) == 0 {
		return
	}
	d := ch.outstanding[o.pick%len(ch.outstanding)]
	first, last := uint32(d.tag), uint32(d.tag)
	if o.multiple {
		first = uint32(ch.outstanding[r.IntN(1+o.pick%len(ch.outstanding))].tag)
	}
	how := o.how
	var state amqp10.Composite
	fails := false
	var note *annotation
	modified := func(m amqp10.Modified) amqp10.Composite {
		if r.IntN(8) > 0 {
			note = &annotation{o.index}
			m.MessageAnnotations = note.section()
		}
		return &m
	}
	switch {
	case how == acked:
		state = &amqp10.Accepted{}
	case how == rejected && r.IntN(3) == 0:
		fails = r.IntN(2) == 0
		state = modified(amqp10.Modified{UndeliverableHere: true, DeliveryFailed: fails})
	case how == rejected:
		fails = true
		state = &amqp10.Rejected{}
		if r.IntN(2) == 0 {
			state = &amqp10.Rejected{Error: &amqp10.Error{Condition: []byte("test:failed"), Description: []byte("it failed")}}
		}
	case how == failed:
		fails = true
		state = modified(amqp10.Modified{DeliveryFailed: true})
	case r.IntN(2) == 0:
		state = modified(amqp10.Modified{})
	default:
		state = &amqp10.Released{}
	}
	disposition := amqp10.Disposition{Role: amqp10.RoleReceiver, First: first, Settled: r.IntN(4) > 0, State: client10.Described(state)}
	if first != last || r.IntN(2) == 0 {
		disposition.Last = amqp10.Some(last)
	}
	what := "settle " + state.Descriptor().String()
	if !disposition.Settled {
		what = "settle unasked"
	}
	a := ch.sayTen(what, "", &disposition)
	a.fails, a.annotates = fails, note
	p.l.settlingThose(ch, a, how, func(d *delivery) bool {
		// What its link has given back by its end, although it came after the client said so, is nobody's to settle.
		return uint32(d.tag)-first <= last-first && d.consumer.link.detach == nil
	})
}

// manageTen says an operation on the topology by a request.
func (p *player) manageTen(ch *channel, o *op) {
	l := p.l
	l.mu.Lock()
	queue := o.queue
	if queue == "" && len(ch.settled) > 0 { // of the queue that the last delivery came from
		queue = ch.settled[len(ch.settled)-1].copied.queue
	}
	usable := !ch.ended && queue != "" && ch.manage()
	l.mu.Unlock()
	if !usable || !p.openLink(ch, ch.ten.requests, 1) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch.ended {
		return
	}
	path := client10.Queue(queue)
	switch o.verb {
	case doDeclare:
		s := p.slot(queue).variants[o.variant]
		l.specs[queue] = appendOnce(l.specs[queue], s)
		l.declares[queue] = append(l.declares[queue], ch.request("declare", queue, "PUT", path, s.declaration()))
	case doBind:
		l.binds = append(l.binds, &binding{ch.request("bind", queue, "POST", "/bindings", bindingBody(o.exchange, queue)), o.exchange, ""})
	case doDelete:
		l.deletes[queue] = append(l.deletes[queue], ch.request("delete", queue, "DELETE", path, nil))
	case doPurge:
		l.purges[queue] = append(l.purges[queue], ch.request("purge", queue, "DELETE", path+"/messages", nil))
	}
}
