package serving

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func socketOn(nc net.Conn, first string) *Socket {
	s := &Socket{}
	s.Init(nc, []byte(first), slog.New(slog.DiscardHandler))
	return s
}

// What has come is there until it is skipped, whatever the reads are like, and the buffer grows with a large frame.
func TestUnreadBytesStay(t *testing.T) {
	near, far := net.Pipe()
	s := socketOn(near, "first ")
	want := []byte("first ")
	go func() {
		for k := range 300 {
			_, _ = far.Write(bytes.Repeat([]byte{byte(k)}, 1+k*7%1000))
		}
		_ = far.Close()
	}()
	for k := range 300 {
		want = append(want, bytes.Repeat([]byte{byte(k)}, 1+k*7%1000)...)
	}
	var got []byte
	for k := 0; ; k++ {
		_, err := s.Fill(true)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		take := len(s.Unread()) / (1 + k%3) // some are left
		got = append(got, s.Unread()[:take]...)
		s.Skip(take)
	}
	if got = append(got, s.Unread()...); !bytes.Equal(got, want) {
		t.Errorf("%d bytes came, want %d in order", len(got), len(want))
	}
	if n := s.Traffic.ReceivedBytes.Load(); n != uint64(len(want)-len("first ")) {
		t.Errorf("%d bytes are counted", n)
	}
}

// A client before its login is read up to a limit, into a small buffer.
func TestAStrangerIsReadUpToALimit(t *testing.T) {
	near, far := net.Pipe()
	s := socketOn(near, "")
	go func() { _, _ = far.Write(make([]byte, 2*MaxStranger)) }()
	read := 0
	for {
		n, err := s.Fill(false)
		read += n
		s.Skip(n)
		if cap(s.in) > strangerReadSize {
			t.Fatalf("the buffer has grown to %d bytes", cap(s.in))
		}
		if errors.Is(err, ErrTooMuch) {
			break
		}
		if err != nil || read > MaxStranger {
			t.Fatalf("%d bytes were read, then %v", read, err)
		}
	}
	_, _ = near.Close(), far.Close()
}

// Whoever interrupts ends the read, once; a reader that has heeded before it meets the deadline goes on.
func TestAnInterruptionIsHeededOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := socketOn(near, "")
		go func() {
			time.Sleep(time.Second)
			s.Interrupt()
		}()
		if n, err := s.Fill(true); n != 0 || !errors.Is(err, ErrInterrupted) {
			t.Errorf("%d, %v", n, err)
		}
		until := time.Now().Add(time.Hour)
		s.Heed(until)
		if s.Interrupted() {
			t.Error("it is still interrupted")
		}
		s.Interrupt()
		s.interrupted.Store(false) // heeded because of something else; the deadline is still to come
		if n, err := s.Fill(true); n != 0 || err != nil {
			t.Errorf("%d, %v, want nothing", n, err)
		}
		s.Interrupt()
		s.SetDeadline(until) // overwrites that of the interruption
		if n, err := s.Fill(true); n != 0 || !errors.Is(err, ErrInterrupted) {
			t.Errorf("%d, %v", n, err)
		}
		s.Heed(until)
		if _, err := s.Fill(true); !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(until) {
			t.Errorf("%v", err)
		}
		_, _ = near.Close(), far.Close()
	})
}

// A silent client is disconnected after two to three times its silence.
func TestASilentClientMeetsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := socketOn(near, "")
		begun := time.Now()
		go func() {
			for range 10 {
				time.Sleep(10 * time.Second)
				_, _ = far.Write([]byte("x"))
			}
		}()
		var err error
		for err == nil {
			s.KeepAlive(10 * time.Second)
			_, err = s.Fill(true)
		}
		if silent := time.Since(begun) - 100*time.Second; !errors.Is(err, os.ErrDeadlineExceeded) || silent < 20*time.Second || silent > 30*time.Second {
			t.Errorf("%v after %v of silence", err, silent)
		}
		_, _ = near.Close(), far.Close()
	})
}

// A client that has closed the connection gets our last words, even if it still sends something, and closes the socket itself.
func TestAClientThatLeavesClosesItsSocket(t *testing.T) {
	near, far := connected(t, true)
	w := speaking(near)
	w.out.Start()
	w.say("closed")
	w.out.End()
	if !w.sock.Close(true) {
		t.Fatal("the socket is not left to its client")
	}
	if _, err := far.Write([]byte("an acknowledgement")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len("closed"))
	if _, err := io.ReadFull(far, b); err != nil || string(b) != "closed" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := near.Write([]byte("open")); err != nil {
		t.Errorf("our side of the socket is not open: %v", err)
	}
	if _, err := io.ReadFull(far, b[:4]); err != nil {
		t.Error(err)
	}
	_ = far.Close()
	if rest, err := io.ReadAll(near); err != nil || string(rest) != "an acknowledgement" {
		t.Errorf("the client has sent %q, %v", rest, err)
	}
}
