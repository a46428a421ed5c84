package partition

import (
	"runtime"
	"time"
)

// wake makes the worker look. It never blocks.
func (p *Partition) wake() {
	select {
	case p.wakec <- struct{}{}:
	default:
	}
}

// work is the partition's worker: it sleeps until the nearest deadline or until
// it is woken, and then works in slices, letting others have the lock in between.
func (p *Partition) work() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		p.alarm = never
		if len(p.timers) > 0 {
			p.alarm = p.timers[0].due
		}
		alarm := p.alarm
		idle := len(p.later) == 0 && len(p.retry) == 0 && len(p.buried) == 0 && !p.sweeping
		p.mu.Unlock()
		if idle {
			wait := time.Hour
			if alarm != never {
				wait = time.Duration(max(0, alarm-p.node.Now())) * time.Millisecond
			}
			if wait > 0 {
				timer.Reset(min(wait, time.Hour))
				select {
				case <-timer.C:
				case <-p.wakec:
				case <-p.node.stop:
					return
				}
			}
		}
		select {
		case <-p.node.stop:
			return
		default:
		}
		if p.group != nil {
			p.tickReplicated()
		} else {
			p.tick()
		}
		p.routeLater()
		p.bury()
		p.putAway()
		runtime.Gosched()
	}
}

// giveWay is called after a hold by work that nobody waits for, which began then:
// such work has half of the time, and a quarter of it while something is overdue in
// the partition.
func (p *Partition) giveWay(began time.Time) {
	took := time.Since(began)
	p.mu.Lock()
	if p.overdue() {
		took *= 3
	}
	p.mu.Unlock()
	p.node.rest(took)
}

// rest lets others have the processor for a while, unless the node is stopping.
func (n *Node) rest(d time.Duration) {
	select {
	case <-n.stop:
	case <-time.After(d):
	}
}

// overdue says whether something is due that has not happened yet. REQUIRES: p.mu is held.
func (p *Partition) overdue() bool { return len(p.timers) > 0 && p.timers[0].due <= p.node.Now() }

// tick does one slice of what is due.
func (p *Partition) tick() {
	n := p.node
	var unused []*Queue
	h := n.lock(p)
	for h.entries < sliceLimit && len(p.timers) > 0 && p.timers[0].due <= h.now {
		q := p.timers[0]
		h.touch(q)
		h.entries++
		if q.m.Unused(h.now) {
			p.unschedule(q)
			unused = append(unused, q)
			continue
		}
		before := q.m.Totals()
		if q.m.Tick(h.now, sliceLimit) {
			h.entries += sliceLimit // it stopped at its limit
		}
		after := q.m.Totals()
		h.entries += max(0, before.Ready-after.Ready) + max(0, before.Delayed-after.Delayed)
		p.reschedule(q, max(q.m.NextDue(), 1))
	}
	n.unlock(h)
	for _, q := range unused {
		n.Router.QueueUnused(q)
	}
}

// routeLater routes one slice of deaths that their causes have left.
func (p *Partition) routeLater() {
	p.mu.Lock()
	work, retry := p.later, p.retry
	p.later, p.retry = nil, nil
	p.mu.Unlock()
	if len(work) > 0 {
		p.node.routeAll(work)
	}
	for _, q := range retry {
		p.node.retryHeld(q)
	}
}

// bury gives up a slice of what was purged or deleted, and says whether there is more.
func (p *Partition) bury() (more bool) {
	p.mu.Lock()
	if len(p.buried) == 0 {
		p.mu.Unlock()
		return false
	}
	p.mu.Unlock()
	h := p.node.lock(p)
	if len(p.buried) > 0 { // or somebody else did it meanwhile
		if g := p.buried[0]; !g.m.BuryRest(sliceLimit) {
			p.buried = p.buried[1:]
		}
	}
	more = len(p.buried) > 0
	p.node.unlock(h)
	return more
}

// housekeep flushes the journal so that a killed process loses little, and tries
// held deaths again.
func (n *Node) housekeep() {
	const flushEvery = 5 * time.Millisecond
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	retry := time.NewTicker(n.RetryHeld)
	defer retry.Stop()
	slow := time.NewTicker(200 * time.Millisecond)
	defer slow.Stop()
	n.RetryAllHeld() // what waited when the node stopped (DL-13.11)
	for {
		select {
		case <-n.stop:
			return
		case <-flush.C:
			if n.Journal.Buffered() > 0 {
				_ = n.Journal.Flush() // a failure stops the node by itself
			}
		case <-retry.C:
			n.RetryAllHeld()
		case <-slow.C:
			n.ForwardAgain()
		}
	}
}

// keepCheckpoints writes checkpoints, and makes files dense after them.
func (n *Node) keepCheckpoints() {
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for last := time.Now(); ; {
		select {
		case <-n.stop:
			return
		case <-look.C:
			if n.checkpointIfDue(last) {
				last = time.Now()
				n.compactAfter()
			}
		}
	}
}

// RetryAllHeld tries every held death again.
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
			n.retryHeld(q)
		}
	}
	n.retryStranded()
}

// schedule enters the queue's next moment into the heap. REQUIRES: p.mu is held.
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
