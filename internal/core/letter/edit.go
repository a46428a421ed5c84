package letter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// Edit changes one letter. What it does not name stays. Values of properties and headers are JSON whose numbers are json.Number;
// nil takes a property or a header out.
type Edit struct {
	Body         *string        `json:"body,omitempty"`          // nil: it stays
	BodyEncoding string         `json:"body_encoding,omitempty"` // of Body: text (default) or base64
	Properties   map[string]any `json:"properties,omitempty"`
	Headers      map[string]any `json:"headers,omitempty"`
}

// Change is one difference that an edit makes.
type Change struct {
	What   string `json:"what"` // body, header.NAME or property.NAME
	Before any    `json:"before"`
	After  any    `json:"after"` // both as the API shows them, nil if there is none; of a body the first part, base64 if it is no text
	Cut    bool   `json:"cut,omitempty"`
}

// shownBody is how many bytes of a body a Change shows.
const shownBody = 64 << 10

// maxHeaders is how many bytes the headers of an edited letter may have, unless it had more before.
const maxHeaders = 128 << 10

// maxEdited is how many headers an edit may name: each is looked for among those of the letter.
const maxEdited = 1 << 12

// Edited are the parts of an edited copy.
type Edited struct {
	Properties []byte
	Sections   *message.Sections // nil for a message of AMQP 0-9-1
	Body       []byte
}

// errNothing is the refusal of an edit after which all is as before.
var errNothing = errors.New("edit: it changes nothing")

