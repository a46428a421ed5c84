package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a broker in memory behind its API.
type node struct {
	t       *testing.T
	b       *broker.Broker
	handler api.Handler
	user    string // user:password of requests
}

func start(t *testing.T, change ...func(*api.Options)) *node {
	t.Helper()
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem(), NodeName: "rabbit@test", Storage: broker.Storage{SegmentBytes: 64 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	err = b.CreateDefault(broker.Default{
		VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*",
	})
	if err != nil {
		t.Fatal(err)
	}
	o := api.Options{Broker: b, ClusterName: "peer"}
	for _, f := range change {
		f(&o)
	}
	return &node{t, b, api.New(o), "guest:guest"}
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request below /api.
func (n *node) send(r *http.Request) answer {
	n.t.Helper()
	if r.Header.Get("Authorization") == "" {
		user, password, _ := strings.Cut(n.user, ":")
		r.SetBasicAuth(user, password)
	}
	r.RemoteAddr = "127.0.0.1:1234"
	if r.Host == "example.com" { // as httptest calls it
		r.Host = "127.0.0.1:15672"
	}
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer{w.Code, w.Header(), strings.TrimSpace(string(text))}
}

func (n *node) do(method, path, body string) answer {
	n.t.Helper()
	return n.send(httptest.NewRequest(method, "/api"+path, strings.NewReader(body)))
}

// must is do for requests that a test takes for granted.
func (n *node) must(method, path, body string) answer {
	n.t.Helper()
	a := n.do(method, path, body)
	if a.status >= 300 {
		n.t.Fatalf("%s %s %s: %d %s", method, path, body, a.status, a.body)
	}
	return a
}

// object decodes an object.
func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(a.body), &o); err != nil {
		t.Fatalf("%q is no object: %v", a.body, err)
	}
	return o
}

// list decodes a list of objects.
func (a answer) list(t *testing.T) []map[string]any {
	t.Helper()
	var l []map[string]any
	if err := json.Unmarshal([]byte(a.body), &l); err != nil {
		t.Fatalf("%q is no list of objects: %v", a.body, err)
	}
	return l
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

// client stands for a session: it notes how its connection was ended.
type client struct {
	broker.Client
	mu       sync.Mutex
	ends     []string
	status   broker.ConnectionStatus
	channels []broker.ChannelStatus
}

func (c *client) Terminate(code uint16, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = append(c.ends, fmt.Sprintf("%d %s", code, text))
}

func (c *client) ended() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.ends, "; ")
}

func (c *client) Status() broker.ConnectionStatus { return c.status }

func (c *client) ChannelStatuses() []broker.ChannelStatus { return c.channels }

// connect opens a connection without a socket.
func (n *node) connect(user, vhost, name string) *client {
	n.t.Helper()
	c := &client{
		status: broker.ConnectionStatus{Peer: broker.Peer{Name: name}, Channels: 1}, channels: []broker.ChannelStatus{{Name: name + " (1)", Number: 1}},
	}
	link, err := n.b.Connect(broker.Login{User: user}, broker.Peer{Name: name}, message.VHost(vhost), c)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(link.Disconnect)
	return c
}
