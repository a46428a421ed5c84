// Package share divides bounded room between those who use it: places for work that goes on, turns for work that waits,
// shelves for what is kept. Where there is not enough, who has most yields, so that nobody's share depends on who came first.
//
// An owner is whoever the room's user says: a user's name, a network, a virtual host. Nothing here knows what the work is.
package share

import (
	"slices"
	"sync"
)

// Room has a number of places for work that goes on. If it is full, who has most places gives one up to somebody who would
// still have fewer with it.
//
//	Invariant: taken = Σ len(held[o]) <= places; held has no empty list; if somebody waits, taken = places.
type Room[Owner comparable] struct {
	mu     sync.Mutex // guards what follows
	places int
	taken  int
	held   map[Owner][]*Place[Owner] // in the order in which they were taken
	line[Owner, chan *Place[Owner]]
}

// Place is a place in a Room. Leave gives it back, also if it was given up.
type Place[Owner comparable] struct {
	room   *Room[Owner]
	of     Owner
	yieldc chan struct{} // closed when the place is another's
	gone   bool          // guarded by room.mu: it is in no list
	before *Place[Owner] // that was given up for it

	onYield func() // guarded by room.mu; nil: nobody is told
}

// NewRoom returns a room with a number of places.
func NewRoom[Owner comparable](places int) *Room[Owner] {
	return &Room[Owner]{places: places, held: map[Owner][]*Place[Owner]{}, line: newLine[Owner, chan *Place[Owner]]()}
}

// Enter takes a place for an owner, or returns nil if all are taken and nobody has two more than this owner. It does not
// wait. The work of the place that is given up for it ends soon after, so for so long there is more work than places.
func (r *Room[Owner]) Enter(of Owner) *Place[Owner] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enter(of)
}

// enter is Enter. REQUIRES: mu is held.
func (r *Room[Owner]) enter(of Owner) *Place[Owner] {
	var before *Place[Owner]
	if r.taken == r.places {
		if before = r.yield(len(r.held[of])); before == nil {
			return nil
		}
	}
	p := r.take(of)
	p.before = before
	return p
}

// take takes a free place. REQUIRES: mu is held, taken < places.
func (r *Room[Owner]) take(of Owner) *Place[Owner] {
	p := &Place[Owner]{room: r, of: of, yieldc: make(chan struct{})}
	r.held[of] = append(r.held[of], p)
	r.taken++
	return p
}

// Wait is Enter, but waits for a place that is left if it finds none. Owners who wait take turns. It returns nil if gone is
// closed first.
func (r *Room[Owner]) Wait(of Owner, gone <-chan struct{}) *Place[Owner] {
	r.mu.Lock()
	p := r.enter(of)
	if p != nil {
		r.mu.Unlock()
		return p
	}
	turn := make(chan *Place[Owner], 1)
	r.join(of, turn)
	r.mu.Unlock()
	select {
	case p = <-turn:
		return p
	case <-gone:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quit(of, turn) {
		return nil
	}
	if p = <-turn; !p.gone { // its turn came just then
		r.remove(p)
		r.pass()
	}
	return nil
}

// pass gives a free place to who is next. REQUIRES: mu is held.
func (r *Room[Owner]) pass() {
	if of, turn, ok := r.serve(); ok {
		turn <- r.take(of)
	}
}

// yield has the owner with most places give up the last that it took, if it keeps more than so many, and returns that; nil:
// nobody has. REQUIRES: mu is held.
//
// The last, not the first: what has gone on for long is nearer to its end, and an owner who floods loses the flood.
func (r *Room[Owner]) yield(than int) *Place[Owner] {
	var most []*Place[Owner]
	for _, places := range r.held {
		if len(places) > len(most) {
			most = places
		}
	}
	if len(most) < than+2 {
		return nil
	}
	last := most[len(most)-1]
	r.remove(last)
	close(last.yieldc)
	if last.onYield != nil {
		last.onYield()
	}
	return last
}

// Before is the place that was given up for this one; nil: it was free.
func (p *Place[Owner]) Before() *Place[Owner] { return p.before }

// Yield is closed when the place was given to another: the work must end.
func (p *Place[Owner]) Yield() <-chan struct{} { return p.yieldc }

// OnYield has f called when the place is given to another, at once if it was. f must not wait, nor use the room: it is called under its lock.
// It is for work that waits for something else, which f ends.
func (p *Place[Owner]) OnYield(f func()) {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	p.onYield = f
	select {
	case <-p.yieldc:
		f()
	default:
	}
}

// Leave gives the place back. It may be called more than once.
func (p *Place[Owner]) Leave() {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	if !p.gone {
		p.room.remove(p)
		p.room.pass()
	}
}

// remove takes a place out of its list. REQUIRES: mu is held, the place is in its list.
func (r *Room[Owner]) remove(p *Place[Owner]) {
	p.gone = true
	r.taken--
	list := r.held[p.of]
	if len(list) == 1 {
		delete(r.held, p.of)
		return
	}
	i := slices.Index(list, p)
	r.held[p.of] = slices.Delete(list, i, i+1)
}
