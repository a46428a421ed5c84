package convert_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

func readRecordings(t *testing.T) (list []recording) {
	t.Helper()
	b, err := os.ReadFile(recordings)
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(scenarios()) {
		t.Fatalf("%d recordings of %d scenarios: see TestRecord", len(list), len(scenarios()))
	}
	return list
}

// shown is a value of AMQP 1.0 in a form to be compared: all encodings of a number are the same, and the order in a map is left out.
func shown(v amqp10.Value) any {
	switch v.Type() {
	case amqp10.TypeList, amqp10.TypeArray:
		items, list := v.Items(), []any{v.Type().String()}
		for item, ok := items.Next(); ok; item, ok = items.Next() {
			list = append(list, shown(item))
		}
		return list
	case amqp10.TypeMap:
		items, m := v.Items(), map[string]any{}
		for k, ok := items.Next(); ok; k, ok = items.Next() {
			value, _ := items.Next()
			m[fmt.Sprint(shown(k))] = shown(value)
		}
		return m
	case amqp10.TypeDescribed:
		return []any{v.Descriptor().String(), shown(v.Underlying())}
	case amqp10.TypeBoolean:
		b, _ := v.Bool()
		return b
	case amqp10.TypeFloat, amqp10.TypeDouble:
		f, _ := v.Float64()
		return fmt.Sprint(v.Type(), " ", f)
	case amqp10.TypeString, amqp10.TypeSymbol, amqp10.TypeBinary:
		return v.Type().String() + " " + string(v.Append(nil)[headSize(v):])
	case amqp10.TypeTimestamp:
		ms, _ := v.Timestamp()
		return fmt.Sprint("timestamp ", ms)
	}
	if n, ok := v.Uint64(); ok {
		return fmt.Sprint(v.Type(), " ", n)
	}
	if n, ok := v.Int64(); ok {
		return fmt.Sprint(v.Type(), " ", n)
	}
	return fmt.Sprintf("%v % x", v.Type(), v.Append(nil))
}

// headSize is how many octets a value of variable width has before its content.
func headSize(v amqp10.Value) int {
	if v.Append(nil)[0]&0x10 != 0 {
		return 5
	}
	return 2
}

// shownMessage are the sections of a message to be compared. Those that hold nothing are as those that are not there.
type shownMessage struct {
	Header                             amqp10.Header
	Annotations, Application           map[string]any
	Properties                         []any
	Body                               string
	Footer                             any
	BareAsSent, HasDeliveryAnnotations bool
}

func showMessage(t *testing.T, b []byte) (s shownMessage) {
	t.Helper()
	m, err := amqp10.ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Header.Decode(m.Header); err != nil {
		t.Fatal(err)
	}
	s.Annotations, _ = shown(m.MessageAnnotations.Underlying()).(map[string]any)
	s.Application, _ = shown(m.ApplicationProperties.Underlying()).(map[string]any)
	if !m.Properties.IsNull() {
		var p amqp10.Properties
		if err := p.Decode(m.Properties); err != nil {
			t.Fatal(err)
		}
		s.Properties, _ = shown(amqp10.MustValue(p.Append(nil)).Underlying()).([]any)
	}
	s.Body, s.HasDeliveryAnnotations = string(m.Body), !m.DeliveryAnnotations.IsNull()
	if m.Footer != nil {
		_, v, _, _ := amqp10.NextSection(m.Footer)
		s.Footer = shown(v)
	}
	return s
}

// sent is the message of a recording as an Incoming, if it was one of AMQP 1.0.
func (r *recording) sent(t *testing.T) (in convert.Incoming, err error) {
	t.Helper()
	m := parse(t, r.Message)
	return in, convert.FromAMQP10(&in, &m)
}

// stored is the record of the recording's message.
func (r *recording) stored(t *testing.T) message.Record {
	t.Helper()
	if r.Message == nil {
		return record(t, "", "dead", r.Properties, nil, r.Body)
	}
	in, err := r.sent(t)
	if err != nil {
		t.Fatal(err)
	}
	return record(t, "", "dead", in.Raw, &in.Sections, in.Body)
}

