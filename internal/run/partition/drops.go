package partition

import (
	"sync/atomic"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/safety/bug"
)

// A death is dropped if its outcome says so (deadletter.Outcome.Dropped). Queues count drops (Stats.Dead); whoever keeps a ledger of them asks
// for what is new. So that asking costs nothing while nothing is dropped, a queue enters a list of its partition at its
// first drop since it was last asked, and keeps that message as an example. Later drops only count.

// Dropped are the messages that a queue has dropped for one reason, with one outcome, since TakeDrops was last called.
type Dropped struct {
	Queue   *Queue
	Reason  deadletter.Reason
	Outcome deadletter.Outcome
	Count   uint64
	// An example, which may be nil. Its history is the one with which it went; nil if it had none.
	Record  message.Record
	History []byte
}

// dropCounts are counters of deaths by counted reason and outcome.
type dropCounts [5][deadletter.Outcomes]uint64

// drops is what a queue has dropped and nobody has asked for. The partition's mutex guards it.
type drops struct {
	told    dropCounts // what TakeDrops has reported
	listed  bool       // the queue is in Partition.dropping
	awaited bool       // the example is the entry that Removed is called for next
	reason  deadletter.Reason
	outcome deadletter.Outcome // of the example
	body    message.Ref        // the example's; 0: none
	history message.Ref
}

// dropWatch is the node's side. The zero value watches nothing.
type dropWatch struct {
	on   atomic.Bool
	wake func()
}

// WatchDrops begins to note drops. wake is called when there is something to take; a partition is locked then, so wake
// must not block. WatchDrops is called once, before the node serves.
func (n *Node) WatchDrops(wake func()) {
	n.drops.wake = wake
	n.drops.on.Store(true)
}

// UnwatchDrops ends what WatchDrops has begun.
func (n *Node) UnwatchDrops() { n.drops.on.Store(false) }

// noteDrop notes a drop that q.stats has counted. body is the dropped message, 0 if Removed will be called for it next.
// REQUIRES: q is held.
func (q *Queue) noteDrop(reason deadletter.Reason, outcome deadletter.Outcome, body, history message.Ref) {
	n := q.part.node
	if !n.drops.on.Load() {
		return
	}
	d := q.drops
	if d == nil {
		d = &drops{told: q.stats.Dead}
		d.told[reason][outcome]--
		q.drops = d
	}
	if d.listed {
		return
	}
	d.listed, d.reason, d.outcome = true, reason, outcome
	if d.awaited = body == 0; !d.awaited {
		q.exampleDrop(body, history)
	}
	p := q.part
	p.leaving.Lock()
	p.dropping = append(p.dropping, q)
	p.leaving.Unlock()
	n.drops.wake()
}

// exampleDrop keeps a message as the example.
func (q *Queue) exampleDrop(body, history message.Ref) {
	s := q.part.node.bodies
	s.Retain(body, 1)
	s.Retain(history, 1)
	q.drops.body, q.drops.history, q.drops.awaited = body, history, false
}

// TakeDrops calls f for everything that was dropped since the last call, except for deaths that went with their deleted
// queue. Nothing is locked while f runs, and f must not keep the record or the history. REQUIRES: WatchDrops was called;
// one goroutine at a time.
func (n *Node) TakeDrops(f func(*Dropped)) {
	var w bodies.Window
	defer w.Free()
	for _, p := range n.all {
		p.leaving.Lock()
		list := p.dropping
		p.dropping = nil
		p.leaving.Unlock()
		for _, q := range list {
			p.mu.Lock()
			d := *q.drops
			now := q.stats.Dead
			q.drops.told, q.drops.listed, q.drops.awaited = now, false, false
			q.drops.body, q.drops.history = 0, 0
			p.mu.Unlock()
			n.reportDrops(q, &d, &now, &w, f)
		}
	}
}

// reportDrops calls f for what a queue has dropped between d.told and now.
func (n *Node) reportDrops(q *Queue, d *drops, now *dropCounts, w *bodies.Window, f func(*Dropped)) {
	defer func() {
		n.bodies.Release(d.body)
		n.bodies.Release(d.history)
	}()
	defer bug.End(n.Logger, "the report of drops") // runs before the releases above: the store has locks
	for r := range now {
		for o := range now[r] {
			count := now[r][o] - d.told[r][o]
			if count == 0 || !deadletter.Outcome(o).Dropped() {
				continue
			}
			is := Dropped{Queue: q, Reason: deadletter.Reason(r), Outcome: deadletter.Outcome(o), Count: count}
			if d.body != 0 && is.Reason == d.reason && is.Outcome == d.outcome {
				// What cannot be read is an example less: the drop counts all the same.
				if rec, err := n.bodies.Read(d.body, w); err == nil {
					is.Record, is.History = rec, n.historyBytes(d.history)
				}
			}
			f(&is)
		}
	}
}
