package bodies

import (
	"sync/atomic"

	"bartleby.mq/internal/core/message"
)

// segments counts, for each file that records lie in, how many references there
// are to it and how many records were ever placed there. Reading and counting
// take no lock: the counters stand in a tree of three levels, of which nothing is
// ever taken away (8 bytes for each file of 64 MiB that there ever was).
type segments struct {
	roots [message.Spaces][1 << rootBits]atomic.Pointer[segmentNode]
}

const (
	leafBits = 8
	nodeBits = 10
	rootBits = 11 // together the 29 bits of a segment's number
)

type (
	segmentNode [1 << nodeBits]atomic.Pointer[segmentLeaf]
	segmentLeaf [1 << leafBits]segmentCount
)

// segmentCount is what is counted for one file, both numbers in one word, since most
// records that are placed come with their first reference: live in the lower 36
// bits, placed above. A file of 2 GiB has room for 90 million records.
type segmentCount struct{ word atomic.Uint64 }

const (
	liveBits = 36
	liveMask = 1<<liveBits - 1
)

// add adds n references and returns how many there are. Invariant: never fewer than none.
func (c *segmentCount) add(n int64) int64 {
	live := int64(c.word.Add(uint64(n)) & liveMask)
	if live > liveMask/2 {
		panic("bodies: a record on disk was released more often than retained")
	}
	return live
}

// place counts a record placed, with n references.
func (c *segmentCount) place(n int64) { c.word.Add(1<<liveBits + uint64(n)) }

func (c *segmentCount) load() (live, placed int64) {
	word := c.word.Load()
	return int64(word & liveMask), int64(word >> liveBits)
}

func (c *segmentCount) setPlaced(n int64) {
	for {
		word := c.word.Load()
		if c.word.CompareAndSwap(word, word&liveMask|uint64(n)<<liveBits) {
			return
		}
	}
}

// of returns the counters of a file.
func (s *segments) of(space message.Space, number uint32) *segmentCount {
	node := child(&s.roots[space][number>>(leafBits+nodeBits)])
	leaf := child(&node[number>>leafBits&(1<<nodeBits-1)])
	return &leaf[number&(1<<leafBits-1)]
}

// child returns what p points to, which is made if there is nothing.
func child[T any](p *atomic.Pointer[T]) *T {
	if v := p.Load(); v != nil {
		return v
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// add adds n references to the file that at lies in and returns how many there are.
func (s *segments) add(at message.Location, n int64) int64 {
	return s.of(at.Space(), at.Segment()).add(n)
}

// Live is how many references there are to records in a file, one for each record
// that also lies in memory and one for each Ref that names it by its place on disk;
// and how many records were ever placed in it. A file without references may be
// dropped, by whoever made sure that no checkpoint names it.
func (s *Store) Live(space message.Space, segment uint32) (live, placed int64) {
	return s.segments.of(space, segment).load()
}

// Place notes that n records were placed in a file. Only a compaction needs to: what
// SetLocation puts into the journal and ToScratch into a scratch file is counted by them.
func (s *Store) Place(space message.Space, segment uint32, n int64) {
	s.segments.of(space, segment).word.Add(uint64(n) << liveBits)
}

// SetPlaced says how many records were placed in a file: 0 once it is gone, and at
// start what a checkpoint remembers.
func (s *Store) SetPlaced(space message.Space, segment uint32, n int64) {
	s.segments.of(space, segment).setPlaced(n)
}

// RangeSegments calls f for each file that has references or that records were
// placed in, by space and number, until it returns false. What is counted meanwhile may
// be seen or not.
func (s *Store) RangeSegments(f func(space message.Space, segment uint32, live, placed int64) bool) {
	for space := range message.Space(message.Spaces) {
		for r := range s.segments.roots[space] {
			node := s.segments.roots[space][r].Load()
			if node == nil {
				continue
			}
			for n := range node {
				leaf := node[n].Load()
				if leaf == nil {
					continue
				}
				for i := range leaf {
					live, placed := leaf[i].load()
					number := uint32(r<<nodeBits|n)<<leafBits | uint32(i)
					if (live != 0 || placed != 0) && !f(space, number, live, placed) {
						return
					}
				}
			}
		}
	}
}

// AddLive counts n references to a file that nobody holds by hand: at start, those
// of entries whose pages are not read.
func (s *Store) AddLive(space message.Space, segment uint32, n int64) {
	s.segments.of(space, segment).add(n)
}
