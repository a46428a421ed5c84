package hostile

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// annotated is a message with one annotation.
func annotated(key string, value []byte) []byte {
	b, at := amqp10.BeginMap(amqp10.AppendDescriptor(nil, amqp10.DescriptorMessageAnnotations))
	b = amqp10.EndCompound(append(amqp10.AppendSymbol(b, key), value...), at, 2)
	return amqp10.AppendData(b, []byte("x"))
}

// stringsOf is a list of so many strings.
func stringsOf(count int, s func(int) string) []byte {
	b, at := amqp10.BeginList(nil)
	for i := range count {
		b = amqp10.AppendString(b, s(i))
	}
	return amqp10.EndCompound(b, at, count)
}

// deaths is an annotation x-opt-deaths as a broker writes it, with so many entries.
func deaths(count int) []byte {
	var list []amqp10.Value
	for i := range count {
		b, at := amqp10.BeginMap(nil)
		b = amqp10.AppendString(amqp10.AppendSymbol(b, "queue"), name("q", i))
		b = amqp10.AppendSymbol(amqp10.AppendSymbol(b, "reason"), "expired")
		b = amqp10.AppendUlong(amqp10.AppendSymbol(b, "count"), 1<<64-1)
		b = amqp10.AppendTimestamp(amqp10.AppendSymbol(b, "first-time"), -1<<63)
		b = amqp10.AppendTimestamp(amqp10.AppendSymbol(b, "last-time"), 1<<63-1)
		b = amqp10.AppendString(amqp10.AppendSymbol(b, "exchange"), "")
		keys, err := amqp10.AppendArray(amqp10.AppendSymbol(b, "routing-keys"), amqp10.MustValue(amqp10.AppendString(nil, "dlq")))
		if err != nil {
			panic(err)
		}
		list = append(list, amqp10.MustValue(amqp10.EndCompound(keys, at, 14)))
	}
	b, err := amqp10.AppendArray(nil, list...)
	if err != nil {
		panic(err)
	}
	return b
}

// dying makes a queue whose messages die at once, into one that keeps the last hundred, which dies into the first one.
func dying(t *testing.T, kind string) {
	t.Helper()
	conn := dial(t)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]amqp.Table{
		"q":   {"x-queue-type": kind, "x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"},
		"dlq": {"x-queue-type": kind, "x-max-length": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"},
	} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
}

// Messages that say of themselves what no honest client says, die of it, and are read by a client of the other protocol.
func TestMessages10(t *testing.T) {
	extreme := func(h *amqp10.Header) []byte { return amqp10.AppendData(h.Append(nil), []byte("x")) }
	none := func(int) string { return "" }
	tests := map[string][]byte{
		"forged deaths":          annotated("x-opt-deaths", deaths(10_000)),
		"forged deaths that fit": annotated("x-opt-deaths", deaths(500)),
		"deaths of one queue":    annotated("x-opt-deaths", bytes.Clone(deaths(2))),
		"100,000 keys":           annotated("x-cc", stringsOf(100_000, func(int) string { return "qq" })),
		"100,000 different keys": annotated("x-cc", stringsOf(50_000, func(i int) string { return name("k", i) })),
		"a million keys":         annotated("x-cc", stringsOf(1_000_000, none)),
		"keys of the queue":      annotated("x-cc", stringsOf(1000, func(int) string { return "dlq" })),
		"ttl 0":                  extreme(&amqp10.Header{TTL: amqp10.Some[uint32](0), Priority: amqp10.Some[uint8](255)}),
		"the largest ttl":        extreme(&amqp10.Header{TTL: amqp10.Some[uint32](1<<32 - 1), Priority: amqp10.Some[uint8](0), DeliveryCount: 1<<32 - 1}),
		"expiration":             annotated("x-basic-expiration", amqp10.AppendString(nil, "18446744073709551615")),
		"delay":                  annotated("x-delay", amqp10.AppendLong(nil, 1<<63-1)),
		"100,000 properties": func() []byte {
			b, at := amqp10.BeginMap(amqp10.AppendDescriptor(nil, amqp10.DescriptorApplicationProperties))
			for i := range 100_000 {
				b = amqp10.AppendNull(amqp10.AppendString(b, name("k", i)))
			}
			return amqp10.AppendData(amqp10.EndCompound(b, at, 200_000), []byte("x"))
		}(),
		"100,000 sections": bytes.Repeat(amqp10.AppendData(nil, nil), 100_000),
	}
	for _, kind := range []string{"classic", "quorum"} {
		for name, message := range tests {
			t.Run(kind+" "+name, func(t *testing.T) {
				start10(t)
				dying(t, kind)
				beside(t, 512*mib, func() func() { // what waits to be routed is in its queue, and the flood is faster
					c := session10(t)
					c.perform(0, sending(0, "l", "/queues/q"))
					go c.drain()
					var b []byte
					for rest, f := message, first(0); len(rest) > 0; f = (amqp10.Transfer{}) {
						piece := rest[:min(len(rest), 100_000)]
						rest = rest[len(piece):]
						f.More = len(rest) > 0
						b = transfer(b, f, piece)
					}
					t.Logf("%d messages sent", c.flood(b, time.Second)/len(b))
					read := loginChannel(t)
					read.method(1, amqp091.BasicGet{Queue: "dlq"})
					f := read.next()
					m, err := amqp091.DecodeMethod(f.Payload)
					if err != nil {
						t.Fatal(err)
					}
					if m.ID() == amqp091.BasicGetOkID {
						if f = read.next(); f == nil || len(f.Payload) > 131072-8 {
							t.Error("a client of AMQP 0-9-1 cannot read it: its headers have no room in a frame")
						}
					}
					_ = read.Close()
					return func() { _ = c.Close() }
				})
			})
		}
	}
}

