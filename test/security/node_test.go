package security

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is one that runs, and its log.
type node struct {
	t   *testing.T
	s   *server.Server
	log *lines
}

// lines is a log that a test reads while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs a node with lines of a configuration file. Listeners with TLS are on where
// the file has certificates for them.
func start(t *testing.T, text string) *node {
	t.Helper()
	c := configured(t, text)
	n := &node{t: t, log: new(lines)}
	logger := slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := server.Options{
		DataDir: t.TempDir(), Config: c, Version: "test", Logger: logger, Audit: logger.WithGroup("audit"),
		AMQP: []string{"127.0.0.1:0"}, HTTP: "127.0.0.1:0",
	}
	if c.TLS.Said() {
		o.AMQPS = []string{"127.0.0.1:0"}
	}
	if c.ManagementTLS.TLS.Said() {
		o.HTTP, o.HTTPS = "", "127.0.0.1:0"
	}
	if c.WebAMQP.Said() {
		o.WebAMQP = "127.0.0.1:0"
	}
	if c.WebAMQPTLS.Said() {
		o.WebAMQPS = "127.0.0.1:0"
	}
	var err error
	if n.s, err = server.Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func configured(t *testing.T, text string) config.Config {
	t.Helper()
	c := config.Default()
	if _, err := config.Parse(&c, text); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return c
}

// client is one that keeps no connections.
var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}

// do makes a request to the management API as NAME:PASSWORD and returns status and body.
func (n *node) do(login, method, path, body string) (int, string) {
	n.t.Helper()
	r, err := http.NewRequest(method, "http://"+n.s.Addresses().HTTP.String()+"/api"+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	name, password, _ := strings.Cut(login, ":")
	r.SetBasicAuth(name, password)
	answer, err := client.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// must is do as guest, for what cannot fail.
func (n *node) must(method, path string, body any) string {
	n.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		n.t.Fatal(err)
	}
	status, answer := n.do("guest:guest", method, path, string(text))
	if status >= 300 {
		n.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	return answer
}

// object is a JSON object.
type object = map[string]any

// user makes one, whose password is its name.
func (n *node) user(name, tags string) {
	n.t.Helper()
	n.must("PUT", "/users/"+url.PathEscape(name), object{"password": name, "tags": tags})
}

func (n *node) permit(user, vhost, configure, write, read string) {
	n.t.Helper()
	n.must("PUT", "/permissions/"+url.PathEscape(vhost)+"/"+url.PathEscape(user), object{"configure": configure, "write": write, "read": read})
}

// dial opens a connection as NAME:PASSWORD.
func (n *node) dial(login, vhost string) (*amqp.Connection, error) {
	return amqp.Dial("amqp://" + login + "@" + n.s.Addresses().AMQP[0].String() + "/" + url.PathEscape(vhost))
}

// mustDial is dial for what cannot fail; the connection ends with the test.
func (n *node) mustDial(login, vhost string) *amqp.Connection {
	n.t.Helper()
	c, err := n.dial(login, vhost)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialTLS opens a connection with TLS and a SASL mechanism.
func (n *node) dialTLS(c *tls.Config, mechanism amqp.Authentication) (*amqp.Connection, error) {
	return amqp.DialConfig("amqps://"+n.s.Addresses().AMQPS[0].String()+"/", amqp.Config{TLSClientConfig: c, SASL: []amqp.Authentication{mechanism}})
}
