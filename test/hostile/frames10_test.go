package hostile

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// frame10of makes a frame of any kind, right or wrong.
func frame10of(size uint32, doff, kind byte, channel uint16, body []byte) []byte {
	b := append(binary.BigEndian.AppendUint32(nil, size), doff, kind, byte(channel>>8), byte(channel))
	return append(b, body...)
}

// performative is a frame with a list of fields, as they are.
func performative(d amqp10.Descriptor, fields ...[]byte) []byte {
	b, at := amqp10.BeginList(amqp10.AppendDescriptor(nil, d))
	b = amqp10.EndCompound(append(b, bytes.Join(fields, nil)...), at, len(fields))
	return frame10of(uint32(8+len(b)), 2, 0, 0, b)
}

// What cannot be read ends the connection, or the session, with a reason, and no other connection.
func TestBrokenFrames10(t *testing.T) {
	start10(t)
	list := func(b ...byte) []byte { return frame10of(uint32(8+len(b)), 2, 0, 0, b) }
	null := amqp10.AppendNull(nil)
	var deep []byte
	for len(deep) < 100_000 { // lists in each other
		inner := binary.BigEndian.AppendUint32([]byte{0xd0}, uint32(4+len(deep)))
		deep = append(binary.BigEndian.AppendUint32(inner, 1), deep...)
	}
	const framing, decoding = amqp10.ConditionFramingError, amqp10.ConditionDecodeError
	type end = func(c *raw10, condition, text string)
	closed, over := ended[*amqp10.Close], ended[*amqp10.End]
	tests := []struct {
		name      string
		send      []byte
		ends      end
		condition string
		text      string
	}{
		{"size 0", frame10of(0, 2, 0, 0, nil), closed, framing, "frame size (0 bytes)"},
		{"size 7", frame10of(7, 2, 0, 0, nil), closed, framing, "frame size (7 bytes)"},
		{"larger than it may be", frame10of(131073, 2, 0, 0, nil), closed, framing, "frame size (131073 bytes) > maximum"},
		{"largest size there is", frame10of(1<<32-1, 2, 0, 0, nil), closed, framing, "> maximum"},
		{"data offset 0", frame10of(8, 0, 0, 0, nil), closed, framing, "data offset (0)"},
		{"data offset behind the end", frame10of(8, 255, 0, 0, nil), closed, framing, "data offset (1020 bytes)"},
		{"a frame of SASL", frame10of(8, 2, 1, 0, nil), closed, framing, "unexpected frame type 1"},
		{"unknown type", frame10of(8, 2, 77, 0, nil), closed, framing, "unexpected frame type 77"},
		{"channel that cannot be", client10.Frames(nil, 65535, &amqp10.Begin{}), closed, framing, "exceeds maximum channel number"},
		{"no performative", list(0x40), closed, decoding, ""},
		{"half a value", list(0, 0x53), closed, decoding, ""},
		{"descriptor of nothing", list(0, 0x53, 0xff, 0x45), closed, decoding, ""},
		{"list larger than its frame", list(0, 0x53, 0x14, 0xd0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), closed, decoding, ""},
		{"more fields than it has", performative(amqp10.DescriptorTransfer, bytes.Repeat(null, 200)), over, "", ""},
		{"lists in lists", list(append([]byte{0, 0x53, 0x14}, deep...)...), over, decoding, ""},
		{"a field nested too deep", performative(amqp10.DescriptorAttach, amqp10.AppendString(nil, "l"), amqp10.AppendUint(nil, 0), amqp10.AppendBool(nil, true), null, null, deep), over, decoding, ""},
		{"an array of 2^31 nulls", performative(amqp10.DescriptorAttach, amqp10.AppendString(nil, "l"), amqp10.AppendUint(nil, 0), amqp10.AppendBool(nil, true), null, null,
			[]byte{0xf0, 0, 0, 0, 5, 0x7f, 0xff, 0xff, 0xff, 0x40}), over, "", ""},
		{"flow without its fields", performative(amqp10.DescriptorFlow), over, decoding, "flow"},
		{"flow of a link that is not there", client10.Frames(nil, 0, credit(9, 0, 1, false, false)), over, amqp10.ConditionUnattachedHandle, ""},
		{"flow from the future", client10.Frames(nil, 0, &amqp10.Flow{NextIncomingID: amqp10.Some[uint32](77), IncomingWindow: 1, OutgoingWindow: 1}), over, amqp10.ConditionWindowViolation, ""},
		{"transfer to a link that is not there", transfer(nil, amqp10.Transfer{Handle: 9}, nil), over, amqp10.ConditionUnattachedHandle, ""},
		{"begin again", client10.Frames(nil, 0, &amqp10.Begin{}), over, "", ""},
		{"open again", client10.Frames(nil, 0, &amqp10.Open{ContainerID: []byte("x")}), closed, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := session10(t)
			c.send(test.send)
			test.ends(c, test.condition, test.text)
		})
	}
	served(t)
	t.Run("noise", func(t *testing.T) {
		c := session10(t)
		go c.drain()
		c.flood(bytes.Repeat([]byte{0xde, 0xad, 0xbe, 0xef}, 1000), time.Second)
		served(t)
	})
}

