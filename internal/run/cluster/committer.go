package cluster

import (
	"sync"

	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
)

// committer is the goroutine that has the journal commit what proposals, messages
// and ticks have put into it, and goes on from there. While it waits for a sync others
// append, and share the next one.
type committer struct {
	d *Driver

	mu      held.Mutex
	work    sync.Cond
	running bool
	idle    bool // it sleeps
	owed    bool // a turn was left to it
	ending  bool
	donec   chan struct{}
}

func (c *committer) init(d *Driver) {
	c.d = d
	c.work.L = &c.mu
}

func (c *committer) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.donec = true, make(chan struct{})
	go bug.Guarded(c.d.opts.Logger, "the committer", c.run)()
}

// run owns nothing; it ends when stop sets ending, or when the driver fails.
func (c *committer) run() {
	defer close(c.donec)
	for {
		if !c.sleep() {
			return
		}
		pos, more := c.d.Unsynced()
		if !more {
			c.d.Durable()
			continue
		}
		if c.d.Commit(pos) != nil {
			return
		}
	}
}

// sleep waits for something to do. It returns false when it is time to end.
func (c *committer) sleep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ending {
		if _, more := c.d.Unsynced(); more || c.owed {
			c.owed = false
			return true
		}
		c.idle = true
		c.work.Wait()
		c.idle = false
	}
	return false
}

func (c *committer) wake() {
	c.mu.Lock()
	if c.idle {
		c.work.Signal()
	}
	c.mu.Unlock()
}

// owe leaves the rest of a turn to the committer. It returns false if there is none.
func (c *committer) owe() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running || c.ending {
		return false
	}
	c.owed = true
	c.work.Signal()
	return true
}

func (c *committer) stop() {
	c.mu.Lock()
	c.ending = true
	c.work.Signal()
	running := c.running
	c.mu.Unlock()
	if running {
		<-c.donec
	}
}
