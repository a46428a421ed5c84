package security

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/certificate"
)

// operations10 are those of AMQP 1.0, with the permissions that each needs, as in operations.
var operations10 = []struct {
	name  string
	needs string
	do    func(c *framed) string
}{
	{"attach to a queue", "rq", func(c *framed) string { return c.receive("q") }},
	{"attach to an exchange", "wx", func(c *framed) string { return c.send10("/exchanges/x/k", &amqp10.Properties{}) }},
	{"send to an exchange by a property", "wx", func(c *framed) string { return c.send10("", &amqp10.Properties{To: []byte("/exchanges/x/k")}) }},
	{"declare a queue", "cq", func(c *framed) string { return c.request("PUT", "/queues/q-new", []string{}...) }},
	{"declare an exchange", "cx", func(c *framed) string { return c.request("PUT", "/exchanges/x-new", "type", "direct") }},
	{"delete a queue", "cq", func(c *framed) string { return c.request("DELETE", "/queues/q-gone") }},
	{"delete an exchange", "cx", func(c *framed) string { return c.request("DELETE", "/exchanges/x-gone") }},
	{"purge", "rq", func(c *framed) string { return c.request("DELETE", "/queues/q/messages") }},
	{"bind", "wq rx", func(c *framed) string {
		return c.request("POST", "/bindings", "source", "x", "destination_queue", "q", "binding_key", "k", "arguments", "{}")
	}},
	{"bind exchanges", "wx rx", func(c *framed) string {
		return c.request("POST", "/bindings", "source", "x", "destination_exchange", "x", "binding_key", "k", "arguments", "{}")
	}},
	{"unbind", "wq rx", func(c *framed) string { return c.request("DELETE", "/bindings/src=x;dstq=q;key=bound;args=") }},
}

// Whoever speaks AMQP 1.0 needs the same permissions as others, for each link and each request, and those of one virtual host are worth
// nothing in another.
func TestPermissions10(t *testing.T) {
	n := start(t, "")
	vhosts := []string{"one", "two"}
	for _, v := range vhosts {
		n.must("PUT", "/vhosts/"+v, object{})
		n.permit("guest", v, ".*", ".*", ".*")
		for _, q := range []string{"q", "q-gone"} {
			n.must("PUT", "/queues/"+v+"/"+q, object{"durable": true})
		}
		for _, x := range []string{"x", "x-gone"} {
			n.must("PUT", "/exchanges/"+v+"/"+x, object{"type": "topic", "durable": true})
		}
		n.must("POST", "/bindings/"+v+"/e/x/q/q", object{"routing_key": "bound"})
	}
	n.user("all", "")
	n.permit("all", "one", ".*", ".*", ".*")
	n.user("some", "")
	for _, op := range operations10 {
		// Each permission that it needs left out, and then with all of them and no others.
		needs := strings.Fields(op.needs)
		for left := range len(needs) + 1 {
			has := map[byte][]string{}
			for i, need := range needs {
				if i != left {
					has[need[0]] = append(has[need[0]], need[1:]+".*")
				}
			}
			pattern := func(kind byte) string { return "^(" + strings.Join(has[kind], "|") + ")$" }
			n.permit("some", "one", pattern('c'), pattern('w'), pattern('r'))
			why := op.do(n.session10(t, "some", "one"))
			refused := strings.Contains(why, amqp10.ConditionUnauthorizedAccess) && strings.Contains(why, "refused for user 'some'")
			switch {
			case left < len(needs) && !refused:
				t.Errorf("%s without %s: %q", op.name, needs[left], why)
			case left == len(needs) && why != "":
				t.Errorf("%s with %s: %q", op.name, op.needs, why)
			}
		}
	}
	c := n.dial10(t, nil)
	c.login10("PLAIN", amqp10.AppendPlain(nil, "", "all", "all"))
	if why := c.open10("vhost:two"); why != "closed" { // without a word, as RabbitMQ
		t.Errorf("a user of one virtual host in another: %q", why)
	}
	// Names of other virtual hosts lead nowhere.
	for _, address := range []string{"/exchanges/two%2Fx/k", "/queues/two%2Fq"} {
		if why := n.session10(t, "all", "one").send10(address, &amqp10.Properties{}); !strings.Contains(why, amqp10.ConditionNotFound) {
			t.Errorf("%s: %q", address, why)
		}
	}
}

