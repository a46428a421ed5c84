package bodies

import (
	"sync/atomic"

	"bartleby.mq/internal/core/message"
)

// segments counts two things for each file of records: live, the references to records in
// it, and placed, the records that were ever placed there. Reading and counting need no
// lock: the counters are in a tree of three levels from which nothing is ever removed (8
// bytes for each file of 64 MiB that ever existed).
//
// Invariant: live is one for each record in memory that has a place in the file, plus one
// for each reference by a Ref on disk. So a file with live = 0 has no record that is still
// needed, except by a checkpoint.
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

// segmentCount has both numbers of a file in one word: live in the lower 36 bits, placed
// above. Most records are placed with their first reference, which is then one addition. A
// file of 2 GiB has room for 90 million records.
type segmentCount struct{ word atomic.Uint64 }

const (
	liveBits = 36
	liveMask = 1<<liveBits - 1
)

// add adds n references and returns their number. Invariant: it is never negative.
func (c *segmentCount) add(n int64) int64 {
	live := int64(c.word.Add(uint64(n)) & liveMask)
	if live > liveMask/2 {
		panic("bodies: a record on disk was released more often than retained")
	}
	return live
}

// place counts one placed record and n references.
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

// child returns the node that p points to, and makes it if it is missing.
func child[T any](p *atomic.Pointer[T]) *T {
	if v := p.Load(); v != nil {
		return v
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// add adds n references to the file of at and returns their number.
func (s *segments) add(at message.Location, n int64) int64 {
	return s.of(at.Space(), at.Segment()).add(n)
}

// Live returns the number of references to records in a file, see segments, and the number
// of records ever placed in it. The caller may drop a file without references after it has
// made sure that no checkpoint names it.
func (s *Store) Live(space message.Space, segment uint32) (live, placed int64) {
	return s.segments.of(space, segment).load()
}

// Place notes that n records were placed in a file. Only a compaction calls it: SetLocation
// counts records in the journal, ToScratch those in scratch files.
func (s *Store) Place(space message.Space, segment uint32, n int64) {
	s.segments.of(space, segment).word.Add(uint64(n) << liveBits)
}

// SetPlaced sets how many records were placed in a file: 0 when it is removed, and at start
// the number in the checkpoint.
func (s *Store) SetPlaced(space message.Space, segment uint32, n int64) {
	s.segments.of(space, segment).setPlaced(n)
}

// RangeSegments calls f for each file with references or placed records, by space and
// number, until f returns false. It may or may not see concurrent changes.
func (s *Store) RangeSegments(f func(space message.Space, segment uint32, live, placed int64) bool) {
	for space := range message.Space(message.Spaces) {
		if !s.rangeSpace(space, func(segment uint32, live, placed int64) bool { return f(space, segment, live, placed) }) {
			return
		}
	}
}

// rangeSpace is RangeSegments for one space. It says whether f was true to the end.
func (s *Store) rangeSpace(space message.Space, f func(segment uint32, live, placed int64) bool) bool {
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
				if (live != 0 || placed != 0) && !f(number, live, placed) {
					return false
				}
			}
		}
	}
	return true
}

// AddLive adds n references to a file that no Ref in memory stands for: at start, the
// references of entries whose pages are not read.
func (s *Store) AddLive(space message.Space, segment uint32, n int64) {
	s.segments.of(space, segment).add(n)
}
