package convert

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// Annotations that outcomes *modified* merge into a message (DL-14.6) are in its history (deadletter.History.Annotations), as a map
// of AMQP 1.0 with symbols for keys. They stand before those that the message came with.

// MaxAnnotations is how many bytes outcomes may merge into a message, as encoded, and maxAnnotations how many annotations. A
// message that is modified again and again grows no further.
const (
	MaxAnnotations = 16 << 10
	maxAnnotations = 64
)

// An AnnotationsError is the refusal of the annotations of an outcome.
type AnnotationsError struct{ why string }

// Error says what is wrong, and what the limit is.
func (e *AnnotationsError) Error() string { return "annotations of an outcome: " + e.why }

// OutcomeAnnotations returns the annotations of an outcome as the broker keeps them, "" if there are none. Values become what RabbitMQ
// makes of them: numbers without a fraction, timestamps and characters are longs; symbols are strings, as is binary that is text; lists, maps
// and arrays stay what they are. What RabbitMQ fails at stays too, except null, which is left out as those that only the broker writes
// are. An error is a *ReservedKeyError or an *AnnotationsError.
func OutcomeAnnotations(section amqp10.Value) (annotations string, err error) {
	if section.IsNull() {
		return "", nil
	}
	if section.Type() != amqp10.TypeMap {
		return "", &AnnotationsError{"they are no map"}
	}
	if section.Size() > MaxAnnotations {
		return "", &AnnotationsError{fmt.Sprintf("they have %d bytes, the limit is %d", section.Size(), MaxAnnotations)}
	}
	if err := section.Check(); err != nil {
		return "", &AnnotationsError{err.Error()}
	}
	var w annotationMap
	items := section.Items()
	var k, v amqp10.Value
	for items.Read(&k) && items.Read(&v) {
		key, ok := k.Symbol()
		switch {
		case !ok || !isX(key):
			return "", reserved(k)
		case len(key) > math.MaxUint8:
			return "", &AnnotationsError{"a key has more than 255 bytes"}
		case !v.IsNull() && !brokers(string(key)):
			if w.put(string(key), appendPlain(nil, &v)); len(w.keys) > maxAnnotations {
				return "", &AnnotationsError{fmt.Sprintf("there are more than %d", maxAnnotations)}
			}
		}
	}
	if annotations = w.end(); len(annotations) > MaxAnnotations { // a value may become longer
		return "", &AnnotationsError{fmt.Sprintf("they have %d bytes, the limit is %d", len(annotations), MaxAnnotations)}
	}
	return annotations, nil
}

// brokers says whether only the broker writes the annotation.
func brokers(key string) bool {
	switch key {
	case annotationExchange, annotationKey, annotationDeaths, headerDeath, annotationAcquired, annotationDeliveries,
		annotationFirstExchange, annotationFirstQueue, annotationFirstReason, annotationLastExchange, annotationLastQueue, annotationLastReason,
		annotationTotal, deadletter.HeaderReplayedFrom, message.DelayHeader:
		return true
	}
	return false
}

// appendPlain appends a value of an outcome as RabbitMQ keeps it.
func appendPlain(dst []byte, v *amqp10.Value) []byte {
	switch v.Type() {
	case amqp10.TypeUbyte, amqp10.TypeUshort, amqp10.TypeUint, amqp10.TypeUlong:
		if n, _ := v.Uint64(); n <= math.MaxInt64 {
			return amqp10.AppendLong(dst, int64(n))
		}
	case amqp10.TypeByte, amqp10.TypeShort, amqp10.TypeInt, amqp10.TypeLong:
		n, _ := v.Int64()
		return amqp10.AppendLong(dst, n)
	case amqp10.TypeTimestamp:
		ms, _ := v.Timestamp()
		return amqp10.AppendLong(dst, ms)
	case amqp10.TypeChar:
		r, _ := v.Char()
		return amqp10.AppendLong(dst, int64(r))
	case amqp10.TypeSymbol:
		s, _ := v.Symbol()
		return amqp10.AppendString(dst, s)
	case amqp10.TypeBinary:
		if s, _ := v.Binary(); utf8.Valid(s) {
			return amqp10.AppendString(dst, s)
		}
	}
	return v.Append(dst)
}

// annotationMap collects annotations, in order. A key that comes again gets the new value and moves to the end.
type annotationMap struct {
	keys   []string
	values map[string][]byte // as encoded
}

func (m *annotationMap) put(key string, value []byte) {
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	if _, again := m.values[key]; again {
		m.keys = slices.DeleteFunc(m.keys, func(k string) bool { return k == key })
	}
	m.keys = append(m.keys, key)
	m.values[key] = value
}

