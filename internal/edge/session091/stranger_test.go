package session091_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// What has no place in the handshake is refused as what it is, and not decoded; who then does not close has a second.
func TestStrangersAreNotListenedToForLong(t *testing.T) {
	s := serve(t, broker.Options{})
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	// A queue.declare whose arguments are no table.
	declare := []byte{amqp091.FrameMethod, 0, 0, 0, 0, 0, 8, 0, 50, 0, 10, 0xff, 0xff, 0xff, 0xff, amqp091.FrameEnd}
	if _, err := nc.Write(append([]byte(amqp091.ProtocolHeader), declare...)); err != nil {
		t.Fatal(err)
	}
	sent, err := io.ReadAll(nc)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open after ten seconds")
	}
	var closed *amqp091.ConnectionClose
	for len(sent) > 0 {
		f, n, err := amqp091.NextFrame(sent, 1<<20)
		if err != nil || n == 0 {
			t.Fatalf("%d bytes left, %v", len(sent), err)
		}
		if m, err := amqp091.DecodeMethod(f.Payload); err == nil {
			closed, _ = m.(*amqp091.ConnectionClose)
		}
		sent = sent[n:]
	}
	if closed == nil || closed.ReplyCode != amqp091.CodeChannelError || closed.ClassID != 50 || closed.MethodID != 10 {
		t.Errorf("the client was told %+v", closed)
	}
}
