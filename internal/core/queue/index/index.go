// Package index is where the entries of one queue stand: in memory, on disk, or partly in both.
//
// It owns the order of entries (lanes by priority, and the returns list), their states and moments, the pages that
// hold them, and the copies of pages in the store. It finds an entry by its ID, tells which is the next to be
// delivered and which are due, counts what is in which state, and saves all of it for a checkpoint.
//
// Package queue calls it: a Machine has an Index and decides what happens to an entry. Package partition calls only what
// concerns pages: putting away, saving, restoring, reading ahead.
//
// It never decides about an entry: none changes its state, leaves or becomes due unless the caller says so. It does choose
// which pages leave memory and which are read ahead. It knows no
// consumers, settings or limits, only the few facts in Terms. It does no I/O of its own: Cold does.
package index

import (
	"math/bits"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// Terms are what an index must know of the rules.
type Terms struct {
	Levels  int  // how many lanes there are
	Durable bool // a checkpoint needs every page as it was at the cut
	Strict  bool // nothing happens to a ready entry when its moment comes: it expires at the head only
	Routes  bool // what dies is read, since it is routed; else it just goes
	Marked  bool // moments bear marks
}

// Sink takes the references of entries that leave the index by Purge or Close. Its methods must not call the index.
type Sink interface {
	// Removed is called for each entry that has left the queue other than by
	// its death. The references pass to the sink.
	Removed(id ID, body, history message.Ref, logged bool)
	// Ended is called for each entry that had died and goes with its queue, held or not, before Removed.
	Ended(id ID, reason deadletter.Reason, held bool)
}

// Counts are what a quorum queue counts about a message (DL-11.2).
type Counts struct {
	Deliveries uint32 // failed ones
	Acquired   uint32 // times it came back for any reason
}

// Totals are the counts of a queue, in messages and in bytes.
type Totals struct {
	Ready, Out, Delayed, Dying, Held, Offered                               int
	ReadyBytes, OutBytes, DelayedBytes, DyingBytes, HeldBytes, OfferedBytes int64
	Returned                                                                int // of Ready, those in the returns list
	Persistent                                                              int // logged entries
}

// Index has the entries of one queue. The zero value is not ready; use New. It is not to be copied once it is used.
type Index struct {
	Terms Terms
	Count Totals // not to be changed

	pages *Pages
	cold  Cold // nil: pages stay in memory
	sink  Sink

	lanes   []*lane // by priority level; nil until used
	filled  [4]uint64
	returns returns
	sides   sides

	dirty     uint32 // the version that the last change of what saveMeta writes belongs to, 0 = saved
	owed      []byte // what Close has left to be saved of it
	known     int    // levels that a checkpoint was told of, see Levels
	graveyard []grave
	late      []*page // empty, and out of their lanes, but for what they were at the cut of the checkpoint being written

	nextDue  int64  // not later than the first of any lane's dues
	nextWake int64  // likewise of its wakes
	clock    int64  // the latest moment that anything was asked for
	hash     uint64 // see statehash.go

	warmth warmth                         // what it has in memory of bodies, and the list that it is in by it
	beside struct{ before, after *Index } // in that list
	ends   endsCursor
	sweeps bool // PutBodiesAway is about it
	grew   bool // there is more in the middle of a lane than that began with
}

// New returns an empty index.
func New(pages *Pages, sink Sink, terms Terms) Index {
	return Index{
		Terms: terms, pages: pages, sink: sink, lanes: make([]*lane, terms.Levels),
		sides: sides{pages: pages}, nextDue: never, nextWake: never,
	}
}

func (ix *Index) lane(level int) *lane {
	l := ix.lanes[level]
	if l == nil {
		l = &lane{}
		ix.lanes[level] = l
	}
	return l
}

// tally moves weight in the totals.
func (ix *Index) tally(state uint8, n int, bytes int64) {
	switch state {
	case Ready:
		ix.Count.Ready += n
		ix.Count.ReadyBytes += bytes
	case Returned:
		ix.Count.Ready += n
		ix.Count.ReadyBytes += bytes
		ix.Count.Returned += n
	case Out:
		ix.Count.Out += n
		ix.Count.OutBytes += bytes
	case Delayed:
		ix.Count.Delayed += n
		ix.Count.DelayedBytes += bytes
	case Dying:
		ix.Count.Dying += n
		ix.Count.DyingBytes += bytes
	case Held:
		ix.Count.Held += n
		ix.Count.HeldBytes += bytes
	case Offered:
		ix.Count.Offered += n
		ix.Count.OfferedBytes += bytes
	}
}

// ReadyIn is how many entries of a level are in Ready.
func (ix *Index) ReadyIn(level int) int {
	if l := ix.lanes[level]; l != nil {
		return l.ready
	}
	return 0
}

// RangeLevels calls f for each priority level with messages ready that have not
// been delivered before, lowest first.
func (ix *Index) RangeLevels(f func(level, ready int)) {
	for level := range ix.lanes {
		if ready := ix.ReadyIn(level); ready > 0 {
			f(level, ready)
		}
	}
}

// First finds the entry that is delivered next: the oldest of the returns list,
// else the head of the highest level (BR-9.13, BR-11.1).
func (ix *Index) First() (ID, Place, bool) {
	for len(ix.returns.list) > 0 {
		if id, p := ix.firstReturned(); p.There() {
			return id, p, true
		}
	}
	for w := len(ix.filled) - 1; w >= 0; w-- {
		if ix.filled[w] != 0 {
			id, p := ix.FirstIn(w<<6 + 63 - bits.LeadingZeros64(ix.filled[w]))
			return id, p, true
		}
	}
	return 0, Place{}, false
}

// lessReady notes that an entry of a level has left Ready.
func (ix *Index) lessReady(l *lane, level int) {
	if l.ready--; l.ready == 0 {
		ix.filled[level>>6] &^= 1 << (level & 63)
	}
}

// Long says whether the queue has pages that PutAway may take.
func (ix *Index) Long() bool {
	for _, l := range ix.lanes {
		if l != nil && len(l.slots) > 2*ix.pages.Hot+1 {
			return true
		}
	}
	return false
}

// Next are the numbers that the next entries get, by level; 0 where there never was one.
func (ix *Index) Next() []uint64 {
	next := make([]uint64, len(ix.lanes))
	for level, l := range ix.lanes {
		if l != nil {
			next[level] = max(l.next, 1)
		}
	}
	return next
}

// RestoreNext takes what Next has returned, and says whether it can be true.
func (ix *Index) RestoreNext(next []uint64) bool {
	if len(next) != len(ix.lanes) {
		return false
	}
	for level, n := range next {
		if n >= 1<<seqBits {
			return false
		}
		if n != 0 {
			l := ix.lane(level)
			l.next = max(l.next, n)
		}
	}
	ix.nextDue = 0 // whatever is due is found by looking
	return true
}

// Reserve sees to it that no entry to come gets the number of one that was not logged, and is gone, as long as
// somebody still speaks of it.
func (ix *Index) Reserve(id ID) {
	if id.Lane() >= len(ix.lanes) {
		return
	}
	l := ix.lane(id.Lane())
	if l.next > id.Seq() {
		return
	}
	ix.touchMeta()
	l.next = id.Seq() + 1
	if last := len(l.slots) - 1; last >= 0 && l.spent(&l.slots[last]) {
		ix.drop(l, last) // it is not being filled any more
	}
}
