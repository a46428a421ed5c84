package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/controlsocket"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/test/certificate"
)

// configured starts a node as a file says. Where the file has no port, listeners are as options has them.
func configured(t *testing.T, text string) (*Server, Options) {
	t.Helper()
	o, _ := options(t.TempDir())
	if _, err := config.Parse(&o.Config, text); err != nil {
		t.Fatal(err)
	}
	if err := o.Config.Check(); err != nil {
		t.Fatal(err)
	}
	o.HTTP, o.HTTPS = o.Config.ManagementAddresses(config.Address{Value: o.HTTP})
	s := mustStart(t, o)
	t.Cleanup(func() { mustStop(t, s) })
	return s, o
}

// asked is a request and what is answered: the status, and the header Location and the body in one text.
func asked(t *testing.T, c *http.Client, method, address, login, body string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if user, password, ok := strings.Cut(login, ":"); ok {
		r.SetBasicAuth(user, password)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	one := *c
	one.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := one.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	one.CloseIdleConnections()
	return res.StatusCode, res.Header.Get("Location") + string(text), res.Header
}

// door asks through the control socket.
func door(o Options) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return controlsocket.Dial(ctx, o.DataDir)
	}}}
}

// What a file says to protect the management API and the metrics, and where they are, holds.
func TestTheWebIsAsConfigured(t *testing.T) {
	const guest, policy = "guest:guest", `{"pattern":".*","definition":{"max-length":1},"apply-to":"queues"}`
	plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	type ask struct {
		method, path, login, body string
		status                    int
		text                      string // in the answer
	}
	for _, tt := range []struct {
		name, text string
		metrics    bool // they are asked, not the API
		asks       []ask
		door       []ask
	}{
		{"no basic auth", "management.disable_basic_auth = true", false, []ask{
			{"GET", "/api/overview", guest, "", 401, `{"error":"not_authorised","reason":"HTTP access denied: basic auth disabled"}`},
			{"GET", "/api/overview", "", "", 401, `"HTTP access denied: no credentials"`},
			{"POST", "/api/session", "", `{"username":"guest","password":"guest"}`, 401, `basic auth disabled`},
			{"GET", "/", "", "", 200, ""},
		}, []ask{{"GET", "/api/whoami", "", "", 200, ""}}},
		{"operator policies", "management.restrictions.operator_policy_changes.disabled = true", false, []ask{
			{"PUT", "/api/operator-policies/%2F/p", guest, policy, 405, `{"error":"method_not_allowed","reason":"Broker settings disallow editing of operator policies."}`},
			{"DELETE", "/api/operator-policies/%2F/p", guest, "", 405, "disallow editing"},
			{"GET", "/api/operator-policies/%2F/p", "", "", 405, "disallow editing"},
			{"GET", "/api/operator-policies/%2F", guest, "", 200, "[]"},
			{"GET", "/api/overview", guest, "", 200, `"is_op_policy_updating_enabled":false`},
			{"PUT", "/api/parameters/operator_policy/%2F/p", guest, `{"value":` + policy + `}`, 405, "disallow editing"},
			{"DELETE", "/api/parameters/operator_policy/%2F/p", guest, "", 405, "disallow editing"},
			{"POST", "/api/definitions", guest, `{"parameters":[{"component":"operator_policy","vhost":"/","name":"p","value":` + policy + `}]}`, 405, "disallow editing"},
			{"POST", "/api/definitions", guest, `{"parameters":[]}`, 204, ""},
			{"PUT", "/api/policies/%2F/p", guest, policy, 201, ""},
		}, []ask{{"PUT", "/api/operator-policies/%2F/p", "", policy, 201, ""}}},
		{"prefix", "management.path_prefix = a/b/", false, []ask{
			{"GET", "/api/overview", guest, "", 404, ""},
			{"GET", "/a/b/api/overview", guest, "", 200, "node"},
			{"GET", "/a/b/api/queues/%2F", guest, "", 200, "[]"},
			{"GET", "/a/b/api/overview", "", "", 401, ""},
			{"GET", "/a/bapi/overview", guest, "", 404, ""},
			{"GET", "/", "", "", 301, "/a/b/"},
			{"GET", "/a/b", "", "", 301, "/a/b/"},
			{"GET", "/a/b/", "", "", 200, "Bartleby"},
		}, []ask{{"GET", "/api/whoami", "", "", 200, ""}}},
		{"metrics for monitors", "prometheus.authentication.enabled = true\nmanagement.disable_basic_auth = true", true, []ask{
			{"GET", "/metrics", "", "", 401, ""},
			{"GET", "/metrics/per-object", "", "", 401, ""},
			{"GET", "/metrics", "guest:wrong", "", 401, ""},
			{"GET", "/metrics", "low:low", "", 401, "Not monitor user"},
			{"GET", "/metrics", "none:none", "", 401, "Not management user"},
			{"GET", "/metrics", guest, "", 200, "rabbitmq_"},
		}, nil},
		{"path of metrics", "prometheus.path = /m/x", true, []ask{
			{"GET", "/metrics", "", "", 404, ""},
			{"GET", "/m/x", "", "", 200, "rabbitmq_"},
			{"GET", "/m/x/per-object", "", "", 200, "rabbitmq_"},
			{"GET", "/m/xper-object", "", "", 404, ""},
		}, nil},
		{"headers", "management.http.hide_allow_header = true\nmanagement.hsts.policy = max-age=1\nmanagement.headers.referrer_policy = origin", false, []ask{
			{"GET", "/api/overview", guest, "", 200, ""},
			{"GET", "/", "", "", 200, ""},
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, o := configured(t, tt.text)
			for _, user := range []string{`{"password":"low","tags":"management"}`, `{"password":"none","tags":""}`} {
				name := strings.Split(user, `"`)[3]
				if status, text, _ := asked(t, door(o), "PUT", "http://node/api/users/"+name, "", user); status != 201 {
					t.Fatalf("user %s: %d %s", name, status, text)
				}
			}
			at := "http://" + s.Addresses().HTTP.String()
			if tt.metrics {
				at = "http://" + s.Addresses().Prometheus.String()
			}
			check := func(c *http.Client, at string, a ask) {
				status, text, header := asked(t, c, a.method, at+a.path, a.login, a.body)
				if status != a.status || !strings.Contains(text, a.text) {
					t.Errorf("%s %s of %q: %d %.200s; want %d, %s", a.method, a.path, a.login, status, text, a.status, a.text)
				}
				if tt.name == "headers" && (header.Get("Allow") != "" || header.Get("Strict-Transport-Security") != "max-age=1" || header.Get("Referrer-Policy") != "origin") {
					t.Errorf("%s: the headers are %v", a.path, header)
				}
			}
			for _, a := range tt.asks {
				check(plain, at, a)
			}
			for _, a := range tt.door {
				check(door(o), "http://node", a)
			}
		})
	}
}

