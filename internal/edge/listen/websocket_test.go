package listen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/test/websocket"
)

// startWeb listens for WebSocket, where what comes after the protocol header is served so.
func startWeb(t *testing.T, web *Web, serve func(nc net.Conn)) string {
	t.Helper()
	protocols := []Protocol{
		{Headers: []string{sasl10}, Web: true, Serve: func(nc net.Conn, _ []byte, _ *Place) bool {
			if _, ok := nc.(*WebSocket); !ok {
				t.Errorf("a session has a %T", nc)
			}
			serve(nc)
			_ = nc.Close()
			return false
		}},
	}
	s, _, _ := start(t, Options{Protocols: append(protocols, speaking(func(nc net.Conn, _ []byte, _ *Place) { _ = nc.Close() })...)})
	at, err := s.ListenWeb("127.0.0.1:0", web, nil)
	if err != nil {
		t.Fatal(err)
	}
	return at.String()
}

// upgraded is a client that speaks WebSocket.
func upgraded(t *testing.T, addr string) *websocket.Conn {
	t.Helper()
	c, err := websocket.Upgrade(dial(t, addr), websocket.Request("/ws", nil))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A session gets the bytes of binary messages, wherever messages and frames begin and end, and pings are answered meanwhile.
func TestWebSocketIsAStream(t *testing.T) {
	addr := startWeb(t, &Web{}, func(nc net.Conn) {
		for range 2 {
			var n [4]byte
			if _, err := io.ReadFull(nc, n[:]); err != nil {
				t.Error(err)
				return
			}
			b := make([]byte, binary.BigEndian.Uint32(n[:]))
			if _, err := io.ReadFull(nc, b); err != nil {
				t.Error(err)
				return
			}
			if _, err := nc.Write(b); err != nil {
				t.Error(err)
			}
		}
	})
	c := upgraded(t, addr)
	large := bytes.Repeat([]byte("0123456789"), 10_000)
	head := []byte(sasl10)
	frames := [][]byte{
		websocket.Frame(websocket.Binary, false, head[:3]), websocket.Frame(websocket.Ping, true, []byte("one")), websocket.Frame(websocket.Continuation, false, nil),
		websocket.Frame(websocket.Continuation, true, head[3:]), websocket.Frame(websocket.Pong, true, nil), websocket.Frame(websocket.Binary, true, []byte{0, 0, 0, 5, 'h', 'e', 'l'}),
		websocket.Frame(websocket.Binary, true, []byte("lo")),
	}
	for _, b := range bytes.Join(frames, nil) { // byte by byte
		if _, err := c.Conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
		t.Fatalf("%q %v", b, err)
	}
	for _, payload := range [][]byte{binary.BigEndian.AppendUint32(nil, uint32(len(large))), large[:70_000], large[70_000:]} {
		if _, err := c.Write(payload); err != nil {
			t.Fatal(err)
		}
	}
	b = make([]byte, len(large))
	if _, err := io.ReadFull(c, b); err != nil || !bytes.Equal(b, large) {
		t.Fatalf("what comes back is not what was sent: %v", err)
	}
	if len(c.Controls) != 1 || string(c.Controls[0]) != string(rune(websocket.Pong))+"one" {
		t.Errorf("the node has sent the control frames %q, want the answer to a ping", c.Controls)
	}
}

// Who asks for something else hears so, by a status.
func TestWebSocketRefusals(t *testing.T) {
	addr := startWeb(t, &Web{Path: "/amqp", Origins: []string{"https://shop.example"}}, func(net.Conn) {})
	for _, tt := range []struct {
		name, path string
		lines      http.Header
		status     int // 0: it is accepted
	}{
		{"as it should be", "/amqp", nil, 0},
		{"a page that may", "/amqp", http.Header{"Origin": {"https://shop.example"}}, 0},
		{"a page that may not", "/amqp", http.Header{"Origin": {"https://evil.example"}}, 403},
		{"another path", "/ws", nil, 404},
		{"no subprotocol", "/amqp", http.Header{"Sec-Websocket-Protocol": nil}, 400},
		{"another subprotocol", "/amqp", http.Header{"Sec-Websocket-Protocol": {"mqtt"}}, 400},
		{"a page that asks for nothing more", "/amqp", http.Header{"Upgrade": nil}, 426},
		{"an older version", "/amqp", http.Header{"Sec-Websocket-Version": {"8"}}, 426},
		{"no key", "/amqp", http.Header{"Sec-Websocket-Key": {"short"}}, 400},
		{"an endless request", "/amqp", http.Header{"X": {strings.Repeat("x", maxWebRequest)}}, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := websocket.Upgrade(dial(t, addr), websocket.Request(tt.path, tt.lines))
			var refused websocket.Refused
			errors.As(err, &refused)
			if err == nil && tt.status != 0 || err != nil && int(refused) != tt.status {
				t.Errorf("%v, want the status %d", err, tt.status)
			}
		})
	}
}

