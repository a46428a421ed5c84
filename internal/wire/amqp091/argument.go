package amqp091

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// What can be wrong with encoded values. ArgumentError and PropertyError wrap them.
var (
	// ErrMalformedUTF8 is a short string that is not UTF-8; the text is RabbitMQ's, with
	// which it closes the connection, code 501 (BR-1.16).
	ErrMalformedUTF8 = errors.New("Malformed UTF-8 in shortstr")
	// ErrTruncated is a value that goes on past the end of what holds it.
	ErrTruncated = errors.New("value exceeds the data")
	// ErrTrailing is data after the last value.
	ErrTrailing = errors.New("data after the last value")
	// ErrFieldType is a type octet in a table or array that stands for no type.
	ErrFieldType = errors.New("unknown field type")
	// ErrTooDeep is a table with more tables and arrays inside each other than 100.
	ErrTooDeep = errors.New("tables nested too deep")
)

// An ArgumentError is an argument of a method that cannot be decoded.
type ArgumentError struct {
	Method MethodID
	Field  string // its name in the protocol, as "routing-key"
	Err    error  // ErrMalformedUTF8, ErrTruncated, ErrTrailing, ErrFieldType or ErrTooDeep
}

// Error names method and field.
func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%v: %s: %v", e.Method, e.Field, e.Err)
}

// Unwrap returns Err.
func (e *ArgumentError) Unwrap() error { return e.Err }

// argReader reads a method's arguments in their order. After the first error it
// returns zero values; end returns that error.
type argReader struct {
	method MethodID
	rest   []byte
	err    error
}

// take returns the next n bytes, or nil past the end.
func (r *argReader) take(field string, n uint32) []byte {
	if r.err != nil {
		return nil
	}
	if uint64(n) > uint64(len(r.rest)) {
		r.fail(field, ErrTruncated)
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *argReader) fail(field string, err error) {
	if r.err == nil {
		r.err = &ArgumentError{r.method, field, err}
	}
}

func (r *argReader) octet(field string) uint8 {
	if b := r.take(field, 1); b != nil {
		return b[0]
	}
	return 0
}

func (r *argReader) short(field string) uint16 {
	if b := r.take(field, 2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *argReader) long(field string) uint32 {
	if b := r.take(field, 4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *argReader) longlong(field string) uint64 {
	if b := r.take(field, 8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *argReader) shortstr(field string) string {
	b := r.take(field, uint32(r.octet(field)))
	if !utf8.Valid(b) {
		r.fail(field, ErrMalformedUTF8)
		return ""
	}
	return string(b)
}

func (r *argReader) longstr(field string) string {
	return string(r.take(field, r.long(field)))
}

func (r *argReader) table(field string) Table {
	b := r.take(field, r.long(field))
	if r.err != nil {
		return nil
	}
	t, err := DecodeTable(b)
	if err != nil {
		r.fail(field, err)
	}
	return t
}

// end returns the first error; bytes left over are one, as in RabbitMQ.
func (r *argReader) end() error {
	if len(r.rest) > 0 {
		r.fail("end", ErrTrailing)
	}
	return r.err
}

// appendShortstr appends a short string, cut at 255 bytes (see Method.Append).
func appendShortstr(dst []byte, s string) []byte {
	s = cutAtRune(s, maxShortstr)
	return append(append(dst, byte(len(s))), s...)
}

// appendShortBytes is appendShortstr for bytes that are no text to be shown: names, keys, properties. They came
// from the wire or were checked, so that one to be cut is a mistake of the caller.
func appendShortBytes(dst, s []byte) []byte {
	mustFit(len(s))
	s = s[:min(len(s), maxShortstr)]
	return append(append(dst, byte(len(s))), s...)
}

func appendLongstr(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// bit returns the octet with bit i set if set.
func bit(set bool, i uint) byte {
	if set {
		return 1 << i
	}
	return 0
}
