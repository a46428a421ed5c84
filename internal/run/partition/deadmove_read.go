package partition

import (
	"slices"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
)

// What dies after a long wait may be on disk only. Its record is read before anything is locked for it, many at once
// where a disk is waited for; and no slice brings more into memory than a portion.

const (
	// coldReaders read a slice of deaths where the disk is waited for.
	coldReaders = 8
	// cachedReaders do so where the system has in memory what is read.
	cachedReaders = 2
	// fromDisk is how long a read of what it has not takes at least, on the average.
	fromDisk = 30 * time.Microsecond
	// readerSlice is for how many deaths a reader is worth its start, and how many it takes at a time.
	readerSlice = 32
)

// warmBytes is how much a slice brings into memory of what lies on disk only, unless a single
// message has more: by number, a slice of the largest would be gigabytes.
const warmBytes = 4 << 20

// warming is how much that is so far, in bytes.
type warming int64

// takes says whether a slice may have the message too, and counts it.
func (w *warming) takes(body message.Ref, size uint32) bool {
	return !body.OnDisk() || w.add(int(size))
}

// add says whether size more bytes may be in memory, and counts them.
func (w *warming) add(size int) bool {
	if *w > 0 && *w+warming(size) > warmBytes {
		return false
	}
	*w += warming(size)
	return true
}

// portion is what a slice of deaths brings into memory: records, and histories, of which each
// death gets a new one.
type portion struct {
	store              *bodies.Store
	records, histories warming
}

// takes says whether a slice may have the death too, and counts it. REQUIRES: its queue is held.
func (p *portion) takes(d *queue.Death) bool {
	return p.records.takes(d.Body, d.Size) && p.histories.add(deathstore.Size(p.store, d.History))
}

// pinned are entries of a queue that are about to leave it, with a reference to the record and the history of each.
type pinned struct {
	n      *Node
	q      *Queue
	deaths []queue.Death
	unread []error // of each, why its record could not be read
}

// pin takes the references. REQUIRES: the queue is held.
func (s *pinned) pin(d *queue.Death) {
	s.n.bodies.Retain(d.Body, 1)
	s.n.bodies.Retain(d.History, 1)
}

// release lets them go.
func (s *pinned) release() {
	for i := range s.deaths {
		s.n.bodies.Release(s.deaths[i].Body)
		s.n.bodies.Release(s.deaths[i].History)
	}
}

// read brings into memory what was pinned on disk; s.unread says what went wrong. No partition is locked.
func (s *pinned) read() {
	s.unread = slices.Grow(s.unread[:0], len(s.deaths))[:len(s.deaths)]
	// The first few tell where the others are.
	few, cold := min(len(s.deaths), coldReaders), 0
	for i := range few {
		began := time.Now()
		s.n.readDeath(&s.deaths[i], &s.unread[i])
		if time.Since(began) > s.n.diskTakes {
			cold++
		}
	}
	left, many := len(s.deaths)-few, cachedReaders
	if cold > few/4 { // else somebody else had the processor for a moment
		many = coldReaders
	} else if left < cachedReaders*readerSlice {
		many = 1
	}
	if left == 0 {
		return
	}
	r := &reading{
		n: s.n, deaths: s.deaths[few:], unread: s.unread[few:],
		take: min(readerSlice, (left+many-1)/many), done: make(chan struct{}),
	}
	r.left.Store(int64(left))
	for range many - 1 {
		go bug.Guarded(s.n.Logger, "reading dead letters", r.some)() // ends with the last of them
	}
	r.some()
	held.Nothing("bodies on disk")
	<-r.done
}

// reading is the reading of pinned entries by several goroutines. Each takes the next few
// when it runs: one that runs late, since others have the processors, is not waited for.
type reading struct {
	n      *Node
	deaths []queue.Death
	unread []error      // of each, what went wrong
	take   int          // how many at a time
	next   atomic.Int64 // the first that is not taken
	left   atomic.Int64 // how many are not read yet
	done   chan struct{}
}

// some reads what no other goroutine has taken.
func (r *reading) some() {
	for {
		from := int(r.next.Add(int64(r.take))) - r.take
		to := min(from+r.take, len(r.deaths))
		if from >= to {
			return
		}
		for i := from; i < to; i++ {
			r.n.readDeath(&r.deaths[i], &r.unread[i])
		}
		if r.left.Add(int64(from-to)) == 0 {
			close(r.done)
		}
	}
}

func (n *Node) readDeath(d *queue.Death, unread *error) {
	d.Stays = stays(d.Body)
	d.Body, *unread = n.bodies.Warm(d.Body)
}

// stays says whether a body is on disk only, and for good: else a target may log it elsewhere.
func stays(body message.Ref) bool {
	return body.OnDisk() && body.Location().Space() != message.InScratch
}
