package amqp091

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// allMethods are the ids in the dispatch table.
func allMethods() (ids []MethodID) {
	for class, methods := range methodsByClass {
		for method, e := range methods {
			if e.make != nil {
				ids = append(ids, MethodID(class<<16|method))
			}
		}
	}
	return ids
}

// drawMethod makes a method with any arguments.
func drawMethod(t *rapid.T) decodable {
	id := rapid.SampledFrom(allMethods()).Draw(t, "method")
	m := id.entry().make()
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch f.Interface().(type) {
		case string:
			short := rapid.StringN(0, 60, 255).Draw(t, name)
			if rapid.Bool().Draw(t, name+" is as long as it can be") {
				short += strings.Repeat("x", maxShortstr-len(short))
			}
			f.SetString(short)
		case bool:
			f.SetBool(rapid.Bool().Draw(t, name))
		case Table:
			f.Set(reflect.ValueOf(drawTable(t, 2)))
		default:
			f.SetUint(rapid.Uint64Max(1<<f.Type().Bits()-1).Draw(t, name))
		}
	}
	return m
}

func TestMethodsComeThroughTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMethod(t)
		buf := AppendMethod(nil, 7, m)
		f, n, err := NextFrame(buf, 1<<30)
		if err != nil || n != len(buf) || f.Channel != 7 || f.Type != FrameMethod {
			t.Fatalf("got frame %+v, n = %d of %d, error %v", f, n, len(buf), err)
		}
		got, err := DecodeMethod(f.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Method(m), got); diff != "" {
			t.Fatalf("sent and received differ:\n%s", diff)
		}
		if got.ID() != m.ID() || got.ID().String() != got.Name() {
			t.Fatalf("%s has id %v", got.Name(), got.ID())
		}
	})
}

func TestEveryTruncationOfAMethodIsAnError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMethod(t)
		_, args, _ := SplitMethod(AppendMethod(nil, 1, m)[frameHeaderSize:])
		args = args[:len(args)-1] // frame end
		for i := range args {
			err := m.ID().entry().make().Decode(args[:i])
			var ae *ArgumentError
			if !errors.As(err, &ae) || ae.Method != m.ID() || ae.Field == "" {
				t.Fatalf("%s cut at %d of %d bytes: got error %v", m.Name(), i, len(args), err)
			}
		}
		if err := m.ID().entry().make().Decode(append(bytes.Clone(args), 0)); !errors.Is(err, ErrTrailing) {
			t.Fatalf("%s with a byte more: got error %v", m.Name(), err)
		}
	})
}

func TestBR1_16_ShortStringsAreUTF8(t *testing.T) {
	payload := AppendMethod(nil, 1, QueueDeclare{Queue: "q\xff"})
	payload = payload[frameHeaderSize : len(payload)-1]
	_, err := DecodeMethod(payload)
	if !errors.Is(err, ErrMalformedUTF8) {
		t.Fatalf("got error %v", err)
	}
	if want := "queue.declare: queue: Malformed UTF-8 in shortstr"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if ErrMalformedUTF8.Error() != "Malformed UTF-8 in shortstr" {
		t.Errorf("the error's text is %q, not RabbitMQ's", ErrMalformedUTF8)
	}
}

func TestUnknownMethods(t *testing.T) {
	for _, id := range []MethodID{0, 60<<16 | 41, 61<<16 | 10, 10<<16 | 0xFFFF, 0xFFFFFFFF} {
		payload := []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
		_, err := DecodeMethod(payload)
		var unknown *UnknownMethodError
		if !errors.As(err, &unknown) || unknown.ID != id {
			t.Errorf("%v: got error %v", id, err)
		}
	}
	if got := MethodID(60<<16 | 41).String(); got != "60.41" {
		t.Errorf("an unknown id is shown as %q", got)
	}
}

func TestLongNamesAreCutToShortStrings(t *testing.T) {
	buf := AppendMethod(nil, 1, QueueDeclare{Queue: strings.Repeat("é", 200)})
	m, err := DecodeMethod(buf[frameHeaderSize : len(buf)-1])
	if err != nil {
		t.Fatal(err)
	}
	if got := m.(*QueueDeclare).Queue; got != strings.Repeat("é", 127) {
		t.Errorf("got %d bytes", len(got))
	}
}

