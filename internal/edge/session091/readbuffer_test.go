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

// script is a client that sends one piece after the other, each when the last was read, and notes
// for how many bytes there was room when each began.
type script struct {
	net.Conn // its addresses
	pieces   [][]byte
	room     []int
	begun    bool
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	if !s.begun {
		s.room, s.begun = append(s.room, len(b)), true
	}
	n := copy(b, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces, s.begun = s.pieces[1:], false
	}
	return n, nil
}

func (s *script) Write(b []byte) (int, error)      { return len(b), nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) Close() error                     { return nil }

// A connection that was busy, and has little to say since, does not keep the buffer of a busy one; who goes on sending
// much keeps it.
func TestTheReadBufferOfAnIdleConnectionIsSmall(t *testing.T) {
	const small, large = 8 << 10, 256 << 10
	b := serve(t, broker.Options{}).b
	somewhere, other := net.Pipe()
	defer func() { _, _ = somewhere.Close(), other.Close() }()
	opening := append(bytes.Clone(startOk), tuneOk...)
	opening = amqp091.AppendMethod(opening, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
	much := bytes.Repeat(beat, 1<<20/len(beat))
	play := func(pieces ...[]byte) []int {
		c := &script{Conn: somewhere, pieces: append([][]byte{opening}, pieces...)}
		if session091.Serve(c, []byte(amqp091.ProtocolHeader), session091.Options{Broker: b, Logger: slog.New(slog.DiscardHandler)}) {
			_ = c.Close()
		}
		if len(c.room) != len(pieces)+1 {
			t.Fatalf("%d of %d pieces were read", len(c.room), len(pieces)+1)
		}
		return c.room
	}
	idle := [][]byte{much}
	for range 10 {
		idle = append(idle, beat)
	}
	if room := play(idle...); room[len(room)-1] > small {
		t.Errorf("after much, and then heartbeats, there is room for %d bytes, want %d at most", room[len(room)-1], small)
	}
	busy := [][]byte{much}
	for range 10 {
		busy = append(busy, beat, beat, beat, much[:large/2])
	}
	for i, n := range play(busy...)[2:] {
		if n < large/2 || n > large {
			t.Errorf("while much is sent there is room for %d bytes at piece %d, want %d", n, i+2, large)
		}
	}
}
