package api_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// job waits until a job is over.
func (n *node) job(id any) (j map[string]any) {
	n.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		j = nil
		if err := json.Unmarshal([]byte(n.must("GET", fmt.Sprintf("/office/jobs/%v", id), "").body), &j); err != nil {
			n.t.Fatal(err)
		}
		if j["state"] == "done" {
			return j
		}
		if time.Now().After(end) {
			n.t.Fatalf("not done in 10 s: %v", j)
		}
	}
}

// A job is planned, confirmed, shown, and watched until nothing waits for an outcome.
func TestJobsOverHTTP(t *testing.T) {
	n := withOffice(t)
	const filter = `"action": "replay", "vhost": "/", "queue": "orders.dead", "filter": {"reason": "rejected", "where": ["header.tenant=t1"], "died": 1}`
	var plan map[string]any
	if err := json.Unmarshal([]byte(n.must("POST", "/office/jobs?dry_run=true", `{`+filter+`}`).body), &plan); err != nil {
		t.Fatal(err)
	}
	if plan["count"] != 1.0 || plan["of"] != 3.0 || plan["token"] == "" {
		t.Fatalf("%v", plan)
	}
	if waits, _ := json.Marshal(plan["waits"]); string(waits) != `[{"consumers":0,"queue":"orders"}]` { // nobody consumes them
		t.Errorf("%s", waits)
	}
	r := n.must("POST", "/office/jobs", fmt.Sprintf(`{%s, "token": %q, "count": 1, "reason": "mended"}`, filter, plan["token"]))
	var j map[string]any
	if err := json.Unmarshal([]byte(r.body), &j); err != nil || j["by"] != "guest" {
		t.Fatal(r.body, err)
	}
	j = n.job(j["id"])
	if outcomes := j["outcomes"].(map[string]any); j["moved"] != 1.0 || j["reason"] != "mended" || outcomes["waiting"] != 1.0 {
		t.Errorf("%v", j)
	}
	n.must("POST", "/queues/%2F/orders/get", `{"ackmode": "ack_requeue_false", "count": 1, "encoding": "auto"}`)
	events := n.must("GET", fmt.Sprintf("/office/jobs/%v/events", j["id"]), "").body
	if !strings.HasPrefix(events, "event: job\ndata: {") || !strings.Contains(events, `"acknowledged":1`) || !strings.HasSuffix(events, "event: end\ndata: {}") {
		t.Errorf("%q", events)
	}
	if list := n.must("GET", "/office/jobs", "").list(t); len(list) != 1 || list[0]["id"] != j["id"] {
		t.Errorf("%v", list)
	}
}

// do plans a job and starts it, and returns the plan and the job when it is over.
func (n *node) doJob(request string) (plan, j map[string]any) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(n.must("POST", "/office/jobs?dry_run=true", request).body), &plan); err != nil {
		n.t.Fatal(err)
	}
	full := strings.TrimSuffix(request, "}") + fmt.Sprintf(`, "token": %q, "count": %v}`, plan["token"], plan["count"])
	if err := json.Unmarshal([]byte(n.must("POST", "/office/jobs", full).body), &j); err != nil {
		n.t.Fatal(err)
	}
	return plan, n.job(j["id"])
}

// letterIDs are the ids of a queue's letters, the oldest first.
func (n *node) letterIDs(queue string) (ids []string) {
	n.t.Helper()
	var page struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(n.must("GET", "/office/letters/%2F/"+queue+"?order=oldest", "").body), &page); err != nil {
		n.t.Fatal(err)
	}
	for _, l := range page.Items {
		ids = append(ids, l.ID)
	}
	return ids
}

