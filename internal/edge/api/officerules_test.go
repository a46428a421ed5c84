package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/run/office"
)

// A rule is tried, set, shown with what it has done, switched, and removed. What GET shows can be PUT again.
func TestRulesOverHTTP(t *testing.T) {
	n := withOffice(t)
	const rule = `{"name": "orders", "queues": "^orders", "match": {"reason": "rejected", "died": 1, "where": ["header.tenant=t1"]}, "action": "discard"}`
	trial := n.must("POST", "/office/rules/%2F/try", rule).object(t)
	if trial["matched"] != 1.0 || trial["examined"] != 3.0 || len(trial["first"].([]any)) != 1 || trial["stopped"] != nil {
		t.Fatalf("%v", trial)
	}
	shown := func() map[string]any {
		t.Helper()
		return n.must("GET", "/office/rules/%2F/orders", "").object(t)
	}
	n.must("PUT", "/office/rules/%2F", `{"rules": [`+rule+`], "threshold": 50}`)
	if r := shown(); r["state"] != "off" || r["by"] != "guest" || r["acted"] != 0.0 {
		t.Errorf("%v", r)
	}
	book := n.must("POST", "/office/rules/%2F/orders/on", "").object(t)
	if book["threshold"] != 50.0 {
		t.Errorf("%v", book)
	}
	// The letter moves first, and the record of the job says when after it.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if r := shown(); r["acted"] == 1.0 && r["last_ms"] != 0.0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it has not acted in 10 s: %v", shown())
		}
	}
	if r := shown(); r["state"] != "on" || r["last_ms"] == 0.0 || r["match"].(map[string]any)["died"] != "1" {
		t.Errorf("%v", r)
	}
	job := n.must("GET", "/office/jobs", "").list(t)[0]
	if job["rule"] != "orders" || job["state"] != "running" || job["moved"] != 1.0 || job["outcomes"].(map[string]any)["waiting"] != 1.0 {
		t.Errorf("%v", job)
	}
	whole := n.must("GET", "/office/rules/%2F", "").body
	if again := n.must("PUT", "/office/rules/%2F", whole).object(t); len(again["rules"].([]any)) != 1 || again["rules"].([]any)[0].(map[string]any)["job"] != job["id"] {
		t.Errorf("%v", again)
	}
	n.must("PUT", "/office/rules/%2F/second", `{"action": "hold"}`)
	if b := n.must("POST", "/office/rules/%2F/orders/off", "").object(t); len(b["rules"].([]any)) != 2 {
		t.Errorf("%v", b)
	}
	if b := n.must("DELETE", "/office/rules/%2F/orders", "").object(t); len(b["rules"].([]any)) != 1 {
		t.Errorf("%v", b)
	}
	if j := n.must("GET", "/office/jobs", "").list(t)[0]; j["state"] != "cancelled" {
		t.Errorf("%v", j)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"PUT", "/office/rules/%2F", `{"rules": [{"name": "x", "action": "burn"}]}`, 400, "retry, send, discard, hold or webhook"},
		{"PUT", "/office/rules/%2F", `{"rules": [{"name": "x", "action": "hold", "when": 1}]}`, 400, "unknown field"},
		{"PUT", "/office/rules/%2F", `{"rule": []}`, 400, "unknown field"},
		{"PUT", "/office/rules/%2F/x", `{"name": "y", "action": "hold"}`, 400, "not that of the address"},
		{"PUT", "/office/rules/%2F/x", `{"action": "hold", "match": 7}`, 400, "match must be"},
		{"GET", "/office/rules/%2F/x", ``, 404, "no rule 'x'"},
		{"POST", "/office/rules/%2F/x/on", ``, 404, "no rule 'x'"},
		{"GET", "/office/rules/nowhere", ``, 404, ""},
	} {
		if r := n.do(c.method, c.path, c.body); r.status != c.status || !strings.Contains(r.body, c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, r.status, r.body)
		}
	}
}

