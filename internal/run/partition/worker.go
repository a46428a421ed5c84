package partition

import (
	"runtime"
	"sync"
	"time"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/safety/bug"
)

// wake makes the worker look. It never blocks.
func (p *Partition) wake() {
	select {
	case p.wakec <- struct{}{}:
	default:
	}
}

// work is the partition's worker. It sleeps until the nearest deadline or until it is woken, then works in slices and
// releases the lock in between.
func (p *Partition) work() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for more := false; ; {
		wait := time.Duration(0)
		if !more {
			wait = p.untilDue()
		}
		switch {
		case wait == 0:
			// Something is due: no pause. Yielding the processor here may cost up to 10 ms for each goroutine that
			// runs.
		case !p.graves.Load() && !p.relief.under():
			if p.relief.early.Load() {
				wait = min(wait, moment.Milliseconds(reliefPause))
			}
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-p.wakec:
			case <-p.node.stop:
				return
			}
		default:
			runtime.Gosched()
		}
		select {
		case <-p.node.stop:
			return
		default:
		}
		if p.group != nil {
			p.tickReplicated()
		} else {
			more = p.tick()
		}
		p.bury()
		p.relief.work()
	}
}

// lookAgain is how long a worker sleeps at most when something is to come: the system's clock may step forward meanwhile.
const lookAgain = 10 * time.Second

// untilDue is how long the worker may sleep. It sets the alarm; a hold that sets a nearer deadline wakes the worker.
func (p *Partition) untilDue() time.Duration {
	p.mu.Lock()
	p.alarm = never
	if len(p.timers) > 0 {
		p.alarm = p.timers[0].due
	}
	alarm := p.alarm
	p.mu.Unlock()
	if alarm == never {
		return time.Hour
	}
	return min(moment.Milliseconds(max(0, alarm-p.node.Now())), lookAgain)
}

// route is the partition's second worker: it routes the deaths that are left to it. So expiring messages and routing
// earlier ones do not wait for each other.
func (p *Partition) route() {
	for {
		select {
		case <-p.routec:
		case <-p.node.stop:
			return
		}
		for p.routeLater() {
			select {
			case <-p.node.stop:
				return
			default:
			}
		}
	}
}

// wakeRouter makes route look. It never blocks.
func (p *Partition) wakeRouter() {
	select {
	case p.routec <- struct{}{}:
	default:
	}
}

const (
	// mostLate is how many milliseconds of lateness slow down work that nobody waits for; more has no further effect.
	mostLate = 7
	// mostOwed is how much of one piece of such work counts for the pause after it. A longer piece has waited for the
	// disk or for another goroutine, and others had the processor meanwhile.
	mostOwed = 20 * time.Millisecond
)

// giveWay pauses work that nobody waits for and that began at the given time. It is called after each hold. Such work
// gets half of the time, and less the longer something in the partition is overdue, down to a ninth.
func (p *Partition) giveWay(began time.Time) {
	took := time.Since(began)
	p.mu.Lock()
	late := p.late()
	p.mu.Unlock()
	p.node.owe(took, late)
}

// giveWay is the same for work that holds no partition, such as a compaction of the store. A goroutine that holds a
// partition may wait for that work, so giveWay waits for no partition.
func (n *Node) giveWay(worked time.Duration) {
	late := int64(0)
	for _, p := range n.all {
		if p.mu.TryLock() {
			late = max(late, p.late())
			p.mu.Unlock()
		}
	}
	n.owe(worked, late)
}

// owe pauses for work that took so long while something was late by that many milliseconds.
func (n *Node) owe(worked time.Duration, late int64) {
	n.pause(min(worked, mostOwed) * time.Duration(1+min(late, mostLate)))
}

// pause sleeps, unless the node is stopping.
func (n *Node) pause(d time.Duration) {
	select {
	case <-n.stop:
	case <-time.After(d):
	}
}

// late is how many milliseconds the most overdue thing waits, or how old the deaths are that are being routed.
// REQUIRES: p.mu is held.
func (p *Partition) late() int64 {
	late := p.lateDeaths
	if len(p.timers) > 0 && p.timers[0].due > soon {
		late = max(late, p.node.Now()-p.timers[0].due)
	}
	return late
}

// soon is the moment of work that has no deadline and is done when the worker gets to it.
const soon = 1

// inlineTick is how many entries of one tick the worker may handle and still route their deaths itself. Up to that
// number a handover would cost more than it saves.
const inlineTick = sliceLimit / 2