// Before it is logged in a client is owed even less: it is cut when its handshake takes too long, wherever it stopped, or at once if
// it breaks the protocol.
func TestHandshakes10(t *testing.T) {
	start10(t, "handshake_timeout = 3000", "login_throttle.failures = 0")
	sasl, plainHeader := []byte(amqp10.ProtocolHeaderSASL), []byte(amqp10.ProtocolHeader)
	init := saslFrame(plain("guest", "guest"))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	open := client10.Frames(nil, 0, &amqp10.Open{ContainerID: []byte("x")})
	long := strings.Repeat("x", 8000)
	stages := map[string][]byte{
		"half a header":          sasl[:5],
		"header":                 sasl,
		"half an init":           join(sasl, init[:9]),
		"logged in":              join(sasl, init),
		"half the second header": join(sasl, init, plainHeader[:4]),
		"second header":          join(sasl, init, plainHeader),
		"half an open":           join(sasl, init, plainHeader, open[:10]),
		"keeping it alive":       join(sasl, init, plainHeader, bytes.Repeat(amqp10.AppendEmptyFrame(nil), 100)),
		"without SASL":           plainHeader,
		"TLS":                    []byte("AMQP\x02\x01\x00\x00"),
		"another version":        []byte("AMQP\x00\x02\x00\x00"),
		"SASL again":             join(sasl, init, sasl),
		"init twice":             join(sasl, saslFrame(&amqp10.SASLInit{Mechanism: []byte("NONE")}), init),
		"outcome of its own":     join(sasl, saslFrame(&amqp10.SASLOutcome{}), plainHeader, open),
		"AMQP without a login":   join(sasl, plainHeader, open),
		"open without a login":   join(sasl, open),
		"a large mechanism":      join(sasl, saslFrame(&amqp10.SASLInit{Mechanism: []byte(long)})),
		"a large response":       join(sasl, saslFrame(&amqp10.SASLInit{Mechanism: []byte("PLAIN"), InitialResponse: []byte(long)})),
		"too large a frame":      join(sasl, frame10of(8193, 2, 1, 0, nil)),
		"size 0":                 join(sasl, frame10of(0, 2, 1, 0, nil)),
		"a session before open":  join(sasl, init, plainHeader, client10.Frames(nil, 0, &amqp10.Begin{})),
		"open of noise":          join(sasl, init, plainHeader, performative(amqp10.DescriptorOpen, amqp10.AppendUint(nil, 1))),
		"no such host":           join(sasl, init, plainHeader, client10.Frames(nil, 0, &amqp10.Open{ContainerID: []byte(long[:4000]), Hostname: []byte("vhost:" + long[:3000])})),
		"much":                   join(sasl, bytes.Repeat(init, 20_000)),
	}
	attack(t, 64*mib, func() func() {
		began := time.Now()
		var all []*raw10
		for range 10 {
			for _, stage := range stages {
				c := open10(t)
				_, _ = c.Write(stage)
				all = append(all, c)
			}
		}
		return func() {
			for _, c := range all {
				_ = c.SetReadDeadline(began.Add(handshakeLimit))
				c.drain()
				if time.Since(began) >= handshakeLimit {
					t.Fatal("a client is there that has not logged in")
				}
			}
		}
	})
}

func saslFrame(f amqp10.Composite) []byte { return amqp10.AppendFrame(nil, 0, f) }

