package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/controlsocket"
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/metrics"
	"bartleby.mq/internal/run/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logged is a log that a test reads while the server writes to it.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func options(dir string) (Options, *logged) {
	log := new(logged)
	return Options{
		DataDir: dir, Config: config.Default(), Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil)),
		AMQP: []string{"127.0.0.1:0"}, HTTP: "127.0.0.1:0", Prometheus: "127.0.0.1:0",
	}, log
}

func mustStart(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustStop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, s *Server, login string) *amqp.Connection {
	t.Helper()
	c, err := amqp.Dial("amqp://" + login + "@" + s.Addresses().AMQP[0].String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A listener that is turned off is "none" in the line of a start, as in the configuration.
func TestAListenerThatIsOffIsNone(t *testing.T) {
	o, log := options(t.TempDir())
	o.HTTP, o.Prometheus = "", ""
	mustStop(t, mustStart(t, o))
	if text := log.String(); !strings.Contains(text, "http=none prometheus=none") {
		t.Errorf("the log says %s", text)
	}
}

// BR-18.1, BR-14.4: a node starts empty with its first user, tells its clients
// when it stops, and has what it had when it starts again.
func TestStartStopStart(t *testing.T) {
	dir := t.TempDir()
	o, log := options(dir)
	s := mustStart(t, o)
	if !strings.Contains(log.String(), "Server startup complete") {
		t.Errorf("the log does not say that the start is complete: %s", log)
	}
	closed := leaveMessage(t, s)
	mustStop(t, s)
	if e := <-closed; e == nil || e.Code != 320 || !strings.Contains(e.Reason, "broker forced connection closure with reason 'shutdown'") {
		t.Errorf("the client was told %v, want 320 (BR-4.10)", e)
	}

	s = mustStart(t, o)
	defer mustStop(t, s)
	findMessage(t, s)
}

// leaveMessage puts a durable message into a queue, and returns what its client is told when the node closes the connection.
func leaveMessage(t *testing.T, s *Server) (closed <-chan *amqp.Error) {
	t.Helper()
	c := dial(t, s, "guest:guest")
	closed = c.NotifyClose(make(chan *amqp.Error, 1))
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("m")})
	if err != nil || !confirm.Wait() {
		t.Fatal("not confirmed: ", err)
	}
	return closed
}

// findMessage takes the message that leaveMessage has left.
func findMessage(t *testing.T, s *Server) {
	t.Helper()
	c := dial(t, s, "guest:guest")
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if d, ok, err := ch.Get("q", true); err != nil || !ok || string(d.Body) != "m" {
		t.Errorf("after the restart: %q, %v, %v; want the message", d.Body, ok, err)
	}
}

// BR-18.1: default_user and its kin hold for an empty node and no other.
func TestFirstStart(t *testing.T) {
	dir := t.TempDir()
	o, _ := options(dir)
	o.Config.FirstStart.User, o.Config.FirstStart.Password = "ada", "secret"
	mustStop(t, mustStart(t, o))
	o.Config.FirstStart.User = "bob"
	s := mustStart(t, o)
	defer mustStop(t, s)
	_ = dial(t, s, "ada:secret").Close()
	if c, err := amqp.Dial("amqp://bob:secret@" + s.Addresses().AMQP[0].String() + "/"); err == nil {
		_ = c.Close()
		t.Error("the second start made another user")
	}
}

// A node that has lost all its users, or whose users were deleted, has no first start again: nobody gets everybody's
// password back.
func TestThereIsOneFirstStart(t *testing.T) {
	dir := t.TempDir()
	for life := range 3 {
		o, _ := options(dir)
		s := mustStart(t, o)
		users := 0
		s.broker.Read(func(_ *topology.State, u *auth.Users) { users = len(u.List()) })
		if life == 0 {
			if _, err := s.broker.By("").Do(declare.DeleteUser{Name: "guest"}); err != nil || users != 1 {
				t.Fatal(users, err)
			}
		} else if users != 0 {
			t.Errorf("life %d has %d users", life, users)
		}
		mustStop(t, s)
	}
}

func TestDataDirectoryHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	o, _ := options(dir)
	s := mustStart(t, o)
	if other, err := Start(o); err == nil {
		mustStop(t, other)
		t.Error("a second node opened the directory")
	} else if want := "data directory " + dir + " is in use by process "; !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %q, want %q", err, want)
	}
	mustStop(t, s)
	mustStop(t, mustStart(t, o))
}

// A start that fails leaves nothing behind.
func TestFailedStartGivesUpWhatItTook(t *testing.T) {
	dir := t.TempDir()
	o, _ := options(dir)
	bad := o
	bad.AMQP = []string{"256.0.0.1:5672"}
	if s, err := Start(bad); err == nil {
		mustStop(t, s)
		t.Fatal("a node listens at an address that there cannot be")
	}
	mustStop(t, mustStart(t, o))
}

// The command line gets in by the data directory as long as the node runs, whether or
// not there is a listener for the management API.
func TestDoor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o, _ := options(dir)
	o.HTTP = ""
	audit := new(logged)
	o.Audit = slog.New(slog.NewTextHandler(audit, nil))
	s := mustStart(t, o)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory has mode %v, %v; want 0700", info.Mode(), err)
	}
	local := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return controlsocket.Dial(ctx, dir) },
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://node/api/vhosts/v", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := local.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("PUT of a virtual host is answered %s", resp.Status)
	}
	if want := "user=local peer=local method=PUT"; !strings.Contains(audit.String(), want) {
		t.Errorf("audited is %s, want %s", audit, want)
	}
	mustStop(t, s)
	if _, err := controlsocket.Dial(t.Context(), dir); !errors.Is(err, controlsocket.ErrNoNode) {
		t.Errorf("after Stop: %v, want ErrNoNode", err)
	}
}

