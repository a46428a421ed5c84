package share

import (
	"slices"
	"sync"
)

// Turns limits how many goroutines do expensive work at once. If more want to, those that they work for take turns, and
// goroutines of one of them go in order of arrival. So who sends many requests delays only its own.
type Turns[Owner comparable] struct {
	mu      sync.Mutex // guards what follows
	free    int
	waiting map[Owner][]chan struct{} // none is empty
	next    []Owner                   // the keys of waiting, in the order of their turns
}

// NewTurns returns Turns with a number of places.
func NewTurns[Owner comparable](places int) *Turns[Owner] {
	return &Turns[Owner]{free: places, waiting: map[Owner][]chan struct{}{}}
}

// Begin waits for a place; End gives it back. Begin returns false, without a place, if gone or
// stop is closed first.
func (t *Turns[Owner]) Begin(of Owner, gone, stop <-chan struct{}) bool {
	turn := t.enter(of)
	select {
	case <-turn:
		return true
	case <-gone:
	case <-stop:
	}
	t.leave(of, turn)
	return false
}

// enter returns a channel that is closed when there is a place.
func (t *Turns[Owner]) enter(of Owner) chan struct{} {
	turn := make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		close(turn)
		return turn
	}
	if len(t.waiting[of]) == 0 {
		t.next = append(t.next, of)
	}
	t.waiting[of] = append(t.waiting[of], turn)
	return turn
}

// Line is how many of an owner wait.
func (t *Turns[Owner]) Line(of Owner) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting[of])
}

// leave gives up waiting, or the place if it was assigned meanwhile.
func (t *Turns[Owner]) leave(of Owner, turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[of], turn)
	if i < 0 {
		t.pass()
		return
	}
	t.waiting[of] = slices.Delete(t.waiting[of], i, i+1)
	if len(t.waiting[of]) == 0 {
		delete(t.waiting, of)
		t.next = slices.DeleteFunc(t.next, func(o Owner) bool { return o == of })
	}
}

// End passes the place to the next in turn.
func (t *Turns[Owner]) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass is End. REQUIRES: mu is held.
func (t *Turns[Owner]) pass() {
	if len(t.next) == 0 {
		t.free++
		return
	}
	of := t.next[0]
	t.next = slices.Delete(t.next, 0, 1)
	line := t.waiting[of]
	close(line[0])
	if len(line) == 1 {
		delete(t.waiting, of)
		return
	}
	t.waiting[of] = slices.Delete(line, 0, 1)
	t.next = append(t.next, of)
}
