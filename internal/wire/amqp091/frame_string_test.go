package amqp091

import (
	"strings"
	"testing"
)

func TestFrameString(t *testing.T) {
	two := uint8(2)
	props := AppendPropsFrom(nil, PropertyList{DeliveryMode: &two, Headers: Table{
		{"n", int32(1)}, {"a key", Array{"s", true, nil}}, {"d", Decimal{2, 314}}, {"x", []byte{1, 0xAB}}, {"t", Timestamp(9)}, {"f", 1.5}, {"e", Table{}},
	}})
	for _, c := range []struct {
		frame []byte
		want  string
	}{
		{AppendMethod(nil, 1, BasicPublish{RoutingKey: "q"}), `ch=1 basic.publish exchange="" routing-key="q"`},
		{AppendMethod(nil, 1, QueueDeclare{Queue: "q", Durable: true, Arguments: Table{{"x-queue-type", "quorum"}, {"x-max-length", int64(5)}}}),
			`ch=1 queue.declare queue="q" durable arguments={x-queue-type="quorum" x-max-length=long:5}`},
		{AppendMethod(nil, 1, BasicAck{DeliveryTag: 7, Multiple: true}), `ch=1 basic.ack delivery-tag=7 multiple`},
		{AppendMethod(nil, 0, ConnectionCloseOk{}), `ch=0 connection.close-ok`},
		{AppendMethod(nil, 0, ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"}),
			`ch=0 connection.start-ok mechanism="PLAIN" response=(12 bytes) locale="en_US"`},
		{AppendContentHeader(nil, 1, ClassBasic, 4, props),
			`ch=1 header class=60 size=4 headers={n=signedint:1 "a key"=["s" true void] d=decimal:314e-2 x=binary:01ab t=timestamp:9 f=double:1.5 e={}} delivery-mode=2`},
		{AppendBody(nil, 1, []byte("secret"), 0), `ch=1 body size=6`},
		{AppendHeartbeat(nil), `ch=0 heartbeat`},
		{AppendMethod(nil, 1, QueueDeclare{Queue: "\xff"}), `ch=1 method (queue.declare: queue: Malformed UTF-8 in shortstr)`},
		{AppendContentHeader(nil, 1, ClassBasic, 4, []byte{0, 0, 0}), `ch=1 header class=60 size=4 (property end: data after the last value)`},
	} {
		f, _, err := NextFrame(c.frame, testMax)
		if err != nil {
			t.Fatal(err)
		}
		if got := FrameString(f); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if got := FrameString(Frame{Type: 7, Channel: 2, Payload: []byte("abc")}); got != "ch=2 frame type=7 size=3" {
		t.Errorf("unknown type: got %s", got)
	}
	long := AppendMethod(nil, 1, ConnectionStart{Locales: strings.Repeat("x", 5000)})
	f, _, _ := NextFrame(long, testMax)
	if got := FrameString(f); len(got) != maxLine || !strings.HasSuffix(got, "...") {
		t.Errorf("a long line has %d bytes", len(got))
	}
}
