package session091_test

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// Between two looks at memory and disk a publisher sends no more than it may: a stray one
// that sends as fast as it can is stopped by what it has sent, not by a clock (BR-13.1).
func TestAPublisherIsLookedAtByWhatItSends(t *testing.T) {
	const allowed, tick = 4 << 20, 1 << 20
	s := serve(t, broker.Options{})
	looks := 0
	s.b.WatchIntake(func() {
		looks++ // one looks at a time
		if looks == 3 {
			s.b.SetAlarm(broker.Memory, true)
		}
		s.b.AllowIntake(tick)
	})
	s.b.AllowIntake(allowed)
	pc := must[*amqp.Connection](t)(amqp.Dial("amqp://guest:guest@" + s.addr))
	defer func() { _ = pc.Close() }()
	blocked := pc.NotifyBlocked(make(chan amqp.Blocking, 4))
	ch := must[*amqp.Channel](t)(pc.Channel())
	must[amqp.Queue](t)(ch.QueueDeclare("q", false, false, false, false, nil))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	done := make(chan error)
	const size, count = 100_000, 300
	go func() {
		for range count {
			if err := ch.PublishWithContext(ctx, "", "q", false, false, amqp.Publishing{Body: make([]byte, size)}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	if b := <-blocked; !b.Active {
		t.Fatalf("blocked: %+v", b)
	}
	const buffer = 4 << 20 // what one read may take at most, the message under way, and what messages have beside them
	if got := s.b.Bodies().Memory(); got > allowed+2*tick+buffer {
		t.Errorf("%d bytes were taken before the alarm, which came after %d", got, allowed+2*tick)
	}
	s.b.SetAlarm(broker.Memory, false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A message that goes to many queues takes more than its publisher has sent.
func TestWhatGoesToManyQueuesCountsForEach(t *testing.T) {
	const queues, messages = 200, 100
	s := serve(t, broker.Options{})
	ch := s.channel(t)
	for range queues {
		q := must[amqp.Queue](t)(ch.QueueDeclare("", false, false, true, false, nil))
		if err := ch.QueueBind(q.Name, "", "amq.fanout", false, nil); err != nil {
			t.Fatal(err)
		}
	}
	looked := make(chan struct{}, 1)
	s.b.WatchIntake(func() {
		s.b.AllowIntake(1 << 40)
		looked <- struct{}{}
	})
	const sent = 100 // bytes that such a message takes on its way, at most
	s.b.AllowIntake(messages * sent)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for range messages {
		if err := ch.PublishWithContext(ctx, "amq.fanout", "", false, false, amqp.Publishing{}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-looked:
	case <-ctx.Done():
		t.Error("nobody has looked")
	}
}

// half begins a message of which the body has not come whole.
func half(channel uint16, size uint64, body []byte) (b []byte) {
	b = amqp091.AppendPublish(b, channel, amqp091.Publish{RoutingKey: []byte("q")})
	b = amqp091.AppendContentHeader(b, channel, amqp091.ClassBasic, size, []byte{0, 0})
	return amqp091.AppendBody(b, channel, body, 131072)
}

// opened is a raw connection with channels.
func opened(t *testing.T, s *server, channels uint16) net.Conn {
	t.Helper()
	nc := must[net.Conn](t)(net.Dial("tcp", s.addr))
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	b := append([]byte(amqp091.ProtocolHeader), amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{
		ClientProperties: amqp091.Table{{Key: "capabilities", Value: amqp091.Table{{Key: "consumer_cancel_notify", Value: true}}}}, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	})...)
	b = amqp091.AppendMethod(b, 0, amqp091.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072})
	b = amqp091.AppendMethod(b, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
	for n := range channels {
		b = amqp091.AppendMethod(b, n+1, amqp091.ChannelOpen{})
	}
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
	return nc
}

// The alarms hold bodies back, too: many channels with large messages under way would
// take as much as any publisher (BR-13.1).
func TestAlarmsHoldHalfSentMessages(t *testing.T) {
	s := serve(t, broker.Options{})
	const allowed = 2 << 20
	s.b.WatchIntake(func() { s.b.SetAlarm(broker.Memory, true); s.b.AllowIntake(1 << 40) })
	s.b.AllowIntake(1 << 40)
	nc := opened(t, s, 200)
	var b []byte
	for n := range uint16(200) {
		b = append(b, half(n+1, 1<<20, nil)...)
	}
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
	s.b.AllowIntake(allowed)
	body := make([]byte, 100_000)
	_ = nc.SetWriteDeadline(time.Now().Add(2 * time.Second))
	sent := 0
	for n := range uint16(200) {
		k, err := nc.Write(amqp091.AppendBody(nil, n+1, body, 131072))
		if sent += k; err != nil {
			break
		}
	}
	if _, alarmed := s.b.Alarms(); !alarmed {
		t.Fatal("nobody has looked")
	}
	if sent == 200*(len(body)+amqp091.FrameOverhead) {
		t.Error("the connection was read to its end under the alarm")
	}
}

// What a connection may hold of messages that have not come whole has a bound of its own:
// the alarms would stop the others for it. Their properties count, too.
func TestHalfSentMessagesHaveABound(t *testing.T) {
	body := make([]byte, 131072-amqp091.FrameOverhead)
	for name, tt := range map[string]struct {
		channels uint16
		sent     func(n uint16) [][]byte
	}{
		"bodies": {80, func(n uint16) [][]byte {
			part := amqp091.AppendBody(nil, n, body, 131072)
			return [][]byte{half(n, 1<<20, nil), part, part, part, part, part, part, part} // and never the eighth
		}},
		"properties": {600, func(n uint16) [][]byte { return [][]byte{heavy(n)} }},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, broker.Options{MaxMessageSize: 1 << 20})
			nc := opened(t, s, tt.channels)
			go func() {
				for n := range tt.channels {
					for _, b := range tt.sent(n + 1) {
						if _, err := nc.Write(b); err != nil {
							return
						}
					}
				}
			}()
			told := until(t, nc)
			if c, ok := told.(*amqp091.ConnectionClose); !ok || c.ReplyCode != amqp091.CodeResourceError {
				t.Errorf("told %+v", told)
			}
		})
	}
}

// What has come whole is no longer held, however much it was.
func TestWholeMessagesAreNotHeldAsHalfSent(t *testing.T) {
	s := serve(t, broker.Options{MaxMessageSize: 1 << 20})
	nc := opened(t, s, 1)
	go func() {
		for _, again := range [][]byte{
			amqp091.AppendBody(heavy(1), 1, []byte("xx"), 131072),
			amqp091.AppendBody(amqp091.AppendBody(heavy(1), 1, []byte("x"), 131072), 1, []byte("x"), 131072),
		} {
			for range 600 {
				if _, err := nc.Write(again); err != nil {
					return
				}
			}
		}
		_, _ = nc.Write(amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Exclusive: true}))
	}()
	if told := until(t, nc); told.ID() != amqp091.QueueDeclareOkID {
		t.Errorf("told %+v", told)
	}
}

