// Package share divides bounded room between those who use it: places for work that goes on, turns for work that waits,
// shelves for what is kept. Where there is not enough, who has most yields, so that nobody's share depends on who came first.
//
// An owner is whoever the room's user says: a user's name, a network, a virtual host. Nothing here knows what the work is.
package share

import "sync"

// Room has a number of places for work that goes on. If it is full, who has most places gives one up to somebody who would
// still have fewer with it.
//
//	Invariant: taken = Σ len(held[o]) <= places; held has no empty list.
type Room[Owner comparable] struct {
	mu     sync.Mutex // guards what follows
	places int
	taken  int
	held   map[Owner][]*Place[Owner] // in the order in which they were taken
}

// Place is a place in a Room. Leave gives it back, also if it was given up.
type Place[Owner comparable] struct {
	room   *Room[Owner]
	of     Owner
	yieldc chan struct{} // closed when the place is another's
	gone   bool          // guarded by room.mu: it is in no list
}

// NewRoom returns a room with a number of places.
func NewRoom[Owner comparable](places int) *Room[Owner] {
	return &Room[Owner]{places: places, held: map[Owner][]*Place[Owner]{}}
}

// Enter takes a place for an owner, or returns nil if all are taken and nobody has two more than this owner. It does not
// wait. The work of the place that is given up for it ends soon after, so for so long there is more work than places.
func (r *Room[Owner]) Enter(of Owner) *Place[Owner] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == r.places && !r.yield(len(r.held[of])) {
		return nil
	}
	p := &Place[Owner]{room: r, of: of, yieldc: make(chan struct{})}
	r.held[of] = append(r.held[of], p)
	r.taken++
	return p
}

// yield has the owner with most places give up the last that it took, if it keeps more than so many. REQUIRES: mu is held.
//
// The last, not the first: what has gone on for long is nearer to its end, and an owner who floods loses the flood.
func (r *Room[Owner]) yield(than int) bool {
	var most []*Place[Owner]
	for _, places := range r.held {
		if len(places) > len(most) {
			most = places
		}
	}
	if len(most) < than+2 {
		return false
	}
	last := most[len(most)-1]
	r.remove(last)
	close(last.yieldc)
	return true
}

// Yield is closed when the place was given to another: the work must end.
func (p *Place[Owner]) Yield() <-chan struct{} { return p.yieldc }

// Leave gives the place back. It may be called more than once.
func (p *Place[Owner]) Leave() {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	if !p.gone {
		p.room.remove(p)
	}
}

// remove takes a place out of its list. REQUIRES: mu is held, the place is in its list.
func (r *Room[Owner]) remove(p *Place[Owner]) {
	p.gone = true
	r.taken--
	list := r.held[p.of]
	for i, other := range list {
		if other == p {
			list = append(list[:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(r.held, p.of)
		return
	}
	r.held[p.of] = list
}