// DL-18.1, DL-18.4, BR-17.2: what Prometheus sees.
func TestMetrics(t *testing.T) {
	o, _ := options(t.TempDir())
	s := mustStart(t, o)
	defer mustStop(t, s)
	c := dial(t, s, "guest:guest")
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("dead", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}); err != nil {
		t.Fatal(err)
	}
	if err := ch.Publish("", "q", false, false, amqp.Publishing{}); err != nil {
		t.Fatal(err)
	}
	d, ok, err := ch.Get("q", false)
	if err != nil || !ok {
		t.Fatal("no message: ", err)
	}
	if err := d.Reject(false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclarePassive("dead", true, false, false, false, nil); err != nil { // the reject is done when this is answered
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"/metrics": {
			`rabbitmq_queue_messages_ready 1`, `rabbitmq_queues 2`, `rabbitmq_connections 1`, `rabbitmq_channels 1`,
			`rabbitmq_global_messages_dead_lettered_rejected_total{dead_letter_strategy="at_most_once",queue_type="rabbit_classic_queue"} 1`,
			`rabbitmq_global_messages_dead_lettered_maxlen_total{dead_letter_strategy="disabled",queue_type="rabbit_volatile_queue"} 0`,
			`rabbitmq_global_messages_dead_lettered_confirmed_total{dead_letter_strategy="at_least_once",queue_type="rabbit_quorum_queue"} 0`,
			`# HELP rabbitmq_global_messages_dead_lettered_expired_total Total number of messages dead-lettered due to message TTL exceeded`,
			`rabbitmq_alarms_memory_used_watermark 0`,
		},
		"/metrics/per-object": {
			`rabbitmq_queue_messages_ready{queue="dead",vhost="/"} 1`,
			`bartleby_queue_dead_lettered_total{outcome="routed",queue="q",reason="rejected",vhost="/"} 1`,
		},
	} {
		text := get(t, "http://"+s.Addresses().Prometheus.String()+path)
		for _, line := range want {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("%s has no line %s", path, line)
			}
		}
	}
	if text := get(t, "http://"+s.Addresses().Prometheus.String()+"/metrics"); strings.Count(text, "rabbitmq_global_messages_dead_lettered_") < 18 {
		t.Errorf("series of DL-18.1 are missing:\n%s", text)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, r.Status, err)
	}
	return string(text)
}

// BR-13.1: alarms come when a limit is passed and go when it is not.
func TestAlarmsFollowTheLimits(t *testing.T) {
	log := new(logged)
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	s := &Server{Options: Options{Logger: slog.New(slog.NewTextHandler(log, nil))}, broker: b}
	s.config.Store(&config.Config{})
	for _, tt := range []struct {
		node metrics.Node
		want broker.Alarm
	}{
		{metrics.Node{Resident: 100, MemoryLimit: 100, DiskFree: 50, DiskLimit: 50}, 0},
		{metrics.Node{Resident: 101, MemoryLimit: 100, DiskFree: 50, DiskLimit: 50}, broker.Memory},
		{metrics.Node{Resident: 101, MemoryLimit: 100, DiskFree: 49, DiskLimit: 50}, broker.Memory | broker.Disk},
		{metrics.Node{Resident: 1, MemoryLimit: 100, DiskFree: 0, DiskLimit: 50}, broker.Disk},
		{metrics.Node{Resident: 101, MemoryLimit: 0, DiskFree: -1, DiskLimit: 50}, 0}, // neither is known
	} {
		s.judge(tt.node)
		if got := b.ActiveAlarms(); got != tt.want {
			t.Errorf("%+v: alarm %q, want %q", tt.node, got, tt.want)
		}
	}
	if n := strings.Count(log.String(), "alarm raised"); n != 2 {
		t.Errorf("%d alarms logged, want 2: %s", n, log)
	}
}

// BR-13.1: what clients may send until the next look follows from the room there is.
func TestAllowanceFollowsTheRoom(t *testing.T) {
	for _, tt := range []struct {
		node metrics.Node
		want int64
	}{
		{metrics.Node{DiskFree: -1}, mostIntake},
		{metrics.Node{MemoryLimit: 1 << 40, DiskFree: -1}, mostIntake},
		{metrics.Node{MemoryLimit: 200 << 20, Resident: 120 << 20, DiskFree: -1}, 10 << 20},
		{metrics.Node{MemoryLimit: 1 << 40, DiskFree: 90 << 20, DiskLimit: 50 << 20}, 5 << 20},
		{metrics.Node{MemoryLimit: 1 << 20, Resident: 2 << 20, DiskFree: -1}, leastIntake},
	} {
		if got := allowance(tt.node); got != tt.want {
			t.Errorf("%+v: %d bytes, want %d", tt.node, got, tt.want)
		}
	}
}

// The log names at the start the listeners that other machines can reach.
func TestTheLogNamesOpenListeners(t *testing.T) {
	for _, prometheus := range []string{"127.0.0.1:0", ":0"} {
		o, log := options(t.TempDir())
		o.Prometheus = prometheus
		s := mustStart(t, o)
		_, open, told := strings.Cut(log.String(), "listeners that other machines can reach")
		open, _, _ = strings.Cut(open, "\n")
		if told != (prometheus == ":0") || told && (!strings.Contains(open, s.Addresses().Prometheus.String()) || strings.Contains(open, "127.0.0.1")) {
			t.Errorf("with %s: %v %s", prometheus, told, open)
		}
		mustStop(t, s)
	}
}