// The buffers of messages that have come whole, which the next may take, are no way around the bound.
func TestBuffersOfHalfSentMessagesHaveABound(t *testing.T) {
	const channels, most = 161, 100 << 20
	part := make([]byte, 131072-amqp091.FrameOverhead)
	for name, begun := range map[string]func(n uint16) []byte{
		"nothing came":         func(n uint16) []byte { return half(n, 2, nil) },
		"a byte of two came":   func(n uint16) []byte { return half(n, 2, []byte("x")) },
		"a byte of a MiB came": func(n uint16) []byte { return half(n, 1<<20, []byte("x")) },
		"an empty frame came": func(n uint16) []byte {
			return append(half(n, 1<<20, nil), amqp091.FrameBody, byte(n>>8), byte(n), 0, 0, 0, 0, amqp091.FrameEnd)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, broker.Options{MaxMessageSize: 1 << 20})
			nc := opened(t, s, channels)
			heap := func() uint64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			before := heap()
			go func() {
				for n := range uint16(channels - 1) {
					b := half(1, 7*uint64(len(part)), nil)
					for range 7 {
						b = amqp091.AppendBody(b, 1, part, 131072)
					}
					if _, err := nc.Write(append(b, begun(n+2)...)); err != nil {
						return
					}
				}
				_, _ = nc.Write(amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Exclusive: true}))
			}()
			told := until(t, nc)
			if after := heap(); after > before+most {
				t.Errorf("%d MiB are held, and the client is told %T", (after-before)>>20, told)
			}
			if _, refused := told.(*amqp091.ConnectionClose); refused && !strings.Contains(name, "MiB") && !strings.Contains(name, "empty") {
				t.Errorf("what takes little is refused: %+v", told)
			}
		})
	}
}

