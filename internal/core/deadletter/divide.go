package deadletter

import "encoding/binary"

// Divide takes a stored form apart, since a queue may hold millions of histories
// that differ in times and counts only: what all of them have in common, and what
// is each one's own, which is ten to fifteen bytes a death. So they are divided in
// memory, in the pages of the index and in frames of the journal, which makes this a
// format of what is on disk; Unite is the reverse.
//
//	shared   the stored form without
//	own      of each death: count, first, last less first, expiration
//
// ok is false if stored is no stored form.
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

// Unite appends the stored form that Divide took apart. It returns b if the parts
// are not of one.
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

// Renumber makes h another history that has the same in common with others. It
// returns false, and leaves h of no use, if own is not what such a one has of its own.
func (h *History) Renumber(own []byte) bool {
	r := reader{b: own}
	for i := range h.Deaths {
		h.Deaths[i].readNumbers(&r)
	}
	return !r.bad && len(r.b) == 0
}

// DiedAlike appends the stored form of a first death that has everything in common
// with the one that stored tells of, which is another first death, but for its moment
// and the message's own TTL. Of what is appended, the last own bytes are its own.
// ok is false if stored tells of no death, or of several.
func DiedAlike(b, stored []byte, at, expiration int64) (alike []byte, own int, ok bool) {
	r := reader{b: stored}
	if r.head() != 1 {
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

// head passes over what stands before the deaths, and returns their number.
func (r *reader) head() uint64 {
	if r.byte() != historyVersion {
		r.bad = true
		return 0
	}
	texts := 6
	if r.byte()&flagApsara != 0 {
		texts++
	}
	r.skip()
	r.skips()
	for range texts {
		r.skip()
	}
	r.uvarint()
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	return n
}

// death passes over a death, all but its numbers.
func (r *reader) death() {
	r.byte()
	r.skip()
	r.skip()
	r.skips()
}

// numbers passes over the numbers of a death.
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

// skip passes over a string.
func (r *reader) skip() {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return
	}
	r.b = r.b[n:]
}

// skips passes over a list of strings.
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
