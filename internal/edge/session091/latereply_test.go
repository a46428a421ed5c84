package session091_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
)

// BR-12.4: a reply that comes when its requester has just gone is dropped, and its bytes are given back.
func TestBR_12_4_AReplyTooLateTakesNoMemory(t *testing.T) {
	s := serve(t, broker.Options{})
	c := must[*amqp.Connection](t)(amqp.Dial("amqp://guest:guest@" + s.addr))
	ch := must[*amqp.Channel](t)(c.Channel())
	must[amqp.Queue](t)(ch.QueueDeclare("q", false, false, false, false, nil))
	must[<-chan amqp.Delivery](t)(ch.Consume(broker.ReplyTo, "", true, false, false, false, nil))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := ch.PublishWithContext(ctx, "", "q", false, false, amqp.Publishing{ReplyTo: broker.ReplyTo}); err != nil {
		t.Fatal(err)
	}
	request, ok, err := ch.Get("q", true)
	if err != nil || !ok {
		t.Fatal("no request", err)
	}
	requester, ok := s.b.Requester(request.ReplyTo) // whoever publishes the reply has found it
	if !ok {
		t.Fatal("no requester")
	}
	_ = c.Close()
	for len(s.b.Connections()) > 0 {
		if ctx.Err() != nil {
			t.Fatal("the connection does not end")
		}
		time.Sleep(time.Millisecond)
	}
	before := s.b.Bodies().Memory()
	link := s.b.AsOperator("test", "/")
	for range 100 {
		requester.Reply(nil, nil, link.Store(&broker.Publication{Key: []byte("k"), Body: [][]byte{make([]byte, 1<<20)}, Size: 1 << 20}))
	}
	if kept := s.b.Bodies().Memory() - before; kept > 10<<20 {
		t.Errorf("100 replies of 1 MiB that came too late keep %d bytes", kept)
	}
}

// BR-12.4: what waits for a requester is bounded by what it takes in memory, however small the replies are.
func TestBR_12_4_TinyRepliesThatWaitAreBounded(t *testing.T) {
	s := serve(t, broker.Options{})
	ch := s.client(t)
	ch.declare("q", nil)
	must[<-chan amqp.Delivery](t)(ch.Consume(broker.ReplyTo, "", true, false, false, false, nil))
	ch.publish("", "q", amqp.Publishing{ReplyTo: broker.ReplyTo})
	request, ok, err := ch.Get("q", true)
	if err != nil || !ok {
		t.Fatal("no request", err)
	}
	requester, ok := s.b.Requester(request.ReplyTo)
	if !ok {
		t.Fatal("no requester")
	}
	waiting, letGo := session091.StopSending(s.b.Connections()[0].Client())
	link := s.b.AsOperator("test", "/")
	for range 300_000 {
		requester.Reply(nil, nil, link.Store(&broker.Publication{Key: []byte("k")}))
	}
	if n := waiting(); n > 64<<20/512+1 {
		t.Errorf("%d replies wait", n)
	}
	letGo()
}
