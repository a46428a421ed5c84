package partition

import (
	"bartleby.mq/internal/bodies"
	"bartleby.mq/internal/cluster"
	"bartleby.mq/internal/histories"
	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// Apply implements cluster.Machine.
func (g *group) Apply(entries []cluster.Entry) {
	for len(entries) > 0 {
		n := 0
		h := g.node.lock(g.p)
		for ; n < len(entries) && (n == 0 || h.entries < sliceLimit); n++ {
			g.applyEntry(h, &entries[n])
		}
		entries = entries[n:]
		g.finishApply(h)
	}
}

// application is one command on its way through a group.
type application struct {
	g    *group
	h    *hold
	r    commandReader
	at   journal.Pos // of the command in the journal, 0 if it is not known
	from uint64      // the process that proposed it
	mine *proposal   // set if that is this one and somebody may wait
	next int         // of mine.publishes
}

func (g *group) applyEntry(h *hold, e *cluster.Entry) {
	g.applied = e.Index
	if len(e.Data) == 0 {
		return
	}
	a := application{g: g, h: h, at: e.At}
	origin, number, now, ok := a.r.head(e.Data)
	if !ok {
		g.broken(e.Index)
		return
	}
	if a.r.version >= numberedVersion && !g.follows(origin, number) {
		return // it was applied before, or one before it was not: it will come again
	}
	g.clock = max(g.clock, now)
	h.now, a.from = g.clock, origin
	if origin == g.node.Origin {
		a.mine = g.proposals.take(number)
	}
	for a.r.more() {
		a.operation(a.r.byte())
		g.node.operationsLogged.Add(1)
	}
	if a.r.bad {
		g.broken(e.Index)
	}
	for _, s := range g.effects.idle {
		g.forgetIdle(s)
	}
	g.effects.idle = g.effects.idle[:0]
	if p := a.mine; p != nil {
		for ; a.next < len(p.publishes); a.next++ {
			h.drop(p.publishes[a.next].body, 0) // not reached: the command is broken
		}
		if p.routing != nil {
			p.routing.routing = false
			h.touch(p.routing)
		}
		for _, q := range p.ticking {
			q.ticking = false
			h.touch(q)
		}
		if p.ask != nil {
			g.effects.asks = append(g.effects.asks, p.ask)
		}
		g.effects.settled = append(g.effects.settled, p)
	}
}

// operation applies one operation.
func (a *application) operation(code byte) {
	a.h.entries++
	switch code {
	case cmdPublish:
		a.publish(0)
		return
	case cmdDelayed:
		a.publish(a.r.time())
		return
	case cmdGone:
		a.gone()
		return
	case cmdOutIn:
		a.outIn()
		return
	case cmdOutAck:
		a.outAck()
		return
	case cmdReroute:
		a.reroute(0)
		return
	case cmdRelocate:
		a.reroute(mailMove)
		return
	case cmdClose:
		a.close()
		return
	}
	inc := a.r.uint()
	if code == cmdCreate {
		a.create(inc)
		return
	}
	q := a.g.p.queues[inc] // nil if it was deleted: what is asked of it has no effect
	if q != nil {
		a.h.touch(q)
	}
	switch code {
	case cmdDelete:
		a.delete(q)
	case cmdConfigure:
		a.configure(q)
	case cmdAck, cmdReject, cmdReturn:
		a.settle(code, q)
	case cmdAttach:
		a.attach(q)
	case cmdDetach:
		a.detach(q)
	case cmdCredit:
		a.credit(q)
	case cmdGet:
		a.get(q)
	case cmdPurge:
		a.purge(q)
	case cmdTick:
		if q != nil {
			q.m.Tick(a.h.now, sliceLimit)
		}
	case cmdTouch:
		if q != nil {
			q.m.Touch(a.h.now)
			q.m.Expire(a.h.now)
			a.show(q)
		}
	case cmdDead:
		a.dead(q)
	case cmdTake:
		a.take(q)
	default:
		a.r.bad = true
	}
}

// answer is where somebody here waits for the result, nil if nobody does.
func (a *application) answer() *ask {
	if a.mine == nil {
		return nil
	}
	return a.mine.ask
}

func (a *application) show(q *Queue) {
	if ask := a.answer(); ask != nil {
		ask.ok, ask.counts = true, q.counts(a.h.now)
	}
}

func (a *application) create(inc uint64) {
	vhost, name := message.VHost(a.r.text()), a.r.text()
	config := a.r.config()
	settings, dead := a.r.settings()
	if a.r.bad || a.g.p.queues[inc] != nil {
		return
	}
	a.h.touch(a.g.newQueue(inc, vhost, name, config, settings, dead, a.h.now))
}

// newQueue makes a queue, or makes one live that the topology has declared here.
func (g *group) newQueue(inc uint64, vhost message.VHost, name string, config queue.Config, settings queue.Settings, dead DeadLetter, now int64) *Queue {
	q := g.declared[inc]
	if q == nil {
		q = &Queue{Incarnation: inc, VHost: vhost, Name: name, Durable: true, part: g.p, config: config, due: never}
	}
	q.live, q.dead = true, dead
	q.m = queue.New(config, settings, &g.p.pages, (*replica)(q), now)
	if g.node.Index != nil {
		q.m.SetCold(shelf{q})
	}
	g.p.queues[inc] = q
	return q
}

func (a *application) delete(q *Queue) {
	if q == nil {
		return
	}
	g := a.g
	q.m.Expire(a.h.now)
	a.show(q)
	for _, c := range q.m.Close() {
		if c.Target != nil {
			g.effects.gone = append(g.effects.gone, goneConsumer{q, c})
		}
	}
	for number, s := range g.consumers {
		if s.q == q {
			delete(g.consumers, number)
		}
	}
	q.gone, q.live, q.transit = true, false, 0
	delete(g.p.queues, q.Incarnation)
	delete(g.declared, q.Incarnation)
	g.p.unschedule(q)
	shelf{q}.discardMeta(g.p.pages.Version())
	g.p.dig(q)
	g.p.wake()
}

func (a *application) configure(q *Queue) {
	settings, dead := a.r.settings()
	if q == nil || a.r.bad {
		return
	}
	before := q.m.Settings()
	retry := q.m.Totals().Held > 0 && (q.dead != dead || before.AtLeastOnce != settings.AtLeastOnce)
	if q.m.Config().Strict && before.AtLeastOnce && !settings.AtLeastOnce {
		a.g.node.forgetHeld(a.h, q) // DL-13.10
		retry = false
	}
	q.dead = dead
	q.m.Configure(a.h.now, settings)
	q.m.Trim(a.h.now, sliceLimit)
	if retry && a.g.leads {
		a.g.p.leaving.Lock()
		a.g.p.retry = append(a.g.p.retry, q)
		a.g.p.leaving.Unlock()
		a.g.p.wakeRouter()
	}
}

// publish lets one message into its targets in this group, to be delivered after a
// delay in milliseconds.
func (a *application) publish(delay int64) {
	ttl, priority := a.r.time()-1, a.r.int()-1
	record, at := a.r.record()
	n := a.r.count(1)
	if a.r.bad {
		return
	}
	g, store := a.g, a.g.node.bodies
	var own published
	if p := a.mine; p != nil && a.next < len(p.publishes) {
		own = p.publishes[a.next]
		a.next++
	}
	body := own.body
	if body == 0 {
		body = g.keep(record, a.place(at))
	} else if place := a.place(at); place != 0 {
		store.SetLocation(body, place)
	}
	r := message.Record(record)
	e := queue.Entry{Body: body, Priority: priority, TTL: ttl, Delay: delay, Logged: true}
	refused := false
	h := a.h
	h.entered = h.entered[:0]
	for range n {
		q := g.p.queues[a.r.uint()]
		if q == nil {
			continue
		}
		h.touch(q)
		store.Retain(body, 1)
		e.Size = q.size(r)
		id, result := q.m.Enqueue(h.now, &e)
		if result == queue.Refused || result == queue.RefusedDead {
			refused = true
		}
		if result == queue.Refused {
			store.Release(body)
			continue
		}
		q.stats.Published++
		h.entered = append(h.entered, newEntry{q: q, id: id})
	}
	store.Release(body)
	for _, in := range h.entered {
		in.q.m.Flow(h.now, in.id)
	}
	if own.owner != nil {
		g.effects.answers = append(g.effects.answers, ownedAnswer{own.owner, Answer{own.token, refused}})
	}
}

// place is where the journal has what stands so far behind the beginning of the
// command, 0 if it is not known.
func (a *application) place(at int) message.Location {
	if a.at == 0 {
		return 0
	}
	return message.Location(a.at) + message.Location(at)
}

// keep stores a record that the journal has at a place, with one reference. Where
// nobody will ask for it soon, on a replica that does not lead, it stays on disk.
func (g *group) keep(record []byte, place message.Location) message.Ref {
	store := g.node.bodies
	if place != 0 && !g.leads {
		store.Place(place.Space(), place.Segment(), 1)
		return store.Adopt(place)
	}
	ref, b := store.Alloc(len(record))
	copy(b, record)
	if place != 0 {
		store.SetLocation(ref, place)
	}
	return ref
}

// settle settles deliveries. It looks for who had them by number: somebody who is
// gone has none.
func (a *application) settle(code byte, q *Queue) {
	number, id := a.r.uint(), a.r.id()
	count, detail := uint64(1), byte(0)
	if code == cmdAck {
		count = a.r.run()
	} else {
		detail = a.r.byte()
	}
	if q == nil || a.r.bad {
		return
	}
	s := a.g.consumers[number]
	if s == nil || s.q != q {
		return
	}
	h := a.h
	switch code {
	case cmdAck:
		a.h.entries += int(count) - 1
		for k := range queue.ID(count) {
			if q.m.Ack(id+k, s.c) {
				q.stats.Acked++
			}
		}
	case cmdReject:
		q.m.Reject(h.now, id, s.c, detail != 0)
	case cmdReturn:
		if detail > byte(queue.ReturnFailed) {
			a.r.bad = true
			return
		}
		if q.m.Return(h.now, id, s.c, queue.ReturnKind(detail)) {
			q.stats.Returned++
		}
	}
	q.m.Flow(h.now, 0)
	a.g.forgetIdle(s)
}

// forgetIdle forgets a consumer that is detached and holds nothing.
func (g *group) forgetIdle(s *seat) {
	if s.c.Idle() {
		delete(g.consumers, s.c.Number)
	}
}

func (a *application) attach(q *Queue) {
	number, flags := a.r.uint(), a.r.byte()
	priority, prefetch, timeout, credit := a.r.signed(), a.r.int(), a.r.time(), a.r.int()
	tag := a.r.text()
	if q == nil || a.r.bad || a.g.consumers[number] != nil {
		return
	}
	ask := a.answer()
	c := &queue.Consumer{}
	if ask != nil && ask.consumer != nil {
		c = ask.consumer
	}
	c.Number, c.Tag, c.Priority, c.Prefetch, c.Timeout = number, tag, priority, prefetch, timeout
	c.NoAck, c.Exclusive, c.Metered = flags&attachNoAck != 0, flags&attachExclusive != 0, credit > 0
	if !q.m.Attach(a.h.now, c) {
		return
	}
	q.m.Credit(c, credit)
	a.g.consumers[number] = &seat{c: c, q: q, origin: a.from}
	if ask != nil {
		ask.ok = true
		if ask.attached != nil {
			ask.attached()
		}
	}
	q.m.Pump(a.h.now, sliceLimit)
}

func (a *application) detach(q *Queue) {
	s := a.g.consumers[a.r.uint()]
	if q == nil || s == nil || s.q != q {
		return
	}
	was := q.m.Detach(a.h.now, s.c)
	if ask := a.answer(); ask != nil {
		ask.ok = was
		if was && ask.attached != nil {
			ask.attached()
		}
		defer func() { ask.left = q.m.Consumers() }()
	}
	q.m.Pump(a.h.now, sliceLimit) // the next single active consumer
	a.g.forgetIdle(s)
}

func (a *application) credit(q *Queue) {
	s, n := a.g.consumers[a.r.uint()], a.r.int()
	if q == nil || s == nil || s.q != q {
		return
	}
	if a.from == a.g.node.Origin {
		s.asked = max(0, s.asked-n)
	}
	q.m.Credit(s.c, n)
	q.m.Pump(a.h.now, sliceLimit)
}

func (a *application) get(q *Queue) {
	number, noAck := a.r.uint(), a.r.byte() != 0
	if q == nil || a.r.bad {
		return
	}
	ask := a.answer()
	c := &queue.Consumer{}
	if ask != nil && ask.consumer != nil {
		c = ask.consumer
	}
	c.Number = number
	d, ok := q.m.GetFor(a.h.now, c, noAck)
	switch {
	case !ok:
		q.stats.GetNone++
	case noAck:
		q.stats.GotNoAck++
		if ask == nil {
			a.h.drop(d.Body, d.History)
		}
	default:
		q.stats.Got++
		a.g.consumers[number] = &seat{c: c, q: q, origin: a.from}
		if ask != nil {
			a.g.node.bodies.Retain(d.Body, 1)
			a.g.node.bodies.Retain(d.History, 1)
		}
	}
	if ok && d.Redelivered {
		q.stats.Redelivered++
	}
	q.m.Expire(a.h.now) // strictly, the next head only now
	if ask != nil {
		ask.ok, ask.delivery, ask.left = ok, d, q.m.Totals().Ready
	}
}

func (a *application) purge(q *Queue) {
	if q == nil {
		return
	}
	q.m.Expire(a.h.now)
	purged := q.m.Purge()
	if q.m.Totals().Held == 0 {
		q.answered, q.asked, q.balked = nil, nil, nil
	}
	q.stats.Purged += uint64(purged)
	if ask := a.answer(); ask != nil {
		ask.ok, ask.n = true, purged
	}
	a.g.p.dig(q)
	a.g.p.wake()
}

// gone detaches what a process had attached that is no more, and takes back what
// it had not settled (DL-11.3).
func (a *application) gone() {
	origin := a.r.uint()
	now := a.h.now
	seats := a.g.seats()
	for _, s := range seats {
		if s.origin == origin {
			a.h.touch(s.q)
			s.q.m.Detach(now, s.c)
		}
	}
	for _, s := range seats {
		if s.origin == origin {
			s.q.m.Abandon(now, s.c)
			a.g.forgetIdle(s)
		}
	}
	for _, s := range seats {
		if s.origin == origin {
			s.q.m.Flow(now, 0)
		}
	}
}

// finishApply ends a hold of commands: the partition is unlocked, deliveries leave,
// and whoever waits for results gets them.
func (g *group) finishApply(h *hold) {
	e, n := &g.effects, g.node // nobody else applies meanwhile
	n.leave(n.finishHold(h))
	for _, s := range e.credit {
		g.grant(s)
	}
	for _, c := range e.gone {
		c.c.Target.(Subscriber).QueueGone(c.q, c.c)
	}
	for i := 0; i < len(e.answers); {
		j := i + 1
		for j < len(e.answers) && e.answers[j].owner == e.answers[i].owner {
			j++
		}
		n.answer(e.answers[i:j])
		i = j
	}
	for _, a := range e.asks {
		close(a.done)
	}
	for _, p := range e.settled {
		g.proposals.settled(p)
	}
	e.reset()
}

// answer tells one owner.
func (n *Node) answer(list []ownedAnswer) {
	var few [64]Answer
	answers := few[:0]
	for i := range list {
		answers = append(answers, list[i].Answer)
	}
	list[0].owner.Answered(answers)
}

// grant proposes more credit for a consumer whose session has sent half of its window.
func (g *group) grant(s *seat) {
	g.p.mu.Lock()
	n := window - s.c.Left() - s.asked
	if s.full || n < window/2 || s.q.gone {
		g.p.mu.Unlock()
		return
	}
	s.asked += n
	g.p.mu.Unlock()
	err := g.tell(func(w *commandWriter) {
		w.op(cmdCredit, s.q.Incarnation)
		w.uint(s.c.Number)
		w.uint(uint64(n))
	})
	if err != nil {
		g.p.mu.Lock()
		s.asked = max(0, s.asked-n)
		g.p.mu.Unlock()
	}
}

// storeHistory stores a history that a command carries; the caller has one reference.
func storeHistory(store *bodies.Store, b []byte) message.Ref {
	if len(b) == 0 {
		return 0
	}
	return histories.Keep(store, b)
}
