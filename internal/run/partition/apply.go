package partition

import (
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/deathstore"
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
	due  int         // entries that its ticks have handled
}

func (g *group) applyEntry(h *hold, e *cluster.Entry) {
	g.applied = e.Index
	if len(e.Data) == 0 {
		return
	}
	a := application{g: g, h: h, at: e.At}
	origin, number, now, ok := a.r.head(e.Data)
	if !ok {
		if len(e.Data) > 0 && e.Data[0] > commandVersion {
			g.broken(e.Index)
			return
		}
		g.senseless(e, 0)
		return
	}
	if a.r.version >= numberedVersion && !g.follows(origin, number) {
		return // it was applied before, or one before it was not: it will come again
	}
	g.clock = a.moment(g.clock, now)
	h.now, a.from, g.version = g.clock, origin, a.r.version
	pages := &g.p.pages
	pages.AllHeads, pages.AllTimeouts, pages.StaleActive = a.r.version < headsVersion, a.r.version < timeoutsVersion, a.r.version < activeVersion
	if origin == g.node.Origin {
		a.mine = g.proposals.take(number)
	}
	begins := a.r.at
	for a.r.more() {
		begins = a.r.at
		a.operation(a.r.byte())
		g.node.operationsLogged.Add(1)
	}
	if a.r.bad {
		g.senseless(e, begins)
	}
	for _, s := range g.effects.idle {
		g.forgetIdle(s)
	}
	g.effects.idle = g.effects.idle[:0]
	if p := a.mine; p != nil {
		for ; a.next < len(p.publishes); a.next++ { // not reached: the command makes no sense
			own := p.publishes[a.next]
			h.drop(own.body, 0)
			if own.owner != nil {
				g.effects.answers = append(g.effects.answers, ownedAnswer{own.owner, Answer{own.token, true}})
			}
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

// mostSkew is by how many milliseconds the clocks of those who lead may differ before one
// of them is taken to be wrong.
const mostSkew = 60_000

// moment is when a command happens, which says that it is now, after others until clock:
// not before them. But a clock that was far ahead for a moment must not stop time until
// the others have got there: then it goes back, and what was given a moment meanwhile
// keeps that. Versions before 3 waited.
func (a *application) moment(clock, now int64) int64 {
	if a.r.version >= setBackVersion && now < clock-mostSkew {
		return now
	}
	return max(clock, now)
}

// operation applies one operation.
func (a *application) operation(code byte) {
	a.h.entries++
	switch code {
	case cmdPublish, cmdDelayed:
		a.publish(code)
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
	case cmdAsideSent:
		a.asideSent()
		return
	case cmdQuit:
		a.quit()
		return
	case cmdLeave:
		a.leave()
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
		a.tick(q)
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
	case cmdAside:
		a.aside(q)
	default:
		a.r.tear()
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
	q.m = queue.New(config, settings, &g.p.pages, q, now)
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
	g.node.endDeaths(a.h, q)
	a.show(q)
	q.m.RangeSeated(func(c *queue.Consumer) { delete(g.consumers, c.Number) })
	g.departFrom(q)
	for _, c := range q.m.Close() {
		if c.Target != nil {
			g.effects.gone = append(g.effects.gone, goneConsumer{q, c})
		}
	}
	q.gone, q.live, q.transit = true, false, 0
	q.calm()
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

// publish lets one message into its targets in this group.
func (a *application) publish(code byte) {
	in := a.r.publication(code)
	record, at := in.record, in.at
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
	arrives := arrival{
		entry: queue.Entry{Body: body, Priority: in.priority, TTL: in.ttl, Delay: in.delay},
		rec:   message.Record(record),
	}
	refused := false
	h := a.h
	h.entered = h.entered[:0]
	h.entries += n - 1
	for range n {
		if q := g.p.queues[a.r.uint()]; q != nil {
			refused = !tookIn(g.node.enter(h, q, &arrives)) || refused
		}
	}
	store.Release(body)
	h.flow()
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
	in := a.r.settlement(code)
	if q == nil || a.r.bad {
		return
	}
	s := a.g.consumers[in.consumer]
	if s == nil || s.q != q {
		return
	}
	h := a.h
	switch code {
	case cmdAck:
		a.h.entries += int(in.count) - 1
		for k := range queue.ID(in.count) {
			if q.m.Ack(in.first+k, s.c) {
				q.stats.Acked++
			}
		}
	case cmdReject:
		q.m.Reject(h.now, in.first, s.c, in.failed)
	case cmdReturn:
		if q.m.Return(h.now, in.first, s.c, in.how) {
			q.stats.Returned++
		}
	}
	q.m.Flow(h.now, 0)
	a.g.forgetIdle(s)
}

// forgetIdle forgets a consumer that is detached and holds nothing.
func (g *group) forgetIdle(s *seat) {
	if s.c.Idle() {
		g.forget(s.c.Number, s)
	}
}

func (g *group) forget(number uint64, s *seat) {
	delete(g.consumers, number)
	if s.departed != nil {
		delete(s.departed.seats, s)
	}
}

func (a *application) attach(q *Queue) {
	in := a.r.attachment()
	number := in.number
	if q == nil || a.r.bad || a.g.consumers[number] != nil {
		return
	}
	ask := a.answer()
	c := &queue.Consumer{}
	if ask != nil && ask.consumer != nil {
		c = ask.consumer
	}
	c.Number, c.Origin, c.Tag, c.Priority, c.Prefetch, c.Timeout = number, a.from, in.tag, in.priority, in.prefetch, in.timeout
	c.NoAck, c.Exclusive, c.Metered = in.noAck, in.exclusive, in.credit > 0
	if !q.m.Attach(a.h.now, c) {
		return
	}
	q.m.Credit(c, in.credit)
	a.g.consumers[number] = &seat{c: c, q: q}
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
	number, n := a.r.credit()
	s := a.g.consumers[number]
	if q == nil || s == nil || s.q != q {
		return
	}
	if a.from == a.g.node.Origin {
		s.asked = max(0, s.asked-n)
	}
	q.m.Credit(s.c, n)
	q.m.Pump(a.h.now, sliceLimit)
}

// tick does what is due in a queue, if those before it in the command have left something to do: the group's
// others wait meanwhile. A queue that is passed over is due still.
func (a *application) tick(q *Queue) {
	if q == nil || a.r.version >= headsVersion && a.due >= sliceLimit {
		return
	}
	before, timeouts := q.m.Totals(), q.m.TimeoutCount()
	if q.m.Tick(a.h.now, sliceLimit) {
		a.due += sliceLimit // it stopped at its limit
		return
	}
	after := q.m.Totals()
	a.due += max(0, before.Ready-after.Ready) + max(0, before.Delayed-after.Delayed)
	if a.r.version >= timeoutsVersion {
		a.due += int(q.m.TimeoutCount() - timeouts)
	}
}

func (a *application) get(q *Queue) {
	number, noAck := a.r.get()
	if q == nil || a.r.bad {
		return
	}
	ask := a.answer()
	c := &queue.Consumer{}
	if ask != nil && ask.consumer != nil {
		c = ask.consumer
	}
	c.Number, c.Origin = number, a.from
	d, ok, again := q.m.GetFor(a.h.now, c, noAck)
	switch {
	case again:
		if ask != nil {
			ask.again = true
		}
		return
	case !ok:
		q.stats.GetNone++
	case noAck:
		q.stats.GotNoAck++
		if ask == nil {
			a.h.drop(d.Body, d.History)
		}
	default:
		q.stats.Got++
		a.g.consumers[number] = &seat{c: c, q: q}
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
	purged := q.m.Purge(nil)
	if q.m.Totals().Held == 0 {
		q.keepOffers()
	}
	q.stats.Purged += uint64(purged)
	if ask := a.answer(); ask != nil {
		ask.ok, ask.n = true, purged
	}
	a.g.p.dig(q)
	a.g.p.wake()
}

// gone detaches what a process had attached that is no more, and takes back what
// it had not settled (DL-11.3). What it had hushed speaks again.
func (a *application) gone() {
	origin := a.r.uint()
	now := a.h.now
	seats := slices.DeleteFunc(a.g.seats(), func(s *seat) bool { return s.c.Origin != origin })
	for _, s := range seats {
		a.h.touch(s.q)
		s.q.m.Detach(now, s.c)
	}
	a.abandon(seats)
	for _, s := range seats {
		s.q.m.Flow(now, 0)
	}
	for _, d := range slices.Clone(a.g.departures) {
		if d.origin == origin {
			a.done(d, allQueues)
		}
	}
}

// finishApply ends a hold of commands: the partition is unlocked, deliveries leave,
// and whoever waits for results gets them.
func (g *group) finishApply(h *hold) {
	e, n := &g.effects, g.node // nobody else applies meanwhile
	n.leave(n.finishHold(h))
	for _, s := range e.senseless {
		if err := n.passOver(s); err != nil {
			n.fail(err)
		}
	}
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
	if bodies, index := n.short(); bodies || index {
		g.p.wakeToPutAway(bodies, index, n.Now())
	}
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
		w.credit(s.q.Incarnation, s.c.Number, n)
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
	return deathstore.Keep(store, b)
}