// tick does one slice of what is due, and says whether there is more.
func (p *Partition) tick() (more bool) {
	n := p.node
	var unused []*Queue
	h := n.lockInTurn(p, p)
	for h.entries < sliceLimit && len(p.timers) > 0 && p.timers[0].due <= h.now {
		q := p.timers[0]
		h.touch(q)
		h.entries++
		if q.m.Unused(h.now) {
			p.unschedule(q)
			unused = q.foundUnused(unused)
			continue
		}
		if q.behind() {
			p.unschedule(q) // until its deaths have been routed: see remind
			continue
		}
		before, timeouts := q.m.Totals(), q.m.TimeoutCount()
		if q.m.Tick(h.now, sliceLimit) {
			h.entries += sliceLimit // it stopped at its limit
		}
		after := q.m.Totals()
		h.entries += max(0, before.Ready-after.Ready) + max(0, before.Delayed-after.Delayed) + int(q.m.TimeoutCount()-timeouts)
		p.reschedule(q, max(q.m.NextDue(), soon))
	}
	many := h.entries > inlineTick
	more = len(p.timers) > 0 && p.timers[0].due <= h.now
	if work := n.finishHold(h); many {
		n.leaveDead(work)
	} else {
		n.moveDead(work)
	}
	p.leaveUnused(unused)
	return more
}

// foundUnused appends q to the queues whose x-expires has passed, unless expire has it already. REQUIRES: q's
// partition is held.
func (q *Queue) foundUnused(list []*Queue) []*Queue {
	if q.expiring {
		return list
	}
	q.expiring = true
	return append(list, q)
}

// leaveUnused gives expired queues to expire. The removal of a queue waits for its deaths and for disks, and no other
// queue's deadline may wait for that.
func (p *Partition) leaveUnused(list []*Queue) {
	if len(list) == 0 {
		return
	}
	p.leaving.Lock()
	p.unused = append(p.unused, list...)
	p.leaving.Unlock()
	select {
	case p.endc <- struct{}{}:
	default:
	}
}

// mostExpiring is how many expired queues are removed at a time. Each removal waits for the deaths of its queue and
// for two syncs. Removals at the same time share the syncs, and one that waits long does not hold up the others.
const mostExpiring = 64

// expire is the partition's third worker: it reports queues whose x-expires has passed.
func (p *Partition) expire() {
	var removals sync.WaitGroup
	room := make(chan struct{}, mostExpiring)
	for {
		select {
		case <-p.endc:
		case <-p.node.stop:
			removals.Wait()
			return
		}
		p.leaving.Lock()
		list := p.unused
		p.unused = nil
		p.leaving.Unlock()
		for _, q := range list {
			select {
			case room <- struct{}{}:
			case <-p.node.stop:
				removals.Wait()
				return
			}
			removals.Go(bug.Guarded(p.node.Logger, "the end of an unused queue", func() {
				p.node.Router.QueueUnused(q)
				_ = p.node.with(q, func(*hold) { q.expiring = false }) // if the queue is still there, it was used meanwhile
				<-room
			}))
		}
	}
}

// mostWaiting is how many deaths of a queue may wait for routing before the worker stops expiring its entries: each
// death takes memory, and would not be routed sooner.
const mostWaiting = 2 * sliceLimit

// behind says whether routing must catch up first. REQUIRES: q's partition is held.
func (q *Queue) behind() bool { return q.routing && q.m.Waiting() >= mostWaiting }

// remind schedules the queue's next deadline, if the worker is to handle it.
func (p *Partition) remind(q *Queue) {
	if due := q.m.NextDue(); due != q.due && !q.ticking && !q.expiring && !q.behind() {
		p.schedule(q, due)
	}
}

// routeLater routes some slices of the deaths that were left to route, and says whether there were any.
func (p *Partition) routeLater() bool {
	p.leaving.Lock()
	work, retry := p.later, p.retry
	p.later, p.retry = nil, nil
	p.leaving.Unlock()
	if len(work) > 0 {
		p.node.moveDead(work)
	}
	for _, q := range retry {
		q.retryHeld()
	}
	return len(work)+len(retry) > 0
}

// dig leaves the rest of a purged or deleted queue to bury. REQUIRES: p.mu is held.
func (p *Partition) dig(q *Queue) {
	p.buried = append(p.buried, &machineGrave{q, q.m})
	p.graves.Store(true)
}

