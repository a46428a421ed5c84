package listen

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"bartleby.mq/test/certificate"
)

// A client that does not trust the node's certificate is called so, whether it says so encrypted or in the clear.
func TestAClientThatDistrustsTheNode(t *testing.T) {
	server := &tls.Config{Certificates: []tls.Certificate{certificate.NewAuthority(t, "ca").Issue(t, "node", time.Hour, nil).TLS()}}
	for name, client := range map[string]func(net.Conn){
		"encrypted": func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{RootCAs: certificate.NewAuthority(t, "other").Pool(), ServerName: "localhost"}).Handshake()
		},
		"TLS 1.2": func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{RootCAs: certificate.NewAuthority(t, "other").Pool(), ServerName: "localhost", MaxVersion: tls.VersionTLS12}).Handshake()
		},
		"in the clear": func(c net.Conn) {
			_ = tls.Client(cutAfterHello{c}, &tls.Config{InsecureSkipVerify: true}).Handshake()
			_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 48})
		},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
				client(c)
				_, _ = io.Copy(io.Discard, c) // until the node closes it
				_ = c.Close()
			}
		}()
		ours, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = ours.SetDeadline(time.Now().Add(10 * time.Second))
		raw := &alertReader{Conn: ours}
		err = tls.Server(raw, server).Handshake()
		if err == nil || !strings.Contains(raw.explain(err).Error(), "the client does not accept this node's certificate") {
			t.Errorf("%s: %v, explained as %v", name, err, raw.explain(err))
		}
		_ = ours.Close()
		_ = l.Close()
		<-done
	}
	other := errors.New("other")
	if err := (&alertReader{last: []byte{22, 3, 3, 0, 2, 2, 48}}).explain(other); err != other {
		t.Errorf("another error is explained as %v", err)
	}
}

// cutAfterHello ends a client when it reads the server's answer.
type cutAfterHello struct{ net.Conn }

func (cutAfterHello) Read([]byte) (int, error) { return 0, io.EOF }
