package deadletter

import "encoding/binary"

// Divide splits a stored form into a shared and an own part. A queue may hold millions of
// histories that differ only in times and counts. They share one copy of the shared part;
// the own part takes ten to fifteen bytes a death. Memory, pages of the index and frames of
// the journal use this split, so it is an on-disk format. Unite is the reverse.
//
//	stored   head | death 1 | numbers 1 | death 2 | numbers 2 | ...
//	shared   head | death 1             | death 2             | ...
//	own                       numbers 1 |           numbers 2 | ...
//
// Earlier deaths (Marks) follow the others and are divided like them.
//
// The numbers of a death are count, first, last - first and expiration. Divide appends to
// shared and own. ok is false if stored is not a stored form.
func Divide(stored, shared, own []byte) (s, o []byte, ok bool) {
	r := reader{b: stored}
	from := stored
	n := r.head()
	keep := func(to []byte) []byte {
		to = append(to, from[:len(from)-len(r.b)]...)
		from = r.b
		return to
	}
	for range n {
		r.death()
		if r.bad {
			break
		}
		shared = keep(shared)
		r.numbers()
		if r.bad {
			break
		}
		own = keep(own)
	}
	if r.bad || len(r.b) > 0 {
		return shared, own, false
	}
	return keep(shared), own, true
}

// Unite appends the stored form that Divide split. It returns b unchanged if the parts do
// not fit together.
func Unite(b, shared, own []byte) []byte {
	s, o := reader{b: shared}, reader{b: own}
	begin := len(b)
	from := shared
	n := s.head()
	for range n {
		s.death()
		rest := o.b
		o.numbers()
		if s.bad || o.bad {
			return b[:begin]
		}
		b = append(b, from[:len(from)-len(s.b)]...)
		from = s.b
		b = append(b, rest[:len(rest)-len(o.b)]...)
	}
	return append(b, from...)
}

// Renumber turns h into another history with the same shared part: it replaces the numbers
// of all deaths. If own does not fit, it returns false and h must not be used any more.
func (h *History) Renumber(own []byte) bool {
	r := reader{b: own}
	for _, list := range [][]Death{h.Deaths, h.Earlier} {
		for i := range list {
			list[i].readNumbers(&r)
		}
	}
	return !r.bad && len(r.b) == 0
}

// DiedAlike appends the stored form of a first death that differs from another first death,
// stored, only in its time and in the message's own TTL. The last own bytes of alike are
// the own part. ok is false if stored has no death, or several, or marks.
func DiedAlike(b, stored []byte, at, expiration int64) (alike []byte, own int, ok bool) {
	r := reader{b: stored}
	if r.head() != 1 || stored[1]&flagMarks != 0 {
		return b, 0, false
	}
	r.death()
	shared := len(stored) - len(r.b)
	if r.numbers(); r.bad || len(r.b) > 0 {
		return b, 0, false
	}
	b = append(b, stored[:shared]...)
	before := len(b)
	b = (&Death{Count: 1, First: at, Last: at, Expiration: expiration}).appendNumbers(b)
	return b, len(b) - before, true
}

// head skips everything before the deaths and returns the number of all deaths, earlier ones included.
func (r *reader) head() uint64 {
	flags, earlier := r.upToMore()
	if flags&flagCause != 0 {
		what := r.skipMore()
		if what&causeNote != 0 {
			r.skipNote()
		}
		if what&causeAnnotations != 0 {
			r.skip()
		}
	}
	r.uvarint()
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	return n + earlier
}

// upToMore skips everything before the second part of the cause, and returns the flags and how many earlier deaths there are.
func (r *reader) upToMore() (flags byte, earlier uint64) {
	if r.byte() != historyVersion {
		r.bad = true
		return 0, 0
	}
	texts := 6
	flags = r.byte()
	if flags&flagApsara != 0 {
		texts++
	}
	var m Marks
	earlier = r.marks(flags, &m)
	r.skip()
	r.skips()
	for range texts {
		r.skip()
	}
	return flags, earlier
}

// death skips a death up to its numbers.
func (r *reader) death() {
	r.byte()
	r.skip()
	r.skip()
	r.skips()
}

// numbers skips the numbers of a death.
func (r *reader) numbers() {
	for range 4 {
		_, n := binary.Uvarint(r.b)
		if n <= 0 {
			r.bad, r.b = true, nil
			return
		}
		r.b = r.b[n:]
	}
}

// skip skips a string.
func (r *reader) skip() {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return
	}
	r.b = r.b[n:]
}

// skips skips a list of strings.
func (r *reader) skips() {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return
	}
	for range n {
		r.skip()
	}
}
