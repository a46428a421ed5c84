package session091_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// What a client sends behind its connection.close breaks nothing: it reads the close-ok, and the socket is left to it, open in both
// directions.
func TestFramesBehindTheClose(t *testing.T) {
	s := serve(t, broker.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	leaves, sent := make(chan bool, 1), make(chan []byte, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = nc.Close() }()
		var first [8]byte
		_, _ = io.ReadFull(nc, first[:])
		leaves <- session091.Serve(nc, first[:], session091.Options{Broker: s.b, Logger: slog.New(slog.DiscardHandler)})
		_, _ = nc.Write([]byte("open"))
		rest, _ := io.ReadAll(nc)
		sent <- rest
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	late := bytes.Repeat(amqp091.AppendHeartbeat(nil), 100)
	closes := amqp091.AppendMethod([]byte("AMQP\x00\x00\x09\x01"), 0, amqp091.ConnectionClose{ReplyCode: 200, ReplyText: "done"})
	if _, err := nc.Write(append(closes, late...)); err != nil {
		t.Fatal(err)
	}
	if !<-leaves {
		t.Error("the socket is not left to its client")
	}
	if _, err := nc.Write(late); err != nil {
		t.Fatal(err)
	}
	_ = nc.(*net.TCPConn).CloseWrite()
	<-sent
	got, err := io.ReadAll(nc)
	if want := append(amqp091.AppendMethod(nil, 0, amqp091.ConnectionCloseOk{}), "open"...); err != nil || !bytes.HasSuffix(got, want) {
		t.Errorf("%q, %v; want the answer, and an open socket", got, err)
	}
}
