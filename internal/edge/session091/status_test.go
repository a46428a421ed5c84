package session091_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-15.15: what a channel's transaction has collected is not settled, published or
// acknowledged yet, and is shown as what it is.
func TestUncommittedIsShown(t *testing.T) {
	s := serve(t, broker.Options{})
	ch := s.channel(t)
	must[amqp.Queue](t)(ch.QueueDeclare("q", true, false, false, false, nil))
	for range 4 {
		if err := ch.Publish("", "q", false, false, amqp.Publishing{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Tx(); err != nil {
		t.Fatal(err)
	}
	var tags []uint64
	for range 4 {
		d, ok, err := ch.Get("q", false)
		if err != nil || !ok {
			t.Fatal("no message: ", err)
		}
		tags = append(tags, d.DeliveryTag)
	}
	look := func(when string, unacked int, messages, acks int64) {
		t.Helper()
		must[amqp.Queue](t)(ch.QueueDeclarePassive("q", true, false, false, false, nil)) // what came before it is done
		st := s.b.Connections()[0].Client().ChannelStatuses()[0]
		if st.Unacked != unacked || st.Uncommitted != messages || st.UncommittedAcks != acks || st.Unconfirmed != 0 {
			t.Errorf("%s: %+v, want %d unacknowledged, %d messages and %d acknowledgements uncommitted", when, st, unacked, messages, acks)
		}
	}
	settle := func() {
		t.Helper()
		for _, err := range []error{
			ch.Ack(tags[1], true), ch.Reject(tags[2], false),
			ch.Publish("", "q", false, false, amqp.Publishing{}), ch.Publish("", "nowhere", false, false, amqp.Publishing{}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	look("at first", 4, 0, 0)
	settle()
	look("collected", 1, 2, 2)
	if err := ch.TxRollback(); err != nil {
		t.Fatal(err)
	}
	look("rolled back", 4, 0, 0)
	settle()
	if err := ch.TxCommit(); err != nil {
		t.Fatal(err)
	}
	look("committed", 1, 0, 0)
}

// BR-15.15: what a client was sent is shown, whoever has written it.
func TestWhatIsSentIsShown(t *testing.T) {
	const answers = 1000
	s := serve(t, broker.Options{})
	w := s.login(t)
	for range answers {
		w.methods(1, amqp091.ChannelFlow{Active: true})
		await[*amqp091.ChannelFlowOk](w)
	}
	client := s.b.Connections()[0].Client()
	_, letGo := session091.StopSending(client) // whoever wrote has counted
	defer letGo()
	shown := client.Status()
	if want := answers * len(amqp091.AppendMethod(nil, 1, amqp091.ChannelFlowOk{})); shown.SentBytes < uint64(want) {
		t.Errorf("%d bytes are shown as sent, want %d and more", shown.SentBytes, want)
	}
	if shown.Writes < answers {
		t.Errorf("%d writes are shown, want one an answer and more", shown.Writes)
	}
}