// Who may not read the queues of a rule is shown what the rule is, and not what it does: not by the rule, a change of it, its job, or the job's events.
func TestWhatRulesDoIsForThoseWhoMayReadTheirQueues(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/office/rules/%2F/drop", `{"on": true, "action": "discard", "match": {"where": ["header.tenant=t1"]}}`)
	acted := func() any { return n.must("GET", "/office/rules/%2F/drop", "").object(t)["acted"] }
	for end := time.Now().Add(10 * time.Second); acted() != 1.0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not acted in 10 s")
		}
	}
	n.must("PUT", "/users/paul", `{"password": "secret", "tags": "policymaker"}`)
	for read, hidden := range map[string]bool{".*": false, "^none$": true} {
		n.user = "guest:guest"
		n.must("PUT", "/permissions/%2F/paul", `{"configure": ".*", "write": ".*", "read": "`+read+`"}`)
		n.user = "paul:secret"
		all := n.must("GET", "/office/rules/%2F", "")
		for what, r := range map[string]map[string]any{
			"rules": all.object(t)["rules"].([]any)[0].(map[string]any), "rule": n.must("GET", "/office/rules/%2F/drop", "").object(t),
			"PUT": n.must("PUT", "/office/rules/%2F", all.body).object(t)["rules"].([]any)[0].(map[string]any),
		} {
			if (r["acted"] == 0.0 && r["last_ms"] == 0.0) != hidden || (r["counts_hidden"] == true) != hidden || r["state"] != "on" || r["match"] == nil {
				t.Errorf("reading %s, %s: %v", read, what, r)
			}
		}
		job := n.must("GET", "/office/jobs", "").list(t)[0]
		if (job["moved"] == 0.0) != hidden || (job["counts_hidden"] == true) != hidden || (job["filter"] == nil) != hidden || job["rule"] != "drop" {
			t.Errorf("reading %s: %v", read, job)
		}
		if one := n.must("GET", "/office/jobs/"+job["id"].(string), "").object(t); (one["counts_hidden"] == true) != hidden {
			t.Errorf("reading %s: %v", read, one)
		}
	}
}

// A job that a letter has halted is running for who may not know of that letter, also when jobs are asked for by their state.
func TestJobsAreFoundByTheStateThatIsShown(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/users/vic", `{"password": "secret", "tags": "policymaker"}`)
	n.must("PUT", "/permissions/%2F/vic", `{"configure": ".*", "write": ".*", "read": ".*"}`)
	n.must("PUT", "/queues/%2F/park", `{}`)
	n.user = "vic:secret"
	n.must("PUT", "/office/rules/%2F/send", `{"on": true, "action": "send", "to_queue": "park", "after_ms": 1000, "queues": "^orders"}`)
	n.user = "guest:guest"
	n.must("PUT", "/permissions/%2F/vic", `{"configure": ".*", "write": "^none$", "read": ".*"}`)
	n.must("PUT", "/users/paul", `{"password": "secret", "tags": "policymaker"}`)
	n.must("PUT", "/permissions/%2F/paul", `{"configure": ".*", "write": ".*", "read": "^park$"}`)
	total := func(state string) any { return n.must("GET", "/office/jobs?state="+state, "").object(t)["total"] }
	for end := time.Now().Add(10 * time.Second); total("halted") != 1.0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it was not halted in 10 s: %s", n.must("GET", "/office/jobs", "").body)
		}
	}
	n.user = "paul:secret"
	if total("halted") != 0.0 || total("running") != 1.0 {
		t.Errorf("%v are halted, %v running", total("halted"), total("running"))
	}
}

