package amqp091

// RangeHeaders calls f for each field of a table's content in the order of the wire, until f
// returns false. value is the content of the value, without the length that types S,
// x, A and F have before it; key and value alias headers. DecodeValue makes a Go value
// of it. Nothing is allocated. Where the table is malformed, which ParseProps has
// excluded, it ends.
func RangeHeaders(headers []byte, f func(key []byte, typ byte, value []byte) bool) {
	for it := (fieldIterator{rest: headers}); it.next(); {
		if !f(it.key, it.encoded[0], it.content) {
			return
		}
	}
}

// RangeArray is RangeHeaders for the elements of an array's content.
func RangeArray(array []byte, f func(typ byte, value []byte) bool) {
	for len(array) > 0 {
		content, size, err := cutValue(array[0], array[1:])
		if err != nil || !f(array[0], content) {
			return
		}
		array = array[1+size:]
	}
}

// HeaderField finds the first field with the key in a table's content, without
// allocating. value is as RangeHeaders gives it.
func HeaderField(headers []byte, key string) (typ byte, value []byte, ok bool) {
	for it := (fieldIterator{rest: headers}); it.next(); {
		if string(it.key) == key {
			return it.encoded[0], it.content, true
		}
	}
	return 0, nil, false
}

// fieldIterator walks the fields of a table's content.
type fieldIterator struct {
	rest []byte

	key     []byte
	encoded []byte // type octet and value
	content []byte // value without type octet and length
}

// next goes to the next field. It reports false at the end, or where the table is malformed.
func (it *fieldIterator) next() bool {
	b := it.rest
	if len(b) == 0 {
		return false
	}
	n := 1 + int(b[0])
	if n >= len(b) {
		return false
	}
	content, size, err := cutValue(b[n], b[n+1:])
	if err != nil {
		return false
	}
	it.key, it.content = b[1:n], content
	it.encoded, it.rest = b[n:n+1+size], b[n+1+size:]
	return true
}
