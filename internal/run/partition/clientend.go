package partition

import (
	"iter"
	"slices"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/safety/held"
)

// Seat is a consumer at its queue.
type Seat struct {
	Queue    *Queue
	Consumer *queue.Consumer
}

// Delivered is a delivery that is not settled.
type Delivered struct {
	Queue    *Queue
	ID       queue.ID
	Consumer *queue.Consumer // nil for basic.get
}

// Quit ends a client, or a part of one that has consumers. All its consumers are detached, and everything they hold
// of a queue comes back (BR-4.5) before that queue delivers anything again. So no message goes from one consumer of
// the client to another, each message has failed once, and the next consumer begins where the last one stopped.
//
// returns are deliveries that come back, in their order; nil means none. It may lack some that the consumers hold:
// these come back after the others. It may have deliveries of other holders too. There may be millions, so they are
// walked several times, by any goroutine, and never listed.
//
// When Quit returns, the consumers of classic queues get nothing any more. For replicated queues that is so, and the
// rest is done, when applied returns; the caller must call it.
func (n *Node) Quit(seats []Seat, returns iter.Seq[Delivered]) (applied func()) {
	if returns == nil {
		returns = func(func(Delivered) bool) {}
	}
	var asks []*ask
	var many []*parting
	if n.groups != nil {
		asks, many = n.proposeQuit(seats, returns)
	}
	n.quitLocal(seats, returns)
	return func() {
		held.Nothing("a group")
		if len(asks) > 0 && n.decideAll() == nil {
			for _, a := range asks {
				<-a.done
			}
		}
		if len(many) > 0 {
			n.part(many, returns)
		}
	}
}

// leaving is a classic queue that a client leaves. It is hushed.
type leaving struct {
	q     *Queue
	seats []*queue.Consumer // the client's consumers
	left  int               // how many deliveries must still come back
}

// quitLocal is Quit for classic queues. A queue is hushed from the detaching of its consumers until their deliveries
// are back in it, and no longer: another queue may have millions to take back.
func (n *Node) quitLocal(seats []Seat, returns iter.Seq[Delivered]) {
	var all []*leaving // in the order of seats and returns
	of := map[*Queue]*leaving{}
	hush := func(q *Queue, c *queue.Consumer) (l *leaving) {
		l, known := of[q] // nil: the queue is deleted
		if known && (l == nil || c == nil) {
			return l
		}
		_ = n.with(q, func(h *hold) {
			if l == nil {
				l = &leaving{q: q}
				all = append(all, l)
				q.m.Hush()
			}
			if c != nil {
				q.m.Detach(h.now, c)
				l.seats = append(l.seats, c)
			}
		})
		of[q] = l
		return l
	}
	for i := range seats {
		if !seats[i].Queue.Replicated() {
			hush(seats[i].Queue, seats[i].Consumer)
		}
	}
	var last *leaving
	for d := range returns {
		if d.Queue.Replicated() {
			continue
		}
		if last == nil || last.q != d.Queue {
			last = hush(d.Queue, nil)
		}
		if last != nil {
			last.left++
		}
	}
	var slice []Op
	var complete []*leaving
	run := func() {
		if len(slice) > 0 {
			n.run(slice, false)
			slice = slice[:0]
		}
		for _, l := range complete {
			n.speak(l)
		}
		complete = complete[:0]
	}
	for _, l := range all {
		if l.left == 0 {
			complete = append(complete, l)
		}
	}
	run()
	last = nil
	for d := range returns {
		if d.Queue.Replicated() {
			continue
		}
		slice = append(slice, Op{Kind: Return, Queue: d.Queue, ID: d.ID, Consumer: d.Consumer, How: queue.ReturnClosed})
		if last == nil || last.q != d.Queue {
			last = of[d.Queue]
		}
		if last != nil {
			if last.left--; last.left == 0 {
				complete = append(complete, last)
			}
		}
		if len(slice) == sliceLimit {
			run()
		}
	}
	for _, l := range all {
		if l.left > 0 { // this walk returned less than the one before
			complete = append(complete, l)
		}
	}
	run()
}

// speak takes back the deliveries of the client's consumers that returns did not have. These are few: they were on
// their way to the client. Then the queue delivers again.
func (n *Node) speak(l *leaving) {
	var held []queue.Holding
	_ = n.with(l.q, func(*hold) { held = l.q.m.HeldBy(l.seats...) })
	for some := range slices.Chunk(held, sliceLimit) {
		var slice []Op
		for _, h := range some {
			slice = append(slice, Op{Kind: Return, Queue: l.q, ID: h.ID, Consumer: h.By, How: queue.ReturnClosed})
		}
		n.run(slice, false)
	}
	_ = n.with(l.q, func(h *hold) {
		l.q.m.Speak()
		l.q.m.Flow(h.now, 0)
	})
}