// TestDL14_5_RefusedAsRabbitMQRefuses compares what is refused, and the words.
func TestDL14_5_RefusedAsRabbitMQRefuses(t *testing.T) {
	for _, r := range readRecordings(t) {
		if r.Message == nil {
			continue
		}
		if strings.Contains(r.RefusedAtPublish, "internal-error") {
			continue // it fell over it
		}
		_, err := r.sent(t)
		switch {
		case err == nil && r.RefusedAtPublish != "":
			t.Errorf("%s: taken, and RabbitMQ says %s", r.Name, r.RefusedAtPublish)
		case err != nil && !strings.HasSuffix(r.RefusedAtPublish, err.Error()):
			t.Errorf("%s: %v, and RabbitMQ says %q", r.Name, err, r.RefusedAtPublish)
		}
	}
}

// differs091 are messages of AMQP 1.0 that clients of AMQP 0-9-1 get otherwise than from RabbitMQ, and why.
var differs091 = map[string]string{
	"1.0: a value with a footer":                 "the footer is no part of the body",
	"1.0: application-properties CC and BCC":     "headers of these names are routing keys here",
	"1.0: properties of AMQP 0-9-1 and a header": "the header's priority is the message's: RabbitMQ shows another one than it uses",
}

func TestDL14_5_MessagesOfAMQP10ReadOver091(t *testing.T) {
	different := 0
	for _, r := range readRecordings(t) {
		if r.Message == nil || r.Properties091 == nil || r.Journey != straight {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			in, err := r.sent(t)
			if err != nil {
				t.Fatal(err)
			}
			if !amqp091.Canonical(&in.Props) {
				t.Error("the properties are not canonical")
			}
			same := bytes.Equal(in.Raw, r.Properties091) && bytes.Equal(convert.Body(record(t, "", "k", in.Raw, &in.Sections, in.Body)), r.Body091)
			if why := differs091[r.Name]; why != "" {
				if different++; same {
					t.Errorf("this does not differ: %s", why)
				}
				return
			}
			got, _ := amqp091.DecodeProps(in.Raw)
			want, err := amqp091.DecodeProps(r.Properties091)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("RabbitMQ -, here +:\n%s", diff)
			} else if !same {
				t.Errorf("RabbitMQ % x %q\nhere     % x %q", r.Properties091, r.Body091, in.Raw, in.Body)
			}
		})
	}
	if different != len(differs091) {
		t.Errorf("%d messages differ, %d are named", different, len(differs091))
	}
}

