package session091_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// What a client sends behind its connection.close breaks nothing: it reads the close-ok, and
// then the end.
func TestFramesBehindTheClose(t *testing.T) {
	s := serve(t, broker.Options{})
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	send := func(b []byte) {
		t.Helper()
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	send([]byte("AMQP\x00\x00\x09\x01"))
	send(amqp091.AppendMethod(nil, 0, amqp091.ConnectionClose{ReplyCode: 200, ReplyText: "done"}))
	closeOk := amqp091.AppendMethod(nil, 0, amqp091.ConnectionCloseOk{})
	var got []byte
	for b := make([]byte, 4096); !bytes.HasSuffix(got, closeOk); {
		n, err := nc.Read(b)
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, b[:n]...)
	}
	late := amqp091.AppendHeartbeat(nil)
	for range 100 {
		send(late)
	}
	if n, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the close-ok %d bytes, %v", n, err)
	}
}
