package session091_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/broker"
)

// BR-12.3: a name ends with its requester. A replier that has found it just before is too late (BR-12.4): its reply
// does not come to whoever consumes on the channel now.
func TestBR_12_3_NothingComesForARequesterThatIsCancelled(t *testing.T) {
	s := serve(t, broker.Options{})
	ch := s.channel(t)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	consume := func(tag string) <-chan amqp.Delivery {
		return must[<-chan amqp.Delivery](t)(ch.Consume(broker.ReplyTo, tag, true, false, false, false, nil))
	}
	cancel := func(tag string) {
		if err := ch.Cancel(tag, false); err != nil {
			t.Fatal(tag, err, <-closed)
		}
	}
	must[amqp.Queue](t)(ch.QueueDeclare("q", false, false, false, false, nil))
	consume("first")
	if err := ch.Publish("", "q", false, false, amqp.Publishing{ReplyTo: broker.ReplyTo}); err != nil {
		t.Fatal(err)
	}
	request, ok, err := ch.Get("q", true)
	if err != nil || !ok {
		t.Fatal("no request", err)
	}
	requester, ok := s.b.Requester(request.ReplyTo)
	if !ok {
		t.Fatal("no requester")
	}
	link := s.b.AsOperator("test", "/")
	reply := func() {
		requester.Reply(nil, []byte(request.ReplyTo), link.Store(&broker.Publication{Raw: []byte{0, 0}, Body: [][]byte{{}}}))
	}

	cancel("first")
	second := consume("second")
	reply()
	cancel("second") // its answer is behind what was sent to it
	for d := range second {
		t.Errorf("a reply to the first requester comes to %q", d.ConsumerTag)
	}

	replied := make(chan struct{})
	go func() {
		defer close(replied)
		for range 1000 {
			reply()
		}
	}()
	for range 20 { // for the race detector
		consume("third")
		cancel("third")
	}
	<-replied
}