// TestDL14_5_DeadMessagesOfAMQP10ReadOver091: their ttl is an original-expiration, and what a client has sent as x-opt-deaths
// gives way to x-death.
func TestDL14_5_DeadMessagesOfAMQP10ReadOver091(t *testing.T) {
	seen := 0
	for _, r := range readRecordings(t) {
		if r.Message == nil || r.Journey != rejected && r.Journey != expired {
			continue
		}
		seen++
		want, err := amqp091.DecodeProps(r.Properties091)
		if err != nil {
			t.Fatal(err)
		}
		list, _ := want.Headers.Get("x-death")
		at, _ := list.(amqp091.Array)[0].(amqp091.Table).Get("time")
		in, err := r.sent(t)
		if err != nil {
			t.Fatal(err)
		}
		ttl, err := strconv.ParseInt(string(in.Props.Expiration), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		none := ""
		edit := amqp091.PropsEdit{Set: r.death(int64(at.(amqp091.Timestamp))*1000, ttl).Headers(), Expiration: &none}
		if r.Quorum && r.Journey == rejected { // DL-11.2, as broker.RenderProps writes them
			edit.Set = append([]amqp091.RawField{deadletter.LongField("x-acquired-count", 1)}, edit.Set...)
			at := slices.IndexFunc(edit.Set, func(f amqp091.RawField) bool { return f.Key > "x-delivery-count" })
			edit.Set = slices.Insert(edit.Set, at, deadletter.LongField("x-delivery-count", 1))
		}
		got := amqp091.AppendProps(nil, in.Raw, &in.Props, &edit)
		if !bytes.Equal(got, r.Properties091) {
			shown, _ := amqp091.DecodeProps(got)
			t.Errorf("%s: RabbitMQ -, here +:\n%s", r.Name, cmp.Diff(want, shown))
		}
	}
	if seen != 4 {
		t.Errorf("%d recordings", seen)
	}
}

// death is the history of a message that has died at this time, if it had this ttl.
func (r *recording) death(at, ttl int64) *deadletter.History {
	reason := deadletter.Rejected
	if r.Journey == expired {
		reason = deadletter.Expired
	}
	h := &deadletter.History{}
	h.Record(&deadletter.Event{
		Queue: "source", Reason: reason, Time: at, Expiration: ttl, Keys: []string{"source"}, NextKeys: []string{"dead"}, KeysReplaced: true,
	})
	return h
}

// history is that of the recording's message when it is read by AMQP 1.0, with the times that RabbitMQ has written down.
func (r *recording) history(t *testing.T, ttl int64) *deadletter.History {
	t.Helper()
	if r.Journey != rejected && r.Journey != expired {
		return nil
	}
	m, err := amqp10.ParseMessage(r.Message10)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := m.MessageAnnotation("x-opt-deaths")
	items := v.Items()
	entry, _ := items.Next()
	first, _ := entry.Lookup("first-time")
	at, ok := first.Timestamp()
	if !ok {
		t.Fatal("no time of death")
	}
	return r.death(at, ttl)
}

// counts are what the queue counts about the message (DL-11.3).
func (r *recording) counts() (n queue.Counts, redelivered bool) {
	if r.Journey != rejected && r.Journey != failed {
		return n, false
	}
	n.Deliveries = 1 // DL-11.6, DL-6.14
	if r.Journey == failed && r.Quorum {
		n.Acquired = 1
	}
	return n, true
}

func TestDL14_MessagesReadOverAMQP10(t *testing.T) {
	for _, r := range readRecordings(t) {
		if r.Message10 == nil || r.Name == "0-9-1: a content-type that is no ASCII" { // which is no symbol
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			rec := r.stored(t)
			ttl := int64(-1)
			if p, _ := amqp091.DecodeProps(rec.Properties()); p.Expiration != nil {
				if _, err := fmt.Sscan(*p.Expiration, &ttl); err != nil {
					t.Fatal(err)
				}
			}
			d := convert.Delivery{History: r.history(t, ttl), Quorum: r.Quorum, Strict: true}
			d.Counts, d.Redelivered = r.counts()
			want, got := showMessage(t, r.Message10), showMessage(t, whole(t, rec, &d))
			r.correct(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("strict: RabbitMQ -, here +:\n%s", diff)
			}
			d.Strict = false
			r.correctMore(t, &want)
			if diff := cmp.Diff(want, showMessage(t, whole(t, rec, &d))); diff != "" {
				t.Errorf("RabbitMQ, corrected -, here +:\n%s", diff)
			}
			if r.Message != nil {
				sent, came := parse(t, r.Message), parse(t, whole(t, rec, &d))
				if !bytes.Equal(sent.Bare, came.Bare) || !bytes.Equal(sent.Footer, came.Footer) {
					t.Errorf("the bare message is another:\n% x\n% x", sent.Bare, came.Bare)
				}
			}
		})
	}
}

// correct changes what RabbitMQ has sent where that is no AMQP 1.0, or says twice what is once.
func (r *recording) correct(want *shownMessage) {
	switch r.Name {
	case "0-9-1: CC and x-cc":
		want.Annotations["symbol x-cc"] = []any{"list", "string nowhere"}
	case "0-9-1: a key that is no ASCII": // a symbol is
		delete(want.Annotations, "symbol x-é")
		want.Application["string x-é"] = "string v"
	case "0-9-1: a long expiration":
		want.Header.TTL = amqp10.Some(uint32(math.MaxUint32)) // and not its lower 32 bits
	}
}

// correctMore makes the two corrections (DL-14.4, DL-15.2), which strict mode has not.
func (r *recording) correctMore(t *testing.T, want *shownMessage) {
	t.Helper()
	if r.Message == nil && (r.Journey == rejected || r.Journey == expired) {
		if !want.Header.TTL.Set && r.Journey == rejected {
			t.Error("RabbitMQ shows no ttl")
		}
		want.Header.TTL = amqp10.Optional[uint32]{}
	}
	switch {
	case r.Name == "0-9-1: headers that are tables and arrays":
		want.Application["string table"] = map[string]any{"symbol k": "string v"}
		want.Application["string array"] = []any{"list", "string a", "int 1", []any{"list", true}}
	case r.Message == nil && r.Journey != straight:
		want.Application["string t"] = map[string]any{}
	}
}

// whole is the message that a client gets.
func whole(t testing.TB, rec []byte, d *convert.Delivery) []byte {
	t.Helper()
	head, body, tail := convert.AppendAMQP10(nil, rec, d)
	return append(append(head, body...), tail...)
}
