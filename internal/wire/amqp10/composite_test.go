package amqp10

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// allComposites are the descriptors of the composite types.
func allComposites() (all []Descriptor) {
	for d, make := range composites {
		if make != nil {
			all = append(all, Descriptor(d))
		}
	}
	return all
}

// decode reads b as the composite type that it is described as.
func decode(b []byte) (Composite, error) {
	v, rest, err := ReadValue(b)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, ErrTrailing
	}
	c := NewComposite(v.Descriptor())
	if c == nil {
		return nil, ErrType
	}
	return c, c.Decode(v)
}

// drawField fills a field of a composite type by its type in Go and its name.
func drawField(t *rapid.T, c Composite, field reflect.StructField, v reflect.Value) {
	name := field.Name
	if v.Kind() == reflect.Struct && strings.HasPrefix(v.Type().Name(), "Optional[") {
		if rapid.Bool().Draw(t, name+" is set") {
			v.FieldByName("Set").SetBool(true)
			drawField(t, c, field, v.FieldByName("Value"))
		}
		return
	}
	switch v.Interface().(type) {
	case Value:
		if rapid.Bool().Draw(t, name) || name == "SASLServerMechanisms" {
			v.Set(reflect.ValueOf(drawFieldValue(t, c, name)))
		}
	case *Error:
		if rapid.Bool().Draw(t, name) {
			e := drawComposite(t, DescriptorError).(*Error)
			e.Condition = notNil(e.Condition)
			v.Set(reflect.ValueOf(e))
		}
	case []byte:
		if rapid.Bool().Draw(t, name) {
			v.SetBytes([]byte(rapid.StringMatching(`[ -~]{0,32}`).Draw(t, name)))
		}
	case TerminusDurability, SenderSettleMode:
		v.SetUint(rapid.Uint64Max(2).Draw(t, name))
	case ReceiverSettleMode:
		v.SetUint(rapid.Uint64Max(1).Draw(t, name))
	case TerminusExpiryPolicy:
		v.SetUint(rapid.Uint64Max(3).Draw(t, name))
	case SASLCode:
		v.SetUint(rapid.Uint64Max(4).Draw(t, name))
	case Role, bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case int64:
		v.SetInt(rapid.Int64().Draw(t, name))
	default:
		v.SetUint(rapid.Uint64Max(1<<v.Type().Bits()-1).Draw(t, name))
	}
}

// drawFieldValue makes a value that the field takes.
func drawFieldValue(t *rapid.T, c Composite, name string) Value {
	switch {
	case name == "Source":
		return MustValue(drawComposite(t, DescriptorSource).Append(nil))
	case name == "Target":
		return MustValue(drawComposite(t, rapid.SampledFrom([]Descriptor{DescriptorTarget, DescriptorCoordinator}).Draw(t, name)).Append(nil))
	case name == "State", name == "Outcome", name == "DefaultOutcome":
		return MustValue(drawComposite(t, rapid.SampledFrom([]Descriptor{DescriptorAccepted, DescriptorRejected, DescriptorModified}).Draw(t, name)).Append(nil))
	case strings.HasSuffix(name, "ID"):
		return MustValue(rapid.SampledFrom([][]byte{
			AppendUlong(nil, 7), AppendUUID(nil, [16]byte{1}), AppendBinary(nil, "b"), AppendString(nil, "s"),
		}).Draw(t, name))
	case strings.HasSuffix(name, "Properties"), name == "Info", name == "Filter", name == "MessageAnnotations", name == "Unsettled":
		b, start := BeginMap(nil)
		n := rapid.IntRange(0, 3).Draw(t, name)
		for range n {
			b, _ = drawValue(t, AppendSymbol(b, "key"), 2)
		}
		return MustValue(EndCompound(b, start, 2*n))
	}
	if rapid.Bool().Draw(t, name+" is one") {
		return MustValue(AppendSymbol(nil, "one"))
	}
	return MustValue(AppendSymbols(nil, "one", "two"))
}

