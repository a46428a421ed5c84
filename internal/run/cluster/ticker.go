package cluster

import (
	"sync"
	"time"

	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
)

// ticker is one timer for all groups. It stands still while no group needs ticks:
// on a node without others that is always.
type ticker struct {
	d *Driver

	mu      held.Mutex
	timer   *time.Timer
	running bool
	armed   bool
	ticking sync.WaitGroup
}

func (t *ticker) init(d *Driver) { t.d = d }

func (t *ticker) start() {
	t.mu.Lock()
	t.running = true
	t.mu.Unlock()
	t.arm()
}

// arm makes a tick come, if any group needs it and none is coming. A group calls
// it, unlocked, when it begins to need ticks.
func (t *ticker) arm() {
	needed := false
	for _, g := range *t.d.groups.Load() {
		needed = needed || g.ticks()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !needed || t.armed || !t.running {
		return
	}
	t.armed = true
	t.ticking.Add(1)
	if t.timer == nil {
		t.timer = time.AfterFunc(t.d.opts.Tick, bug.Guarded(t.d.opts.Logger, "a tick of groups", t.fire))
		return
	}
	t.timer.Reset(t.d.opts.Tick)
}

// fire runs in the timer's goroutine and owns nothing.
func (t *ticker) fire() {
	defer t.ticking.Done()
	t.d.Tick()
	t.mu.Lock()
	t.armed = false
	t.mu.Unlock()
	t.arm()
}

// stop waits for a tick under way.
func (t *ticker) stop() {
	t.mu.Lock()
	t.running = false
	if t.armed && t.timer.Stop() {
		t.armed = false
		t.ticking.Done()
	}
	t.mu.Unlock()
	t.ticking.Wait()
}
