package partition

import (
	"maps"
	"slices"
	"sync"
	"time"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
)

// What has waited in an exchange that delays messages is late as long as a target has no room for it. It is tried again
// each second, and sooner while something of it finds room: held deaths can wait for RetryEvery, but these messages have a moment. Each
// try looks at a part only, from the front: while all of that is refused, the rest would be too.

const (
	lateEvery = time.Second            // between two tries
	lateAgain = 100 * time.Millisecond // between them while messages find room
	// lateShare bounds the tries to a part of the time, if there is much to look at.
	lateShare = 20
	// lateSlices is how many slices one try handles, so that the journal's flushes, which the same goroutine does, wait for no more.
	lateSlices = 4
)

// late has the queues of exchanges that have late messages. The node sleeps while there are none.
type late struct {
	mu     sync.Mutex // no other lock is taken under it
	queues map[*Queue]bool
	addedc chan struct{} // has a token if a queue was added
}

// add notes that a queue has late messages. Any locks may be held.
func (l *late) add(q *Queue) {
	l.mu.Lock()
	if l.queues == nil {
		l.queues = map[*Queue]bool{}
	}
	known := l.queues[q]
	l.queues[q] = true
	l.mu.Unlock()
	if known {
		return
	}
	select {
	case l.addedc <- struct{}{}:
	default:
	}
}

// take returns the queues and forgets them.
func (l *late) take() []*Queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues := slices.Collect(maps.Keys(l.queues))
	clear(l.queues)
	return queues
}

// retryLate tries late messages again, and returns when to do so next; 0: there are none.
func (n *Node) retryLate() (next time.Duration) {
	began := time.Now()
	queues := n.late.take()
	sortQueues(queues)
	for _, q := range queues {
		left, moved := q.retrySome()
		if !left {
			continue
		}
		n.late.add(q)
		if moved {
			next = lateAgain
		} else if next == 0 {
			next = lateEvery
		}
	}
	if next > 0 {
		next = max(next, lateShare*time.Since(began))
	}
	return next
}

// retrySome tries the first held messages of q again, and goes on while targets take some. It says whether some are left, and whether
// some have left since the last try.
func (q *Queue) retrySome() (left, moved bool) {
	n := q.part.node
	h := n.lock(q.part)
	before := q.m.Totals().Held
	left, moved = before > 0 && !q.gone, before < q.heldThen // those in other logs answer later
	if !left || q.routing {
		n.unlock(h)
		return left, moved
	}
	q.routing = true
	n.unlock(h)
	var held []queue.Death
	var cursor index.SaveCursor
	for tries, done := 0, false; !done && tries < lateSlices && !n.stopped(); {
		h := n.lock(q.part)
		held, cursor, done = q.m.HeldFrom(cursor, 2*sliceLimit, held[:0])
		before = q.m.Totals().Held
		h.entries = len(held)
		n.unlock(h)
		if len(held) == 0 {
			continue // what is not due yet
		}
		q.tryHeld(held)
		tries++
		h = n.lock(q.part)
		after := q.m.Totals().Held
		n.unlock(h)
		if after >= before {
			break
		}
		moved = true
	}
	n.moveDead([]*Queue{q}) // as in retryHeld
	h = n.lock(q.part)
	q.heldThen = q.m.Totals().Held
	left = q.heldThen > 0 && !q.gone
	n.unlock(h)
	return left, moved
}
