package security

import (
	"bytes"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/certificate"
)

// client10 is a client of AMQP 1.0 at a socket.
type client10 struct {
	net.Conn
	buf []byte
}

func (c *client10) header(t *testing.T, h string) {
	t.Helper()
	if _, err := io.WriteString(c, h); err != nil {
		t.Fatal(err)
	}
	for len(c.buf) < len(h) {
		c.more(t)
	}
	if got := string(c.buf[:len(h)]); got != h {
		t.Fatalf("the header is %q, want %q", got, h)
	}
	c.buf = c.buf[len(h):]
}

func (c *client10) more(t *testing.T) {
	t.Helper()
	var b [4096]byte
	n, err := c.Read(b[:])
	c.buf = append(c.buf, b[:n]...)
	if n == 0 {
		t.Fatal(err)
	}
}

func (c *client10) send(t *testing.T, f amqp10.Composite) {
	t.Helper()
	if _, err := c.Write(amqp10.AppendFrame(nil, 0, f)); err != nil {
		t.Fatal(err)
	}
}

// answer is the next frame.
func answer[T amqp10.Composite](t *testing.T, c *client10, into T) T {
	t.Helper()
	for {
		f, n, err := amqp10.NextFrame(c.buf, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			c.more(t)
			continue
		}
		f.Body, c.buf = bytes.Clone(f.Body), c.buf[n:]
		_, v, _, err := amqp10.ReadPerformative(f)
		if err == nil {
			err = into.Decode(v)
		}
		if err != nil {
			t.Fatalf("%s: %v", amqp10.FrameString(f), err)
		}
		return into
	}
}

// login logs in, and says which mechanisms were offered, and whether the client is let in.
func (c *client10) login(t *testing.T, mechanism string, response []byte) (mechanisms []string, in bool) {
	t.Helper()
	c.header(t, amqp10.ProtocolHeaderSASL)
	list := answer(t, c, &amqp10.SASLMechanisms{}).SASLServerMechanisms.Symbols()
	for name, ok := list.Next(); ok; name, ok = list.Next() {
		mechanisms = append(mechanisms, string(name))
	}
	if !slices.Contains(mechanisms, mechanism) {
		return mechanisms, false
	}
	c.send(t, &amqp10.SASLInit{Mechanism: []byte(mechanism), InitialResponse: response})
	if answer(t, c, &amqp10.SASLOutcome{}).Code != amqp10.SASLCodeOK {
		return mechanisms, false
	}
	c.header(t, amqp10.ProtocolHeader)
	c.send(t, &amqp10.Open{ContainerID: []byte("c")})
	answer(t, c, &amqp10.Open{})
	return mechanisms, true
}

// login10 logs in at the listener with TLS. The connection stays until the test ends.
func (n *node) login10(t *testing.T, secure *tls.Config, mechanism string, response []byte) (mechanisms []string, in bool) {
	t.Helper()
	nc, err := tls.Dial("tcp", n.s.Addresses().AMQPS[0].String(), secure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	return (&client10{Conn: nc}).login(t, mechanism, response)
}

// BR-1.14, BR-2.3: a client of AMQP 1.0 is whom its certificate names, by the part of it that ssl_cert_login_from says, and nobody
// else. The API shows its TLS.
func TestExternalOverAMQP10(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, from, user string }{
		{"default", "", "CN=ada,O=Acme"},
		{"distinguished name", "ssl_cert_login_from = distinguished_name\n", "CN=ada,O=Acme"},
		{"common name", "ssl_cert_login_from = common_name\n", "ada"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ca := certificate.NewAuthority(t, "ca")
			n := start(t, files(t, ca, "ssl_options", day)+"ssl_options.verify = verify_peer\namqp10.enabled = true\nauth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = EXTERNAL\n"+tt.from)
			for _, u := range []string{tt.user, "CN=root"} {
				n.user(u, "")
				n.permit(u, "/", ".*", ".*", ".*")
			}
			with := func(c *tls.Config) *tls.Config {
				c.RootCAs = ca.Pool()
				return c
			}
			acme := named(t, ca, pkix.Name{CommonName: "ada", Organization: []string{"Acme"}})
			if offered, in := n.login10(t, with(acme), "EXTERNAL", []byte("CN=root")); !in { // the claim to be another changes nothing
				t.Fatalf("it is not let in; the mechanisms are %v", offered)
			}
			var list []struct {
				User, Protocol string
				Mechanism      string `json:"auth_mechanism"`
				Subject        string `json:"peer_cert_subject"`
				SSL            bool
			}
			if err := json.Unmarshal([]byte(n.must("GET", "/connections", nil)), &list); err != nil {
				t.Fatal(err)
			}
			if len(list) != 1 || list[0].User != tt.user || list[0].Protocol != "AMQP 1-0" || list[0].Mechanism != "EXTERNAL" || list[0].Subject != "CN=ada,O=Acme" || !list[0].SSL {
				t.Errorf("the connections are %+v, want one of %s", list, tt.user)
			}
			if offered, _ := n.login10(t, with(&tls.Config{}), "EXTERNAL", nil); slices.Contains(offered, "EXTERNAL") {
				t.Errorf("a client without a certificate may choose among %v", offered)
			}
			if _, in := n.login10(t, with(named(t, ca, pkix.Name{CommonName: "eve"})), "EXTERNAL", nil); in {
				t.Error("a certificate of somebody whom there is not is let in")
			}
			if _, in := n.login10(t, with(&tls.Config{}), "PLAIN", amqp10.AppendPlain(nil, "", "guest", "guest")); !in {
				t.Error("a password over TLS is not let in")
			}
		})
	}
}
