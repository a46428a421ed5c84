package security

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"net"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/certificate"
	"bartleby.mq/test/client10"
	"bartleby.mq/test/websocket"
)

// AMQP 1.0 over WebSocket is the same as at a socket, and logs in by certificates too. Without web_amqp in the configuration there is
// no such listener.
func TestAMQP10OverWebSocket(t *testing.T) {
	t.Parallel()
	ca := certificate.NewAuthority(t, "ca")
	n := start(t, files(t, ca, "ssl_options", day)+files(t, ca, "web_amqp.ssl", day)+`
		ssl_options.verify = verify_peer
		auth_mechanisms.1 = PLAIN
		auth_mechanisms.2 = EXTERNAL
		web_amqp.tcp.port = 15678
		web_amqp.ssl.port = 15677
		web_amqp.ssl.verify = verify_peer
	`)
	n.user("CN=ada", "")
	n.permit("CN=ada", "/", ".*", ".*", ".*")
	plain, err := net.Dial("tcp", n.s.Addresses().WebAMQP.String())
	if err != nil {
		t.Fatal(err)
	}
	config := named(t, ca, pkix.Name{CommonName: "ada"})
	config.RootCAs = ca.Pool()
	secure, err := tls.Dial("tcp", n.s.Addresses().WebAMQPS.String(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		nc        net.Conn
		mechanism string
		response  []byte
	}{
		{plain, "PLAIN", amqp10.AppendPlain(nil, "", "guest", "guest")},
		{secure, "EXTERNAL", nil},
	} {
		defer func() { _ = tt.nc.Close() }()
		_ = tt.nc.SetDeadline(time.Now().Add(time.Minute))
		over, err := websocket.Upgrade(tt.nc, websocket.Request("/ws", nil))
		if err != nil {
			t.Fatal(err)
		}
		c := &framed{t, client10.Wire{Conn: over}}
		if code := c.login10(tt.mechanism, tt.response); code != 0 {
			t.Fatalf("%s is not let in: %d", tt.mechanism, code)
		}
		if why := c.open10("vhost:/"); why != "" {
			t.Fatal(why)
		}
	}
	var list []struct {
		User, Protocol string
		SSL            bool
	}
	if err := json.Unmarshal([]byte(n.must("GET", "/connections?sort=user", nil)), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].User != "CN=ada" || !list[0].SSL || list[1].SSL || list[0].Protocol != "Web AMQP 1-0" || list[1].Protocol != "Web AMQP 1-0" {
		t.Errorf("the connections are %+v", list)
	}
	var overview struct {
		Listeners []struct {
			Protocol string
			TLS      bool
		}
	}
	if err := json.Unmarshal([]byte(n.must("GET", "/overview", nil)), &overview); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, l := range overview.Listeners {
		found[l.Protocol] = l.TLS
	}
	if tls, ok := found["https/web-amqp"]; !ok || !tls {
		t.Errorf("the listeners are %+v", overview.Listeners)
	}
	if tls, ok := found["http/web-amqp"]; !ok || tls {
		t.Errorf("the listeners are %+v", overview.Listeners)
	}
}
