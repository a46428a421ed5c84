package partition

import (
	"runtime"
	"time"

	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/queue"
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
		idle := len(p.later) == 0 && len(p.buried) == 0
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
		p.tick()
		p.routeLater()
		p.bury()
		runtime.Gosched()
	}
}

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
	work := p.later
	p.later = nil
	p.mu.Unlock()
	if len(work) > 0 {
		p.node.routeAll(work)
	}
}

// bury gives up a slice of what was purged or deleted.
func (p *Partition) bury() {
	p.mu.Lock()
	if len(p.buried) == 0 {
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	h := p.node.lock(p)
	g := p.buried[0]
	if !g.m.BuryRest(sliceLimit) {
		p.buried = p.buried[1:]
	}
	p.node.unlock(h)
}

// housekeep flushes the journal so that a killed process loses little, tries
// held deaths again and rewrites old segments of the journal.
func (n *Node) housekeep() {
	const flushEvery = 5 * time.Millisecond
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	retry := time.NewTicker(n.RetryHeld)
	defer retry.Stop()
	slow := time.NewTicker(time.Second)
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
			n.compact()
		}
	}
}

// RetryAllHeld tries every held death again.
func (n *Node) RetryAllHeld() {
	for _, p := range n.parts {
		var held []*Queue
		p.mu.Lock()
		for _, q := range p.queues {
			if q.m.Totals().Held > 0 {
				held = append(held, q)
			}
		}
		p.mu.Unlock()
		for _, q := range held {
			n.retryHeld(q)
		}
	}
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

// strategyCount counts a death for the node's totals (DL-18.1, DL-18.3).
func (n *Node) strategyCount(q *Queue, reason deadletter.Reason, outcome deadletter.Outcome) {
	kind, strategy := 0, AtMostOnce
	if q.m.Config().Type == queue.Quorum {
		kind = 1
	}
	switch {
	case outcome == deadletter.NoExchange:
		strategy = Disabled
	case q.m.Settings().AtLeastOnce:
		strategy = AtLeastOnce
	}
	n.deaths[kind][strategy][reason].Add(1)
}