// What counts as half-sent is taken away again to the byte, or a connection would have less room with each message.
func TestNothingIsHeldWhenNothingIsHalfSent(t *testing.T) {
	const channels, rounds = 8, 1000
	s := serve(t, broker.Options{MaxMessageSize: 1 << 20})
	nc := opened(t, s, channels)
	rng := rand.New(rand.NewPCG(1, 2))
	go func() {
		left := map[uint16]int{} // bytes of the body that have not been sent
		var b []byte
		some := func(n int) []byte { return make([]byte, rng.IntN(n)) }
		step := func(n uint16) {
			if size, begun := left[n]; begun {
				part := make([]byte, min(size, rng.IntN(131072-amqp091.FrameOverhead)))
				if left[n] -= len(part); left[n] == 0 {
					delete(left, n)
				}
				b = amqp091.AppendBody(b, n, part, 131072)
				return
			}
			b = amqp091.AppendPublish(b, n, amqp091.Publish{RoutingKey: []byte("nowhere")})
			props := amqp091.AppendTable([]byte{0x20, 0}, amqp091.Table{{Key: "h", Value: string(some(1 << (3 + rng.IntN(14))))}})
			size := rng.IntN(1 << (1 + rng.IntN(19)))
			b = amqp091.AppendContentHeader(b, n, amqp091.ClassBasic, uint64(size), props)
			if size > 0 {
				left[n] = size
			}
		}
		for i := range rounds {
			step(uint16(1 + rng.IntN(channels)))
			if i%100 == 0 { // a channel that is closed by its message
				n := uint16(1 + rng.IntN(channels))
				for _, begun := left[n]; begun; _, begun = left[n] {
					step(n)
				}
				b = amqp091.AppendPublish(b, n, amqp091.Publish{Exchange: []byte("none")})
				b = amqp091.AppendBody(amqp091.AppendContentHeader(b, n, amqp091.ClassBasic, 3, []byte{0, 0}), n, []byte("x"), 131072)
				b = amqp091.AppendBody(b, n, []byte("yz"), 131072)
				b = amqp091.AppendMethod(b, n, amqp091.ChannelCloseOk{})
				b = amqp091.AppendMethod(b, n, amqp091.ChannelOpen{})
			}
			if _, err := nc.Write(b); err != nil {
				return
			}
			b = b[:0]
		}
		for n := range uint16(channels) {
			for _, begun := left[n+1]; begun; _, begun = left[n+1] {
				step(n + 1)
			}
		}
		_, _ = nc.Write(amqp091.AppendMethod(b, 1, amqp091.QueueDeclare{Exclusive: true}))
	}()
	told := until(t, nc)
	if _, ok := told.(*amqp091.QueueDeclareOk); !ok {
		t.Fatalf("told %+v", told)
	}
	if n := session091.Unfinished(s.b.Connections()[0].Client()); n != 0 {
		t.Errorf("%d bytes are held for nothing", n)
	}
}

// heavy begins a message of two bytes with as many properties as a frame holds.
func heavy(channel uint16) (b []byte) {
	b = amqp091.AppendPublish(b, channel, amqp091.Publish{RoutingKey: []byte("nowhere")})
	headers := amqp091.Table{{Key: "h", Value: string(make([]byte, 131_000))}}
	return amqp091.AppendContentHeader(b, channel, amqp091.ClassBasic, 2, amqp091.AppendTable([]byte{0x20, 0}, headers))
}

// until reads what a client is told to the end of its connection, or to a queue that is declared.
func until(t *testing.T, nc net.Conn) amqp091.Method {
	t.Helper()
	told, buffer := []byte(nil), make([]byte, 64<<10)
	for {
		f, n, err := amqp091.NextFrame(told, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			k, err := nc.Read(buffer)
			if err != nil {
				t.Fatal("neither: ", err)
			}
			told = append(told, buffer[:k]...)
			continue
		}
		told = told[n:]
		switch m, _ := amqp091.DecodeMethod(f.Payload); m.(type) {
		case *amqp091.ConnectionClose, *amqp091.QueueDeclareOk:
			return m
		}
	}
}