// A client that falls silent after the open, also in the middle of a frame, is cut after two to three heartbeats.
func TestSilence10(t *testing.T) {
	start10(t, "heartbeat = 1")
	queue10(t, "q", "classic", 10, 10)
	attack(t, 64*mib, func() func() {
		var all []*raw10
		more := first(0)
		more.More = true
		for _, last := range [][]byte{
			nil, {0, 0, 1}, client10.Frames(nil, 0, sending(0, "l", "/queues/q")), transfer(client10.Frames(nil, 0, sending(0, "l", "/queues/q")), more, []byte("half")),
			client10.Frames(nil, 0, receiving(0, "l", "q"), credit(0, 0, 10, false, false)), client10.Frames(nil, 0, receiving(0, "l", "q"))[:20],
		} {
			c := session10(t)
			c.send(last)
			all = append(all, c)
		}
		return func() {
			for _, c := range all {
				ended[*amqp10.Close](c, amqp10.ConditionResourceLimitExceeded, "idle timeout")
				_ = c.Close()
			}
		}
	})
}

// Values that are large, deep or many, wherever a client may say one, cost what they have as bytes.
func TestValues10(t *testing.T) {
	start10(t)
	queue10(t, "q", "classic", 100, 10)
	b, at := amqp10.BeginMap(nil)
	for i := range 2500 {
		b = amqp10.AppendString(amqp10.AppendSymbol(b, name("x-key", i)), "some value of this key")
	}
	wide := amqp10.EndCompound(b, at, 5000)
	deep := amqp10.AppendNull(nil)
	for range 60 {
		b, at := amqp10.BeginMap(nil)
		deep = amqp10.EndCompound(append(amqp10.AppendSymbol(b, "x-in"), deep...), at, 2)
	}
	symbols := amqp10.AppendSymbols(nil, strings.Split(strings.Repeat("capability ", 9000)+"last", " ")...)
	for name, v := range map[string][]byte{"wide": wide, "deep": deep} {
		value := amqp10.MustValue(v)
		src := &amqp10.Source{Address: []byte("/queues/q"), Filter: value, DynamicNodeProperties: value}
		tgt := &amqp10.Target{Address: []byte("/queues/q"), DynamicNodeProperties: value}
		failed := &amqp10.Error{Condition: []byte("x:y"), Description: bytes.Repeat([]byte("d"), 30_000), Info: value}
		message := append(append(append([]byte{}, amqp10.AppendDescriptor(nil, amqp10.DescriptorMessageAnnotations)...), v...), amqp10.AppendData(nil, []byte("x"))...)
		for field, flood := range map[string][]byte{
			"begin":  client10.Frames(nil, 1, &amqp10.Begin{Properties: value}, &amqp10.End{Error: failed}),
			"attach": client10.Frames(nil, 0, &amqp10.Attach{Name: []byte("l"), Handle: 1, Role: amqp10.RoleReceiver, Source: client10.Described(src), Target: client10.Described(&amqp10.Target{})}, &amqp10.Detach{Handle: 1, Closed: true, Error: failed}),
			"target": client10.Frames(nil, 0, &amqp10.Attach{Name: []byte("l"), Handle: 1, Role: amqp10.RoleSender, Source: client10.Described(src), Target: client10.Described(tgt), InitialDeliveryCount: amqp10.Some[uint32](0)}, &amqp10.Detach{Handle: 1, Closed: true}),
			"attach properties": client10.Frames(nil, 0, &amqp10.Attach{Name: []byte("l"), Handle: 1, Role: amqp10.RoleReceiver, Source: client10.Described(&amqp10.Source{Address: []byte("/queues/q")}), Target: client10.Described(&amqp10.Target{}), Properties: value,
				DesiredCapabilities: amqp10.MustValue(symbols)}, &amqp10.Detach{Handle: 1, Closed: true}),
			"flow":    client10.Frames(nil, 0, &amqp10.Flow{NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1 << 30, OutgoingWindow: 1, Properties: value}),
			"message": transfer(client10.Frames(nil, 0, sending(2, "l", "/exchanges/amq.headers/k")), func() amqp10.Transfer { tr := first(0); tr.Handle = 2; return tr }(), message),
			"reject":  client10.Frames(nil, 0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 0, Last: amqp10.Some[uint32](9), Settled: true, State: client10.Described(&amqp10.Rejected{Error: failed})}),
			"modify":  client10.Frames(nil, 0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 0, Last: amqp10.Some[uint32](9), State: client10.Described(&amqp10.Modified{DeliveryFailed: true, MessageAnnotations: value})}),
		} {
			t.Run(name+" in "+field, func(t *testing.T) {
				beside(t, 64*mib, func() func() {
					c := session10(t)
					c.perform(0, receiving(0, "c", "q"), credit(0, 0, 10, false, false))
					go c.drain()
					t.Logf("%d MiB sent", c.flood(flood, 500*time.Millisecond)/mib)
					return func() { _ = c.Close() }
				})
			})
		}
	}
	t.Run("open", func(t *testing.T) {
		for _, v := range [][]byte{wide[:0:0], deep} {
			o := &amqp10.Open{ContainerID: bytes.Repeat([]byte("c"), 3000)}
			if len(v) > 0 {
				o.Properties = amqp10.MustValue(v)
			}
			c := sasl10(t)
			c.perform(0, o)
			want10[*amqp10.Open](c)
		}
		c := sasl10(t)
		c.perform(0, &amqp10.Open{ContainerID: []byte("c"), Properties: amqp10.MustValue(wide)}) // larger than a frame may be there
		for f := c.next(); f != nil; f = c.next() {
			if f, ok := f.Is.(*amqp10.Close); ok {
				if f.Error == nil || string(f.Error.Condition) != amqp10.ConditionFramingError {
					t.Error(told(f.Error))
				}
			}
		}
	})
}