func TestOnlyFourMethodsHaveContent(t *testing.T) {
	var got []string
	for _, id := range allMethods() {
		if id.HasContent() {
			got = append(got, id.String())
		}
	}
	want := []string{"basic.publish", "basic.return", "basic.deliver", "basic.get-ok"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzDecodeMethod(f *testing.F) {
	for _, m := range []Method{
		BasicPublish{Exchange: "x", RoutingKey: "k", Mandatory: true}, BasicPublish{Exchange: strings.Repeat("x", 255), RoutingKey: strings.Repeat("k", 255)}, BasicAck{DeliveryTag: 1}, BasicNack{DeliveryTag: 2, Requeue: true},
		BasicReject{DeliveryTag: 3}, ConnectionOpen{VirtualHost: "/"},
		QueueDeclare{Queue: "q", Arguments: Table{{"x-max-length", int32(3)}, {"list", Array{nil, true, "s"}}}},
	} {
		buf := AppendMethod(nil, 1, m)
		f.Add(buf[frameHeaderSize : len(buf)-1])
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := DecodeMethod(payload)
		checkHotForms(t, payload, m, err)
		if err != nil {
			return
		}
		buf := AppendMethod(nil, 1, m)
		again, err := DecodeMethod(buf[frameHeaderSize : len(buf)-1])
		if err != nil {
			t.Fatalf("decoded, but not what was encoded from it: %v", err)
		}
		if twice := AppendMethod(nil, 1, again); !bytes.Equal(buf, twice) {
			t.Fatalf("encoded % x, then % x", buf, twice)
		}
		_ = FrameString(Frame{FrameMethod, 1, payload})
	})
}

// checkHotForms checks that the hot forms agree with DecodeMethod about payload.
func checkHotForms(t *testing.T, payload []byte, m Method, err error) {
	id, args, ok := SplitMethod(payload)
	if !ok {
		return
	}
	var hot Method
	var hotErr error
	switch id {
	case BasicPublishID:
		var p Publish
		p, hotErr = ParsePublish(args)
		hot = &BasicPublish{Exchange: string(p.Exchange), RoutingKey: string(p.RoutingKey), Mandatory: p.Mandatory, Immediate: p.Immediate}
	case BasicAckID:
		var v BasicAck
		v, hotErr = ParseAck(args)
		hot = &v
	case BasicNackID:
		var v BasicNack
		v, hotErr = ParseNack(args)
		hot = &v
	case BasicRejectID:
		var v BasicReject
		v, hotErr = ParseReject(args)
		hot = &v
	default:
		return
	}
	if (err == nil) != (hotErr == nil) {
		t.Fatalf("%v: DecodeMethod says %v, the hot form says %v", id, err, hotErr)
	}
	if err != nil {
		if err.Error() != hotErr.Error() {
			t.Fatalf("%v: DecodeMethod says %v, the hot form says %v", id, err, hotErr)
		}
		return
	}
	if diff := cmp.Diff(m, hot); diff != "" {
		t.Fatalf("DecodeMethod and the hot form differ:\n%s", diff)
	}
}

func TestHotFormsReadWhatDecodeMethodReads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id := rapid.SampledFrom([]MethodID{BasicPublishID, BasicAckID, BasicNackID, BasicRejectID}).Draw(rt, "id")
		payload := []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
		payload = append(payload, rapid.SliceOfN(rapid.ByteMax(12), 0, 16).Draw(rt, "args")...)
		m, err := DecodeMethod(payload)
		checkHotForms(t, payload, m, err)
	})
}

func TestHotFormsWriteWhatAppendMethodWrites(t *testing.T) {
	exchange, key := []byte("x"), []byte("k")
	for _, c := range []struct {
		hot  []byte
		want Method
	}{
		{AppendPublish(nil, 9, Publish{exchange, key, false, true}), BasicPublish{"x", "k", false, true}},
		{AppendDeliver(nil, 9, "tag", 1<<40, true, exchange, key), BasicDeliver{"tag", 1 << 40, true, "x", "k"}},
		{AppendGetOk(nil, 9, 5, false, exchange, key, 77), BasicGetOk{5, false, "x", "k", 77}},
		{AppendReturn(nil, 9, CodeNoRoute, "NO_ROUTE", exchange, key), BasicReturn{CodeNoRoute, "NO_ROUTE", "x", "k"}},
		{AppendAck(nil, 9, 12, true), BasicAck{12, true}},
		{AppendNack(nil, 9, 12, true), BasicNack{12, true, false}},
	} {
		if want := AppendMethod(nil, 9, c.want); !bytes.Equal(c.hot, want) {
			t.Errorf("%s: got % x, want % x", c.want.Name(), c.hot, want)
		}
	}
}