// drawComposite makes a value of a composite type with any fields.
func drawComposite(t *rapid.T, d Descriptor) Composite {
	c := NewComposite(d)
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		drawField(t, c, v.Type().Field(i), v.Field(i))
	}
	return c
}

// normal is the form of a composite value that Decode gives it: mandatory octets are empty, not nil, and what is not
// set has its default.
func normal(t testing.TB, c Composite) Composite {
	b, err := decode(c.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCompositesComeThroughTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawComposite(t, rapid.SampledFrom(allComposites()).Draw(t, "type"))
		b := c.Append([]byte("before"))[len("before"):]
		got, err := decode(b)
		if err != nil {
			t.Fatalf("%v: %v: % x", c.Descriptor(), err, b)
		}
		// What is set is as it was; the rest has its default.
		sent, received := reflect.ValueOf(c).Elem(), reflect.ValueOf(got).Elem()
		for i := range sent.NumField() {
			s, r := sent.Field(i), received.Field(i)
			if s.Kind() == reflect.Struct && strings.HasPrefix(s.Type().Name(), "Optional[") && !s.FieldByName("Set").Bool() {
				if r.FieldByName("Set").Bool() {
					t.Fatalf("%v: %s is set", c.Descriptor(), sent.Type().Field(i).Name)
				}
				continue
			}
			if s.Kind() == reflect.Slice && s.IsNil() && r.Len() == 0 {
				continue
			}
			if diff := cmp.Diff(s.Interface(), r.Interface()); diff != "" {
				t.Fatalf("%v: %s: sent and received differ:\n%s", c.Descriptor(), sent.Type().Field(i).Name, diff)
			}
		}
		if again := got.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%v: read % x, written % x", c.Descriptor(), b, again)
		}
		for i := range b {
			if _, err := decode(b[:i]); err == nil {
				t.Fatalf("%v cut at %d of %d is one", c.Descriptor(), i, len(b))
			}
		}
	})
}

// bigAttach is an attach whose list does not fit a list8.
func bigAttach() *Attach {
	source := &Source{Address: []byte("/queues/" + strings.Repeat("q", 200)), Capabilities: MustValue(AppendSymbol(nil, "queue"))}
	return &Attach{Name: []byte(strings.Repeat("n", 100)), Source: MustValue(source.Append(nil)), MaxMessageSize: Some(uint64(1 << 40))}
}

