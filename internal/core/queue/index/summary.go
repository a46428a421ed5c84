package index

import (
	"encoding/binary"

	"bartleby.mq/internal/core/message"
)

// A summary is what a queue must know of entries that it does not read at start.
type summary struct {
	least  int64 // the first moment of one, 0 = none has one
	logged int
	n      [stateMask + 1]uint64
	bytes  [stateMask + 1]uint64
	segs   []segCount
}

// segCount is how many bodies of a page lie in a segment.
type segCount struct {
	segment uint64
	n       uint64
}

// segmentShift is where a location's file begins; below is the place in it.
const segmentShift = 32

func (s *summary) add(state uint8, size uint32, logged bool, due int64, at uint64) {
	s.n[state]++
	s.bytes[state] += uint64(size)
	if logged {
		s.logged++
	}
	if due != 0 && (s.least == 0 || due < s.least) {
		s.least = due
	}
	segment := at >> segmentShift
	for k := len(s.segs) - 1; k >= 0; k-- {
		if s.segs[k].segment == segment {
			s.segs[k].n++
			return
		}
	}
	s.segs = append(s.segs, segCount{segment, 1})
}

func (s *summary) used() (n uint64) {
	for _, k := range s.n {
		n += k
	}
	return n
}

func (s *summary) size() (n uint64) {
	for _, k := range s.bytes {
		n += k
	}
	return n
}

// append writes the summary: a version byte, the least moment, how many are
// logged; the number of states there are, and for each the state, how many are
// in it and their bytes; how many segments bodies lie in, and for each its number
// and how many.
func (s *summary) append(b []byte) []byte {
	b = append(b, encodingVersion)
	b = binary.AppendUvarint(b, uint64(s.least))
	b = binary.AppendUvarint(b, uint64(s.logged))
	at := len(b)
	b = append(b, 0)
	for state, n := range s.n {
		if n > 0 {
			b[at]++
			b = append(b, byte(state))
			b = binary.AppendUvarint(b, n)
			b = binary.AppendUvarint(b, s.bytes[state])
		}
	}
	b = binary.AppendUvarint(b, uint64(len(s.segs)))
	for _, seg := range s.segs {
		b = binary.AppendUvarint(b, seg.segment)
		b = binary.AppendUvarint(b, seg.n)
	}
	return b
}

// readSummary reads what append wrote, all of it.
func readSummary(r *Reader) (s summary) {
	r.version()
	s.least, s.logged = r.Moment(), int(min(r.Uint(), PageSize))
	for range r.Byte() {
		state, n, bytes := r.Byte(), r.Uint(), r.Uint()
		if r.Bad || state > Offered || n > PageSize || bytes > 1<<62 {
			r.Bad = true
			return s
		}
		s.n[state] += n
		s.bytes[state] += bytes
	}
	placed := uint64(0)
	for range r.Count(2) {
		seg := segCount{r.Uint(), r.Uint()}
		if r.Bad || seg.n > PageSize || seg.segment >= 1<<segmentShift || !message.Location(seg.segment<<segmentShift).InSpace() {
			r.Bad = true
			return s
		}
		placed += seg.n
		s.segs = append(s.segs, seg)
	}
	r.Bad = r.Bad || s.used() > PageSize || s.used() != placed // each has a body
	return s
}

// summarize sums up entries of a copy. It is valid until the next call.
func (ps *Pages) summarize(d *plain, set bitmap) *summary {
	s := ps.summary()
	for i := set.next(0); i < PageSize; i = set.next(i + 1) {
		s.add(d.marks[i]&stateMask, d.sizes[i], d.marks[i]&flagLogged != 0, d.dues[i], d.at[i])
	}
	return s
}

// summary is an empty one.
func (ps *Pages) summary() *summary {
	ps.summed = summary{segs: ps.summed.segs[:0]}
	return &ps.summed
}
