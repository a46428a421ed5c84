package broker

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"bartleby.mq/internal/wire/amqp091"
)

const (
	// LeftOutHeader names the headers that a delivery comes without, since its client's frame has no room for them.
	LeftOutHeader = "x-left-out"
	// leftOutBytes is how many bytes their names take at most.
	leftOutBytes = 512
	deathHeader  = "x-death"
)

// rawHeader is a header as it is in the table: its key, its type, its value without the length, and all of its bytes.
type rawHeader struct {
	key, value, raw []byte
	typ             byte
	left            bool // it is left out
}

// FitProps appends properties in canonical form with so many of their headers left out that they have limit bytes at most, and says in
// LeftOutHeader which. What RabbitMQ adds at each death goes first: of x-death the oldest entries, all but the latest one. Then the
// largest headers go, and before all of them what is larger than limit on its own. Properties without headers always fit into the
// smallest frame that AMQP has. Its time grows with the number of headers, but for their sorting.
func FitProps(dst, props []byte, limit int) []byte {
	p, err := amqp091.ParseProps(props)
	if err != nil || len(props) <= limit || !p.Has(amqp091.FlagHeaders) {
		return append(dst, props...)
	}
	headers := rawHeaders(p.Headers)
	room := limit - (len(props) - len(p.Headers)) - leftOutRoom // of all headers that stay
	size := len(p.Headers)
	bySize := make([]*rawHeader, len(headers))
	var deaths *rawHeader
	for i := range headers {
		if bySize[i] = &headers[i]; string(headers[i].key) == deathHeader && headers[i].typ == 'A' {
			deaths = &headers[i]
		}
	}
	slices.SortStableFunc(bySize, func(a, b *rawHeader) int { return cmp.Compare(len(b.raw), len(a.raw)) })
	for _, h := range bySize {
		if h != deaths && len(h.raw) > room {
			h.left = true
			size -= len(h.raw)
		}
	}
	trimmed := false
	if size > room && deaths != nil {
		size -= deaths.trim(size - room)
		trimmed = true
	}
	slices.SortStableFunc(bySize, func(a, b *rawHeader) int { return cmp.Compare(len(b.raw), len(a.raw)) })
	for _, h := range bySize {
		if size > room && !h.left {
			h.left = true
			size -= len(h.raw)
		}
	}
	var names amqp091.Array
	named, unnamed := 0, 0
	said := false
	table := make([]byte, 0, limit)
	say := func() {
		if said = true; unnamed > 0 {
			names = append(names, fmt.Sprintf("and %d more", unnamed))
		}
		f := headerField(LeftOutHeader, names)
		table = append(append(append(table, byte(len(f.Key))), f.Key...), f.Encoded...)
	}
	for i := range headers {
		h := &headers[i]
		if !h.left && (h != deaths || !trimmed) || string(h.key) == LeftOutHeader {
			continue
		}
		if named+5+len(h.key) > leftOutBytes-32 { // 32 bytes say how many more
			unnamed++
			continue
		}
		named += 5 + len(h.key)
		names = append(names, string(h.key))
	}
	for i := range headers {
		h := &headers[i]
		if !said && string(h.key) > LeftOutHeader {
			say()
		}
		if !h.left && string(h.key) != LeftOutHeader {
			table = append(table, h.raw...)
		}
	}
	if !said {
		say()
	}
	at := 2 + shortBytes(&p, amqp091.FlagContentType, p.ContentType) + shortBytes(&p, amqp091.FlagContentEncoding, p.ContentEncoding)
	dst = binary.BigEndian.AppendUint32(append(dst, props[:at]...), uint32(len(table)))
	return append(append(dst, table...), props[at+4+len(p.Headers):]...)
}

// leftOutRoom is what LeftOutHeader takes at most.
const leftOutRoom = 1 + len(LeftOutHeader) + 5 + leftOutBytes

func shortBytes(p *amqp091.Props, flag uint16, s []byte) int {
	if !p.Has(flag) {
		return 0
	}
	return 1 + len(s)
}

// lengthBytes is what stands between the type of a value and its content.
func lengthBytes(typ byte) int {
	switch typ {
	case 'S', 'x', 'A', 'F':
		return 4
	}
	return 0
}

func rawHeaders(table []byte) (list []rawHeader) {
	at := 0
	amqp091.RangeHeaders(table, func(key []byte, typ byte, value []byte) bool {
		n := 1 + len(key) + 1 + lengthBytes(typ) + len(value)
		list = append(list, rawHeader{key: key, value: value, raw: table[at : at+n], typ: typ})
		at += n
		return true
	})
	return list
}

// trim drops elements from the end of an array until it has so many bytes less, and keeps the first. It returns how many bytes less it has.
func (h *rawHeader) trim(less int) int {
	keep, at := 0, 0
	amqp091.RangeArray(h.value, func(typ byte, value []byte) bool {
		n := 1 + lengthBytes(typ) + len(value)
		if keep > 0 && len(h.value)-(at+n) < less {
			return false
		}
		at += n
		keep = at
		return true
	})
	head := len(h.raw) - len(h.value)
	raw := append([]byte(nil), h.raw[:head+keep]...)
	binary.BigEndian.PutUint32(raw[head-4:], uint32(keep))
	before := len(h.raw)
	h.raw, h.value = raw, raw[head:]
	return before - len(raw)
}
