package deadletter

import "encoding/binary"

// Detail finds the longest detail in the shared part of a stored form, or in a whole one: that of the cause, or that of the note. It
// returns the text, which is shared[to-len(text):to], and where it begins with its length. text is empty if there is none.
func Detail(shared []byte) (text []byte, from, to int) {
	for _, d := range details(shared) {
		if d.size > len(text) {
			text, from, to = shared[d.to-d.size:d.to], d.from, d.to
		}
	}
	return text, from, to
}

// TakeDetail appends shared to b, with a mark in place of the detail that Detail has found from one place to another. What is there
// is still the shared part of a history.
func TakeDetail(b, shared []byte, from, to int, mark []byte) []byte {
	b = append(b, shared[:from]...)
	b = appendText(b, mark)
	return append(b, shared[to:]...)
}

// PutDetail is the reverse of TakeDetail: it appends shared to b with the text in place of the mark.
func PutDetail(b, shared, mark, text []byte) []byte {
	for _, d := range details(shared) {
		if string(shared[d.to-d.size:d.to]) == string(mark) {
			b = append(b, shared[:d.from]...)
			b = appendText(b, text)
			return append(b, shared[d.to:]...)
		}
	}
	return append(b, shared...)
}

func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// detailAt is where a detail is: from its length up to its end. The size is that of its text.
type detailAt struct{ from, to, size int }

// details finds the detail of the cause and that of the note; what is not there is zero. It passes over one whose length is written in
// more bytes than it needs: it would not come back so.
func details(shared []byte) (at [2]detailAt) {
	if len(shared) < 2 || shared[1]&flagCause == 0 {
		return at
	}
	r := reader{b: shared}
	r.upToMore()
	var what uint64
	if what, at[0] = r.detail(shared); what&causeNote == 0 {
		return at
	}
	for range 4 {
		r.skip()
	}
	_, at[1] = r.detail(shared)
	return at
}

// detail skips what appendMore wrote, and returns where in all, which r reads, the detail is.
func (r *reader) detail(all []byte) (what uint64, at detailAt) {
	what = r.uvarint()
	for bit := uint64(causeName); bit <= causeDetail; bit <<= 1 {
		if what&bit == 0 {
			continue
		}
		from := len(all) - len(r.b)
		r.skip()
		if bit != causeDetail || r.bad {
			continue
		}
		size, width := binary.Uvarint(all[from:])
		if to := len(all) - len(r.b); width == 1 || all[from+width-1] != 0 {
			at = detailAt{from, to, int(size)}
		}
	}
	if what&causeCount != 0 {
		r.uvarint()
	}
	return what, at
}