// The older way to write a listener with TLS serves HTTPS, with its own certificate or that of the AMQP listeners, and nothing in the
// clear. So does management.ssl.* without a port.
func TestHTTPSAsTheFileSays(t *testing.T) {
	dir := t.TempDir()
	authority := certificate.NewAuthority(t, "ca")
	cert, key := authority.Issue(t, "localhost", time.Hour, nil).Write(t, dir)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost"}}}
	for name, text := range map[string]string{
		"its own":        "management.listener.ssl = true\nmanagement.listener.ssl_opts.certfile = CERT\nmanagement.listener.ssl_opts.keyfile = KEY\n",
		"of AMQP":        "management.listener.ssl = true\nssl_options.certfile = CERT\nssl_options.keyfile = KEY\nssl_options.cacertfile = CERT\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n",
		"without a port": "management.ssl.certfile = CERT\nmanagement.ssl.keyfile = KEY\n",
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := options(t.TempDir())
			if _, err := config.Parse(&o.Config, strings.NewReplacer("CERT", filepath.ToSlash(cert), "KEY", filepath.ToSlash(key)).Replace(text)); err != nil {
				t.Fatal(err)
			}
			if err := o.Config.Check(); err != nil {
				t.Fatal(err)
			}
			if o.HTTP, o.HTTPS = o.Config.ManagementAddresses(config.Address{Value: o.HTTP}); o.HTTP != "" || o.HTTPS == "" {
				t.Fatalf("the listeners are %q and %q, want one with TLS", o.HTTP, o.HTTPS)
			}
			o.HTTPS = "127.0.0.1:0"
			s := mustStart(t, o)
			defer mustStop(t, s)
			if status, text, _ := asked(t, client, "GET", "https://"+s.Addresses().HTTPS.String()+"/api/whoami", "guest:guest", ""); status != 200 {
				t.Errorf("%d %s", status, text)
			}
		})
	}
}

// channel_max = 0 and frame_max = 0 are no limit, and a client is told so.
func TestNoLimitOfChannelsAndFrames(t *testing.T) {
	s, _ := configured(t, "channel_max = 0\nframe_max = 0\nmax_connections = 0")
	if tune := tuned(t, s.Addresses().AMQP[0].String()); tune.ChannelMax != 0 || tune.FrameMax != 0 {
		t.Errorf("the limits that are said are %+v, want 0", tune)
	}
	const channels, frame = 60000, 2 << 20
	c, err := amqp.DialConfig("amqp://"+s.Addresses().AMQP[0].String()+"/", amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, ChannelMax: channels, FrameSize: frame})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if c.Config.ChannelMax != channels || c.Config.FrameSize != frame {
		t.Errorf("the client may have %d channels and frames of %d bytes, want what it asked for", c.Config.ChannelMax, c.Config.FrameSize)
	}
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	q, err := ch.QueueDeclare("q", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", 1<<20) // one frame of it
	if err := ch.PublishWithContext(t.Context(), "", q.Name, false, false, amqp.Publishing{Body: []byte(body)}); err != nil {
		t.Fatal(err)
	}
	if m, ok, err := ch.Get(q.Name, true); err != nil || !ok || string(m.Body) != body {
		t.Errorf("got %d bytes, %v, %v", len(m.Body), ok, err)
	}
}

// tuned is what a node says of its limits; the client agrees with them as they are, and opens a virtual host.
func tuned(t *testing.T, at string) (tune *amqp091.ConnectionTune) {
	t.Helper()
	nc, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	say := []byte(amqp091.ProtocolHeader)
	var in []byte
	for {
		if _, err := nc.Write(say); err != nil {
			t.Fatal(err)
		}
		say = nil
		f, n, err := amqp091.NextFrame(in, 1<<20)
		if err == nil && n == 0 {
			b := make([]byte, 4096)
			n, err = nc.Read(b)
			in = append(in, b[:n]...)
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		in = in[n:]
		m, err := amqp091.DecodeMethod(f.Payload)
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *amqp091.ConnectionStart:
			say = amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
		case *amqp091.ConnectionTune:
			tune = m
			say = amqp091.AppendMethod(nil, 0, amqp091.ConnectionTuneOk{ChannelMax: m.ChannelMax, FrameMax: m.FrameMax})
			say = amqp091.AppendMethod(say, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
		case *amqp091.ConnectionOpenOk:
			return tune
		default:
			t.Fatalf("told %+v", m)
		}
	}
}