// Messages that are never whole, or come to nothing, take no memory but what their links may.
func TestTransfersWithoutEnd10(t *testing.T) {
	more := first(0)
	more.More = true
	next := amqp10.Transfer{More: true}
	off := amqp10.Transfer{Aborted: true}
	tests := map[string]struct {
		setup, flood []byte
		ends         string // of the session or the connection
	}{
		"nothing and nothing":   {transfer(nil, more, nil), transfer(nil, next, nil), ""},
		"aborted":               {nil, transfer(transfer(nil, more, []byte("half")), off, nil), ""},
		"one message":           {transfer(nil, more, nil), transfer(nil, next, make([]byte, 100_000)), amqp10.ConditionMessageSizeExceeded},
		"another id":            {transfer(nil, more, nil), transfer(nil, more, nil), ""},
		"without a delivery-id": {nil, transfer(nil, amqp10.Transfer{}, nil), amqp10.ConditionInvalidField},
		"noise":                 {nil, transfer(nil, first(0), bytes.Repeat([]byte{0xff}, 10_000)), amqp10.ConditionUnattachedHandle},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			start10(t)
			beside(t, 128*mib, func() func() {
				c := session10(t)
				c.send(append(client10.Frames(nil, 0, sending(0, "l", "/exchanges/amq.topic/nowhere")), test.setup...))
				if test.ends == "" {
					go c.drain()
					t.Logf("%d MiB sent", c.flood(many(test.flood), time.Second)/mib)
				} else {
					go c.flood(test.flood, 2*time.Second)
					for f := c.next(); ; f = c.next() {
						if f == nil {
							t.Fatal("the server closed without a word")
						}
						if e, is := client10.Ending(f.Is); is && e != nil && string(e.Condition) == test.ends {
							break
						}
					}
				}
				return func() { _ = c.Close() }
			})
		})
	}
	t.Run("many large halves", func(t *testing.T) {
		start10(t)
		// What four of the largest messages take, with the room to grow of their buffers.
		beside(t, 5*16*mib*2+64*mib, func() func() {
			c := session10(t)
			for h := range uint32(20) {
				c.perform(0, sending(h, "l", "/exchanges/amq.topic/nowhere"))
			}
			piece := make([]byte, 100_000)
			for h := range uint32(20) {
				tr := more
				tr.Handle, tr.DeliveryID = h, amqp10.Some(h)
				if _, err := c.Write(transfer(nil, tr, nil)); err != nil {
					break
				}
				part := transfer(nil, amqp10.Transfer{Handle: h, More: true}, piece) // one at a time: the bystander shares our memory
				for range 150 {
					if _, err := c.Write(part); err != nil {
						break
					}
				}
			}
			ended[*amqp10.Close](c, amqp10.ConditionResourceLimitExceeded, "messages that have not come whole take more than")
			return func() { _ = c.Close() }
		})
	})
	t.Run("more than there is credit for", func(t *testing.T) {
		start10(t)
		c := session10(t)
		c.perform(0, sending(0, "l", "/exchanges/amq.topic/nowhere"))
		want10[*amqp10.Flow](c)
		var b []byte
		for id := range uint32(171) { // in one read, or the credit would be renewed
			tr := first(id)
			tr.More = id < 170
			b = transfer(b, tr, nil)
			if tr.More {
				b = transfer(b, amqp10.Transfer{Aborted: true}, nil)
			}
		}
		_, _ = c.Write(b)
		served(t)
	})
}

