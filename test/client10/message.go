package client10

import (
	"fmt"
	"strings"

	"bartleby.mq/internal/wire/amqp10"
)

// Message is a message to publish. Its zero value is a transient one without a body.
type Message struct {
	ID         string
	Durable    bool
	Priority   int // -1: not said
	TTL        int // milliseconds; -1: none
	To         string
	Subject    string
	ReplyTo    string
	Properties map[string]string // of the application
	Data       [][]byte          // sections of the body
}

// Append appends the encoded message.
func (m *Message) Append(b []byte) []byte {
	h := amqp10.Header{Durable: m.Durable}
	if m.Priority >= 0 {
		h.Priority = amqp10.Some(uint8(m.Priority))
	}
	if m.TTL >= 0 {
		h.TTL = amqp10.Some(uint32(m.TTL))
	}
	b = h.Append(b)
	p := amqp10.Properties{To: octets(m.To), Subject: octets(m.Subject), ReplyTo: octets(m.ReplyTo)}
	if m.ID != "" {
		p.MessageID = amqp10.MustValue(amqp10.AppendString(nil, m.ID))
	}
	b = p.Append(b)
	if len(m.Properties) > 0 {
		var start int
		b, start = amqp10.BeginMap(amqp10.AppendDescriptor(b, amqp10.DescriptorApplicationProperties))
		for k, v := range m.Properties {
			b = amqp10.AppendString(amqp10.AppendString(b, k), v)
		}
		b = amqp10.EndCompound(b, start, 2*len(m.Properties))
	}
	for _, d := range m.Data {
		b = amqp10.AppendData(b, d)
	}
	return b
}

// octets are those of a string, nil of "": a field that is left out.
func octets(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// Received is a message as it came.
type Received struct {
	ID            string
	Durable       bool
	Priority      int // 4 if the message does not say it
	TTL           int // milliseconds; -1: none
	FirstAcquirer bool
	Properties    map[string]string // those of the application that are strings
	Annotations   map[string]any    // of the message: those that are strings or numbers
	Deaths        []Death           // newest first
	Body          []byte            // all data sections
}

// Death is an element of x-opt-deaths.
type Death struct {
	Queue, Reason, Exchange string
	Count                   uint64
}

// Read reads a message. An error says what is wrong with it, by the standard or by the rules of histories (DL-14.1 to DL-14.4).
func Read(payload []byte) (*Received, error) {
	m, err := amqp10.ParseMessage(payload)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return nil, err
	}
	r := &Received{TTL: -1, Properties: map[string]string{}, Annotations: map[string]any{}}
	var h amqp10.Header
	if !m.Header.IsNull() {
		if err := h.Decode(m.Header); err != nil {
			return nil, err
		}
	}
	r.Durable, r.Priority, r.FirstAcquirer = h.Durable, 4, h.FirstAcquirer
	if h.Priority.Set {
		r.Priority = int(h.Priority.Value)
	}
	if h.TTL.Set {
		r.TTL = int(h.TTL.Value)
	}
	if id, ok := m.Property(amqp10.PropertyMessageID).Text(); ok {
		r.ID = string(id)
	}
	each(m.ApplicationProperties, func(key string, v amqp10.Value) {
		if s, ok := v.Text(); ok {
			r.Properties[key] = string(s)
		}
	})
	each(m.MessageAnnotations, func(key string, v amqp10.Value) {
		if s, ok := v.Text(); ok {
			r.Annotations[key] = string(s)
		} else if n, ok := v.Int64(); ok {
			r.Annotations[key] = n
		}
	})
	for rest := m.Body; len(rest) > 0; {
		_, v, next, err := amqp10.NextSection(rest)
		if err != nil {
			return nil, err
		}
		data, _ := v.Underlying().Binary()
		r.Body, rest = append(r.Body, data...), next
	}
	deaths, _ := m.MessageAnnotation("x-opt-deaths")
	if err := r.readDeaths(deaths); err != nil {
		return r, err
	}
	return r, r.checkHistory()
}

// each calls f for what a section has that is a map.
func each(section amqp10.Value, f func(key string, v amqp10.Value)) {
	items := section.Underlying().Items()
	for k, ok := items.Next(); ok; k, ok = items.Next() {
		v, _ := items.Next()
		key, isText := k.Text()
		if !isText {
			key, _ = k.Symbol()
		}
		f(string(key), v)
	}
}

func (r *Received) readDeaths(v amqp10.Value) error {
	if v.IsNull() {
		return nil
	}
	if v.Type() != amqp10.TypeArray {
		return fmt.Errorf("x-opt-deaths is no array (DL-14.1)")
	}
	items := v.Items()
	for e, ok := items.Next(); ok; e, ok = items.Next() {
		var d Death
		var bad []string
		text := func(key string) string {
			v, _ := e.Lookup(key)
			s, ok := v.Text()
			if !ok {
				bad = append(bad, key)
			}
			return string(s)
		}
		d.Queue, d.Exchange = text("queue"), text("exchange")
		reason, _ := e.Lookup("reason")
		s, ok := reason.Symbol()
		if d.Reason = string(s); !ok {
			bad = append(bad, "reason")
		}
		count, _ := e.Lookup("count")
		if d.Count, ok = count.Uint64(); !ok || count.Type() != amqp10.TypeUlong || d.Count == 0 {
			bad = append(bad, "count")
		}
		for _, key := range []string{"first-time", "last-time"} {
			at, _ := e.Lookup(key)
			if _, ok := at.Timestamp(); !ok {
				bad = append(bad, key)
			}
		}
		if keys, _ := e.Lookup("routing-keys"); keys.Type() != amqp10.TypeArray {
			bad = append(bad, "routing-keys")
		}
		if len(bad) > 0 {
			return fmt.Errorf("x-opt-deaths: bad %s (DL-14.1)", strings.Join(bad, ", "))
		}
		r.Deaths = append(r.Deaths, d)
	}
	return nil
}

// checkHistory holds what else says that the message has died against its deaths.
func (r *Received) checkHistory() error {
	if len(r.Deaths) == 0 {
		return nil
	}
	last := &r.Deaths[0]
	// The exchange may be another: an element of x-opt-deaths has that of the first time.
	for key, want := range map[string]string{"x-last-death-queue": last.Queue, "x-last-death-reason": last.Reason} {
		if got := r.Annotations[key]; got != want {
			return fmt.Errorf("%s is %v, and it died last in %s of %s (DL-14.2)", key, got, last.Queue, last.Reason)
		}
	}
	for _, key := range []string{"x-first-death-queue", "x-first-death-reason", "x-first-death-exchange", "x-last-death-exchange"} {
		if _, ok := r.Annotations[key].(string); !ok {
			return fmt.Errorf("a dead letter without %s (DL-14.2)", key)
		}
	}
	switch {
	case r.FirstAcquirer:
		return fmt.Errorf("a dead letter whose first acquirer this is (DL-14.3)")
	case r.TTL >= 0:
		return fmt.Errorf("a dead letter with a ttl (DL-14.4)")
	}
	return nil
}