// bury releases a slice of what was purged or deleted, and says whether there is more.
func (p *Partition) bury() (more bool) {
	if !p.graves.Load() {
		return false
	}
	h := p.node.lock(p)
	if len(p.buried) > 0 { // another goroutine may have done it
		if g := p.buried[0]; !g.m.BuryRest(sliceLimit) {
			p.buried = p.buried[1:]
			if g.q.m == g.m {
				p.node.isBuried(h, g.q)
			}
		}
	}
	more = len(p.buried) > 0
	p.graves.Store(more)
	p.node.unlock(h)
	return more
}

// flushAfter is the time after which a frame that nobody has synced is written.
const flushAfter = 5 * time.Millisecond

// housekeep flushes the journal, so that a killed process loses little, and retries held deaths. It sleeps while nothing
// is appended.
func (n *Node) housekeep() {
	flush := time.NewTimer(flushAfter)
	defer flush.Stop()
	retry := time.NewTicker(n.DeadLettering.RetryEvery)
	defer retry.Stop()
	var again <-chan time.Time
	if n.Forwarder != nil {
		slow := time.NewTicker(200 * time.Millisecond)
		defer slow.Stop()
		again = slow.C
	}
	late := time.NewTimer(lateEvery)
	defer late.Stop()
	latec, addedc := (<-chan time.Time)(nil), n.late.addedc // one of them is nil
	n.RetryAllHeld()                                        // held deaths from before the last stop (DL-13.11)
	filled := n.Journal.Filled()
	for {
		select {
		case <-n.stop:
			return
		case <-filled:
			flush.Reset(flushAfter)
			filled = nil // until that is over
		case <-flush.C:
			filled = n.Journal.Filled()
			if n.Journal.Buffered() > 0 {
				_ = n.Journal.Flush() // a failure stops the node
			}
		case <-retry.C:
			n.RetryAllHeld()
		case <-addedc:
			late.Reset(lateEvery)
			latec, addedc = late.C, nil
		case <-latec:
			if next := n.retryLate(); next > 0 {
				late.Reset(next)
			} else {
				latec, addedc = nil, n.late.addedc
			}
		case <-again:
			n.ForwardAgain()
		}
	}
}

// RetryAllHeld retries every held death.
func (n *Node) RetryAllHeld() {
	for _, p := range n.all {
		var held []*Queue
		p.mu.Lock()
		if p.group != nil && !p.group.leads {
			p.mu.Unlock()
			continue
		}
		for _, q := range p.queues {
			if q.m.Totals().Held > 0 {
				held = append(held, q)
			}
		}
		p.mu.Unlock()
		sortQueues(held)
		for _, q := range held {
			q.retryHeld()
		}
	}
	n.RetryStranded()
}

// schedule puts the queue's next deadline into the heap. REQUIRES: p.mu is held.
func (p *Partition) schedule(q *Queue, due int64) {
	if due == never {
		p.unschedule(q)
		return
	}
	if q.heap == 0 {
		q.due = due
		p.timers = append(p.timers, q)
		q.heap = len(p.timers)
		p.up(q.heap - 1)
		return
	}
	p.reschedule(q, due)
}

func (p *Partition) reschedule(q *Queue, due int64) {
	if due == never {
		p.unschedule(q)
		return
	}
	if q.heap == 0 {
		p.schedule(q, due)
		return
	}
	q.due = due
	p.up(q.heap - 1)
	p.down(q.heap - 1)
}

func (p *Partition) unschedule(q *Queue) {
	q.due = never
	if q.heap == 0 {
		return
	}
	i, last := q.heap-1, len(p.timers)-1
	p.swap(i, last)
	p.timers[last] = nil
	p.timers = p.timers[:last]
	q.heap = 0
	if i < last {
		moved := p.timers[i]
		p.up(i)
		p.down(moved.heap - 1)
	}
}

func (p *Partition) swap(i, j int) {
	t := p.timers
	t[i], t[j] = t[j], t[i]
	t[i].heap, t[j].heap = i+1, j+1
}

func (p *Partition) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if p.timers[parent].due <= p.timers[i].due {
			return
		}
		p.swap(i, parent)
		i = parent
	}
}

func (p *Partition) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(p.timers); c++ {
			if p.timers[c].due < p.timers[least].due {
				least = c
			}
		}
		if least == i {
			return
		}
		p.swap(i, least)
		i = least
	}
}
