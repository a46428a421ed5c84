package listen

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"bartleby.mq/internal/wire/amqp091"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logged is a log that a test reads while sessions write to it.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// speaking is AMQP 0-9-1, spoken so.
func speaking(serve func(net.Conn, []byte, *Place)) []Protocol {
	return []Protocol{{Headers: []string{amqp091.ProtocolHeader, "AMQP\x01\x01\x00\x09"}, Serve: func(nc net.Conn, first []byte, p *Place) bool {
		serve(nc, first, p)
		return false
	}}}
}

// start listens at a free port and stops with the test.
func start(t *testing.T, o Options) (*Server, string, *logged) {
	t.Helper()
	log := new(logged)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	s := New(o)
	at, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.StopAccepting()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Wait(ctx)
	})
	return s, at.String(), log
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

// BR-1.1, BR-1.2: two headers open AMQP 0-9-1; all else is told so and closed.
func TestProtocolHeaders(t *testing.T) {
	_, addr, _ := start(t, Options{Protocols: speaking(func(nc net.Conn, first []byte, _ *Place) {
		_, _ = nc.Write(append([]byte("session "), first...))
		_ = nc.Close()
	})})
	long := "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("x", 1000)
	for name, tt := range map[string]struct{ sent, want string }{
		"0-9-1":              {"AMQP\x00\x00\x09\x01", "session AMQP\x00\x00\x09\x01"},
		"1-1-0-9":            {"AMQP\x01\x01\x00\x09", "session AMQP\x01\x01\x00\x09"},
		"0-9":                {"AMQP\x00\x00\x09\x00", amqp091.ProtocolHeader},
		"0-10":               {"AMQP\x00\x00\x0a\x00", amqp091.ProtocolHeader},
		"0-8":                {"AMQP\x00\x00\x00\x08", amqp091.ProtocolHeader},
		"1.0 without SASL":   {"AMQP\x00\x01\x00\x00", amqp091.ProtocolHeader},
		"1.0 with SASL":      {"AMQP\x03\x01\x00\x00", amqp091.ProtocolHeader},
		"a request for HTTP": {long, amqp091.ProtocolHeader},
		"a TLS hello":        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", amqp091.ProtocolHeader},
	} {
		t.Run(name, func(t *testing.T) {
			nc := dial(t, addr)
			if _, err := io.WriteString(nc, tt.sent); err != nil {
				t.Fatal(err)
			}
			_ = nc.(*net.TCPConn).CloseWrite()
			got, err := io.ReadAll(nc)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v; want %q and the end", got, err, tt.want)
			}
		})
	}
}

func TestHeaderInPieces(t *testing.T) {
	_, addr, _ := start(t, Options{Protocols: speaking(func(nc net.Conn, first []byte, _ *Place) { _, _ = nc.Write(first) })})
	nc := dial(t, addr)
	for _, b := range []byte(amqp091.ProtocolHeader) {
		if _, err := nc.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := io.ReadAll(nc); string(got) != amqp091.ProtocolHeader {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestConnectionLimit(t *testing.T) {
	_, addr, log := start(t, Options{Limits: Limits{Connections: 1}, Protocols: speaking(func(nc net.Conn, first []byte, _ *Place) {
		_, _ = nc.Write(first)
		_, _ = io.Copy(io.Discard, nc)
	})})
	first := dial(t, addr)
	_, _ = io.WriteString(first, amqp091.ProtocolHeader)
	if _, err := io.ReadFull(first, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	second := dial(t, addr)
	if n, err := second.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the second connection got %d bytes, %v; want the end", n, err)
	}
	if !strings.Contains(log.String(), "connection limit") {
		t.Errorf("the log does not say why: %s", log)
	}
}

// A mistake in the talk with one client ends that connection and no other.
func TestPanicEndsOneConnection(t *testing.T) {
	_, addr, log := start(t, Options{Protocols: speaking(func(nc net.Conn, first []byte, _ *Place) {
		if first[4] == 1 {
			panic("a bug in the talk")
		}
		_, _ = nc.Write(first)
		_, _ = io.Copy(nc, nc)
	})})
	good := dial(t, addr)
	_, _ = io.WriteString(good, amqp091.ProtocolHeader)
	if _, err := io.ReadFull(good, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	bad := dial(t, addr)
	_, _ = io.WriteString(bad, "AMQP\x01\x01\x00\x09")
	if _, err := io.ReadAll(bad); err != nil {
		t.Errorf("the connection with the bug: %v, want the end", err)
	}
	_, _ = io.WriteString(good, "still")
	if _, err := io.ReadFull(good, make([]byte, 5)); err != nil {
		t.Errorf("the other connection: %v", err)
	}
	if text := log.String(); !strings.Contains(text, "a bug in the talk") || !strings.Contains(text, "server_test.go") {
		t.Errorf("the log has not the panic and its stack: %s", text)
	}
}

func TestStopWaitsForSessionsAndThenCuts(t *testing.T) {
	s, addr, _ := start(t, Options{Protocols: speaking(func(nc net.Conn, first []byte, _ *Place) {
		_, _ = nc.Write(first)
		_, _ = io.Copy(io.Discard, nc)
	})})
	for range 3 {
		nc := dial(t, addr)
		_, _ = io.WriteString(nc, amqp091.ProtocolHeader)
		if _, err := io.ReadFull(nc, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
	}
	s.StopAccepting()
	if nc, err := net.Dial("tcp", addr); err == nil {
		_ = nc.Close()
		t.Error("a connection was taken after StopAccepting")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if cut := s.Wait(ctx); cut != 3 {
		t.Errorf("%d connections cut, want 3", cut)
	}
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections left", n)
	}
	if cut := s.Wait(t.Context()); cut != 0 {
		t.Errorf("%d connections cut the second time", cut)
	}
	if _, err := s.Listen("127.0.0.1:0"); err == nil {
		t.Error("Listen works after StopAccepting")
	}
}

// flaky is a listener whose first accepts fail, as with too many files open.
type flaky struct {
	net.Listener
	failures int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.failures > 0 {
		f.failures--
		return nil, io.ErrUnexpectedEOF
	}
	return f.Listener.Accept()
}

func TestAcceptGoesOnAfterErrors(t *testing.T) {
	log := new(logged)
	s := New(Options{Logger: slog.New(slog.NewTextHandler(log, nil)), Protocols: speaking(func(nc net.Conn, first []byte, _ *Place) { _, _ = nc.Write(first) })})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.listeners = append(s.listeners, l)
	s.accepting.Go(func() { s.accept(&flaky{l, 3}, door{}) })
	defer s.Wait(t.Context())
	defer s.StopAccepting()
	nc := dial(t, l.Addr().String())
	_, _ = io.WriteString(nc, amqp091.ProtocolHeader)
	if _, err := io.ReadFull(nc, make([]byte, 8)); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "cannot accept a connection"); n != 3 {
		t.Errorf("%d failures logged, want 3", n)
	}
}
