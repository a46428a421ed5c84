package cluster

import "encoding/binary"

// reader takes integers and bytes from the front of b. Once something is missing
// it is bad, and gives zeros.
type reader struct {
	b   []byte
	at  int
	bad bool
}

func (r *reader) fail() {
	r.bad = true
	r.at = len(r.b)
}

func (r *reader) byte() byte {
	if r.at >= len(r.b) {
		r.fail()
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 {
		r.fail()
		return 0
	}
	r.at += n
	return v
}

// count takes the number of things that follow, each of at least size bytes.
func (r *reader) count(size int) int {
	n := r.uint()
	if n > uint64((len(r.b)-r.at)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)-r.at) {
		r.fail()
		return nil
	}
	b := r.b[r.at : r.at+int(n) : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *reader) kind() entryKind {
	k := entryKind(r.byte())
	if k > kindMembers {
		r.fail()
		return 0
	}
	return k
}

func (r *reader) ids() []uint64 {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = r.uint()
		if ids[i] == 0 || i > 0 && ids[i] <= ids[i-1] {
			r.fail()
			return nil
		}
	}
	return ids
}

func (r *reader) members() Members { return Members{Voters: r.ids(), Learners: r.ids()} }

// done reports whether all was read and good.
func (r *reader) done() bool { return !r.bad && r.at == len(r.b) }

func appendMembers(b []byte, m *Members) []byte {
	for _, ids := range [2][]uint64{m.Voters, m.Learners} {
		b = binary.AppendUvarint(b, uint64(len(ids)))
		for _, id := range ids {
			b = binary.AppendUvarint(b, id)
		}
	}
	return b
}