// An edit shows what differs, and the copy names its original, which restore brings back. A body has as many bytes as a message may have.
func TestEditAndRestoreOverHTTP(t *testing.T) {
	n := withOffice(t)
	id := n.letterIDs("orders.dead")[0]
	edit := func(id, edit string) string {
		return fmt.Sprintf(`{"action": "edit", "vhost": "/", "queue": "orders.dead", "ids": [%q], "then": "stay", "edit": %s}`, id, edit)
	}
	plan, j := n.doJob(edit(id, `{"properties": {"type": "order"}, "headers": {"tenant": "t9", "big": 9007199254740993}}`))
	diff, _ := json.Marshal(plan["diff"])
	if want := `{"after":"t9","before":"t0","what":"header.tenant"}`; !strings.Contains(string(diff), want) || len(plan["diff"].([]any)) != 3 {
		t.Errorf("%s", diff)
	}
	if j["moved"] != 1.0 || n.do("GET", "/office/letters/%2F/orders.dead/"+id, "").status != 410 {
		t.Errorf("%v", j)
	}
	ids := n.letterIDs("orders.dead")
	body := n.must("GET", "/office/letters/%2F/orders.dead/"+ids[len(ids)-1], "").body
	original := n.letterIDs("bartleby.archive")[0]
	if !strings.Contains(body, `"edited_from":"`+original+`"`) || !strings.Contains(body, `"big":9007199254740993`) || !strings.Contains(body, `"tenant":"t9"`) {
		t.Errorf("%s", body)
	}
	if _, j = n.doJob(`{"action": "restore", "vhost": "/", "queue": "bartleby.archive"}`); j["moved"] != 1.0 || len(n.letterIDs("orders.dead")) != 4 {
		t.Errorf("%v", j)
	}
	large := base64.StdEncoding.EncodeToString(make([]byte, 16<<20))
	if _, j = n.doJob(edit(ids[0], `{"body": "`+large+`", "body_encoding": "base64"}`)); j["moved"] != 1.0 {
		t.Errorf("%v", j)
	}
	n.must("PUT", "/users/ada", `{"password":"p","tags":"management"}`)
	n.must("PUT", "/permissions/%2F/ada", `{"configure":"","write":".*","read":".*"}`)
	n.user = "ada:p"
	if r := n.do("POST", "/office/jobs?dry_run=true", edit(ids[1], `{"body": "x"}`)); r.status != 401 && r.status != 403 {
		t.Errorf("without configure: %d %s", r.status, r.body)
	}
}

// A request for a job that makes no sense, or comes too late, says what is wrong.
func TestWrongRequestsForJobs(t *testing.T) {
	n := withOffice(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/office/jobs", `{"action": "replay", "vhost": "/", "queue": "orders.dead"}`, 400, "dry_run"},
		{"POST", "/office/jobs", `{"action": "replay", "vhost": "/", "queue": "orders.dead", "token": "x", "count": 1}`, 409, "token"},
		{"POST", "/office/jobs?dry_run=true", `{"action": "burn", "vhost": "/", "queue": "orders.dead"}`, 400, "replay, move, discard, restore or edit"},
		{"POST", "/office/jobs?dry_run=true", `{"action": "replay", "vhost": "/", "queue": "nowhere"}`, 404, "nowhere"},
		{"POST", "/office/jobs?dry_run=true", `{"action": "replay", "vhost": "gone", "queue": "q"}`, 404, "gone"},
		{"POST", "/office/jobs?dry_run=true", `{"action": "move", "vhost": "/", "queue": "orders.dead"}`, 400, "to_queue"},
		{"POST", "/office/jobs?dry_run=true", `{"action": "move", "vhost": "/", "queue": "orders.dead", "to_queue": "nowhere"}`, 400, "nowhere"},
		{"POST", "/office/jobs?dry_run=true", `{"action": "replay", "vhost": "/", "queue": "orders.dead", "filter": {"resaon": "x"}}`, 400, "resaon"},
		{"POST", "/office/jobs?dry_run=true", `{"action": "replay", "vhost": "/", "queue": "orders.dead", "filter": {"where": [{}]}}`, 400, "where"},
		{"POST", "/office/jobs?dry_run=true", `{"action": "replay", "vhost": "/", "queue": "orders.dead", "speed": 5}`, 400, "speed"},
		{"POST", "/office/jobs?dry_run=perhaps", `{"action": "replay", "vhost": "/", "queue": "orders.dead"}`, 400, "perhaps"},
		{"GET", "/office/jobs/7", "", 404, "job 7"},
		{"GET", "/office/jobs/x", "", 400, "number"},
		{"POST", "/office/jobs/7/pause", "", 404, "job 7"},
		{"GET", "/office/jobs/7/events", "", 404, "job 7"},
	} {
		if r := n.do(c.method, c.path, c.body); r.status != c.status || !strings.Contains(r.body, c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, r.status, r.body)
		}
	}
}

