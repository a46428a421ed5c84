package queue

import (
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

// A lane is the entries of one priority level, in order.
//
// Invariant: no entry below head is in stateReady; ready is their number.
type lane struct {
	pages []*page // pages[i] holds the numbers from (first+i)*pageSize on; nil when empty
	mins  []int64 // for each page, a moment not later than any of its entries'
	first uint64
	next  uint64 // the number the next entry gets
	head  uint64
	ready int
	due   int64 // not later than any of mins
}

func newLane() *lane { return &lane{due: never} }

// at returns the page and the slot of seq; the page is nil if there is no live entry.
func (l *lane) at(seq uint64) (*page, uint) {
	n := seq / pageSize
	if n < l.first || n-l.first >= uint64(len(l.pages)) {
		return nil, 0
	}
	p, i := l.pages[n-l.first], uint(seq%pageSize)
	if p == nil || !p.live.has(i) {
		return nil, 0
	}
	return p, i
}

// near says whether seq lies so that pages up to it can be made.
func (l *lane) near(seq uint64) bool {
	n := seq / pageSize
	return len(l.pages) == 0 || n < l.first+maxSpan && n+maxSpan >= l.first+uint64(len(l.pages))
}

// slotFor makes room for seq, which may lie anywhere from first on (recovery
// enters with gaps).
func (l *lane) slotFor(seq uint64, pages *Pages) (*page, uint) {
	n := seq / pageSize
	if len(l.pages) == 0 {
		l.first = n
	}
	if n < l.first { // recovery only: an entry older than those found so far
		older := int(l.first - n)
		l.pages = append(make([]*page, older), l.pages...)
		l.mins = append(slices.Repeat([]int64{never}, older), l.mins...)
		l.first = n
	}
	for uint64(len(l.pages)) <= n-l.first {
		if k := len(l.pages); k > 0 && l.pages[k-1] != nil && l.pages[k-1].used == 0 {
			pages.put(l.pages[k-1])
			l.pages[k-1], l.mins[k-1] = nil, never
			l.dropEmptyFront()
			if len(l.pages) == 0 {
				l.first = n
			}
		}
		l.pages = append(l.pages, nil)
		l.mins = append(l.mins, never)
	}
	p := l.pages[n-l.first]
	if p == nil {
		p = pages.get()
		l.pages[n-l.first] = p
	}
	return p, uint(seq % pageSize)
}

// freed is called when an entry of p has gone; it gives empty pages back, but
// for the one that is being filled.
func (l *lane) freed(p *page, seq uint64, pages *Pages) {
	n := seq / pageSize
	if p.used > 0 || n >= l.next/pageSize {
		return
	}
	pages.put(p)
	l.pages[n-l.first], l.mins[n-l.first] = nil, never
	l.dropEmptyFront()
}

func (l *lane) dropEmptyFront() {
	for len(l.pages) > 0 && l.pages[0] == nil {
		l.pages, l.mins = l.pages[1:], l.mins[1:]
		l.first++
	}
}

// firstReady returns the number of the first ready entry. REQUIRES: ready > 0.
func (l *lane) firstReady() (uint64, *page, uint) {
	seq := max(l.head, l.first*pageSize)
	for {
		n := seq/pageSize - l.first
		if p := l.pages[n]; p != nil {
			if i := p.ready.next(uint(seq % pageSize)); i < pageSize {
				seq = (seq/pageSize)*pageSize + uint64(i)
				l.head = seq
				return seq, p, i
			}
		}
		seq = (seq/pageSize + 1) * pageSize
	}
}

// noteDue lowers the minima of the page of seq to due.
func (l *lane) noteDue(seq uint64, due int64) {
	n := seq/pageSize - l.first
	l.mins[n] = min(l.mins[n], due)
	l.due = min(l.due, due)
}