func TestVectorsOfComposites(t *testing.T) {
	for _, c := range []struct {
		name string
		c    Composite
		wire string
	}{
		{"2.7.1", &Open{ContainerID: []byte("c"), ChannelMax: Some(uint16(7))}, "\x00\x53\x10\xc0\x09\x04\xa1\x01c\x40\x40\x60\x00\x07"},
		{"2.7.2", &Begin{NextOutgoingID: 1, IncomingWindow: 256, OutgoingWindow: 2}, "\x00\x53\x11\xc0\x0b\x04\x40\x52\x01\x70\x00\x00\x01\x00\x52\x02"},
		{"2.7.3", &Attach{Name: []byte("l"), Handle: 0, Role: RoleReceiver, Source: MustValue([]byte("\x00\x53\x28\x45"))}, "\x00\x53\x12\xc0\x0c\x06\xa1\x01l\x43\x41\x40\x40\x00\x53\x28\x45"},
		{"2.7.4", &Flow{IncomingWindow: 1, NextOutgoingID: 0, OutgoingWindow: 1, Handle: Some(uint32(0)), LinkCredit: Some(uint32(10))}, "\x00\x53\x13\xc0\x0b\x07\x40\x52\x01\x43\x52\x01\x43\x40\x52\x0a"},
		{"2.7.5", &Transfer{Handle: 1, DeliveryID: Some(uint32(2)), DeliveryTag: []byte{3}, MessageFormat: Some(uint32(0)), Settled: Some(true), More: true}, "\x00\x53\x14\xc0\x0b\x06\x52\x01\x52\x02\xa0\x01\x03\x43\x41\x41"},
		{"2.7.6", &Disposition{Role: RoleReceiver, First: 5, Settled: true, State: MustValue(new(Accepted).Append(nil))}, "\x00\x53\x15\xc0\x0a\x05\x41\x52\x05\x40\x41\x00\x53\x24\x45"},
		{"2.7.7", &Detach{Handle: 3, Closed: true}, "\x00\x53\x16\xc0\x04\x02\x52\x03\x41"},
		{"2.7.8", &End{}, "\x00\x53\x17\x45"},
		{"2.7.9", &Close{Error: &Error{Condition: []byte(ConditionConnectionForced)}}, "\x00\x53\x18\xc0\x1f\x01\x00\x53\x1d\xc0\x19\x01\xa3\x16amqp:connection:forced"},
		{"3.2.1", &Header{Durable: true, Priority: Some(uint8(9)), TTL: Some(uint32(1000))}, "\x00\x53\x70\xc0\x09\x03\x41\x50\x09\x70\x00\x00\x03\xe8"},
		{"3.2.4", &Properties{MessageID: MustValue(AppendUlong(nil, 1)), CreationTime: Some(int64(1))}, "\x00\x53\x73\xc0\x14\x0a\x53\x01\x40\x40\x40\x40\x40\x40\x40\x40\x83\x00\x00\x00\x00\x00\x00\x00\x01"},
		{"3.4.5", &Modified{DeliveryFailed: true, UndeliverableHere: true}, "\x00\x53\x27\xc0\x03\x02\x41\x41"},
		{"3.5.4", &Target{ExpiryPolicy: TerminusExpiryPolicyNever, Durable: TerminusDurabilityUnsettledState}, "\x00\x53\x29\xc0\x0b\x03\x40\x52\x02\xa3\x05never"},
		{"5.3.3.1", &SASLMechanisms{MustValue(AppendSymbols(nil, MechanismPlain))}, "\x00\x53\x40\xc0\x0b\x01\xe0\x08\x01\xa3\x05PLAIN"},
		{"5.3.3.5", &SASLOutcome{Code: SASLCodeOK}, "\x00\x53\x44\xc0\x03\x01\x50\x00"},
	} {
		if got := c.c.Append(nil); string(got) != c.wire {
			t.Errorf("%s: got % x, want % x", c.name, got, c.wire)
		}
		got, err := decode([]byte(c.wire))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(normal(t, c.c), got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	if b := bigAttach().Append(nil); b[3] != codeList32 {
		t.Errorf("a long attach is % x", b[:9])
	}
}

// Peers may write descriptors as symbols or in full, lists wide, numbers in full, and name defaults and nulls.
func TestOtherSpellingsAreRead(t *testing.T) {
	want := &Transfer{Handle: 1, DeliveryTag: []byte("t")}
	for name, wire := range map[string]string{
		"numbers in full":       "\x00\x80\x00\x00\x00\x00\x00\x00\x00\x14\xd0\x00\x00\x00\x10\x00\x00\x00\x03\x70\x00\x00\x00\x01\x40\xb0\x00\x00\x00\x01t",
		"a symbolic descriptor": "\x00\xa3\x12amqp:transfer:list\xc0\x07\x03\x52\x01\x40\xa0\x01t",
		"a wide symbol":         "\x00\xb3\x00\x00\x00\x12amqp:transfer:list\xc0\x07\x03\x52\x01\x40\xa0\x01t",
		"nulls at the end":      "\x00\x53\x14\xc0\x0f\x0b\x52\x01\x40\xa0\x01t\x40\x40\x40\x40\x40\x40\x40\x40",
		"defaults in full":      "\x00\x53\x14\xc0\x13\x0b\x52\x01\x40\xa0\x01t\x40\x40\x56\x00\x40\x40\x56\x00\x56\x00\x56\x00",
	} {
		got, err := decode([]byte(wire))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(Composite(want), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestDefaultsOfFields(t *testing.T) {
	c, err := decode([]byte("\x00\x53\x10\xc0\x04\x01\xa1\x01c"))
	if err != nil {
		t.Fatal(err)
	}
	open := c.(*Open)
	if open.MaxFrameSize.Set || open.MaxFrameSize.Value != 4294967295 || open.ChannelMax.Value != 65535 || open.IdleTimeOut.Set {
		t.Errorf("got %+v", open)
	}
	if c, err = decode([]byte("\x00\x53\x28\x45")); err != nil {
		t.Fatal(err)
	}
	source := c.(*Source)
	if source.ExpiryPolicy != TerminusExpiryPolicySessionEnd || source.Durable != TerminusDurabilityNone || source.Address != nil {
		t.Errorf("got %+v", source)
	}
	if c, err = decode([]byte("\x00\x53\x70\x45")); err != nil {
		t.Fatal(err)
	}
	if h := c.(*Header); h.Priority.Value != 4 || h.Durable {
		t.Errorf("got %+v", h)
	}
}

func TestMalformedCompositesNameFieldAndSection(t *testing.T) {
	for _, c := range []struct {
		wire string
		want error
		text string
	}{
		{"\x00\x53\x14\x45", ErrMandatory, "transfer: handle: mandatory field is missing (2.7.5)"},
		{"\x00\x53\x14\xc0\x02\x01\x40", ErrMandatory, "transfer: handle: mandatory field is missing (2.7.5)"},
		{"\x00\x53\x14\xc0\x03\x01\x50\x01", ErrType, "transfer: handle: value of another type (2.7.5)"},
		{"\x00\x53\x14\xc0\x03\x01\x3f\x01", ErrFormatCode, "transfer: handle: unknown format code (2.7.5)"},
		{"\x00\x53\x14\xc0\x02\x01\x70", ErrTruncated, "transfer: handle: value exceeds the data (2.7.5)"},
		{"\x00\x53\x14\xc0\x03\x01\x43\x40", ErrTrailing, "transfer: data after the last value (2.7.5)"},
		{"\x00\x53\x14\xc0\x0d\x0c\x43\x40\x40\x40\x40\x40\x40\x40\x40\x40\x40\x40", ErrTooManyFields, "transfer: more fields than the type has (2.7.5)"},
		{"\x00\x53\x14\xc0\x09\x08\x43\x40\x40\x40\x40\x40\x40\x43", ErrType, "transfer: state: value of another type (2.7.5)"},
		{"\x00\x53\x14\xc0\x09\x07\x43\x40\x40\x40\x40\x40\x50\x02", ErrValue, "transfer: rcv-settle-mode: no value of the type (2.7.5)"},
		{"\x00\x53\x14\xc1\x01\x00", ErrType, "transfer: value of another type (2.7.5)"},
		{"\x00\x53\x14\x00\x53\x14\x45", ErrType, "transfer: value of another type (2.7.5)"},
		{"\x00\x53\x10\xc0\x04\x01\xa1\x01\xff", ErrUTF8, "open: container-id: string is not UTF-8 (2.7.1)"},
		{"\x00\x53\x29\xc0\x07\x03\x40\x40\xa3\x02no", ErrValue, "target: expiry-policy: no value of the type (3.5.4)"},
		{"\x00\x53\x18\xc0\x05\x01\x00\x53\x1d\x45", ErrMandatory, "error: condition: mandatory field is missing (2.8.14)"},
		{"\x00\x53\x18\xc0\x05\x01\x00\x53\x24\x45", ErrType, "error: value of another type (2.8.14)"},
		{"\x00\x53\x27\xc0\x09\x03\x40\x40\xc1\x04\x02\xa0\x00\x40", ErrType, "modified: message-annotations: value of another type (3.4.5)"},
		{"\x00\x53\x27\xc0\x0a\x03\x40\x40\xc1\x05\x02\xa3\x00\x56\x02", ErrValue, "modified: message-annotations: no value of the type (3.4.5)"},
		{"\x00\x53\x33\x45", ErrMandatory, "declared: txn-id: mandatory field is missing (4.5.5)"},
		{"\x00\x53\x40\xc0\x05\x01\xe0\x02\x00\xa1", ErrType, "sasl-mechanisms: sasl-server-mechanisms: value of another type (5.3.3.1)"},
	} {
		_, err := decode([]byte(c.wire))
		if !errors.Is(err, c.want) || err.Error() != c.text {
			t.Errorf("% x: got error %v, want %s", c.wire, err, c.text)
		}
	}
}

// Transactions are read, so that they can be refused by name (part 4).
func TestTransactionsHaveNames(t *testing.T) {
	state := &TransactionalState{TxnID: []byte("tx"), Outcome: MustValue(new(Accepted).Append(nil))}
	d := &Disposition{First: 1, State: MustValue(state.Append(nil))}
	c, err := decode(d.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	got := c.(*Disposition).State
	if got.Descriptor().String() != "amqp:transactional-state:list" {
		t.Errorf("got %v", got.Descriptor())
	}
	var again TransactionalState
	if err := again.Decode(got); err != nil || string(again.TxnID) != "tx" || again.Outcome.Descriptor() != DescriptorAccepted {
		t.Errorf("got %+v, error %v", again, err)
	}
	for d, want := range map[Descriptor]string{
		DescriptorCoordinator: "amqp:coordinator:list", DescriptorDeclare: "amqp:declare:list", DescriptorDischarge: "amqp:discharge:list",
		DescriptorDeclared: "amqp:declared:list", DescriptorAMQPValue: "amqp:amqp-value:*", DescriptorData: "amqp:data:binary", 0x99: "0x99", 0: "0x0",
	} {
		if d.String() != want {
			t.Errorf("%#x is %s, want %s", uint64(d), d, want)
		}
	}
}

func TestDescriptorsOfOthersAreNone(t *testing.T) {
	for _, wire := range []string{"\x00\x53\x7f\x45", "\x00\x53\x20\x45", "\x00\x80\x00\x00\x00\x01\x00\x00\x00\x14\x45", "\x00\xa3\x05other\x45", "\x00\x54\x14\x45", "\x45"} {
		v := mustRead(t, []byte(wire))
		if d := v.Descriptor(); d != 0 {
			t.Errorf("% x: got %v", wire, d)
		}
		if c := NewComposite(v.Descriptor()); c != nil {
			t.Errorf("% x is a %T", wire, c)
		}
	}
}

func FuzzDecodeComposite(f *testing.F) {
	for _, c := range []Composite{
		&Open{ContainerID: []byte("c"), Hostname: []byte("vhost:/"), Properties: MustValue([]byte("\xc1\x06\x02\xa3\x01a\xa1\x00"))},
		&Begin{}, bigAttach(), &Flow{Handle: Some(uint32(1)), LinkCredit: Some(uint32(2))}, &Transfer{DeliveryTag: []byte("t")},
		&Disposition{State: MustValue((&Rejected{Error: &Error{Condition: []byte(ConditionNotFound)}}).Append(nil))},
		&Close{Error: &Error{}}, &Header{}, &Properties{MessageID: MustValue(AppendString(nil, "m"))}, &Source{}, &Target{}, &Modified{},
		&TransactionalState{}, &SASLMechanisms{MustValue(AppendSymbols(nil, "PLAIN", "ANONYMOUS"))}, &SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: []byte("\x00u\x00p")},
	} {
		f.Add(c.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decode(b)
		if err != nil {
			return
		}
		once := c.Append(nil)
		again, err := decode(once)
		if err != nil {
			t.Fatalf("%v decoded, but not what was encoded from it: %v", c.Descriptor(), err)
		}
		if twice := again.Append(nil); !bytes.Equal(once, twice) {
			t.Fatalf("encoded % x, then % x", once, twice)
		}
	})
}
