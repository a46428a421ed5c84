package session091_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// wire is a client that puts any frames it likes into one write.
type wire struct {
	t  *testing.T
	nc net.Conn
	in []byte
}

// dial opens a connection up to where the client is to log in.
func (s *server) dial(t *testing.T) *wire {
	t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	w := &wire{t: t, nc: nc}
	w.send([]byte(amqp091.ProtocolHeader))
	await[*amqp091.ConnectionStart](w)
	return w
}

// login opens a connection with channel 1.
func (s *server) login(t *testing.T) *wire {
	t.Helper()
	w := s.dial(t)
	w.methods(0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	tune := await[*amqp091.ConnectionTune](w)
	w.methods(0, amqp091.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax}, amqp091.ConnectionOpen{VirtualHost: "/"})
	await[*amqp091.ConnectionOpenOk](w)
	w.methods(1, amqp091.ChannelOpen{})
	await[*amqp091.ChannelOpenOk](w)
	return w
}

func (w *wire) send(b []byte) {
	w.t.Helper()
	if _, err := w.nc.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) methods(channel uint16, list ...amqp091.Method) {
	w.t.Helper()
	var b []byte
	for _, m := range list {
		b = amqp091.AppendMethod(b, channel, m)
	}
	w.send(b)
}

// next is the next method; the frames of contents are passed over.
func (w *wire) next() amqp091.Method {
	w.t.Helper()
	for {
		f, n, err := amqp091.NextFrame(w.in, 1<<20)
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			b := make([]byte, 4096)
			k, err := w.nc.Read(b)
			if err != nil && (err != io.EOF || k == 0) {
				w.t.Fatalf("the server says nothing: %v", err)
			}
			w.in = append(w.in, b[:k]...)
			continue
		}
		w.in = w.in[n:]
		if f.Type != amqp091.FrameMethod {
			continue
		}
		m, err := amqp091.DecodeMethod(f.Payload)
		if err != nil {
			w.t.Fatal(err)
		}
		return m
	}
}

// await passes over methods until one of a type comes.
func await[M amqp091.Method](w *wire) M {
	w.t.Helper()
	for {
		switch m := w.next().(type) {
		case M:
			return m
		case *amqp091.ChannelClose:
			w.t.Fatalf("the channel is closed: %d %s", m.ReplyCode, m.ReplyText)
		case *amqp091.ConnectionClose:
			w.t.Fatalf("the connection is closed: %d %s", m.ReplyCode, m.ReplyText)
		}
	}
}

// messageFrames are a whole persistent message in frames.
func messageFrames(exchange, key string, mandatory bool, headers amqp091.Table) []byte {
	p := amqp091.Publish{Exchange: []byte(exchange), RoutingKey: []byte(key), Mandatory: mandatory}
	b := amqp091.AppendPublish(nil, 1, p)
	props := []byte{0x10, 0, 2} // delivery-mode
	if headers != nil {
		props = append(amqp091.AppendTable([]byte{0x30, 0}, headers), 2)
	}
	b = amqp091.AppendContentHeader(b, 1, amqp091.ClassBasic, 4, props)
	return amqp091.AppendBody(b, 1, []byte("body"), 4096)
}