// A user may publish with some keys of a topic exchange only, however it names them (BR-3.5).
func TestTopicPermissions10(t *testing.T) {
	n := start(t, "")
	n.user("ada", "")
	n.permit("ada", "/", ".*", ".*", ".*")
	n.must("PUT", "/topic-permissions/%2F/ada", object{"exchange": "amq.topic", "write": "^mine", "read": "^mine"})
	for _, key := range []string{"mine.1", "yours.1"} {
		for name, do := range map[string]func(c *framed) string{
			"link": func(c *framed) string { return c.send10("/exchanges/amq.topic/"+key, &amqp10.Properties{}) },
			"message": func(c *framed) string {
				return c.send10("", &amqp10.Properties{To: []byte("/exchanges/amq.topic/" + key)})
			},
			"binding": func(c *framed) string {
				c.request("PUT", "/queues/q", []string{}...)
				return n.session10(t, "ada", "/").request("POST", "/bindings", "source", "amq.topic", "destination_queue", "q", "binding_key", key, "arguments", "{}")
			},
		} {
			why := do(n.session10(t, "ada", "/"))
			if mine := strings.HasPrefix(key, "mine"); mine && why != "" || !mine && !strings.Contains(why, amqp10.ConditionUnauthorizedAccess) {
				t.Errorf("%s by %s: %q", key, name, why)
			}
		}
	}
}

// Nobody sends in another's name, unless he may impersonate (BR-8.13).
func TestUserID10(t *testing.T) {
	n := start(t, "")
	for user, tags := range map[string]string{"ada": "administrator", "eve": "impersonator"} {
		n.user(user, tags)
		n.permit(user, "/", ".*", ".*", ".*")
		for id, ok := range map[string]bool{user: true, "guest": user == "eve", "": user == "eve", user + "\x00": user == "eve", strings.Repeat("x", 300): user == "eve"} {
			for address, to := range map[string]string{"/exchanges/amq.fanout": "", "": "/exchanges/amq.fanout"} {
				p := &amqp10.Properties{UserID: []byte(id)}
				if to != "" {
					p.To = []byte(to)
				}
				if why := n.session10(t, user, "/").send10(address, p); ok != (why == "") || !ok && !strings.Contains(why, amqp10.ConditionUnauthorizedAccess) {
					t.Errorf("%s as %.20q to %q: %q", user, id, address, why)
				}
			}
		}
	}
}