// What letters say is told to those who may read their queue, by no dry run and by no example of a drop either.
func TestNobodyLearnsOfLettersWithoutReading(t *testing.T) {
	n := startOffice(t)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	n.must("PUT", "/users/ada", `{"password":"p","tags":"management"}`)
	n.must("PUT", "/permissions/%2F/ada", `{"configure":".*","write":"","read":""}`)
	n.must("POST", "/exchanges/%2F/amq.default/publish", `{"properties":{"message_id":"secret"},"routing_key":"q","payload":"m","payload_encoding":"string"}`)
	n.must("POST", "/queues/%2F/q/get", `{"count":1,"ackmode":"reject_requeue_false","encoding":"auto"}`)
	waitFor(t, "the drop", func() bool { return strings.Contains(n.must("GET", "/office/drops", "").body, "secret") })
	n.user = "ada:p"
	if a := n.must("GET", "/office/drops", ""); strings.Contains(a.body, "secret") || a.object(t)["total"] != float64(1) {
		t.Errorf("the drops that she is shown: %s", a.body)
	}
	if a := n.do("POST", "/office/jobs?dry_run=true", `{"action":"discard","vhost":"/","queue":"q","filter":{"body":"m"}}`); a.status != 401 {
		t.Errorf("a dry run of a discard: %d %s", a.status, a.body)
	}
}

// A letter whose deaths a client has made up, without an origin, is sent where the job says.
func TestALetterWithMadeUpDeathsIsSentElsewhere(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/queues/%2F/t", `{"durable":true}`)
	n.must("PUT", "/queues/%2F/parked", `{"durable":true}`)
	n.must("POST", "/exchanges/%2F/amq.default/publish",
		`{"properties":{"headers":{"x-death":[{"queue":"a","reason":"rejected","routing-keys":["k"]},{"queue":"b","reason":"rejected"}]}},"routing_key":"parked","payload":"m","payload_encoding":"string"}`)
	request := `"action":"replay","vhost":"/","queue":"parked","to_queue":"t"`
	plan := n.must("POST", "/office/jobs?dry_run=true", `{`+request+`}`).object(t)
	same(t, "count", plan["count"], 1)
	j := n.must("POST", "/office/jobs", fmt.Sprintf(`{%s,"token":%q,"count":1}`, request, plan["token"])).object(t)
	same(t, "moved", n.job(j["id"])["moved"], 1)
	same(t, "in t", n.must("GET", "/queues/%2F/t", "").object(t)["messages"], 1)
}

// A watcher of a job that reads nothing is left after some seconds, so that it keeps neither a goroutine nor the node's end waiting.
func TestAWatcherThatReadsNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := withOffice(t)
		plan := n.must("POST", "/office/jobs?dry_run=true", `{"action":"move","vhost":"/","queue":"orders.dead","to_queue":"orders","rate":1}`).object(t)
		n.must("POST", "/office/jobs", fmt.Sprintf(`{"action":"move","vhost":"/","queue":"orders.dead","to_queue":"orders","rate":1,"token":%q,"count":3}`, plan["token"]))
		client, conn := net.Pipe()
		defer func() { _ = client.Close() }()
		over := make(chan struct{})
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.RemoteAddr = "127.0.0.1:1234" // from where guest may come
			n.handler.ServeHTTP(w, r)
			close(over)
		})}
		defer func() { _ = server.Close() }()
		l := &oneConn{conn: conn, closed: make(chan struct{})}
		go func() { _ = server.Serve(l) }()
		if _, err := io.WriteString(client, "GET /api/office/jobs/1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Error("a minute later it is still waited for")
		}
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}
func (l *oneConn) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// Not any number of requests may watch jobs: one too many is told to ask instead, and when one has ended there is room again.
func TestWatchersOfJobsAreBounded(t *testing.T) {
	n := withOffice(t)
	plan := n.must("POST", "/office/jobs?dry_run=true", `{"action":"move","vhost":"/","queue":"orders.dead","to_queue":"orders","rate":1}`).object(t)
	n.must("POST", "/office/jobs", fmt.Sprintf(`{"action":"move","vhost":"/","queue":"orders.dead","to_queue":"orders","rate":1,"token":%q,"count":3}`, plan["token"]))
	n.must("POST", "/office/jobs/1/pause", "")
	ctx, end := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	for range 300 { // more than there may be
		watching.Go(func() {
			for ctx.Err() == nil { // one that was refused while the request below looked tries again: all others may have been, too
				r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/api/office/jobs/1/events", nil)
				r.SetBasicAuth("guest", "guest")
				r.RemoteAddr = "127.0.0.1:1234"
				n.handler.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	waitFor(t, "the watchers", func() bool {
		one, end := context.WithCancel(t.Context())
		end()
		r := httptest.NewRequestWithContext(one, "GET", "http://localhost/api/office/jobs/1/events", nil)
		return n.send(r).status == 503
	})
	end()
	watching.Wait()
	one, endOne := context.WithCancel(t.Context())
	endOne()
	if a := n.send(httptest.NewRequestWithContext(one, "GET", "http://localhost/api/office/jobs/1/events", nil)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