// putAll puts all of what end returned.
func (m *annotationMap) putAll(annotations string) {
	rangeAnnotations(annotations, func(key []byte, v *amqp10.Value) { m.put(string(key), v.Append(nil)) })
}

func (m *annotationMap) end() string {
	if len(m.keys) == 0 {
		return ""
	}
	b, start := amqp10.BeginMap(nil)
	for _, key := range m.keys {
		b = append(amqp10.AppendSymbol(b, key), m.values[key]...)
	}
	return string(amqp10.EndCompound(b, start, 2*len(m.keys)))
}

// rangeAnnotations calls f for each annotation of a history.
func rangeAnnotations(annotations string, f func(key []byte, v *amqp10.Value)) {
	m, _, err := amqp10.ReadValue([]byte(annotations))
	if err != nil {
		return // "", since others are our own bytes
	}
	items := m.Items()
	var k, v amqp10.Value
	for items.Read(&k) && items.Read(&v) {
		if key, ok := k.Symbol(); ok {
			f(key, &v)
		}
	}
}

// MergeAnnotations merges the annotations of another outcome into those of a history. ok is false if they would be more than there
// may be (MaxAnnotations): then they stay as they were.
func MergeAnnotations(before, more string) (merged string, ok bool) {
	if before == "" {
		return more, true
	}
	var m annotationMap
	m.putAll(before)
	m.putAll(more)
	if len(m.keys) > maxAnnotations {
		return before, false
	}
	if merged = m.end(); len(merged) > MaxAnnotations {
		return before, false
	}
	return merged, true
}

// CheckAnnotations returns an error unless these are annotations as a history has them: what comes from a file may be anything.
func CheckAnnotations(annotations string) error {
	if annotations == "" {
		return nil
	}
	v, rest, err := amqp10.ReadValue([]byte(annotations))
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return &AnnotationsError{"something follows"}
	}
	same, err := OutcomeAnnotations(v)
	if err == nil && same != annotations {
		err = &AnnotationsError{"they are not in the form in which they are stored"}
	}
	return err
}

// DeliveryTime is the moment before which the message is not to be delivered again, by the annotations of an outcome (DL-12.5), in
// milliseconds since 1970. ok is false if they name none.
func DeliveryTime(annotations string) (at int64, ok bool) {
	if annotations == "" {
		return 0, false
	}
	m, _, err := amqp10.ReadValue([]byte(annotations))
	if err != nil {
		return 0, false
	}
	v, _ := m.Lookup("x-opt-delivery-time")
	if v.Type() != amqp10.TypeLong {
		return 0, false
	}
	return v.Int64()
}

// Headers are the headers of a history for clients of AMQP 0-9-1, sorted: those of its deaths, and its annotations.
func Headers(h *deadletter.History) []amqp091.RawField {
	fields, _ := AppendHeaders(h, nil, nil)
	return fields
}

// AppendHeaders is Headers without allocations if there are no annotations: it appends to fields and values, which are empty.
func AppendHeaders(h *deadletter.History, fields []amqp091.RawField, values []byte) ([]amqp091.RawField, []byte) {
	fields, values = h.AppendHeaders(fields, values)
	return appendAnnotations(h.Annotations, fields, values)
}

// Matchable are the headers of a history that a headers exchange sees.
func Matchable(h *deadletter.History) []amqp091.RawField {
	fields, _ := appendAnnotations(h.Annotations, h.Matchable(), nil)
	return fields
}

// AnnotationHeaders are the annotations of a history (deadletter.History.Annotations) as headers, sorted.
func AnnotationHeaders(annotations string) []amqp091.RawField {
	fields, _ := appendAnnotations(annotations, nil, nil)
	return fields
}

// appendAnnotations adds the annotations of a history to its headers. Lists, maps and arrays are for clients of AMQP 1.0 only, as in
// RabbitMQ.
func appendAnnotations(annotations string, fields []amqp091.RawField, values []byte) ([]amqp091.RawField, []byte) {
	if annotations == "" {
		return fields, values
	}
	rangeAnnotations(annotations, func(key []byte, v *amqp10.Value) {
		switch v.Type() {
		case amqp10.TypeList, amqp10.TypeMap, amqp10.TypeArray:
			return
		}
		begin := len(values)
		if b, ok := appendField(values, v, 1); ok {
			fields, values = append(fields, amqp091.RawField{Key: string(key), Encoded: b[begin:len(b):len(b)]}), b
		}
	})
	slices.SortFunc(fields, func(a, b amqp091.RawField) int { return strings.Compare(a.Key, b.Key) })
	return fields, values
}
