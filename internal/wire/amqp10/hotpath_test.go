package amqp10

import (
	"errors"
	"fmt"
	"testing"
)

// hotMessage is a typical message with a body of n bytes.
func hotMessage(n int) []byte {
	b := (&Header{Durable: true}).Append(nil)
	b = (&Properties{MessageID: MustValue(AppendString(nil, "0123456789abcdef")), To: []byte("/exchanges/events/order.created"), ContentType: []byte("application/json")}).Append(b)
	b = append(b, section(DescriptorApplicationProperties, text("attempt"), AppendInt(nil, 1), text("tenant"), text("acme"))...)
	return AppendData(b, make([]byte, n))
}

// transferFrame is a message as a client sends it.
func transferFrame(message []byte) []byte {
	t := Transfer{DeliveryID: Some(uint32(42)), DeliveryTag: []byte("tag-0042"), MessageFormat: Some(uint32(0))}
	b, _ := AppendTransfer(nil, 1, &t, 131072, 0, message)
	return b
}

// readTransfer is the way of a transfer into a broker.
func readTransfer(buf []byte, t *Transfer) (Message, error) {
	f, n, err := NextFrame(buf, 131072)
	if err != nil || n != len(buf) {
		return Message{}, errors.Join(err, fmt.Errorf("%d of %d bytes", n, len(buf)))
	}
	_, v, payload, err := ReadPerformative(f)
	if err != nil {
		return Message{}, err
	}
	if err := t.Decode(v); err != nil {
		return Message{}, err
	}
	m, err := ParseMessage(payload)
	if err != nil {
		return Message{}, err
	}
	return m, m.Check()
}

// writeTransfer is the way of a message out of a broker: a header of its own, an annotation more, and the bare message
// as it is.
func writeTransfer(dst, scratch []byte, t *Transfer, m *Message) ([]byte, []byte) {
	h := Header{Durable: true, DeliveryCount: 1}
	scratch = h.Append(scratch[:0])
	scratch, start := BeginMap(AppendDescriptor(scratch, DescriptorMessageAnnotations))
	scratch = AppendString(AppendSymbol(scratch, "x-exchange"), "events")
	scratch = EndCompound(scratch, start, 2)
	dst, _ = AppendTransfer(dst, 1, t, 131072, 0, scratch, m.Bare, m.Footer)
	return dst, scratch
}

func TestTheHotPathAllocatesNothing(t *testing.T) {
	in := transferFrame(hotMessage(100))
	out, scratch := make([]byte, 0, 4096), make([]byte, 0, 4096)
	var received, sent Transfer
	m, err := readTransfer(in, &received)
	if err != nil {
		t.Fatal(err)
	}
	sent = Transfer{DeliveryID: Some(uint32(1)), DeliveryTag: []byte("12345678"), MessageFormat: Some(uint32(0))}
	flow := AppendFrame(nil, 1, &Flow{Handle: Some(uint32(0)), LinkCredit: Some(uint32(100)), IncomingWindow: 2048, OutgoingWindow: 2048})
	modified := &Modified{DeliveryFailed: true, MessageAnnotations: MustValue([]byte("\xc1\x08\x02\xa3\x03x-a\xa1\x00"))}
	disposition := AppendFrame(nil, 1, &Disposition{Role: RoleReceiver, First: 7, Settled: true, State: MustValue(modified.Append(nil))})
	var d Disposition
	for name, f := range map[string]func(){
		"read a transfer":  func() { _, _ = readTransfer(in, &received) },
		"write a transfer": func() { out, scratch = writeTransfer(out[:0], scratch, &sent, &m) },
		"read a flow": func() {
			f, _, _ := NextFrame(flow, testMax)
			_, v, _, _ := ReadPerformative(f)
			var fl Flow
			if err := fl.Decode(v); err != nil {
				panic(err)
			}
		},
		"read a disposition and its outcome": func() {
			f, _, _ := NextFrame(disposition, testMax)
			_, v, _, _ := ReadPerformative(f)
			var mod Modified
			if err := errors.Join(d.Decode(v), mod.Decode(d.State)); err != nil {
				panic(err)
			}
		},
		"write a disposition": func() {
			b, start := BeginFrame(out[:0], FrameAMQP, 1)
			out = EndFrame(d.Append(b), start)
		},
		"look up a property": func() {
			_ = m.Property(PropertyTo)
			_, _ = m.ApplicationProperty("tenant")
		},
		"read properties": func() {
			var p Properties
			_ = p.Decode(m.Properties)
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkReadTransfer(b *testing.B) {
	for _, size := range []int{16, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			buf := transferFrame(hotMessage(size))
			var t Transfer
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readTransfer(buf, &t); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteTransfer(b *testing.B) {
	for _, size := range []int{16, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m, err := ParseMessage(hotMessage(size))
			if err != nil {
				b.Fatal(err)
			}
			t := Transfer{DeliveryID: Some(uint32(42)), DeliveryTag: []byte("12345678"), MessageFormat: Some(uint32(0))}
			out, scratch := make([]byte, 0, 4096), make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				out, scratch = writeTransfer(out[:0], scratch, &t, &m)
			}
		})
	}
}

// BenchmarkTransfer is a message that comes and goes.
func BenchmarkTransfer(b *testing.B) {
	for _, size := range []int{16, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			buf := transferFrame(hotMessage(size))
			out, scratch := make([]byte, 0, 4096), make([]byte, 0, 4096)
			var in Transfer
			b.ReportAllocs()
			for b.Loop() {
				m, err := readTransfer(buf, &in)
				if err != nil {
					b.Fatal(err)
				}
				out, scratch = writeTransfer(out[:0], scratch, &in, &m)
			}
		})
	}
}