// Who watches the job of a rule sees no more of it than who asks for it: not when a queue has come that they may not read, and nothing when they are gone.
func TestEventsOfAJobHeedRightsThatChange(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/office/rules/%2F/drop", `{"on": true, "action": "discard", "queues": "^later"}`)
	n.must("PUT", "/users/paul", `{"password": "secret", "tags": "policymaker"}`)
	n.must("PUT", "/permissions/%2F/paul", `{"configure": ".*", "write": ".*", "read": "^orders"}`)
	server := httptest.NewServer(n.handler)
	defer server.Close()
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/api/office/jobs/1/events", nil)
	r.SetBasicAuth("paul", "secret")
	a, err := http.DefaultClient.Do(r)
	if err != nil || a.StatusCode != 200 {
		t.Fatal(a, err)
	}
	defer func() { _ = a.Body.Close() }()
	lines := bufio.NewScanner(a.Body)
	event := func() (event, data string) {
		t.Helper()
		for lines.Scan() {
			switch key, value, _ := strings.Cut(lines.Text(), ": "); {
			case key == "event":
				event = value
			case key == "data" && event != "":
				return event, value
			}
		}
		t.Fatal("no event has come", lines.Err())
		return event, data
	}
	if name, data := event(); name != "job" || strings.Contains(data, "counts_hidden") || !strings.Contains(data, `"rule":"drop"`) {
		t.Fatalf("first %s %s", name, data)
	}
	n.must("PUT", "/queues/%2F/later.secret", `{}`)
	n.must("PUT", "/queues/%2F/later.work", `{"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "later.secret"}}`)
	die := func(moved float64) {
		t.Helper()
		n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key": "later.work", "payload": "x", "payload_encoding": "string", "properties": {}}`)
		n.must("POST", "/queues/%2F/later.work/get", `{"ackmode": "reject_requeue_false", "count": 1, "encoding": "auto"}`)
		waitFor(t, "the rule", func() bool { return n.must("GET", "/office/jobs/1", "").object(t)["moved"] == moved })
	}
	die(1)
	if name, data := event(); name != "job" || !strings.Contains(data, `"counts_hidden":true`) || !strings.Contains(data, `"moved":0`) {
		t.Fatalf("then %s %s", name, data)
	}
	die(2) // nothing that is shown has changed
	n.must("DELETE", "/users/paul", "")
	die(3)
	if name, data := event(); name != "end" {
		t.Errorf("the user is gone, and %s %s comes", name, data)
	}
}

// Who changes rules that somebody else has changed meanwhile learns it, and changes nothing.
func TestRulesAreChangedOnCondition(t *testing.T) {
	n := withOffice(t)
	put := func(match, body string) answer {
		t.Helper()
		r := httptest.NewRequest("PUT", "/api/office/rules/%2F", strings.NewReader(body))
		if match != "" {
			r.Header.Set("If-Match", match)
		}
		return n.send(r)
	}
	first := n.must("GET", "/office/rules/%2F", "")
	tag := first.header.Get("ETag")
	if revision := first.object(t)["revision"]; tag == "" || tag != fmt.Sprintf("%q", revision) {
		t.Fatalf("tag %s of revision %v", tag, revision)
	}
	second := put(tag, `{"threshold": 50}`)
	if second.status != 200 || second.header.Get("ETag") == tag || second.header.Get("ETag") != n.must("GET", "/office/rules/%2F", "").header.Get("ETag") {
		t.Fatalf("%+v", second)
	}
	now := second.header.Get("ETag")
	for _, c := range []struct {
		match, body string
		status      int
	}{
		{tag, `{"threshold": 60}`, 412}, {"W/" + now, `{"threshold": 60}`, 412}, {strings.Trim(now, `"`), `{"threshold": 60}`, 412}, {"", `{"threshold": 60, "revision": ` + tag + `}`, 412},
		{now, `{"threshold": 60, "revision": ` + tag + `}`, 412}, {tag, first.body, 412}, {"", first.body, 412}, {"", `{"threshold": 60, "revision": 7}`, 400},
	} {
		a := put(c.match, c.body)
		if a.status != c.status || c.status == 412 && (a.object(t)["error"] != "precondition_failed" || !strings.Contains(a.body, "were changed since you read them")) {
			t.Errorf("If-Match %s, %s: %d %s", c.match, c.body, a.status, a.body)
		}
		if n.must("GET", "/office/rules/%2F", "").object(t)["threshold"] != 50.0 {
			t.Fatalf("If-Match %s, %s: it was changed", c.match, c.body)
		}
	}
	for _, match := range []string{tag + `, "x", ` + now, "*", ""} {
		if a := put(match, `{"threshold": 50}`); a.status != 200 {
			t.Errorf("If-Match %s: %d %s", match, a.status, a.body)
		}
	}
	if a := put("", n.must("GET", "/office/rules/%2F", "").body); a.status != 200 {
		t.Errorf("what GET shows cannot be PUT: %s", a.body)
	}
	n.must("PUT", "/office/rules/%2F/one", `{"action": "discard"}`)
	if one, all := n.must("GET", "/office/rules/%2F/one", ""), n.must("GET", "/office/rules/%2F", ""); one.header.Get("ETag") != all.header.Get("ETag") {
		t.Errorf("the tag of a rule is %s, that of all %s", one.header.Get("ETag"), all.header.Get("ETag"))
	}
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "one", `{"action": "hold"}`}, {"POST", "one/on", ""}, {"POST", "one/off", ""}, {"DELETE", "one", ""}, // of one rule
	} {
		was := n.must("GET", "/office/rules/%2F", "")
		for _, match := range []string{tag, was.header.Get("ETag")} {
			r := httptest.NewRequest(c.method, "/api/office/rules/%2F/"+c.path, strings.NewReader(c.body))
			r.Header.Set("If-Match", match)
			a, is := n.send(r), n.must("GET", "/office/rules/%2F", "")
			if stale := match == tag; (a.status == 412) != stale || (is.body == was.body) != stale || !stale && a.header.Get("ETag") != is.header.Get("ETag") {
				t.Errorf("%s %s, If-Match %s: %d %s", c.method, c.path, match, a.status, a.body)
			}
		}
	}
}

