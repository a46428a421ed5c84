package listen

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"bartleby.mq/test/websocket"
)

// leaves is a protocol whose clients have closed the connection at once.
func leaves(nc net.Conn, _ []byte, _ *Place) bool {
	_, _ = nc.Write([]byte("bye"))
	return true
}

// left is the protocol of leaves, in each of its forms.
var left = []Protocol{{Headers: []string{sasl10}, Web: true, Serve: leaves}}

// hearBye reads the answer to a client's close.
func hearBye(t *testing.T, nc io.ReadWriter) {
	t.Helper()
	if _, err := io.WriteString(nc, sasl10); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len("bye"))
	if _, err := io.ReadFull(nc, b); err != nil || string(b) != "bye" {
		t.Fatalf("%q, %v", b, err)
	}
}

// awaits returns when cond is true, which it becomes soon.
func (s *Server) awaits(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		s.mu.Lock()
		ok := cond()
		s.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it does not come true")
		}
	}
}

// A client closes its socket itself, whatever it speaks, and holds no place meanwhile; once it has, nothing is left.
func TestAClientClosesItsSocket(t *testing.T) {
	s, plainAt, _ := start(t, Options{Protocols: left, Limits: Limits{Connections: 9, Handshakes: 1}})
	ca, o, _ := secure(t)
	creds, err := LoadCredentials(o, s.Logger)
	if err != nil {
		t.Fatal(err)
	}
	tlsAt, err := s.ListenTLS("127.0.0.1:0", creds)
	if err != nil {
		t.Fatal(err)
	}
	webAt, err := s.ListenWeb("127.0.0.1:0", &Web{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		speaks, addr, end string
		over              func(nc net.Conn) io.ReadWriter
		closes            func(io.ReadWriter)
	}{
		{"TCP", plainAt, "", func(nc net.Conn) io.ReadWriter { return nc }, func(c io.ReadWriter) { _ = c.(*net.TCPConn).CloseWrite() }},
		{"TLS", tlsAt.String(), "", func(nc net.Conn) io.ReadWriter {
			return tls.Client(nc, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"})
		},
			func(c io.ReadWriter) { _ = c.(*tls.Conn).CloseWrite() }},
		{"WebSocket", webAt.String(), "\x88\x02\x03\xe8", func(nc net.Conn) io.ReadWriter {
			over, err := websocket.Upgrade(nc, websocket.Request("/ws", nil))
			if err != nil {
				t.Fatal(err)
			}
			return over
		}, func(c io.ReadWriter) {
			_, _ = c.(*websocket.Conn).Conn.Write(websocket.Frame(websocket.Close, true, []byte{3, 232}))
		}},
	} {
		t.Run(c.speaks, func(t *testing.T) {
			nc := dial(t, c.addr)
			over := c.over(nc)
			hearBye(t, over)
			var raw net.Conn
			s.awaits(t, func() bool {
				if s.leaving.Len() == 1 {
					raw = s.leaving.Front().Value.(*leaver).raw
				}
				return raw != nil && len(s.open) == 0 && len(s.strangers) == 0
			})
			c.closes(over)
			from := io.Reader(over)
			if c.speaks == "WebSocket" {
				from = nc // its frames as they are
			}
			rest, err := io.ReadAll(from)
			if err != nil || string(rest) != c.end {
				t.Errorf("the end is %q, %v; want %q", rest, err, c.end)
			}
			s.awaits(t, func() bool { return s.leaving.Len() == 0 })
		})
	}
}

// leaveOne has a client leave that does nothing more. gone is closed when it is let go.
func leaveOne(s *Server) (client net.Conn, gone chan struct{}) {
	near, far := net.Pipe()
	gone = make(chan struct{})
	s.open[near] = struct{}{}
	s.sessions.Go(func() {
		s.leave(near, near)
		_ = near.Close()
		close(gone)
	})
	synctest.Wait()
	return far, gone
}

// A client that never closes its socket has 30 s, and no more than so many have them at once. It keeps no place from others, and a node
// that stops waits a second for it at most.
func TestAClientThatNeverClosesItsSocket(t *testing.T) {
	begun := func(t *testing.T, limits Limits) (*Server, time.Time) {
		t.Helper()
		return New(Options{Logger: slog.New(slog.DiscardHandler), Limits: limits}), time.Now()
	}
	stop := func(s *Server) {
		s.StopAccepting()
		s.Wait(context.Background())
	}
	t.Run("it has its time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, at := begun(t, Limits{})
			client, gone := leaveOne(s)
			if _, err := client.Write([]byte("an acknowledgement")); err != nil {
				t.Error(err)
			}
			<-gone
			if took := time.Since(at); took != patience {
				t.Errorf("it is cut after %v", took)
			}
			stop(s)
		})
	})
	t.Run("what it sends is bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, at := begun(t, Limits{})
			client, gone := leaveOne(s)
			n, _ := client.Write(make([]byte, 2*lastBytes))
			<-gone
			if n != lastBytes || time.Since(at) != 0 {
				t.Errorf("%d bytes were read, want %d", n, lastBytes)
			}
			stop(s)
		})
	})
	t.Run("a node stops", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, at := begun(t, Limits{})
			_, early := leaveOne(s)
			time.Sleep(900 * time.Millisecond)
			s.StopAccepting()
			_, late := leaveOne(s)
			s.Wait(context.Background())
			<-early
			<-late
			if took := time.Since(at); took != 900*time.Millisecond+stopPatience {
				t.Errorf("the stop ends after %v", took)
			}
		})
	})
	t.Run("a node must stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, at := begun(t, Limits{})
			_, gone := leaveOne(s)
			s.StopAccepting()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if cut := s.Wait(ctx); cut != 0 || time.Since(at) != 0 {
				t.Errorf("%d connections are cut after %v", cut, time.Since(at))
			}
			<-gone
		})
	})
	t.Run("there are too many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, at := begun(t, Limits{})
			var goes []chan struct{}
			for range maxLeaving + 2 {
				_, gone := leaveOne(s)
				goes = append(goes, gone)
			}
			<-goes[0]
			<-goes[1]
			if s.leaving.Len() != maxLeaving || time.Since(at) != 0 {
				t.Errorf("%d leave", s.leaving.Len())
			}
			stop(s)
		})
	})
	t.Run("another needs its place", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := begun(t, Limits{Connections: 1})
			_, gone := leaveOne(s)
			near, far := net.Pipe()
			s.take(near, door{})
			<-gone
			if s.Connections() != 1 {
				t.Error("the other has no place")
			}
			_ = far.Close()
			stop(s)
		})
	})
}
