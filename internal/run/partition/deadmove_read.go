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

// A message that dies after a long wait may be only on disk. Its record is read before anything is locked for it; if
// the disk is slow, several are read at once. A slice brings at most a portion into memory.

const (
	// coldReaders is how many goroutines read a slice of deaths from a disk.
	coldReaders = 8
	// cachedReaders is the same if the page cache has the records.
	cachedReaders = 2
	// fromDisk is the least average time of a read that the page cache does not have.
	fromDisk = 30 * time.Microsecond
	// readerSlice is how many deaths are worth a reader, and how many it takes at a time.
	readerSlice = 32
)

// warmBytes is how many bytes a slice reads into memory, unless a single message is larger. A slice of the largest
// messages would be gigabytes.
const warmBytes = 4 << 20

// warming counts the bytes read into memory so far.
type warming int64

// takes says whether the slice may have the message too, and counts it if it is on disk.
func (w *warming) takes(body message.Ref, size uint32) bool {
	return !body.OnDisk() || w.add(int(size))
}

// add says whether size more bytes fit, and counts them.
func (w *warming) add(size int) bool {
	if *w > 0 && *w+warming(size) > warmBytes {
		return false
	}
	*w += warming(size)
	return true
}

// portion is what a slice of deaths brings into memory: records, and the new histories, one for each death.
type portion struct {
	store              *bodies.Store
	records, histories warming
}

// takes says whether the slice may have the death too, and counts it. REQUIRES: its queue is held.
func (p *portion) takes(d *queue.Death) bool {
	return p.records.takes(d.Body, d.Size) && p.histories.add(deathstore.Size(p.store, d.History))
}

// pinned are entries of a queue that are about to leave it. It holds references to their records and histories.
type pinned struct {
	n      *Node
	q      *Queue
	deaths []queue.Death
	unread []error // for each, why its record could not be read
}

// pin takes the references. REQUIRES: the queue is held.
func (s *pinned) pin(d *queue.Death) {
	s.n.bodies.Retain(d.Body, 1)
	s.n.bodies.Retain(d.History, 1)
}

// release releases them.
func (s *pinned) release() {
	for i := range s.deaths {
		s.n.bodies.Release(s.deaths[i].Body)
		s.n.bodies.Release(s.deaths[i].History)
	}
}

// read reads pinned records from disk into memory; s.unread has the errors. REQUIRES: no partition is locked.
func (s *pinned) read() {
	s.unread = slices.Grow(s.unread[:0], len(s.deaths))[:len(s.deaths)]
	// The first few show whether a disk is needed.
	few, cold := min(len(s.deaths), coldReaders), 0
	for i := range few {
		began := time.Now()
		s.n.readDeath(&s.deaths[i], &s.unread[i])
		if time.Since(began) > s.n.diskTakes {
			cold++
		}
	}
	left, many := len(s.deaths)-few, cachedReaders
	if cold > few/4 { // fewer: another goroutine may have had the processor for a moment
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
		go bug.Guarded(s.n.Logger, "reading dead letters", r.some)() // ends at the latest when all are read
	}
	r.some()
	held.Nothing("bodies on disk")
	<-r.done
}

// reading reads pinned entries with several goroutines. Each takes the next few entries when it runs, so none waits
// for a goroutine that starts late.
type reading struct {
	n      *Node
	deaths []queue.Death
	unread []error      // for each, what went wrong
	take   int          // how many at a time
	next   atomic.Int64 // the first that is not taken
	left   atomic.Int64 // how many are not read yet
	done   chan struct{}
}

// some reads entries that no other goroutine has taken.
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

// stays says whether a body is only on disk and its place lasts. A record in a scratch file does not: a target may
// log it elsewhere.
func stays(body message.Ref) bool {
	return body.OnDisk() && body.Location().Space() != message.InScratch
}
