package partition

import (
	"iter"
	"maps"
	"math"
	"slices"

	"bartleby.mq/internal/core/queue"
)

// A client that ends may have very many consumers of a group's queues, or very many deliveries. As one command its
// end would block the group for seconds. So it is several commands, each proposed when the one before is applied:
// first consumers are detached; then deliveries come back, in their order; then the queues are done one after the
// other. A queue is hushed from the first of these commands that touches it until it is done, so that the next
// consumer gets returned messages before those that were never delivered.
//
// Which queues are hushed, and for whom, is part of the group's state. If the process of the client dies in between,
// its gone command ends the departure.

// departure is a client's end in progress. It exists as long as it hushes a queue.
//
// Invariant: none of its queues is deleted.
type departure struct {
	origin, number uint64 // the client's process, and the number that it gave the departure
	queues         []*departed
	of             map[*Queue]*departed
}

// departed is a queue that a departure hushes.
type departed struct {
	q     *Queue
	seats map[*seat]struct{} // consumers that it has detached and that still hold something
}

// departure finds a departure; nil if there is none.
func (g *group) departure(origin, number uint64) *departure {
	for _, d := range g.departures {
		if d.origin == origin && d.number == number {
			return d
		}
	}
	return nil
}

// depart begins a departure.
func (g *group) depart(origin, number uint64) *departure {
	d := &departure{origin: origin, number: number, of: map[*Queue]*departed{}}
	g.departures = append(g.departures, d)
	return d
}

// hush returns the departure's part in a queue, and hushes the queue if it is new.
func (d *departure) hush(q *Queue) *departed {
	at := d.of[q]
	if at == nil {
		at = &departed{q: q, seats: map[*seat]struct{}{}}
		d.of[q] = at
		d.queues = append(d.queues, at)
		q.m.Hush()
	}
	return at
}

// add notes that the departure has detached a consumer. forgetIdle removes a consumer that holds nothing.
func (at *departed) add(s *seat) {
	if s.departed == nil {
		s.departed = at
		at.seats[s] = struct{}{}
	}
}

// departFrom removes a deleted queue from all departures.
func (g *group) departFrom(q *Queue) {
	g.departures = slices.DeleteFunc(g.departures, func(d *departure) bool {
		if d.of[q] == nil {
			return false
		}
		delete(d.of, q)
		d.queues = slices.DeleteFunc(d.queues, func(at *departed) bool { return at.q == q })
		return len(d.queues) == 0
	})
}

// departureImage is a departure in the group's state.
type departureImage struct {
	origin, number uint64
	queues         []departedImage
}

type departedImage struct {
	queue uint64
	seats []uint64 // in no order
}

func (d *departure) image() departureImage {
	im := departureImage{d.origin, d.number, make([]departedImage, 0, len(d.queues))}
	for _, at := range d.queues {
		seats := make([]uint64, 0, len(at.seats))
		for s := range at.seats {
			seats = append(seats, s.c.Number)
		}
		im.queues = append(im.queues, departedImage{at.q.Incarnation, seats})
	}
	return im
}

func (w *commandWriter) departures(list []departureImage) {
	w.uint(uint64(len(list)))
	for _, d := range list {
		w.uint(d.origin)
		w.uint(d.number)
		w.uint(uint64(len(d.queues)))
		for _, at := range d.queues {
			w.uint(at.queue)
			slices.Sort(at.seats)
			w.numbers(at.seats)
		}
	}
}

// departures reads what commandWriter.departures wrote, and hushes the queues again. REQUIRES: the group has its
// queues and consumers.
func (r *stateReader) departures() {
	for range r.count(5) {
		origin, number := r.uint(), r.uint()
		if r.g.departure(origin, number) != nil {
			r.bad = true
		}
		d := r.g.depart(origin, number)
		for range r.count(2) {
			q := r.g.p.queues[r.uint()]
			if q == nil || d.of[q] != nil {
				r.bad = true
				return
			}
			at := d.hush(q)
			for range r.count(1) {
				s := r.g.consumers[r.uint()]
				if s == nil || s.q != q || s.departed != nil {
					r.bad = true
					return
				}
				at.add(s)
			}
		}
		if r.bad = r.bad || len(d.queues) == 0; r.bad {
			return
		}
	}
}

// leave applies one command of a departure.
func (a *application) leave() {
	now := a.h.now
	number, done := a.r.uint(), a.r.uint()
	d := a.g.departure(a.from, number)
	hush := func(q *Queue) *departed {
		a.h.touch(q)
		if d == nil {
			d = a.g.depart(a.from, number)
		}
		return d.hush(q)
	}
	for range a.r.count(seatBytes) {
		inc, by := a.r.seat()
		a.h.entries++
		s := a.g.consumers[by]
		if s == nil || s.q.Incarnation != inc || a.r.bad {
			continue
		}
		hush(s.q).add(s)
		s.q.m.Detach(now, s.c)
		a.g.forgetIdle(s)
	}
	for range a.r.count(deliveryBytes) {
		if s := a.comeBack(); s != nil {
			hush(s.q)
		}
	}
	if d != nil && !a.r.bad {
		a.done(d, done)
	}
	if ask := a.ask; ask != nil {
		ask.ok = true
	}
}