// Only policymakers set rules, and only administrators webhooks.
func TestRightsToRulesAndWebhooks(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/users/mona", `{"password": "secret", "tags": "monitoring"}`)
	n.must("PUT", "/users/paul", `{"password": "secret", "tags": "policymaker"}`)
	for _, user := range []string{"mona", "paul"} {
		n.must("PUT", "/permissions/%2F/"+user, `{"configure": ".*", "write": ".*", "read": ".*"}`)
	}
	for _, c := range []struct {
		user, path string
		status     int
	}{{"mona", "/office/rules/%2F", 401}, {"paul", "/office/rules/%2F", 200}, {"paul", "/office/webhooks", 401}, {"mona", "/office/webhooks", 401}} {
		n.user = c.user + ":secret"
		if r := n.do("GET", c.path, ""); r.status != c.status {
			t.Errorf("%s, %s: %d", c.user, c.path, r.status)
		}
	}
}

// A webhook is set, shown without its secret, tried, changed in part, and removed.
func TestWebhooksOverHTTP(t *testing.T) {
	n := startOffice(t, func(o *office.Options) { o.WebhooksLocal = true })
	got := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Bartleby-Signature") }))
	defer server.Close()
	const secret = "a secret of some length"
	made := n.must("PUT", "/office/webhooks/desk", `{"url": "`+server.URL+`", "events": ["job.*"], "secret": "`+secret+`"}`)
	if made.status != 201 || made.object(t)["on"] != true {
		t.Errorf("%d %s", made.status, made.body)
	}
	test := n.must("POST", "/office/webhooks/desk/test", "").object(t)
	if test["delivered"] != true || test["status"] != 200.0 || !strings.HasPrefix(<-got, "t=") {
		t.Errorf("%v", test)
	}
	server.Close()
	if r := n.do("POST", "/office/webhooks/desk/test", ""); r.status != 502 || !strings.Contains(r.body, "refused") {
		t.Errorf("%d %s", r.status, r.body)
	}
	w := n.must("PUT", "/office/webhooks/desk", `{"on": false, "delivered": 7}`).object(t)
	if w["url"] != server.URL || w["on"] != false || w["delivered"] != 0.0 || w["events"].([]any)[0] != "job.*" {
		t.Errorf("%v", w)
	}
	if all := n.must("GET", "/office/webhooks", ""); strings.Contains(all.body, secret) || len(all.list(t)) != 1 || strings.Contains(n.must("GET", "/office/webhooks/desk", "").body, secret) {
		t.Errorf("%s", all.body)
	}
	n.must("DELETE", "/office/webhooks/desk", "")
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/office/webhooks/desk", ``, 404, "no webhook 'desk'"},
		{"DELETE", "/office/webhooks/desk", ``, 404, "no webhook 'desk'"},
		{"POST", "/office/webhooks/desk/test", ``, 404, "no webhook 'desk'"},
		{"PUT", "/office/webhooks/desk", `{"url": "http://x/"}`, 400, "secret must have"},
		{"PUT", "/office/webhooks/desk", `{"link": "http://x/"}`, 400, "unknown field"},
	} {
		if r := n.do(c.method, c.path, c.body); r.status != c.status || !strings.Contains(r.body, c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, r.status, r.body)
		}
	}
}
