package amqp091

import "bytes"

// tableForm says how an encoded table differs from what RabbitMQ would deliver. The
// zero value makes no claim, so that properties made by hand are written out in full.
type tableForm uint8

const (
	formUnknown   tableForm = iota
	formCanonical           // keys ascending, every value as RabbitMQ writes it
	formUnsorted            // keys out of order or twice
	formRespelled           // and a value RabbitMQ would write otherwise: see respell
)

// checkTable checks the content of a table that has depth tables and arrays around it,
// and says what form it has. The order of keys counts at the top only (see Table.Sorted).
func checkTable(b []byte, depth int) (tableForm, error) {
	if depth == maxDepth {
		return formUnknown, ErrTooDeep
	}
	form := formCanonical
	var last []byte
	for first := true; len(b) > 0; first = false {
		key, rest, err := cutKey(b)
		if err != nil {
			return formUnknown, err
		}
		if depth == 0 && !first && bytes.Compare(last, key) >= 0 {
			form = max(form, formUnsorted)
		}
		valueForm, rest, err := checkValue(rest, depth)
		if err != nil {
			return formUnknown, err
		}
		form = max(form, valueForm)
		last, b = key, rest
	}
	return form, nil
}

// checkArray is checkTable for an array.
func checkArray(b []byte, depth int) (tableForm, error) {
	if depth == maxDepth {
		return formUnknown, ErrTooDeep
	}
	form := formCanonical
	for len(b) > 0 {
		valueForm, rest, err := checkValue(b, depth)
		if err != nil {
			return formUnknown, err
		}
		form = max(form, valueForm)
		b = rest
	}
	return form, nil
}

// checkValue checks the type octet and value at the start of b.
func checkValue(b []byte, depth int) (form tableForm, rest []byte, err error) {
	if len(b) == 0 {
		return formUnknown, nil, ErrTruncated
	}
	content, size, err := cutValue(b[0], b[1:])
	if err != nil {
		return formUnknown, nil, err
	}
	form = formCanonical
	switch b[0] {
	case 'L':
		form = formRespelled
	case 't':
		if content[0] > 1 {
			form = formRespelled
		}
	case 'F':
		form, err = checkTable(content, depth+1)
	case 'A':
		form, err = checkArray(content, depth+1)
	}
	return form, b[1+size:], err
}

// respell rewrites an encoded value as RabbitMQ does, which decodes and encodes every
// header: L becomes l, and a true that is not 1 becomes 1. Sizes stay. It returns what
// follows the value; malformed data, which checkTable has excluded, it leaves alone.
func respell(b []byte) (rest []byte) {
	if len(b) == 0 {
		return nil
	}
	content, size, err := cutValue(b[0], b[1:])
	if err != nil {
		return nil
	}
	switch b[0] {
	case 'L':
		b[0] = 'l'
	case 't':
		content[0] = bit(content[0] != 0, 0)
	case 'F':
		respellFields(content)
	case 'A':
		for len(content) > 0 {
			content = respell(content)
		}
	}
	return b[1+size:]
}

// respellFields is respell for all fields of a table's content.
func respellFields(b []byte) {
	for it := (fieldIterator{rest: b}); it.next(); {
		respell(it.encoded)
	}
}