// Delivery-ids, delivery-counts and transfer-ids wrap around after 2^32, and a message keeps its place.
func TestNumbersThatWrap10(t *testing.T) {
	start10(t)
	queue10(t, "q", "classic", 0, 0)
	for _, from := range []uint32{1<<32 - 100, 1<<31 - 100, 1<<32 - 1} {
		c := login10(t)
		c.perform(0, &amqp10.Begin{NextOutgoingID: from, IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20})
		want10[*amqp10.Begin](c)
		a := sending(0, "l", "/queues/q")
		a.InitialDeliveryCount = amqp10.Some(from)
		c.perform(0, a)
		want10[*amqp10.Flow](c)
		for i := range uint32(300) {
			c.send(transfer(nil, first(from+i), amqp10.AppendData(nil, []byte("x"))))
			d := want10[*amqp10.Disposition](c)
			if d.First != from+i || d.State.Descriptor() != amqp10.DescriptorAccepted {
				t.Fatalf("message %d from %d: %+v", i, from, d)
			}
		}
		c.perform(0, receiving(1, "c", "q"), &amqp10.Flow{
			NextIncomingID: amqp10.Some[uint32](0), IncomingWindow: 1<<32 - 1, OutgoingWindow: 1 << 20, Handle: amqp10.Some[uint32](1), DeliveryCount: amqp10.Some[uint32](0), LinkCredit: amqp10.Some[uint32](1<<32 - 1),
		})
		for range 300 {
			want10[*amqp10.Transfer](c)
		}
		c.perform(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: 0, Last: amqp10.Some[uint32](299), Settled: true, State: client10.Described(&amqp10.Accepted{})}, &amqp10.End{})
		want10[*amqp10.End](c)
		empty(t, "q")
	}
}

// settled10 is a client with so many messages that it has not settled.
func settled10(t *testing.T, count int) *raw10 {
	t.Helper()
	c := session10(t)
	c.perform(0, receiving(0, "c", "q"), credit(0, 0, 1<<32-1, false, false))
	for range count {
		want10[*amqp10.Transfer](c)
	}
	return c
}

// A client with very many deliveries that it has not settled says whatever it likes of them.
func TestDispositions10(t *testing.T) {
	const count = 100_000
	state := client10.Described(&amqp10.Accepted{})
	say := func(b []byte, first, last uint32, settled bool) []byte {
		return client10.Frames(b, 0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: first, Last: amqp10.Some(last), Settled: settled, State: state})
	}
	everyOther := func() (b []byte) {
		for id := uint32(0); id < count; id += 2 {
			b = say(b, id, id, true)
		}
		return b
	}
	for name, flood := range map[string][]byte{
		"never sent":       many(say(nil, 1<<30, 1<<31-1, true)),
		"one never sent":   many(say(nil, 1<<30, 1<<30, true)),
		"all":              many(say(nil, 0, 1<<31-1, true)),
		"the whole range":  many(say(nil, 0, 1<<32-1, true)),
		"unsettled":        many(say(nil, 7, 7, false)),
		"every other":      everyOther(),
		"ranges backwards": many(say(nil, count, 0, true)),
	} {
		t.Run(name, func(t *testing.T) {
			start10(t)
			queue10(t, "q", "classic", count, 10)
			c := settled10(t, count)
			beside(t, 64*mib, func() func() {
				go c.drain()
				t.Logf("%d MiB sent", c.flood(flood, time.Second)/mib)
				return func() { _ = c.Close() }
			})
		})
	}
}
