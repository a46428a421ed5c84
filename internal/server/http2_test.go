package server

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// HTTP/2 does not make hundreds of requests, or megabytes, of each connection that a stranger may open.
func TestAConnectionOfHTTP2IsFewRequests(t *testing.T) {
	pair := httptest.NewUnstartedServer(nil)
	pair.EnableHTTP2 = true
	pair.StartTLS()
	defer pair.Close()
	secure := pair.TLS.Clone()
	secure.NextProtos = []string{"h2", "http/1.1"}
	o, _ := options(t.TempDir())
	s := mustStart(t, o)
	defer mustStop(t, s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := s.httpServer(http.NotFoundHandler())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(tls.NewListener(l, secure))
	}()
	defer func() {
		_ = server.Close()
		<-ended
	}()
	nc, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pair.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	const ping = "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
	if _, err := io.WriteString(nc, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"+ping); err != nil {
		t.Fatal(err)
	}
	settings, window := map[uint16]uint32{}, uint32(65535)
	for pong := false; !pong; {
		head := make([]byte, 9)
		if _, err := io.ReadFull(nc, head); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(nc, body); err != nil {
			t.Fatal(err)
		}
		switch head[3] {
		case 4: // SETTINGS
			for ; len(body) > 0; body = body[6:] {
				settings[binary.BigEndian.Uint16(body)] = binary.BigEndian.Uint32(body[2:])
			}
		case 8: // WINDOW_UPDATE, of the connection: there is no stream
			window += binary.BigEndian.Uint32(body)
		case 6: // PING, which is answered after the settings are told
			pong = true
		}
	}
	const concurrent, initialWindow, frame = 3, 4, 5
	if n, told := settings[concurrent]; !told || n > 8 {
		t.Errorf("%d requests at once on one connection (told: %v)", n, told)
	}
	if settings[initialWindow] > 128<<10 || settings[frame] > 16<<10 || window > 128<<10 {
		t.Errorf("settings %v, a window of %d: a connection keeps more than 128 KiB", settings, window)
	}
}
