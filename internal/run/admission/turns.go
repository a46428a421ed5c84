package admission

import (
	"net/netip"
	"slices"
	"sync"
)

// Turns limits how many goroutines do expensive work at once. If more want to, their
// client addresses take turns, and goroutines of one address go in order of arrival. So a
// client that sends many requests delays only its own.
type Turns struct {
	mu      sync.Mutex // guards what follows
	free    int
	waiting map[netip.Prefix][]chan struct{} // none is empty
	next    []netip.Prefix                   // the keys of waiting, in the order of their turns
}

// NewTurns returns Turns with a number of places.
func NewTurns(places int) *Turns {
	return &Turns{free: places, waiting: map[netip.Prefix][]chan struct{}{}}
}

// Begin waits for a place; End gives it back. Begin returns false, without a place, if gone or
// stop is closed first.
func (t *Turns) Begin(from netip.Addr, gone, stop <-chan struct{}) bool {
	turn := t.enter(networkOf(from))
	select {
	case <-turn:
		return true
	case <-gone:
	case <-stop:
	}
	t.leave(networkOf(from), turn)
	return false
}

// enter returns a channel that is closed when there is a place.
func (t *Turns) enter(from netip.Prefix) chan struct{} {
	turn := make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		close(turn)
		return turn
	}
	if len(t.waiting[from]) == 0 {
		t.next = append(t.next, from)
	}
	t.waiting[from] = append(t.waiting[from], turn)
	return turn
}

// leave gives up waiting, or the place if it was assigned meanwhile.
func (t *Turns) leave(from netip.Prefix, turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[from], turn)
	if i < 0 {
		t.pass()
		return
	}
	t.waiting[from] = slices.Delete(t.waiting[from], i, i+1)
	if len(t.waiting[from]) == 0 {
		delete(t.waiting, from)
		t.next = slices.DeleteFunc(t.next, func(p netip.Prefix) bool { return p == from })
	}
}

// End passes the place to the next in turn.
func (t *Turns) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass is End. REQUIRES: mu is held.
func (t *Turns) pass() {
	if len(t.next) == 0 {
		t.free++
		return
	}
	from := t.next[0]
	t.next = slices.Delete(t.next, 0, 1)
	line := t.waiting[from]
	close(line[0])
	if len(line) == 1 {
		delete(t.waiting, from)
		return
	}
	t.waiting[from] = slices.Delete(line, 0, 1)
	t.next = append(t.next, from)
}