// comeBack reads a delivery and takes it back. It returns the consumer that had it, nil if there is none.
func (a *application) comeBack() *seat {
	inc, number, id := a.r.delivery()
	a.h.entries++
	s := a.g.consumers[number]
	if s == nil || s.q.Incarnation != inc || a.r.bad {
		return nil
	}
	if s.q.m.Return(a.h.now, id, s.c, queue.ReturnClosed) {
		s.q.stats.Returned++
		s.q.stats.Active = a.h.now
	}
	a.g.forgetIdle(s)
	return s
}

// done ends a departure in the next queues of its list, as many as the command says. Deliveries that its consumers
// still hold there come back; these are few, which were on their way. Then the queue delivers again: at most a slice
// for all queues, the rest with the next ticks.
func (a *application) done(d *departure, queues uint64) {
	handed := 0
	for ; queues > 0 && len(d.queues) > 0; queues-- {
		at := d.queues[0]
		q := at.q
		d.queues[0] = nil
		d.queues = d.queues[1:]
		delete(d.of, q)
		a.h.touch(q)
		a.h.entries++
		a.abandon(slices.Collect(maps.Keys(at.seats)))
		q.m.Speak()
		if handed >= sliceSteps {
			q.m.Pump(a.h.now, 0)
			continue
		}
		ready := q.m.Totals().Ready
		q.m.Flow(a.h.now, 0)
		n := max(0, ready-q.m.Totals().Ready)
		handed += n
		a.h.entries += n
	}
	if len(d.queues) == 0 {
		a.g.departures = slices.DeleteFunc(a.g.departures, func(other *departure) bool { return other == d })
	}
}

// allQueues makes one command finish all queues of a departure.
const allQueues = math.MaxUint64

// parting is a client's end in a group in several commands.
type parting struct {
	g       *group
	number  uint64
	returns iter.Seq[Delivered]
	seats   []Seat              // still to be detached
	total   int                 // number of deliveries that come back
	back    int                 // how many of them are back
	slice   []Delivered         // the next ones
	queues  map[*Queue]struct{} // all queues that it touches
	kept    bool                // the group did not take a command: what was left then is proposed as one command when a leader is there
}

// part ends a client in groups. Each command is proposed when the one before is applied, so other commands come in
// between.
func (n *Node) part(list []*parting, returns iter.Seq[Delivered]) {
	of := map[*Partition]*parting{}
	for _, x := range list {
		of[x.g.p] = x
		for len(x.seats) > 0 {
			x.propose(min(n.quitSlice, len(x.seats)), 0)
		}
		if x.total == 0 {
			x.finish()
		}
	}
	for d := range returns {
		if x := of[d.Queue.part]; x != nil && d.Consumer != nil {
			x.queues[d.Queue] = struct{}{}
			x.slice = append(x.slice, d)
			if all := x.back+len(x.slice) == x.total; all || len(x.slice) == n.quitSlice {
				x.propose(0, 0)
				if all {
					x.finish() // its queues need not wait for other groups
				}
			}
		}
	}
	for _, x := range list {
		if len(x.slice) > 0 { // this walk returned less than the one before
			x.propose(0, 0)
		}
		x.finish()
	}
}

// finish lets the group's queues deliver again. REQUIRES: all deliveries of the client are back.
func (x *parting) finish() {
	most := x.g.node.quitSlice
	for left := len(x.queues); left > 0; left -= most {
		x.propose(0, uint64(most))
	}
	clear(x.queues)
}

// propose makes the group apply the next command: `seats` consumers are detached, the deliveries of the slice come
// back, and `done` queues are done.
func (x *parting) propose(seats int, done uint64) {
	if !x.kept {
		err := x.g.question(new(ask), func(w *commandWriter) {
			w.leave(x.number, done, seats)
			for _, s := range x.seats[:seats] {
				w.seat(s.Queue.Incarnation, s.Consumer.Number)
			}
			w.returns(len(x.slice))
			for _, d := range x.slice {
				w.delivery(d.Queue.Incarnation, d.Consumer.Number, d.ID)
			}
		})
		if err != nil {
			x.kept = true
			x.g.proposeQuit(x.rest())
		}
	}
	for _, s := range x.seats[:seats] {
		x.queues[s.Queue] = struct{}{}
	}
	x.seats = x.seats[seats:]
	x.back += len(x.slice)
	x.slice = x.slice[:0]
}

// rest returns everything that is left as one command. Parts that were applied already have no effect.
func (x *parting) rest() func(*commandWriter) {
	seats, total, back, returns := x.seats, x.total, x.back, x.returns
	number, p := x.number, x.g.p
	return func(w *commandWriter) {
		w.leave(number, allQueues, len(seats))
		for _, s := range seats {
			w.seat(s.Queue.Incarnation, s.Consumer.Number)
		}
		if w.returns(total - back); total == back {
			return
		}
		passed := 0
		for d := range returns {
			if d.Queue.part != p || d.Consumer == nil {
				continue
			}
			if passed++; passed > back {
				w.delivery(d.Queue.Incarnation, d.Consumer.Number, d.ID)
			}
		}
	}
}