// much has as many annotations as an outcome may have. No two with another n are alike.
func much(n uint32) amqp10.Value {
	b, at := amqp10.BeginMap(nil)
	for i := range 16 {
		b = amqp10.AppendString(amqp10.AppendSymbol(b, name("x-key", i)), name(strings.Repeat("v", 990), int(n)))
	}
	return amqp10.MustValue(amqp10.EndCompound(b, at, 32))
}

// A receiver that gives back what it gets, with as much as it may say, and other words each time, again and again.
func TestOutcomes10(t *testing.T) {
	outcomes := map[string]func(n uint32) amqp10.Composite{
		"released": func(uint32) amqp10.Composite { return &amqp10.Released{} },
		"modified": func(n uint32) amqp10.Composite { return &amqp10.Modified{MessageAnnotations: much(n)} },
		"failed": func(n uint32) amqp10.Composite {
			return &amqp10.Modified{DeliveryFailed: true, MessageAnnotations: much(n)}
		},
		"not here": func(n uint32) amqp10.Composite {
			return &amqp10.Modified{UndeliverableHere: true, MessageAnnotations: much(n)}
		},
		"too much": func(n uint32) amqp10.Composite {
			b, at := amqp10.BeginMap(nil)
			b = amqp10.AppendBinary(amqp10.AppendSymbol(b, "x-key"), make([]byte, 100_000))
			return &amqp10.Modified{MessageAnnotations: amqp10.MustValue(amqp10.EndCompound(b, at, 2))}
		},
		"rejected": func(n uint32) amqp10.Composite {
			return &amqp10.Rejected{Error: &amqp10.Error{Condition: bytes.Repeat([]byte("c"), 10_000), Description: fmt.Appendf(nil, "%d%s", n, bytes.Repeat([]byte("d"), 100_000))}}
		},
		"no such outcome": func(uint32) amqp10.Composite { return &amqp10.Source{} },
	}
	for _, kind := range []string{"classic", "quorum"} {
		for name, outcome := range outcomes {
			t.Run(kind+" "+name, func(t *testing.T) {
				start10(t)
				queue10(t, "q", kind, 1000, 100)
				beside(t, 128*mib, func() func() {
					c := session10(t)
					c.perform(0, receiving(0, "c", "q"), credit(0, 0, 1000, false, false))
					go c.drain()
					var b []byte
					end := time.Now().Add(time.Second)
					for id := uint32(0); time.Now().Before(end); id += 10 {
						b = client10.Frames(b[:0], 0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: id, Last: amqp10.Some(id + 9), Settled: true, State: client10.Described(outcome(id))}, credit(0, id+10, 1000, false, false))
						_ = c.SetWriteDeadline(time.Now().Add(time.Second))
						if _, err := c.Write(b); err != nil {
							break
						}
					}
					return func() { _ = c.Close() }
				})
			})
		}
	}
}

// Links that have all credit there is, or none, and the other end of which reads nothing, while very much waits.
func TestCredit10(t *testing.T) {
	const count = 200_000
	for name, grant := range map[string]uint32{"none": 0, "one": 1, "all": 1<<32 - 1} {
		t.Run(name, func(t *testing.T) {
			start10(t)
			queue10(t, "q", "classic", count, 100)
			beside(t, 128*mib, func() func() {
				c := session10(t)
				go func() { // it reads its answers only
					for range links10 {
						if f := c.next(); f == nil {
							return
						}
					}
				}()
				for h := range uint32(links10) {
					c.perform(0, receiving(h, "c", "q"), credit(h, 0, grant, false, false))
				}
				b := credit(0, 0, grant, false, false)
				b.Handle = amqp10.Some[uint32](links10 - 1)
				c.flood(many(client10.Frames(nil, 0, b)), 2*time.Second)
				return func() { _ = c.Close() }
			})
			until(t, "q", func(q amqp.Queue) bool { return q.Messages == count })
		})
	}
}

// Nodes that the server makes for a link are as few as links, and go with them.
func TestDynamicNodes10(t *testing.T) {
	start10(t)
	b := client10.Frames(nil, 0, &amqp10.Attach{Name: []byte("l"), Role: amqp10.RoleReceiver, Source: client10.Described(&amqp10.Source{Dynamic: true, Capabilities: amqp10.MustValue(amqp10.AppendSymbols(nil, "rabbitmq:volatile-queue"))}), Target: client10.Described(&amqp10.Target{})}, &amqp10.Detach{Closed: true})
	made := client10.Frames(nil, 0, &amqp10.Attach{Name: []byte("l"), Role: amqp10.RoleReceiver, Source: client10.Described(&amqp10.Source{Dynamic: true, ExpiryPolicy: amqp10.TerminusExpiryPolicyLinkDetach}), Target: client10.Described(&amqp10.Target{})}, &amqp10.Detach{Closed: true})
	for name, flood := range map[string][]byte{"replies": b, "queues": made} {
		t.Run(name, func(t *testing.T) {
			beside(t, 96*mib, func() func() {
				c := session10(t)
				go c.drain()
				c.flood(bytes.Repeat(flood, 10), 2*time.Second)
				return func() { _ = c.Close() }
			})
		})
	}
	t.Run("kept", func(t *testing.T) {
		beside(t, 96*mib, func() func() {
			c := session10(t)
			go c.drain()
			for h := range uint32(links10) {
				c.perform(0, &amqp10.Attach{Name: []byte("l"), Handle: h, Role: amqp10.RoleReceiver, Source: client10.Described(&amqp10.Source{Dynamic: true}), Target: client10.Described(&amqp10.Target{})})
			}
			return func() { _ = c.Close() }
		})
	})
}