// Pages that nobody has named may connect if they are of the node's own host; at a loopback address only if that is a loopback address or
// localhost, since any name may lead there.
func TestPagesOfOtherSitesMayNotConnect(t *testing.T) {
	here, elsewhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	for _, tt := range []struct {
		origins      []string
		origin, host string
		local        net.Addr
		may          bool
	}{
		{nil, "http://localhost:8080", "localhost:15678", here, true},
		{nil, "http://127.0.0.1", "127.0.0.1:15678", here, true},
		{nil, "http://[::1]:80", "[::1]:15678", here, true},
		{nil, "https://evil.example", "localhost:15678", here, false},
		{nil, "https://evil.example", "evil.example:15678", here, false},
		{nil, "https://mq.example", "mq.example:15678", elsewhere, true},
		{nil, "https://evil.example", "mq.example:15678", elsewhere, false},
		{nil, "null", "localhost", here, false},
		{[]string{"*"}, "https://evil.example", "localhost", here, true},
		{[]string{"https://shop.example"}, "http://localhost", "localhost", here, false},
	} {
		if got := (&Web{Origins: tt.origins}).may(tt.origin, tt.host, tt.local); got != tt.may {
			t.Errorf("%s at %s, with %v: %v", tt.origin, tt.host, tt.origins, got)
		}
	}
}

// A client that breaks RFC 6455 gets a close with its code, and one that closes gets its own.
func TestWebSocketCloses(t *testing.T) {
	addr := startWeb(t, &Web{}, func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) })
	unmasked := websocket.Frame(websocket.Binary, true, nil)
	unmasked[1] &= 0x7f
	reserved := websocket.Frame(websocket.Binary, true, nil)
	reserved[0] |= 0x40
	endless := []byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	for _, tt := range []struct {
		name string
		sent []byte
		code uint16
	}{
		{"no mask", unmasked, 1002},
		{"an extension", reserved, 1002},
		{"a frame of 2^64 bytes", endless, 1002},
		{"text", websocket.Frame(websocket.Text, true, []byte("AMQP")), 1003},
		{"a continuation of nothing", websocket.Frame(websocket.Continuation, true, nil), 1002},
		{"a message within a message", slices.Concat(websocket.Frame(websocket.Binary, false, nil), websocket.Frame(websocket.Binary, true, nil)), 1002},
		{"a large ping", websocket.Frame(websocket.Ping, true, make([]byte, 126)), 1002},
		{"a ping in pieces", websocket.Frame(websocket.Ping, false, nil), 1002},
		{"an unknown kind", websocket.Frame(11, true, nil), 1002},
		{"close", websocket.Frame(websocket.Close, true, append(binary.BigEndian.AppendUint16(nil, 4321), "bye"...)), 4321},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := upgraded(t, addr)
			if _, err := c.Write([]byte(sasl10)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Conn.Write(tt.sent); err != nil {
				t.Fatal(err)
			}
			_, err := c.Read(make([]byte, 1))
			want := binary.BigEndian.AppendUint16([]byte{websocket.Close}, tt.code)
			if err != io.EOF || len(c.Controls) != 1 || !bytes.Equal(c.Controls[0], want) {
				t.Errorf("%v, %x, want a close with the code %d", err, c.Controls, tt.code)
			}
		})
	}
}

// A deadline that passes within a frame loses nothing of it: sessions are interrupted so.
func TestWebSocketDeadlines(t *testing.T) {
	waits, done := make(chan struct{}), make(chan string, 1)
	addr := startWeb(t, &Web{}, func(nc net.Conn) {
		var text []byte
		for len(text) < len("hello") {
			_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond))
			var b [16]byte
			n, err := nc.Read(b[:])
			text = append(text, b[:n]...)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				select {
				case waits <- struct{}{}:
				case <-time.After(10 * time.Second):
					return
				}
			} else if err != nil {
				t.Error(err)
				break
			}
		}
		done <- string(text)
	})
	c := upgraded(t, addr)
	_, _ = c.Write([]byte(sasl10))
	for _, b := range websocket.Frame(websocket.Binary, true, []byte("hello")) {
		<-waits
		if _, err := c.Conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		select {
		case got := <-done:
			if got != "hello" {
				t.Errorf("the session has read %q", got)
			}
			return
		case <-waits:
		}
	}
}

// A ping is answered also when the deadline of the write before has passed, as it has on a connection on which the node has long said nothing.
func TestWebSocketPingsOfAQuietConnection(t *testing.T) {
	addr := startWeb(t, &Web{}, func(nc net.Conn) {
		if _, err := nc.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		_ = nc.SetWriteDeadline(time.Now().Add(-time.Second))
		_, _ = io.Copy(io.Discard, nc)
	})
	c := upgraded(t, addr)
	if _, err := c.Write([]byte(sasl10)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	for _, f := range [][]byte{websocket.Frame(websocket.Ping, true, []byte("one")), websocket.Frame(websocket.Close, true, nil)} {
		if _, err := c.Conn.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Read(b); err != io.EOF || len(c.Controls) != 2 || string(c.Controls[0]) != string(rune(websocket.Pong))+"one" {
		t.Errorf("%v %q, want the answer to a ping, and a close", err, c.Controls)
	}
}

// Over WebSocket AMQP 1.0 is spoken, and nothing else: others hear so.
func TestWebSocketProtocols(t *testing.T) {
	addr := startWeb(t, &Web{}, func(net.Conn) {})
	c := upgraded(t, addr)
	_, _ = io.WriteString(c, "AMQP\x00\x00\x09\x01")
	b := make([]byte, len(sasl10))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != sasl10 {
		t.Errorf("a client of AMQP 0-9-1 hears %q, %v", b, err)
	}
	if _, err := c.Read(b); err != io.EOF || len(c.Controls) != 1 || c.Controls[0][0] != websocket.Close {
		t.Errorf("the connection is not closed: %v %q", err, c.Controls)
	}
}
