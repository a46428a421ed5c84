package routing

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// headers compares the message's headers with the arguments of each binding (BR-6.8).
type headers struct {
	all   set
	rules []headersRule // of each of all, in its place
}

// headersRule is a binding made ready for matching.
type headersRule struct {
	any    bool // one matching argument is enough
	wanted []wantedHeader
}

type wantedHeader struct {
	key   string
	value headerValue
}

// Check refuses an x-match that is not one of the four (BR-6.10).
func (t *headers) Check(b *Binding) error {
	v, ok := b.Arguments.Get("x-match")
	if !ok {
		return nil
	}
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("Invalid x-match field type %s (value %s); expected longstr", //nolint:staticcheck // RabbitMQ's text
			amqp091.TypeName(v), erlterm.Format(term(v)))
	}
	switch s {
	case "all", "any", "all-with-x", "any-with-x":
		return nil
	}
	return fmt.Errorf("Invalid x-match field value %s; expected all, any, all-with-x, or any-with-x", //nolint:staticcheck // RabbitMQ's text
		erlterm.Format(s))
}

func (t *headers) Add(b *Binding) {
	match := "all"
	if v, ok := b.Arguments.Get("x-match"); ok {
		match, _ = v.(string)
	}
	rule := headersRule{any: strings.HasPrefix(match, "any")}
	withX := strings.HasSuffix(match, "-with-x")
	for _, f := range b.Arguments {
		if f.Key == "x-match" || strings.HasPrefix(f.Key, "x-") && !withX {
			continue
		}
		rule.wanted = append(rule.wanted, wantedHeader{f.Key, valueOf(f.Value)})
	}
	t.all.add(b)
	t.rules = append(t.rules, rule)
}

func (t *headers) Remove(b *Binding) {
	if i := t.all.remove(b); i >= 0 {
		last := len(t.rules) - 1
		t.rules[i], t.rules[last] = t.rules[last], headersRule{}
		t.rules = t.rules[:last]
	}
}

// rawHeader is a header of the message, not yet decoded.
type rawHeader struct {
	key     []byte
	typ     byte
	content []byte
}

func (t *headers) Route(dst []Destination, m *Message) []Destination {
	if len(t.rules) == 0 {
		return dst
	}
	var few [fewHeaders]rawHeader
	present := m.present(few[:0])
	// From the last to the first: what is removed in a rest has the last in its place, which has been looked at, or
	// stands below what has been.
	for i := len(t.rules) - 1; i >= 0; i = min(i, len(t.rules)) - 1 {
		r := &t.rules[i]
		if r.matches(m, present) {
			dst = append(dst, t.all.list[i].Destination)
		}
		m.Rest(1 + len(r.wanted))
	}
	return dst
}

// matches: with no argument to compare "all" holds and "any" does not.
func (r *headersRule) matches(m *Message, present []rawHeader) bool {
	for i := range r.wanted {
		if r.wanted[i].matches(m, present) == r.any {
			return r.any
		}
	}
	return !r.any
}

func (w *wantedHeader) matches(m *Message, present []rawHeader) bool {
	for _, f := range m.Extra {
		if f.Key == w.key {
			typ, content := splitField(f.Encoded)
			return w.matchesValue(m, typ, content)
		}
	}
	if m.first != nil {
		i, ok := m.first[w.key]
		if !ok {
			return false
		}
		present = present[i : i+1]
	}
	for i := range present {
		if string(present[i].key) == w.key {
			return w.matchesValue(m, present[i].typ, present[i].content)
		}
	}
	return false
}

// matchesValue compares with the message's header of the name. An array or a table is decoded and put in order once, for all bindings.
func (w *wantedHeader) matchesValue(m *Message, typ byte, content []byte) bool {
	if typ != 'A' && typ != 'F' || w.value.value == nil {
		return w.value.matches(typ, content)
	}
	if typ != w.value.typ {
		return false
	}
	form, ok := m.forms[w.key]
	if !ok {
		decoded, _ := decodeValue(typ, content) // nil, which equals no array or table, if it cannot be read
		form = comparableForm(decoded)
		if m.forms == nil {
			m.forms = map[string][]byte{}
		}
		m.forms[w.key] = form
	}
	return form != nil && bytes.Equal(w.value.content, form)
}

// fewHeaders is how many headers are searched one by one.
const fewHeaders = 32

// present lists the headers, in few if there is room for them. More are listed once for all exchanges that the message
// reaches, and found by their names: each of many bindings may look for as many as there are.
func (m *Message) present(few []rawHeader) []rawHeader {
	if m.many != nil {
		return m.many
	}
	list, size := few, 0
	amqp091.RangeHeaders(m.Headers, func(key []byte, typ byte, content []byte) bool {
		list, size = append(list, rawHeader{key, typ, content}), size+len(key)
		return true
	})
	if len(list) <= fewHeaders {
		return list
	}
	m.many = slices.Clone(list)
	m.first = make(map[string]int, len(list))
	var names strings.Builder // what the map's strings are parts of: one allocation for all
	names.Grow(size)
	for i, h := range list {
		begin := names.Len()
		names.Write(h.key)
		name := names.String()[begin:]
		if _, ok := m.first[name]; !ok {
			m.first[name] = i
		}
	}
	return m.many
}

// header finds one header by name; of equal names the first counts, and Extra stands before Headers.
func (m *Message) header(name string) (typ byte, content []byte, ok bool) {
	for _, f := range m.Extra {
		if f.Key == name {
			typ, content = splitField(f.Encoded)
			return typ, content, true
		}
	}
	return amqp091.HeaderField(m.Headers, name)
}

// term is a field's value as RabbitMQ holds and prints it: what tables and arrays hold has its type beside it.
func term(value any) any {
	switch v := value.(type) {
	case amqp091.Table:
		list := make([]any, len(v))
		for i, f := range v {
			list[i] = erlterm.Tuple{f.Key, erlterm.Atom(amqp091.TypeName(f.Value)), term(f.Value)}
		}
		return list
	case amqp091.Array:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = erlterm.Tuple{erlterm.Atom(amqp091.TypeName(e)), term(e)}
		}
		return list
	}
	return value
}