// Apply returns the edited copy, and what differs. history is that of the letter. An error says what is wrong with the edit.
func (e *Edit) Apply(rec message.Record, history *deadletter.History) (d Edited, changes []Change, err error) {
	if len(e.Headers) > maxEdited {
		return d, nil, fmt.Errorf("edit: it names %d headers, the limit is %d", len(e.Headers), maxEdited)
	}
	for _, f := range convert.AnnotationHeaders(history.Annotations) {
		if _, ok := e.Headers[f.Key]; ok {
			return d, nil, fmt.Errorf("edit: header.%s cannot be changed: a consumer has said it with its outcome, and it stays with the history", f.Key)
		}
	}
	if rec.HasSections() {
		return e.apply10(rec)
	}
	l, err := amqp091.DecodeProps(rec.Properties())
	if err != nil {
		return d, nil, err
	}
	before := len(amqp091.AppendTable(nil, l.Headers))
	if d.Body, err = e.body(rec.Body(), &changes); err != nil {
		return d, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(e.Properties)) {
		if err := editProperty(&l, name, e.Properties[name], &changes); err != nil {
			return d, nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if err := editHeader(&l, name, e.Headers[name], &changes); err != nil {
			return d, nil, err
		}
	}
	if len(changes) == 0 {
		return d, nil, errNothing
	}
	if l.Headers.CheckDepth() != nil {
		return d, nil, fmt.Errorf("edit: headers are nested more than %d deep", amqp091.MaxDepth)
	}
	if n := len(amqp091.AppendTable(nil, l.Headers)); n > max(maxHeaders, before) {
		return d, nil, fmt.Errorf("edit: headers of %d bytes, the limit is %d", n, max(maxHeaders, before))
	}
	d.Properties = amqp091.AppendPropsFrom(nil, l)
	return d, changes, nil
}

func (e *Edit) body(old []byte, changes *[]Change) ([]byte, error) {
	if e.Body == nil {
		if e.BodyEncoding != "" {
			return nil, fmt.Errorf("edit: body_encoding is of no use without body")
		}
		return old, nil
	}
	body := []byte(*e.Body)
	switch e.BodyEncoding {
	case "", "text":
	case "base64":
		var err error
		if body, err = base64.StdEncoding.DecodeString(*e.Body); err != nil {
			return nil, fmt.Errorf("edit: body is no base64: %w", err)
		}
	default:
		return nil, fmt.Errorf("edit: body_encoding '%s' must be text or base64", e.BodyEncoding)
	}
	if !bytes.Equal(body, old) {
		*changes = append(*changes, Change{"body", showBody(old), showBody(body), max(len(old), len(body)) > shownBody})
	}
	return body, nil
}

func showBody(b []byte) string {
	part := b[:min(len(b), shownBody)]
	text := part
	for n := 0; n < utf8.UTFMax-1 && len(part) < len(b) && len(text) > 0 && !utf8.Valid(text); n++ {
		text = text[:len(text)-1] // it was cut within a character
	}
	if utf8.Valid(text) && !bytes.Contains(text, []byte{0}) {
		return string(text)
	}
	return base64.StdEncoding.EncodeToString(part)
}

// TextProperties are the properties that are text, by their names in JSON.
var TextProperties = map[string]func(*amqp091.PropertyList) **string{
	"content_type":     func(l *amqp091.PropertyList) **string { return &l.ContentType },
	"content_encoding": func(l *amqp091.PropertyList) **string { return &l.ContentEncoding },
	"correlation_id":   func(l *amqp091.PropertyList) **string { return &l.CorrelationID },
	"reply_to":         func(l *amqp091.PropertyList) **string { return &l.ReplyTo },
	"expiration":       func(l *amqp091.PropertyList) **string { return &l.Expiration },
	"message_id":       func(l *amqp091.PropertyList) **string { return &l.MessageID },
	"type":             func(l *amqp091.PropertyList) **string { return &l.Type },
	"user_id":          func(l *amqp091.PropertyList) **string { return &l.UserID },
	"app_id":           func(l *amqp091.PropertyList) **string { return &l.AppID },
	"cluster_id":       func(l *amqp091.PropertyList) **string { return &l.ClusterID },
}

func editProperty(l *amqp091.PropertyList, name string, v any, changes *[]Change) error {
	what := "property." + name
	if name == "expiration" {
		return fmt.Errorf("edit: %s cannot be changed: with its death a message has lost its own TTL", what)
	}
	if of := TextProperties[name]; of != nil {
		var now *string
		if v != nil {
			text, ok := v.(string)
			if !ok || len(text) > math.MaxUint8 {
				return fmt.Errorf("edit: %s must be text of at most %d bytes, or null", what, math.MaxUint8)
			}
			now = &text
		}
		at := of(l)
		noteChange(changes, what, *at, now, func(s string) any { return topology.Readable(s) })
		*at = now
		return nil
	}
	var n *uint64
	bits := 8
	switch name {
	case "delivery_mode", "priority":
	case "timestamp":
		bits = 64
	case "headers":
		return fmt.Errorf("edit: %s: headers have a place of their own, beside properties", what)
	default:
		return fmt.Errorf("edit: %s: there is no such property; the properties are: %s, delivery_mode, priority, timestamp", what,
			strings.Join(slices.Sorted(maps.Keys(TextProperties)), ", "))
	}
	if v != nil {
		number, ok := v.(json.Number)
		u, err := strconv.ParseUint(number.String(), 10, bits)
		if !ok || err != nil {
			return fmt.Errorf("edit: %s must be an integer from 0 to %d, or null", what, uint64(math.MaxUint64)>>(64-bits))
		}
		n = &u
	}
	octet := func(at **uint8) {
		var now *uint8
		if n != nil {
			now = new(uint8(*n))
		}
		noteChange(changes, what, *at, now, func(n uint8) any { return n })
		*at = now
	}
	switch name {
	case "delivery_mode":
		octet(&l.DeliveryMode)
	case "priority":
		octet(&l.Priority)
	case "timestamp":
		noteChange(changes, what, l.Timestamp, n, func(n uint64) any { return n })
		l.Timestamp = n
	}
	return nil
}

// noteChange notes a change unless the values are the same.
func noteChange[T comparable](changes *[]Change, what string, before, after *T, show func(T) any) {
	if before == nil && after == nil || before != nil && after != nil && *before == *after {
		return
	}
	c := Change{What: what}
	if before != nil {
		c.Before = show(*before)
	}
	if after != nil {
		c.After = show(*after)
	}
	*changes = append(*changes, c)
}

// brokersOwn says whether the broker writes a header: it stands in no record, or says what only the broker knows.
func brokersOwn(name string) bool {
	return name == "x-death" || name == "x-delivery-count" || name == "x-acquired-count" || strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// checkHeader refuses names of headers that no edit can change.
func checkHeader(name string) error {
	if brokersOwn(name) {
		return fmt.Errorf("edit: header.%s cannot be changed: it tells of deaths", name)
	}
	if len(name) > math.MaxUint8 {
		return fmt.Errorf("edit: a header's name of %d bytes is too long", len(name))
	}
	return nil
}

func editHeader(l *amqp091.PropertyList, name string, v any, changes *[]Change) error {
	what := "header." + name
	if err := checkHeader(name); err != nil {
		return err
	}
	at := slices.IndexFunc(l.Headers, func(f amqp091.Field) bool { return f.Key == name })
	c := Change{What: what}
	var old any = absent{}
	if at >= 0 {
		old = l.Headers[at].Value
		c.Before = topology.HeadersForm.Value(old)
	}
	if v == nil {
		if at >= 0 {
			l.Headers = slices.DeleteFunc(l.Headers, func(f amqp091.Field) bool { return f.Key == name })
			*changes = append(*changes, c)
		}
		return nil
	}
	now, err := retyped(old, v, 0)
	if err != nil {
		return fmt.Errorf("edit: %s: %w", what, err)
	}
	if at >= 0 && bytes.Equal(amqp091.AppendValue(nil, old), amqp091.AppendValue(nil, now)) {
		return nil
	}
	c.After = topology.HeadersForm.Value(now)
	if at >= 0 {
		l.Headers[at].Value = now
	} else {
		l.Headers = append(l.Headers, amqp091.Field{Key: name, Value: now})
	}
	*changes = append(*changes, c)
	return nil
}

// retyped turns a JSON value into one of AMQP. It is of the type of the old value wherever it fits: what shows an integer of 16
// bits and sends another one back means one of 16 bits.
func retyped(old, v any, depth int) (any, error) {
	if depth > amqp091.MaxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", amqp091.MaxDepth)
	}
	switch v := v.(type) {
	case nil, bool:
		return v, nil
	case string:
		switch o := old.(type) {
		case []byte:
			if v == topology.Readable(string(o)) {
				return o, nil
			}
			return []byte(v), nil
		case string:
			if v == topology.Readable(o) {
				return o, nil // it is no UTF-8, and was shown as base64
			}
		case nil, float32, float64:
			if old != nil && v == topology.HeadersForm.Value(o) || old == nil && v == "undefined" {
				return o, nil // JSON has no such number, and RabbitMQ shows nothing as "undefined"
			}
		}
		return v, nil
	case json.Number:
		return retypedNumber(old, v.String())
	case map[string]any:
		before, _ := old.(amqp091.Table)
		table, known := make(amqp091.Table, 0, len(v)), map[string]bool{}
		for _, f := range before {
			if _, stays := v[f.Key]; stays && !known[f.Key] {
				known[f.Key] = true
				now, err := retyped(f.Value, v[f.Key], depth+1)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", f.Key, err)
				}
				table = append(table, amqp091.Field{Key: f.Key, Value: now})
			}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if known[key] {
				continue
			}
			if len(key) > math.MaxUint8 {
				return nil, fmt.Errorf("a name of %d bytes is too long", len(key))
			}
			now, err := retyped(absent{}, v[key], depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			table = append(table, amqp091.Field{Key: key, Value: now})
		}
		return table, nil
	case []any:
		before, _ := old.(amqp091.Array)
		array := make(amqp091.Array, 0, len(v))
		for i := range v {
			var like any = absent{}
			if i < len(before) {
				like = before[i]
			}
			now, err := retyped(like, v[i], depth+1)
			if err != nil {
				return nil, err
			}
			array = append(array, now)
		}
		return array, nil
	}
	return nil, fmt.Errorf("it cannot be a %T", v)
}

// absent is the old value where there was none.
type absent struct{}

// retypedNumber reads a number as one of the type of the old value, if it fits. Otherwise it is an integer of 64 bits, or else a
// float of 64 bits.
func retypedNumber(old any, text string) (any, error) {
	signed, errSigned := strconv.ParseInt(text, 10, 64)
	unsigned, errUnsigned := strconv.ParseUint(text, 10, 64)
	float, errFloat := strconv.ParseFloat(text, 64)
	if errFloat != nil {
		return nil, fmt.Errorf("%s is too large a number", text)
	}
	switch o := old.(type) {
	case int8:
		if errSigned == nil && int64(int8(signed)) == signed {
			return int8(signed), nil
		}
	case int16:
		if errSigned == nil && int64(int16(signed)) == signed {
			return int16(signed), nil
		}
	case int32:
		if errSigned == nil && int64(int32(signed)) == signed {
			return int32(signed), nil
		}
	case uint8:
		if errUnsigned == nil && uint64(uint8(unsigned)) == unsigned {
			return uint8(unsigned), nil
		}
	case uint16:
		if errUnsigned == nil && uint64(uint16(unsigned)) == unsigned {
			return uint16(unsigned), nil
		}
	case uint32:
		if errUnsigned == nil && uint64(uint32(unsigned)) == unsigned {
			return uint32(unsigned), nil
		}
	case amqp091.Timestamp:
		if errUnsigned == nil {
			return amqp091.Timestamp(unsigned), nil
		}
	case float32:
		if shorter, err := strconv.ParseFloat(text, 32); err == nil && (float == shorter || strconv.FormatFloat(shorter, 'g', -1, 32) == text || shorter == float64(o)) {
			return float32(shorter), nil
		}
	case float64:
		return float, nil
	case amqp091.Decimal:
		if n := math.Round(float * math.Pow10(int(o.Scale))); n >= 0 && n <= math.MaxUint32 && n/math.Pow10(int(o.Scale)) == float {
			return amqp091.Decimal{Scale: o.Scale, Value: uint32(n)}, nil
		}
	}
	if errSigned == nil {
		return signed, nil
	}
	return float, nil
}
