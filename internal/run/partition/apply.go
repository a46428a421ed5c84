package partition

import (
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/deathstore"
)

// Apply implements cluster.Machine. It applies the entries in slices; each slice is one hold.
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

// application is the application of one command to a group.
type application struct {
	execution
	r    commandReader
	at   journal.Pos // where the journal has the command, 0 if unknown
	mine *proposal   // set if this process proposed the command
	next int         // index of the next publish in mine.publishes
}

func (g *group) applyEntry(h *hold, e *cluster.Entry) {
	g.applied = e.Index
	if len(e.Data) == 0 {
		return
	}
	a := application{execution: execution{n: g.node, h: h, g: g}, at: e.At}
	origin, number, now, ok := a.r.head(e.Data)
	if !ok {
		if len(e.Data) > 0 && e.Data[0] > commandVersion {
			g.broken(e.Index, e.Data[0])
			return
		}
		g.senseless(e, 0)
		return
	}
	if !g.follows(origin, number) {
		return // it was applied before, or a command before it was not: its sender repeats both
	}
	g.clock = a.moment(g.clock, now)
	h.now, a.from = g.clock, origin
	if origin == g.node.Origin {
		if a.mine = g.proposals.take(number); a.mine != nil {
			a.ask = a.mine.ask
		}
	}
	begins := a.r.at
	for a.r.more() {
		begins = a.r.at
		a.applyOperation(a.r.byte())
		g.node.checkpoints.logged.Add(1)
	}
	if a.r.bad {
		g.senseless(e, begins)
	}
	for _, s := range g.effects.idle {
		g.forgetIdle(s)
	}
	g.effects.idle = g.effects.idle[:0]
	if p := a.mine; p != nil {
		for ; a.next < len(p.publishes); a.next++ { // publishes that were not reached, because the command makes no sense
			own := p.publishes[a.next]
			h.drop(own.body, 0)
			if own.owner != nil {
				g.effects.answers = append(g.effects.answers, ownedAnswer{own.owner, Answer{Token: own.token, Refused: true}})
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

// MostSkew is how many milliseconds the clocks of leaders may differ. A larger difference means that one of them is
// wrong.
const MostSkew = 60_000

// moment is the time of a command: now, as its leader says, but not before clock, the time of the commands before it.
// A leader's clock has caught up with every command that it has applied (Options.CatchUp), so time never stands still.
// If clock is more than MostSkew ahead all the same, an earlier leader's clock was wrong, and the leader has not heard of
// it. Then the group's clock goes back. Deadlines that were computed meanwhile stay.
func (a *application) moment(clock, now int64) int64 {
	if now < clock-MostSkew {
		return now
	}
	return max(clock, now)
}

// applyOperation applies one operation.
func (a *application) applyOperation(code byte) {
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
		a.reroute(outbox.Move)
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
	case cmdForget:
		a.forget()
		return
	}
	inc := a.r.uint()
	if code == cmdCreate {
		if o := a.r.create(); !a.r.bad && a.g.p.queues[inc] == nil {
			a.h.touch(a.g.newQueue(inc, &o, a.h.now))
		}
		return
	}
	q := a.g.p.queues[inc] // nil if it was deleted: then the operation has no effect
	if q != nil {
		a.h.touch(q)
	}
	switch code {
	case cmdAck, cmdReject, cmdReturn:
		a.settle(code, q)
	case cmdDead:
		a.dead(q)
	case cmdTake:
		a.take(q)
	case cmdAside:
		a.aside(q)
	default:
		if o := a.r.operation(code); o != nil && q != nil {
			o.apply(&a.execution, q)
		}
	}
}

// newQueue makes a queue, or makes a declared one live.
func (g *group) newQueue(inc uint64, o *create, now int64) *Queue {
	q := g.declared[inc]
	if q == nil {
		q = &Queue{Incarnation: inc, VHost: o.vhost, Name: o.name, Durable: true, part: g.p, config: o.config, due: never}
	}
	q.live, q.dead = true, o.dead
	q.m = queue.New(o.config, o.settings, &g.p.pages, q, now)
	if g.node.Index != nil {
		q.m.SetCold(shelf{q})
	}
	g.p.queues[inc] = q
	return q
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
		entry: queue.Entry{Content: queue.Content{Body: body}, Priority: in.priority, TTL: in.ttl, Delay: in.delay},
		rec:   message.Record(record),
	}
	var refusedBy *Queue
	h := a.h
	h.entered = h.entered[:0]
	h.entries += n - 1
	for range n {
		if q := g.p.queues[a.r.uint()]; q != nil && !a.n.admit(h, q, &arrives) && refusedBy == nil {
			refusedBy = q
		}
	}
	a.n.admitted(h, &arrives)
	if own.owner != nil {
		g.effects.answers = append(g.effects.answers, ownedAnswer{own.owner, Answer{own.token, refusedBy != nil, refusedBy}})
	}
}

// place is where the journal has the byte at this offset of the command, 0 if unknown.
func (a *application) place(at int) message.Location {
	if a.at == 0 {
		return 0
	}
	return message.Location(a.at) + message.Location(at)
}

// keep stores a record that the journal has at a place, with one reference. On a replica that does not lead, nobody
// reads it soon, so it stays on disk.
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

// settle settles deliveries. It finds the consumer by number; a number that is gone has no deliveries.
func (a *application) settle(code byte, q *Queue) {
	in := a.r.settlement(code)
	if q == nil || a.r.bad {
		return
	}
	s := a.g.consumers[in.consumer]
	if s == nil || s.q != q {
		return
	}
	a.h.entries += int(in.count) - 1
	in.apply(a.h, q, s.c)
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

// gone ends a process that has died: it detaches its consumers, takes back what they had not settled (DL-11.3), and
// ends their hushes.
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

// finishApply ends a hold of commands. The partition is unlocked, deliveries leave, and waiting callers get their
// results.
func (g *group) finishApply(h *hold) {
	e, n := &g.effects, g.node // e needs no lock: only one goroutine applies at a time
	now := h.now
	n.leaveDead(n.finishHold(h))
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
	if n.CatchUp != nil && now > n.Now() { // the time of the last command here, not of one long ago
		n.CatchUp(now)
	}
	if bodies, index := n.memory.short(); bodies || index {
		g.p.relief.request(bodies, index, n.Now())
	}
}

// answer gives one owner its answers.
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
	err := g.tell(func(w *commandWriter) { credit{s.c.Number, n}.write(w, s.q.Incarnation) })
	if err != nil {
		g.p.mu.Lock()
		s.asked = max(0, s.asked-n)
		g.p.mu.Unlock()
	}
}

// storeHistory stores a history from a command. The caller gets one reference.
func storeHistory(store *bodies.Store, b []byte) message.Ref {
	if len(b) == 0 {
		return 0
	}
	return deathstore.Keep(store, b)
}