// A client is who its password says, and nobody else: whatever it claims beside it, and whatever it skips.
func TestSASL10(t *testing.T) {
	t.Parallel()
	n := start(t, "login_throttle.failures = 0\nhandshake_timeout = 4000")
	n.user("ada", "")
	n.permit("ada", "/", ".*", ".*", ".*")
	for name, s := range map[string]struct {
		mechanism string
		response  []byte
	}{
		"no password":         {"PLAIN", amqp10.AppendPlain(nil, "", "ada", "")},
		"another's password":  {"PLAIN", amqp10.AppendPlain(nil, "", "ada", "guest")},
		"no user":             {"PLAIN", amqp10.AppendPlain(nil, "ada", "", "")},
		"authzid alone":       {"PLAIN", []byte("ada\x00\x00")},
		"one part too many":   {"PLAIN", []byte("\x00ada\x00guest\x00ada")},
		"anonymous":           {"ANONYMOUS", []byte("ada")},
		"external":            {"EXTERNAL", []byte("ada")},
		"a list of two":       {"PLAIN ANONYMOUS", nil},
		"in small letters":    {"plain", amqp10.AppendPlain(nil, "", "ada", "ada")},
		"nothing":             {"", nil},
		"a challenge instead": {"RABBIT-CR-DEMO", []byte("ada")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := n.dial10(t, nil)
			if code := c.login10(s.mechanism, s.response); code == 0 {
				t.Error("it is let in")
			}
			if c.next() != nil {
				t.Error("it is not closed")
			}
		})
	}
	// Who asks to act as another is himself.
	c := n.dial10(t, nil)
	if code := c.login10("PLAIN", amqp10.AppendPlain(nil, "guest", "ada", "ada")); code != 0 {
		t.Fatal(code)
	}
	if why := c.open10("vhost:/"); why != "" {
		t.Fatal(why)
	}
	if list := n.must("GET", "/connections", nil); !strings.Contains(list, `"user":"ada"`) || strings.Contains(list, `"user":"guest"`) {
		t.Errorf("it is somebody else: %s", list)
	}
	// Without SASL nobody gets further than the header.
	c = n.dial10(t, nil)
	c.write([]byte(amqp10.ProtocolHeader))
	c.send(&amqp10.Open{ContainerID: []byte("c")}, &amqp10.Begin{})
	if h := c.header(); h != amqp10.ProtocolHeaderSASL || c.next() != nil {
		t.Errorf("without a login: %q", h)
	}
	// Nor with the header of AMQP after that of SASL, or a frame of AMQP within the dialog.
	for _, b := range [][]byte{[]byte(amqp10.ProtocolHeader), amqp10.AppendFrame(nil, 0, &amqp10.Open{ContainerID: []byte("c")})} {
		c = n.dial10(t, nil)
		c.write([]byte(amqp10.ProtocolHeaderSASL))
		c.header()
		c.next()
		c.write(b)
		c.send(&amqp10.Open{ContainerID: []byte("c")}, &amqp10.Begin{})
		for f := c.next(); f != nil; f = c.next() {
			if _, ok := f.(*amqp10.Begin); ok {
				t.Error("a session without a login")
			}
		}
	}
}

// ANONYMOUS is there if it is configured, and is a user with that user's rights.
func TestAnonymous10(t *testing.T) {
	t.Parallel()
	n := start(t, "auth_mechanisms.1 = ANONYMOUS\nanonymous_login_user = ada\nanonymous_login_pass = ada")
	n.user("ada", "")
	n.permit("ada", "/", "", "", "")
	c := n.dial10(t, nil)
	if code := c.login10("ANONYMOUS", []byte("guest")); code != 0 {
		t.Fatal(code)
	}
	if why := c.open10("vhost:/"); why != "" {
		t.Fatal(why)
	}
	if why := c.request("PUT", "/queues/q", []string{}...); !strings.Contains(why, "refused for user 'ada'") {
		t.Errorf("%q", why)
	}
}