// abandon takes back what the consumers of seats hold, as if their channels had closed (DL-11.3): queue by queue in
// the order of seats, in the order of deliveries.
func (a *application) abandon(seats []*seat) {
	var queues []*Queue
	of := map[*Queue][]*queue.Consumer{}
	for _, s := range seats {
		if of[s.q] == nil {
			queues = append(queues, s.q)
		}
		of[s.q] = append(of[s.q], s.c)
	}
	for _, q := range queues {
		for _, h := range q.m.HeldBy(of[q]...) {
			a.h.entries++
			if q.m.Return(a.h.now, h.ID, h.By, queue.ReturnClosed) {
				q.stats.Returned++
				q.stats.Active = a.h.now
			}
		}
	}
	for _, s := range seats {
		a.g.forgetIdle(s)
	}
}

// proposeQuit is Quit for replicated queues. It proposes one command for each group, except for groups (many) where
// one command would be too large.
func (n *Node) proposeQuit(seats []Seat, returns iter.Seq[Delivered]) (asks []*ask, many []*parting) {
	counts := map[*Partition]int{}
	for d := range returns {
		if d.Queue.Replicated() && d.Consumer != nil {
			counts[d.Queue.part]++
		}
	}
	for _, p := range n.groups {
		g := p.group
		var mine []Seat
		for _, s := range seats {
			if s.Queue.part == p {
				mine = append(mine, s)
			}
		}
		back := counts[p]
		if len(mine)+back == 0 {
			continue
		}
		if len(mine)+back > n.quitSlice {
			many = append(many, &parting{g: g, number: n.numbers.Add(1), returns: returns, seats: mine, total: back, queues: map[*Queue]struct{}{}})
			continue
		}
		quit := func(w *commandWriter) {
			w.quit(len(mine))
			for _, s := range mine {
				w.seat(s.Queue.Incarnation, s.Consumer.Number)
			}
			if w.returns(back); back == 0 {
				return
			}
			for d := range returns {
				if d.Queue.part == p && d.Consumer != nil {
					w.delivery(d.Queue.Incarnation, d.Consumer.Number, d.ID)
				}
			}
		}
		if a := g.proposeQuit(quit); a != nil {
			asks = append(asks, a)
		}
	}
	return asks, many
}

// proposeQuit proposes the end of consumers. Nothing else would detach them while this process lives, so if the group
// has no leader now it is proposed again later (quitAgain).
func (g *group) proposeQuit(quit func(*commandWriter)) *ask {
	a, w := newAsk(), g.node.writer()
	quit(w)
	_, err := g.propose(w, &proposal{ask: a}, false)
	g.node.writers.Put(w)
	if err != nil {
		ps := &g.proposals
		ps.mu.Lock()
		ps.quits = append(ps.quits, quit)
		ps.mu.Unlock()
		return nil
	}
	return a
}

// quitAgain proposes the ends that no leader has taken, if there is a leader now.
func (g *group) quitAgain() {
	ps := &g.proposals
	ps.mu.Lock()
	quits := ps.quits
	if ps.closed {
		quits = nil
	} else {
		ps.quits = nil
	}
	ps.mu.Unlock()
	for _, quit := range quits {
		g.proposeQuit(quit)
	}
}

// quit detaches consumers, and takes back what they hold and other deliveries.
func (a *application) quit() {
	now := a.h.now
	var seats []*seat
	var queues []*Queue
	known := map[*Queue]bool{}
	touch := func(q *Queue) {
		if !known[q] {
			known[q] = true
			queues = append(queues, q)
			a.h.touch(q)
		}
	}
	for range a.r.count(seatBytes) {
		inc, number := a.r.seat()
		a.h.entries++
		if s := a.g.consumers[number]; s != nil && s.q.Incarnation == inc && !a.r.bad {
			touch(s.q)
			seats = append(seats, s)
			s.q.m.Detach(now, s.c)
		}
	}
	for range a.r.count(deliveryBytes) {
		if s := a.comeBack(); s != nil {
			touch(s.q)
		}
	}
	a.abandon(seats)
	for _, q := range queues {
		q.m.Flow(now, 0)
	}
	if ask := a.ask; ask != nil {
		ask.ok = true
	}
}
