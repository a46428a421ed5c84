package session091_test

import (
	"testing"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// filled is a client with a queue that has messages.
func filled(t *testing.T, kind string, messages int) *wire {
	t.Helper()
	w := serve(t, broker.Options{}).login(t)
	w.methods(1, amqp091.ConfirmSelect{}, amqp091.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}})
	for range messages {
		w.send(messageFrames("", "q", false, nil))
	}
	w.methods(1, amqp091.QueueDeclare{Queue: "q", Passive: true})
	await[*amqp091.QueueDeclareOk](w)
	if n := await[*amqp091.QueueDeclareOk](w).MessageCount; n != uint32(messages) {
		t.Fatalf("%d messages are in the queue, want %d", n, messages)
	}
	return w
}

// before counts the messages that come before a method.
func (w *wire) before(name string) (messages int) {
	w.t.Helper()
	for {
		switch m := w.next(); {
		case m.Name() == name:
			return messages
		case m.ID() == amqp091.BasicDeliverID || m.ID() == amqp091.BasicGetOkID:
			messages++
		}
	}
}

// What has left its queue without acknowledgement is nowhere else: it is sent before the
// answer to whatever ends the channel, be it the client that ends it or a mistake of its.
func TestWhatNeedsNoAcknowledgementIsSentBeforeItsChannelEnds(t *testing.T) {
	const messages = 100
	for _, kind := range []string{"classic", "quorum"} {
		for end, last := range map[string]amqp091.Method{
			"channel.close-ok":    amqp091.ChannelClose{},
			"connection.close-ok": amqp091.ConnectionClose{},
			"channel.close":       amqp091.QueueDeclare{Queue: "nosuch", Passive: true},
			"connection.close":    amqp091.BasicQos{PrefetchSize: 1},
		} {
			t.Run(kind+", "+end, func(t *testing.T) {
				w := filled(t, kind, messages)
				number := uint16(1)
				if last.ID() == amqp091.ConnectionCloseID {
					number = 0
				}
				b := amqp091.AppendMethod(nil, 1, amqp091.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true})
				w.send(amqp091.AppendMethod(b, number, last))
				if got := w.before(end); got != messages {
					t.Errorf("%d messages came before %s, want %d", got, end, messages)
				}
			})
		}
	}
}

// BR-9.11: a client takes all that it was sent before recover-ok for requeued. So it is,
// also if it was still on its way when the recover came.
func TestWhatIsSentBeforeRecoverOkIsRequeued(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind+", get", func(t *testing.T) {
			w := filled(t, kind, 1)
			w.methods(1, amqp091.BasicGet{Queue: "q"}, amqp091.BasicRecover{Requeue: true})
			if got := w.before("basic.recover-ok"); got != 1 {
				t.Fatalf("%d messages came before recover-ok, want that of the get", got)
			}
			w.methods(1, amqp091.BasicConsume{Queue: "q", ConsumerTag: "c"})
			if d := await[*amqp091.BasicDeliver](w); !d.Redelivered {
				t.Errorf("%+v came after recover-ok, want what was got", d)
			}
		})
		for name, messages := range map[string]int{"a few": 10, "more than are run at once": 2000} {
			t.Run(kind+", "+name, func(t *testing.T) {
				w := filled(t, kind, messages)
				w.methods(1, amqp091.BasicConsume{Queue: "q", ConsumerTag: "c"}, amqp091.BasicRecover{Requeue: true})
				old := w.before("basic.recover-ok")
				for range messages { // all of them come after it
					if d := await[*amqp091.BasicDeliver](w); d.DeliveryTag <= uint64(old) {
						t.Fatalf("%+v was sent before recover-ok", d)
					}
				}
				// Nothing came twice, and nothing is left.
				w.methods(1, amqp091.BasicAck{Multiple: true}, amqp091.BasicCancel{ConsumerTag: "c"}, amqp091.BasicGet{Queue: "q"})
				if got := w.before("basic.get-empty"); got != 0 {
					t.Errorf("%d messages more", got)
				}
			})
		}
	}
}