// A certificate is a login for whom it names, by EXTERNAL over TLS, and for nobody without one.
func TestExternal10(t *testing.T) {
	t.Parallel()
	ca, other := certificate.NewAuthority(t, "ca"), certificate.NewAuthority(t, "ca")
	n := start(t, files(t, ca, "ssl_options", day)+"ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = false\nauth_mechanisms.1 = EXTERNAL\nauth_mechanisms.2 = PLAIN\nssl_cert_login_from = common_name\nlogin_throttle.failures = 0\n")
	n.user("ada", "")
	n.permit("ada", "/", ".*", ".*", ".*")
	with := func(by *certificate.Authority, name string) *tls.Config {
		c := named(t, by, pkix.Name{CommonName: name})
		c.RootCAs = ca.Pool()
		return c
	}
	secure := with(ca, "ada")
	c := n.dial10(t, secure)
	if code := c.login10("EXTERNAL", []byte("guest")); code != 0 {
		t.Fatalf("ada's certificate: %d", code)
	}
	if why := c.open10("vhost:/"); why != "" {
		t.Fatal(why)
	}
	if list := n.must("GET", "/connections", nil); !strings.Contains(list, `"user":"ada"`) {
		t.Errorf("it is somebody else: %s", list)
	}
	bare := secure.Clone()
	bare.GetClientCertificate = nil
	if code := n.dial10(t, bare).login10("EXTERNAL", []byte("ada")); code == 0 {
		t.Error("a client without a certificate is let in")
	}
	if code := n.dial10(t, nil).login10("EXTERNAL", []byte("ada")); code == 0 {
		t.Error("a client without TLS is let in")
	}
	for _, c := range []*tls.Config{with(ca, "nobody"), with(other, "ada")} {
		if code := n.dial10(t, c).login10("EXTERNAL", []byte("ada")); code == 0 {
			t.Error("a certificate of nobody, or of a stranger, is let in")
		}
	}
}

// Limits of connections count those of both protocols, and what is refused leaves its place again.
func TestConnectionLimits10(t *testing.T) {
	t.Parallel()
	n := start(t, "")
	n.user("ada", "")
	n.permit("ada", "/", ".*", ".*", ".*")
	for what, path := range map[string]string{"user": "/user-limits/ada/max-connections", "virtual host": "/vhost-limits/%2F/max-connections"} {
		n.must("PUT", path, object{"value": 2})
		first := n.session10(t, "ada", "/")
		old := n.mustDial("ada:ada", "/")
		c := n.dial10(t, nil)
		c.login10("PLAIN", amqp10.AppendPlain(nil, "", "ada", "ada"))
		if why := c.open10("vhost:/"); why != "closed" {
			t.Errorf("one too many of a %s: %q", what, why)
		}
		if _, err := n.dial("ada:ada", "/"); err == nil {
			t.Errorf("one of AMQP 0-9-1 too many of a %s", what)
		}
		_ = old.Close()
		second := n.session10(t, "ada", "/")
		for _, c := range []*framed{first, second} {
			c.send(&amqp10.Close{})
			for closed := false; !closed; {
				switch c.next().(type) {
				case nil, *amqp10.Close:
					closed = true
				}
			}
			_ = c.Conn.Close()
		}
		n.must("PUT", path, object{"value": -1})
	}
}

// guest comes in from loopback only, by this protocol too (BR-2.6).
func TestLoopbackOnly10(t *testing.T) {
	t.Parallel()
	n := start(t, "proxy_protocol = true")
	for from, ok := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false} {
		c := n.dial10(t, nil)
		c.write(fmt.Appendf(nil, "PROXY TCP4 %s 127.0.0.1 4711 5672\r\n", from))
		if code := c.login10("PLAIN", amqp10.AppendPlain(nil, "", "guest", "guest")); (code == 0) != ok {
			t.Errorf("guest from %s: %d", from, code)
		}
	}
}

// Failures count whatever protocol they come by: each is slower than a refusal is anyway.
func TestThrottledLogins10(t *testing.T) {
	t.Parallel()
	n := start(t, "login_throttle.failures = 2\nlogin_throttle.max_delay = 300")
	n.user("ada", "management")
	for range 2 {
		if code := n.dial10(t, nil).login10("PLAIN", amqp10.AppendPlain(nil, "", "ada", "wrong")); code != int(amqp10.SASLCodeAuth) {
			t.Errorf("a wrong password: %d", code)
		}
	}
	began := time.Now()
	if status, _ := n.do("ada:wrong", "GET", "/whoami", ""); status != http.StatusUnauthorized || time.Since(began) < 250*time.Millisecond {
		t.Errorf("the third failure: %d after %v", status, time.Since(began))
	}
	n.permit("ada", "/", "", "", "")
	n.session10(t, "ada", "/")
}
