package queue

import (
	"cmp"
	"math"
	"slices"
)

// ID names an entry of a queue: the lane in the upper 8 bits, the sequence
// number within the lane below. IDs are never reused.
type ID uint64

const seqBits = 56

func makeID(lane int, seq uint64) ID { return ID(lane)<<seqBits | ID(seq) }

// Lane is the priority level of the entry.
func (id ID) Lane() int { return int(id >> seqBits) }

// Seq is the entry's number within its lane; entries of a lane are in the order
// of their numbers.
func (id ID) Seq() uint64 { return uint64(id) & (1<<seqBits - 1) }

// never is the moment that does not come.
const never = math.MaxInt64

// A lane is the entries of one priority level, in order. It keeps only pages
// that have entries, however far apart these lie: a message that nobody settles
// does not make the lane remember all that passed it.
//
// Invariant: pages are in the order of their numbers, and none is empty but the
// one that is being filled; no entry below head is in stateReady; ready is their
// number.
type lane struct {
	pages []*page
	mins  []int64 // for each page, a moment not later than any of its entries'
	next  uint64  // the number the next entry gets
	head  uint64
	ready int
	due   int64 // not later than any of mins
}

func newLane() *lane { return &lane{due: never} }

// search returns where the page with number n is in pages, or would be.
func (l *lane) search(n uint64) (k int, ok bool) {
	if len(l.pages) == 0 || n < l.pages[0].number {
		return 0, false
	}
	// Mostly pages follow each other without a gap.
	if at := n - l.pages[0].number; at < uint64(len(l.pages)) && l.pages[at].number == n {
		return int(at), true
	}
	if last := len(l.pages) - 1; n >= l.pages[last].number {
		if n == l.pages[last].number {
			return last, true
		}
		return last + 1, false
	}
	return slices.BinarySearchFunc(l.pages, n, func(p *page, n uint64) int { return cmp.Compare(p.number, n) })
}

// at returns the page and the slot of seq; the page is nil if there is no live entry.
func (l *lane) at(seq uint64) (*page, uint) {
	k, ok := l.search(seq / pageSize)
	if !ok {
		return nil, 0
	}
	p, i := l.pages[k], uint(seq%pageSize)
	if !p.live.has(i) {
		return nil, 0
	}
	return p, i
}

// slotFor makes room for seq, which may lie anywhere: recovery enters with gaps,
// and not in order.
func (l *lane) slotFor(seq uint64, pages *Pages) (*page, uint) {
	n := seq / pageSize
	if last := len(l.pages) - 1; last >= 0 && l.pages[last].number != n && l.pages[last].used == 0 {
		l.drop(last, pages) // it is not being filled any more
	}
	k, ok := l.search(n)
	if !ok {
		p := pages.get()
		p.number = n
		l.pages = slices.Insert(l.pages, k, p)
		l.mins = slices.Insert(l.mins, k, never)
	}
	return l.pages[k], uint(seq % pageSize)
}

// freed is called when an entry of p has gone; it gives p back if it is empty,
// unless it is being filled.
func (l *lane) freed(p *page, pages *Pages) {
	if p.used > 0 || p.number >= l.next/pageSize {
		return
	}
	if k, ok := l.search(p.number); ok {
		l.drop(k, pages)
	}
}

// drop takes the page at k, which is empty, out of the lane.
func (l *lane) drop(k int, pages *Pages) {
	pages.put(l.pages[k])
	if k == 0 {
		l.pages[0] = nil
		l.pages, l.mins = l.pages[1:], l.mins[1:]
		return
	}
	l.pages, l.mins = slices.Delete(l.pages, k, k+1), slices.Delete(l.mins, k, k+1)
}

// firstReady returns the number of the first ready entry. REQUIRES: ready > 0.
func (l *lane) firstReady() (uint64, *page, uint) {
	from := l.head / pageSize
	k, _ := l.search(from)
	for {
		p := l.pages[k]
		begin := uint(0)
		if p.number == from {
			begin = uint(l.head % pageSize)
		}
		if i := p.ready.next(begin); i < pageSize {
			l.head = p.number*pageSize + uint64(i)
			return l.head, p, i
		}
		k++
	}
}

// noteDue lowers the minima of the page of seq to due.
func (l *lane) noteDue(seq uint64, due int64) {
	k, _ := l.search(seq / pageSize)
	l.mins[k] = min(l.mins[k], due)
	l.due = min(l.due, due)
}
