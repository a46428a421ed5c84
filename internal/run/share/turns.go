package share

import "sync"

// Turns limits how many goroutines do expensive work at once. If more want to, those that they work for take turns, and
// goroutines of one of them go in order of arrival. So who sends many requests delays only its own.
type Turns[Owner comparable] struct {
	mu   sync.Mutex // guards what follows
	free int
	line[Owner, chan struct{}]
}

// NewTurns returns Turns with a number of places.
func NewTurns[Owner comparable](places int) *Turns[Owner] {
	return &Turns[Owner]{free: places, line: newLine[Owner, chan struct{}]()}
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
	t.join(of, turn)
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
	if !t.quit(of, turn) {
		t.pass()
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
	_, turn, ok := t.serve()
	if !ok {
		t.free++
		return
	}
	close(turn)
}
