package queue

import (
	"math/bits"

	"bartleby.mq/internal/message"
)

// pageSize is the number of entries of a page.
const pageSize = 256

// A page holds the entries of pageSize consecutive sequence numbers of a lane,
// as arrays, so that a scan touches little memory and the garbage collector none.
//
// Invariant: ready is a subset of live; an entry's bit in ready is set if and
// only if its state is stateReady.
type page struct {
	number uint64 // it holds the sequence numbers from number*pageSize on
	live   bitmap
	ready  bitmap
	used   uint16 // entries live
	timed  bool   // due is in use

	ref   [pageSize]message.Ref
	size  [pageSize]uint32
	flags [pageSize]uint8

	// Kept from one use of the page to the next once they were needed.
	side  *[pageSize]uint32 // row of Machine.sides, 0 = none
	due   *[pageSize]uint32 // milliseconds after base, 0 = never
	owner *[pageSize]uint32 // consumer slot, meaningful while the state is stateOut

	base int64 // the moment due counts from, in milliseconds since 1970
}

// The low bits of an entry's flags are its state.
const (
	stateReady    = iota // deliverable, in its place
	stateReturned        // deliverable, in the returns list (BR-9.13)
	stateOut             // delivered, not settled
	stateDelayed         // waits for its retry (DL-12.2)
	stateDying           // dead, not yet routed
	stateHeld            // dead, waits until its targets take it (DL-13.3)
	stateMask     = 7

	flagLogged      = 1 << 3 // the journal knows it
	flagRedelivered = 1 << 4 // was delivered before (BR-9.15)
)

type bitmap [pageSize / 64]uint64

func (b *bitmap) set(i uint)      { b[i>>6] |= 1 << (i & 63) }
func (b *bitmap) clear(i uint)    { b[i>>6] &^= 1 << (i & 63) }
func (b *bitmap) has(i uint) bool { return b[i>>6]&(1<<(i&63)) != 0 }

// next returns the first set bit from i on, or pageSize.
func (b *bitmap) next(i uint) uint {
	for w := i >> 6; w < uint(len(b)); w++ {
		v := b[w]
		if w == i>>6 {
			v &= ^uint64(0) << (i & 63)
		}
		if v != 0 {
			return w<<6 + uint(bits.TrailingZeros64(v))
		}
	}
	return pageSize
}

func (b *bitmap) count() (n int) {
	for _, v := range b {
		n += bits.OnesCount64(v)
	}
	return n
}

// Pages lends pages to the machines of one partition and takes them back.
type Pages struct {
	free []*page
}

// keepPages is how many unused pages are kept.
const keepPages = 256

func (ps *Pages) get() *page {
	if n := len(ps.free); n > 0 {
		p := ps.free[n-1]
		ps.free = ps.free[:n-1]
		p.live, p.ready, p.used, p.timed, p.base = bitmap{}, bitmap{}, 0, false, 0
		return p
	}
	return new(page)
}

func (ps *Pages) put(p *page) {
	if len(ps.free) < keepPages {
		ps.free = append(ps.free, p)
	}
}

// maxOffset is the furthest moment a due column can tell, about 49 days after
// the page's base; what lies beyond is looked at again then.
const maxOffset = 1<<32 - 1

// dueRoom is how far below the first moment of a page its base lies, since
// entries that come later may be due earlier: 4.6 hours.
const dueRoom = 1 << 24

// dueAt is the moment the column tells for slot i; 0 = never.
func (p *page) dueAt(i uint) int64 {
	if !p.timed || p.due[i] == 0 {
		return 0
	}
	return p.base + int64(p.due[i])
}
