package session091_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// What a client gives no value is "undefined" in its properties and in the arguments of its consumers,
// as in RabbitMQ: tools read null as a mistake (BR-15.15).
func TestVoidArgumentsOfClients(t *testing.T) {
	s := serve(t, broker.Options{})
	nc := must[*amqp.Connection](t)(amqp.DialConfig("amqp://guest:guest@"+s.addr, amqp.Config{Properties: amqp.Table{"nothing": nil}}))
	defer func() { _ = nc.Close() }()
	ch := must[*amqp.Channel](t)(nc.Channel())
	must[amqp.Queue](t)(ch.QueueDeclare("q", true, false, false, false, nil))
	must[<-chan amqp.Delivery](t)(ch.Consume("q", "", true, false, false, false, amqp.Table{"nothing": nil}))
	shown := topology.ArgumentsJSON(s.b.Connections()[0].Client().Status().Properties)
	if v := shown["nothing"]; v != "undefined" {
		t.Errorf("the client's property is %v", v)
	}
	consumers := s.b.Consumers(s.b.CountQueues()[0].Info)
	if len(consumers) != 1 || topology.ArgumentsJSON(consumers[0].Arguments)["nothing"] != "undefined" {
		t.Errorf("the consumers are %+v", consumers)
	}
}
