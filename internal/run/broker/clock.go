package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/run/partition"
)

// clock is the time by which messages expire, wait and time out. It follows the wall clock, but for one thing: when that
// steps back, nothing stands still. In milliseconds, with elapsed as the time that passed since the clock was made:
//
//	now = max(wall, elapsed + lead),  lead = the highest wall - elapsed there was, less a sixteenth of the time since
//
// Invariant: between two readings passes at least 15/16 of the time that passed. So whatever is due after some time comes
// after that time, or a sixteenth later. A step forward is followed at once: what is due by the wall clock is due. After a
// step back the clock is ahead of the wall, and gives that back slowly: of ten seconds in three minutes.
//
// A start continues at the latest moment that is on disk, see catchUp: what was to happen then is not put off. With Options.ResetClock
// it begins at the wall clock instead, or at most a minute ahead of it. Nothing is due earlier for that: deadlines stay, and those from a time when the clock was
// ahead come as much later.
type clock struct {
	wall func(time.Time) int64 // milliseconds since 1970
	made time.Time

	lead  atomic.Int64
	ahead atomic.Bool // the last reading was ahead of the wall

	mu      sync.Mutex // while it is ahead
	slowed  int64      // elapsed when it came to be ahead, or when lead was last lowered or caught up
	highest int64      // of what was returned then
}

const (
	// apart is by how many milliseconds the readings of wall and elapsed may be apart.
	apart = 20
	// slowdown is how much of the time that passes is given back, as a divisor.
	slowdown = 16
)

func newClock(wall func(time.Time) int64) *clock {
	if wall == nil {
		wall = time.Time.UnixMilli
	}
	c := &clock{wall: wall, made: time.Now()}
	c.lead.Store(wall(c.made))
	return c
}

func (c *clock) now() int64 { return c.at(time.Now()) }

// lag is how far the wall is behind the clock.
func (c *clock) lag() time.Duration {
	t := time.Now()
	return moment.Duration(c.at(t)-c.wall(t), time.Millisecond)
}

func (c *clock) at(t time.Time) int64 {
	wall, elapsed := c.wall(t), t.Sub(c.made).Milliseconds() // by the clock that never steps
	lead := c.lead.Load()
	switch ahead := elapsed + lead - wall; {
	case ahead > apart:
		return c.slow(wall, elapsed)
	case ahead < -apart:
		raise(&c.lead, wall-elapsed)
	}
	if c.ahead.Load() {
		c.ahead.Store(false)
	}
	return wall
}

// slow is now while the clock is ahead of the wall.
func (c *clock) slow(wall, elapsed int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ahead.Swap(true) {
		c.slowed = max(c.slowed, elapsed)
	}
	if back := (elapsed - c.slowed) / slowdown; back > 0 {
		c.lead.Add(-back)
		c.slowed += back * slowdown
	}
	c.highest = max(c.highest, elapsed+c.lead.Load(), wall)
	return c.highest
}

// catchUp lets the clock go on at a moment at the earliest.
func (c *clock) catchUp(moment int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := time.Since(c.made).Milliseconds()
	if raise(&c.lead, moment-elapsed) {
		c.slowed = max(c.slowed, elapsed) // what passed before is not taken from the moment
	}
}

// catchUpSome is catchUp after a reset. The clocks of quorum queues go back only if they are far ahead (partition.MostSkew): a clock that is
// ahead by less must go on where they are, or they would stand still until it comes there.
func (c *clock) catchUpSome(moment int64) {
	if moment-c.wall(time.Now()) <= partition.MostSkew {
		c.catchUp(moment)
	}
}

// raise sets the value to v if v is larger, and says whether it was.
func raise(to *atomic.Int64, v int64) bool {
	for was := to.Load(); was < v; was = to.Load() {
		if to.CompareAndSwap(was, v) {
			return true
		}
	}
	return false
}
