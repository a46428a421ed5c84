package security

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/wire/amqp091"
)

// dialThrough opens a connection as a proxy does for a client at an address.
func (n *node) dialThrough(from, login string) (*amqp.Connection, error) {
	return amqp.DialConfig("amqp://"+login+"@"+n.s.Addresses().AMQP[0].String()+"/", amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		nc, err := net.Dial(network, addr)
		if err != nil {
			return nil, err
		}
		header, err := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.ParseIP(from), Port: 4000}, &net.TCPAddr{IP: net.ParseIP(from), Port: 5672}).Format()
		if err != nil {
			return nil, err
		}
		_, err = nc.Write(header)
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second)) // for the handshake; the client lifts it
		return nc, err
	}})
}

func wantError(t *testing.T, what string, err error, code int, text string) {
	t.Helper()
	var e *amqp.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Reason, text) {
		t.Errorf("%s: %v, want %d %s", what, err, code, text)
	}
}

// BR-3.7: the limits of users and virtual hosts, with their texts.
func TestLimits(t *testing.T) {
	t.Parallel()
	n := start(t, "")
	n.must("PUT", "/vhosts/v", object{})
	n.permit("guest", "v", ".*", ".*", ".*")
	n.must("PUT", "/vhost-limits/v/max-connections", object{"value": 1})
	n.must("PUT", "/vhost-limits/v/max-queues", object{"value": 1})
	c := n.mustDial("guest:guest", "v")
	_, err := n.dial("guest:guest", "v")
	wantError(t, "a second connection of the virtual host", err, 530, "access to vhost 'v' refused for user 'guest': connection limit (1) is reached")
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "one"} { // again is no other
		if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err = ch.QueueDeclare("two", true, false, false, false, nil)
	wantError(t, "a second queue", err, 406, "cannot declare queue 'two': queue limit in vhost 'v' (1) is reached")

	n.user("ada", "")
	n.permit("ada", "/", ".*", ".*", ".*")
	n.must("PUT", "/user-limits/ada/max-connections", object{"value": 1})
	n.must("PUT", "/user-limits/ada/max-channels", object{"value": 2})
	c = n.mustDial("ada:ada", "/")
	_, err = n.dial("ada:ada", "/")
	wantError(t, "a second connection of the user", err, 530, "connection refused for user 'ada': user connection limit (1) is reached")
	for range 2 {
		if _, err := c.Channel(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.Channel()
	wantError(t, "a third channel", err, 530, "number of channels opened for user 'ada' has reached the maximum allowed user limit of 2")
}

// The node's own limits, and the checks that tell of them.
func TestNodeLimits(t *testing.T) {
	t.Parallel()
	n := start(t, "max_connections = 2\nhandshake_timeout = 200")
	if answer := n.must("GET", "/health/checks/below-node-connection-limit", nil); !strings.Contains(answer, `"limit":2`) {
		t.Errorf("the check says %s", answer)
	}
	n.mustDial("guest:guest", "/")
	n.mustDial("guest:guest", "/")
	if c, err := n.dial("guest:guest", "/"); err == nil {
		_ = c.Close()
		t.Error("a third connection is taken")
	}
	if status, answer := n.do("guest:guest", "GET", "/health/checks/below-node-connection-limit", ""); status != http.StatusServiceUnavailable || !strings.Contains(answer, "node connection limit is reached") {
		t.Errorf("the check says %d %s", status, answer)
	}
}

// One address may have so many connections that are not let in yet, and there is a limit where nobody has set one.
func TestHandshakesOfOneAddress(t *testing.T) {
	t.Parallel()
	if config.Default().MaxHandshakes == 0 {
		t.Error("there is no limit by default")
	}
	n := start(t, "handshake_max_per_address = 2")
	for i := range 3 {
		nc, err := net.Dial("tcp", n.s.Addresses().AMQP[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(nc, "AMQP\x00\x00\x09\x01")
		if _, err := nc.Read(make([]byte, 1)); (err == nil) != (i < 2) {
			t.Errorf("connection %d: %v", i+1, err)
		}
	}
}

// Who guesses passwords and waits for the answers, which come late, has no place that another of its address needs.
func TestGuessesMakeRoom(t *testing.T) {
	t.Parallel()
	n := start(t, "handshake_max_per_address = 2\nhandshake_timeout = 3600000\nlogin_throttle.failures = 1\nlogin_throttle.max_delay = 3600000")
	addr := n.s.Addresses().AMQP[0].String()
	wrong := amqp091.AppendMethod([]byte(amqp091.ProtocolHeader), 0, amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00wrong"})
	for i := range 30 { // the last would be answered late in the day
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = nc.Write(wrong)
		if i < 20 { // leaves at once, and is not waited for
			_ = nc.(*net.TCPConn).CloseWrite()
			if _, err := io.ReadAll(nc); err != nil {
				t.Fatal(err)
			}
			continue
		}
		_, _ = nc.Read(make([]byte, 1))
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		c, err := amqp.Dial("amqp://guest:guest@" + addr)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// BR-1.10: a client that does not come to an end with its handshake goes.
func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	n := start(t, "handshake_timeout = 200")
	for _, sent := range []string{"", "AMQP\x00\x00\x09\x01"} {
		nc, err := net.Dial("tcp", n.s.Addresses().AMQP[0].String())
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(nc, sent)
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		_ = nc.Close()
	}
}

// A client whom a service knows does what that service permits, over AMQP and HTTP.
func TestHTTPBackend(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.RequestURI())
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/user" && q.Get("password") == "open" && q.Get("username") == "ada":
			_, _ = io.WriteString(w, "allow management")
		case r.URL.Path == "/vhost" && q.Get("vhost") == "/", r.URL.Path == "/resource" && q.Get("name") == "mine", r.URL.Path == "/resource" && q.Get("name") == "amq.default":
			_, _ = io.WriteString(w, "allow")
		case r.URL.Path == "/resource":
			_, _ = io.WriteString(w, "deny not yours")
		default:
			_, _ = io.WriteString(w, "deny")
		}
	}))
	defer service.Close()
	n := start(t, strings.ReplaceAll(`
		auth_backends.1 = internal
		auth_backends.2 = http
		auth_http.user_path = URL/user
		auth_http.vhost_path = URL/vhost
		auth_http.resource_path = URL/resource
		auth_http.topic_path = URL/topic
		auth_http.authorization_failure_disclosure = true
	`, "URL", service.URL))
	n.must("PUT", "/vhosts/other", object{})
	if c, err := n.dial("ada:shut", "/"); err == nil {
		_ = c.Close()
		t.Error("a wrong password is taken")
	}
	_, err := n.dial("ada:open", "other")
	wantError(t, "a virtual host that is refused", err, 530, "access to vhost 'other' refused for user 'ada'")
	c := n.mustDial("ada:open", "/")
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("mine", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		d, err := ch.PublishWithDeferredConfirm("", "mine", false, false, amqp.Publishing{})
		if err != nil || !d.Wait() {
			t.Fatal("not confirmed: ", err)
		}
	}
	_, err = ch.QueueDeclare("yours", true, false, false, false, nil)
	wantError(t, "a queue that is refused", err, 403, "configure access to queue 'yours' in vhost '/' refused for user 'ada' by backend rabbit_auth_backend_http: not yours")
	mu.Lock()
	if len(asked) > 12 {
		t.Errorf("%d questions for so little: %q", len(asked), asked)
	}
	mu.Unlock()
	status, answer := n.do("ada:open", "GET", "/vhosts", "")
	if status != 200 || !strings.Contains(answer, `"name":"/"`) || strings.Contains(answer, "other") {
		t.Errorf("ada sees %d %s", status, answer)
	}
	if status, answer := n.do("ada:open", "GET", "/queues/%2F/mine", ""); status != 200 {
		t.Errorf("ada's queue: %d %s", status, answer)
	}
	if status, _ := n.do("ada:open", "GET", "/queues/other", ""); status != 404 {
		t.Errorf("the other virtual host: %d", status)
	}
	if status, _ := n.do("ada:open", "PUT", "/queues/%2F/yours", `{}`); status != 401 {
		t.Errorf("a queue that is refused: %d", status)
	}
}