// A publish that asks nothing of any queue has its place among those that do, and among
// settlements, all in one write: every publish is confirmed, every settlement takes effect,
// and whoever comes afterwards is served. (BR-8.2, BR-8.8, BR-12.2)
func TestPublishesThatAskNothingOfQueues(t *testing.T) {
	nothings := map[string]func(replyTo string) []byte{
		"unroutable":                func(string) []byte { return messageFrames("", "nowhere", false, nil) },
		"unroutable, mandatory":     func(string) []byte { return messageFrames("", "nowhere", true, nil) },
		"direct reply":              func(to string) []byte { return messageFrames("", to, false, nil) },
		"direct reply that is late": func(string) []byte { return messageFrames("", "amq.rabbitmq.reply-to.gone", false, nil) },
		"direct reply by CC": func(to string) []byte {
			return messageFrames("", "nowhere", false, amqp091.Table{{Key: "CC", Value: amqp091.Array{to}}})
		},
	}
	others := map[string]func(queue string, tag uint64) []byte{
		"publish": func(queue string, _ uint64) []byte { return messageFrames("", queue, false, nil) },
		"ack": func(_ string, tag uint64) []byte {
			return amqp091.AppendMethod(nil, 1, amqp091.BasicAck{DeliveryTag: tag})
		},
		"nack": func(_ string, tag uint64) []byte {
			return amqp091.AppendMethod(nil, 1, amqp091.BasicNack{DeliveryTag: tag})
		},
		"nack, requeue": func(_ string, tag uint64) []byte {
			return amqp091.AppendMethod(nil, 1, amqp091.BasicNack{DeliveryTag: tag, Requeue: true})
		},
		"reject": func(_ string, tag uint64) []byte {
			return amqp091.AppendMethod(nil, 1, amqp091.BasicReject{DeliveryTag: tag})
		},
	}
	left := map[string]uint32{"publish": 4, "ack": 0, "nack": 0, "nack, requeue": 2, "reject": 0}
	for _, kind := range []string{"classic", "quorum"} {
		for _, mode := range []string{"confirm", "tx", "plain"} {
			for nothing, makeNothing := range nothings {
				for other, makeOther := range others {
					t.Run(fmt.Sprintf("%s/%s/%s with %s", kind, mode, nothing, other), func(t *testing.T) {
						s := serve(t, broker.Options{})
						w := s.login(t)
						w.methods(1, amqp091.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}})
						await[*amqp091.QueueDeclareOk](w)
						w.send(messageFrames("", "q", false, nil))
						w.send(messageFrames("", "q", false, nil))
						for range 2 {
							w.methods(1, amqp091.BasicGet{Queue: "q"})
							await[*amqp091.BasicGetOk](w)
						}
						switch mode {
						case "confirm":
							w.methods(1, amqp091.ConfirmSelect{})
							await[*amqp091.ConfirmSelectOk](w)
						case "tx":
							w.methods(1, amqp091.TxSelect{})
							await[*amqp091.TxSelectOk](w)
						}
						to := s.requester(t)
						b := makeNothing(to)
						b = append(b, makeOther("q", 1)...)
						b = append(b, makeNothing(to)...)
						b = append(b, makeOther("q", 2)...)
						publishes := uint64(2)
						if other == "publish" {
							publishes = 4
						}
						if mode == "tx" {
							b = amqp091.AppendMethod(b, 1, amqp091.TxCommit{})
						}
						w.send(b)
						switch mode {
						case "confirm":
							for confirmed := uint64(0); confirmed < publishes; {
								a := await[*amqp091.BasicAck](w)
								if a.DeliveryTag <= confirmed || !a.Multiple && a.DeliveryTag != confirmed+1 {
									t.Fatalf("confirm of %d (multiple %v) behind that of %d", a.DeliveryTag, a.Multiple, confirmed)
								}
								confirmed = a.DeliveryTag
							}
						case "tx":
							await[*amqp091.TxCommitOk](w)
						}
						// On a connection of its own: what was unsettled here and not asked about is not ready.
						look := s.login(t)
						want := left[other]
						if other == "publish" {
							want = 2 // the two that were got are unsettled
						}
						w.methods(1, amqp091.QueueDeclare{Queue: "q", Passive: true})
						await[*amqp091.QueueDeclareOk](w) // behind all that was asked
						look.methods(1, amqp091.QueueDeclare{Queue: "q", Passive: true})
						if ok := await[*amqp091.QueueDeclareOk](look); ok.MessageCount != want {
							t.Errorf("%d messages are ready, want %d", ok.MessageCount, want)
						}
					})
				}
			}
		}
	}
}

// requester is the name of a channel that waits for direct replies.
func (s *server) requester(t *testing.T) string {
	t.Helper()
	ch := s.channel(t)
	must[<-chan amqp.Delivery](t)(ch.Consume(broker.ReplyTo, "", true, false, false, false, nil))
	must[amqp.Queue](t)(ch.QueueDeclare("names", true, false, false, false, nil))
	if err := ch.Publish("", "names", false, false, amqp.Publishing{ReplyTo: broker.ReplyTo}); err != nil {
		t.Fatal(err)
	}
	d, ok, err := ch.Get("names", true)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return d.ReplyTo
}
