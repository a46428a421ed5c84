package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
)

// pretend is a broker that sends what it is told, as soon as somebody connects.
func pretend(t *testing.T, sends []byte) *client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		socket, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = socket.Write(sends)
		_ = socket.Close()
	}()
	c, err := dial(l.Addr().String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	return c
}

func anything(*item) bool { return true }

func TestFramesAreKeptUntilSomebodyTakesThem(t *testing.T) {
	b := []byte(amqp10.ProtocolHeaderSASL)
	b = amqp10.AppendFrame(b, 0, &amqp10.SASLOutcome{Code: amqp10.SASLCodeAuth})
	b = append(b, amqp10.ProtocolHeader...)
	b = amqp10.AppendEmptyFrame(b)
	b = amqp10.AppendFrame(b, 0, &amqp10.Open{ContainerID: []byte("c"), MaxFrameSize: amqp10.Some(uint32(1000))})
	b = amqp10.AppendFrame(b, 0, &amqp10.Close{})
	c := pretend(t, b)
	if it := c.take(5*time.Second, func(it *item) bool { return it.kind == "close" }); it == nil {
		t.Fatal("close did not come")
	}
	for _, want := range []string{"header AMQP 3 1 0 0", "sasl-outcome code=auth", "header AMQP 0 1 0 0", "empty frame", `open container-id="c" max-frame-size=1000`} {
		it := c.take(5*time.Second, anything)
		if it == nil {
			t.Fatalf("%s did not come", want)
		}
		if got := it.lines(nil); got[0] != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if it := c.take(5*time.Second, anything); it != nil || !c.hasEnded() {
		t.Errorf("after the end came %v", it)
	}
	if c.peerMax != 1000 {
		t.Errorf("frames of at most %d", c.peerMax)
	}
}

func TestFramesFindTheirSessionAndLink(t *testing.T) {
	c, socket := connected(t)
	c.newSession() // so that the channels of the two differ
	s := c.newSession()
	r := s.newLink("r", true)
	var b []byte
	b = amqp10.AppendFrame(b, 0, &amqp10.Begin{RemoteChannel: amqp10.Some(s.channel), NextOutgoingID: 4294967295})
	b = amqp10.AppendFrame(b, 0, &amqp10.Attach{Name: []byte("r"), Handle: 9, Role: amqp10.RoleSender, InitialDeliveryCount: amqp10.Some(uint32(7))})
	for _, more := range []bool{true, false, false} {
		b = amqp10.AppendFrame(b, 0, &amqp10.Transfer{Handle: 9, DeliveryID: amqp10.Some(uint32(3)), More: more})
	}
	b = amqp10.AppendFrame(b, 0, &amqp10.Detach{Handle: 9})
	if _, err := socket.Write(b); err != nil {
		t.Fatal(err)
	}
	it := c.take(5*time.Second, func(it *item) bool { return it.failed(s, r) })
	if it == nil || it.kind != "detach" || it.link != r || it.session != s {
		t.Fatalf("the detach is %+v", it)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.deliveryCount != 9 || s.nextIn != 2 || s.firstID != 3 {
		t.Errorf("delivery-count %d, next-incoming-id %d, first delivery-id %d", r.deliveryCount, s.nextIn, s.firstID)
	}
}

func TestFramesThatNobodyCanReadAreShown(t *testing.T) {
	for _, c := range []struct{ sends, want string }{
		{"\x00\x00\x00\x09\x02\x00\x00\x00\x40", "broken frame: "},
		{"\x00\x00\x00\x04\x02\x00\x00\x00", ""},
		{"\x00\x00", ""},
	} {
		client := pretend(t, []byte(c.sends))
		it := client.take(5*time.Second, anything)
		switch {
		case c.want == "" && it != nil:
			t.Errorf("%q is %v", c.sends, it.lines(nil))
		case c.want != "" && (it == nil || !strings.HasPrefix(it.lines(nil)[0], c.want)):
			t.Errorf("%q is %v", c.sends, it)
		}
	}
}

// connected is a client, and the broker's end of its socket.
func connected(t *testing.T) (*client, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := dial(l.Addr().String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	socket, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return c, socket
}

func TestFramesLargerThanAnnouncedAreShown(t *testing.T) {
	c, socket := connected(t)
	c.mu.Lock()
	c.maxFrame = 512
	c.mu.Unlock()
	if _, err := socket.Write(amqp10.AppendFrame(nil, 0, &amqp10.Open{ContainerID: make([]byte, 600)})); err != nil {
		t.Fatal(err)
	}
	if it := c.take(5*time.Second, anything); it == nil || it.kind != "broken" || !strings.Contains(it.text, "more than 512") {
		t.Errorf("a frame beyond max-frame-size is %v", it)
	}
}
