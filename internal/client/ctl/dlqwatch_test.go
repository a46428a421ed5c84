package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/client/ctl"
)

// screen is where a command writes while a test reads.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// shows waits until the text is there.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(s.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q is not in\n%s", text, s)
		}
	}
}

// watching runs a command until the function that it returns, which answers its exit code, ends it.
func watching(t *testing.T, args ...string) (*screen, func() int) {
	t.Helper()
	s := new(screen)
	root := ctl.Command("bartleby")
	root.SetArgs(args)
	root.SetOut(s)
	root.SetErr(s)
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int)
	go func() { code <- ctl.Execute(ctx, root) }()
	t.Cleanup(stop)
	return s, func() int {
		stop()
		return <-code
	}
}

// A watch tells of what is new, of what grows, of thresholds, jobs and drops, and not of what was there; it outlives a node that is away.
func TestWatch(t *testing.T) {
	officeNode(t)
	die := func(queue, message string) {
		t.Helper()
		tool(t, "rabbitmqadmin", "publish", "routing_key="+queue, "payload=x", `properties={"headers":{"x-exception-message":"`+message+`","x-exception-stacktrace":"com.shop.`+message+`: gone"}}`)
		tool(t, "rabbitmqadmin", "get", "queue="+queue, "ackmode=reject_requeue_false")
	}
	target, err := url.Parse(os.Getenv("BARTLEBY_URL"))
	if err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler) // the connection ends
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	tool(t, "rabbitmqadmin", "declare", "queue", "name=small", `arguments={"x-max-length":1,"x-overflow":"drop-head"}`)

	all, end := watching(t, "dlq", "watch", "--interval", "100ms", "--url", front.URL)
	lines, endLines := watching(t, "dlq", "watch", "--interval", "100ms", "--json")
	one, endOne := watching(t, "dlq", "watch", "--interval", "100ms", "bills.dead")
	all.shows(t, "4 dead letters in 2 groups now")
	one.shows(t, "1 dead letter in 1 group now")

	die("orders", "NoCustomerException")
	all.shows(t, "new        orders.dead: +1, 1 letter of group ")
	all.shows(t, "NoCustomerException: NoCustomerException (rejected in queue 'orders')")
	lines.shows(t, `"event":"letter.group.created"`)
	die("orders", "NoCustomerException")
	lines.shows(t, `"event":"letter.group.grown"`)
	all.shows(t, "grows      orders.dead: +1, 2 letters of group ")
	die("bills", "NoMoney")
	one.shows(t, "new        bills.dead: +1, 1 letter of group ")
	lines.shows(t, "NoMoney")

	down.Store(true)
	all.shows(t, "The node does not answer; what happens is told when it does again.")
	die("orders", "WhileAway")
	down.Store(false)
	all.shows(t, "The node is back.")
	all.shows(t, "WhileAway")
	lines.shows(t, "WhileAway") // before the letters have gone

	tool(t, "bartleby", "dlq", "discard", "orders.dead", "--yes", "--watch")
	all.shows(t, "job        discard of orders.dead: job 1 done: 6 of 6 moved")
	lines.shows(t, `"event":"job.done"`)
	for range 3 {
		tool(t, "rabbitmqadmin", "publish", "routing_key=small", "payload=x")
	}
	all.shows(t, "dropped    small: ")
	all.shows(t, "(maxlen, no_dlx")
	lines.shows(t, `"event":"drop.recorded"`)

	for name, code := range map[string]int{"all": end(), "lines": endLines(), "one": endOne()} {
		if code != 0 {
			t.Errorf("%s: the end of a watch is code %d", name, code)
		}
	}
	seen := map[string]int{}
	for line := range strings.Lines(lines.String()) {
		var e struct {
			Time                 int64 `json:"time_ms"`
			Event, VHost         string
			Queue, Source, Group string
			Letters, Arrived     int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Time == 0 {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Group != "" && e.Source == "" {
			continue // it was seen in its old queue, on its way
		}
		if seen[e.Event]++; e.Event == "letter.group.created" && (e.VHost != "/" || e.Letters != 1 || e.Arrived != 1) {
			t.Error(line)
		}
	}
	if seen["letter.group.created"] != 3 || seen["letter.group.grown"] != 1 {
		t.Errorf("%v", seen)
	}
	if text := one.String(); strings.Contains(text, "NoCustomer") || strings.Contains(text, "small") || strings.Contains(text, "discard") {
		t.Errorf("of another queue: %s", text)
	}
	if strings.Contains(all.String(), "no customer") || strings.Contains(one.String(), "no customer") {
		t.Errorf("what was there is told: %s", all)
	}
}

// What clients have said, and names that they gave to queues, steer no terminal: not in a watch, a plan, or a list of jobs.
func TestNothingOfClientsSteersATerminal(t *testing.T) {
	officeNode(t)
	s, end := watching(t, "dlq", "watch", "--interval", "100ms")
	s.shows(t, "4 dead letters in 2 groups now")
	const dead = "esc\x1b[31m\u009bred\a"
	tool(t, "rabbitmqadmin", "declare", "queue", "name="+dead)
	tool(t, "rabbitmqadmin", "declare", "queue", "name=esc", `arguments={"x-dead-letter-exchange":"","x-dead-letter-routing-key":"esc\u001b[31m\u009bred\u0007"}`)
	tool(t, "rabbitmqadmin", "publish", "routing_key=esc", "payload=x", `properties={"headers":{"x-exception-message":"C\u001b[1m"}}`)
	tool(t, "rabbitmqadmin", "get", "queue=esc", "ackmode=reject_requeue_false")
	s.shows(t, "new        esc·[31m·red·: +1, 1 letter of group ")
	told := tool(t, "bartleby", "dlq", "replay", dead, "--yes", "--watch") + tool(t, "bartleby", "dlq", "jobs")
	s.shows(t, "job        replay of esc·[31m·red·: ")
	end()
	if told += s.String(); strings.ContainsAny(told, "\x1b\a\u009b") {
		t.Errorf("%q", told)
	}
}

// A queue that comes to the threshold is told of, and at each doubling.
func TestWatchTellsOfThresholds(t *testing.T) {
	officeNode(t)
	setRules(t, `{"threshold": 2}`)
	s, end := watching(t, "dlq", "watch", "--interval", "100ms")
	s.shows(t, "dead letters in 2 groups now")
	die := func() {
		tool(t, "rabbitmqadmin", "publish", "routing_key=bills", "payload=x")
		tool(t, "rabbitmqadmin", "get", "queue=bills", "ackmode=reject_requeue_false")
	}
	die()
	s.shows(t, "threshold  bills.dead: 2 messages, threshold 2\n")
	die()
	die()
	s.shows(t, "threshold  bills.dead: 4 messages, threshold 2\n")
	if end(); strings.Contains(s.String(), "threshold  orders.dead") || strings.Contains(s.String(), ": 3 messages") {
		t.Error(s)
	}
}

// What a watch cannot begin with ends it.
func TestWatchRefuses(t *testing.T) {
	officeNode(t)
	for args, want := range map[string]string{
		"-p nowhere": "exit 65\n", "nowhere": "exit 65\n", "--interval 1ms": "exit 64\n", "--url http://127.0.0.1:1": "exit 69\n", "--user nobody --password wrong": "exit 77\n",
	} {
		if got := tool(t, append([]string{"bartleby", "dlq", "watch"}, strings.Fields(args)...)...); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", args, got)
		}
	}
}

// setRules sets the rules of the default virtual host.
func setRules(t *testing.T, body string) {
	t.Helper()
	if got := tool(t, "bartleby", "rules", "set", writeFile(t, "document.json", body)); got != "" {
		t.Fatal(got)
	}
}
