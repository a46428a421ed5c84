package index

import (
	"encoding/binary"
	"math/bits"

	"bartleby.mq/internal/core/message"
)

// PageSize is the number of entries of a page.
const PageSize = 256

// A page holds the entries of PageSize consecutive sequence numbers of a lane,
// in columns, so that a scan touches little memory and the garbage collector
// hardly any. An entry is named by its slot, its number within the page; where
// that is in the columns, the page's form tells (columns.go).
//
// Invariant: ready is a subset of live; an entry's bit in ready is set if and
// only if its state is Ready.
//
// What every look at an entry needs stands in front: in a long queue each line of the
// processor's cache is another wait.
type page struct {
	number uint64 // it holds the sequence numbers from number*PageSize on
	live   bitmap
	base   int64 // the moment dues count from, in milliseconds since 1970
	min    int64 // not later than the moment of any entry

	ready  bitmap
	used   uint16            // entries live
	mask   uint8             // the columns' length, less one
	ranked bool              // its form
	level  uint8             // of its lane
	comes  uint8             // how many slots of coming count
	coming [mostComing]uint8 // the slots whose moments come next, in their order: see dueBy

	pageState

	seen int64 // the records of what is due by then have been read ahead: see ComingBodies

	columns

	summary []byte // of rest
}

// The states of an entry: the low bits of its mark.
const (
	Ready     = iota // deliverable, in its place
	Returned         // deliverable, in the returns list (BR-9.13)
	Out              // delivered, not settled
	Delayed          // waits for its retry (DL-12.2)
	Dying            // dead, not yet routed
	Held             // dead, waits until its targets take it (DL-13.3)
	Offered          // waits for whether its targets in other logs take it, see queue's offer.go
	stateMask = 7

	flagLogged      = 1 << 3 // the journal knows it
	flagRedelivered = 1 << 4 // was delivered before (BR-9.15)
)

// id names a copy of the page.
func (p *page) id(version uint32) PageID { return PageID{int(p.level), p.number, version} }

func (p *page) ref(i uint) message.Ref  { return p.refs[p.at(i)] }
func (p *page) size(i uint) uint32      { return p.sizes[p.at(i)] }
func (p *page) mark(i uint) uint8       { return p.marks[p.at(i)] }
func (p *page) state(i uint) uint8      { return p.mark(i) & stateMask }
func (p *page) logged(i uint) bool      { return p.mark(i)&flagLogged != 0 }
func (p *page) redelivered(i uint) bool { return p.mark(i)&flagRedelivered != 0 }

// owner is the slot of the consumer that has the entry, which is out.
func (p *page) owner(i uint) uint32 {
	if p.owners == nil {
		return 0
	}
	return p.owners[p.at(i)]
}

func (p *page) history(i uint) message.Ref {
	if p.histories == nil {
		return 0
	}
	return p.histories[p.at(i)]
}

func (p *page) countsOf(i uint) Counts {
	if p.counts == nil {
		return Counts{}
	}
	return p.counts[p.at(i)]
}

// maxOffset is the furthest moment a due column can tell, about 49 days after
// the page's base; what lies beyond is looked at again then.
const maxOffset = 1<<32 - 1

// dueRoom is how far below the first moment of a page its base lies, since
// entries that come later may be due earlier: 4.6 hours.
const dueRoom = 1 << 24

// mostComing is how many moments one look at the column finds.
const mostComing = 7

// dueAt is the moment the column tells for slot i; 0 = never.
func (p *page) dueAt(i uint) int64 {
	if p.dues == nil {
		return 0
	}
	if off := p.dues[p.at(i)]; off != 0 {
		return p.base + int64(off)
	}
	return 0
}

// bitmap is a set of slots.
type bitmap [PageSize / 64]uint64

func (b *bitmap) set(i uint)      { b[i>>6] |= 1 << (i & 63) }
func (b *bitmap) clear(i uint)    { b[i>>6] &^= 1 << (i & 63) }
func (b *bitmap) has(i uint) bool { return b[i>>6]&(1<<(i&63)) != 0 }

// next returns the first set bit from i on, or PageSize.
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
	return PageSize
}

// append writes the set, a word after the other.
func (b *bitmap) append(to []byte) []byte {
	for _, w := range b {
		to = binary.LittleEndian.AppendUint64(to, w)
	}
	return to
}

func (b *bitmap) count() (n int) {
	for _, v := range b {
		n += bits.OnesCount64(v)
	}
	return n
}

// rank is the number of set bits below i. It is kept out of page.at, which is
// everywhere.
//
//go:noinline
func (b *bitmap) rank(i uint) uint {
	n := bits.OnesCount64(b[i>>6] & (1<<(i&63) - 1))
	for _, v := range b[:i>>6] {
		n += bits.OnesCount64(v)
	}
	return uint(n)
}

// and returns what is in both sets.
func (b bitmap) and(o bitmap) bitmap {
	for w := range b {
		b[w] &= o[w]
	}
	return b
}

// or returns what is in one of the sets.
func (b bitmap) or(o bitmap) bitmap {
	for w := range b {
		b[w] |= o[w]
	}
	return b
}

// less returns what is in b and not in o.
func (b bitmap) less(o bitmap) bitmap {
	for w := range b {
		b[w] &^= o[w]
	}
	return b
}

// folded is the set of all slots modulo size, a power of two.
func (b *bitmap) folded(size uint) (f bitmap) {
	switch size {
	case PageSize:
		return *b
	case PageSize / 2:
		return bitmap{b[0] | b[2], b[1] | b[3]}
	}
	v := b[0] | b[1] | b[2] | b[3]
	for by := uint(32); by >= size; by /= 2 {
		v |= v >> by
	}
	return bitmap{v & (1<<size - 1)}
}
