package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Arguments of a queue are changed by the right user, and the queue shows what holds, what was declared, and where its dead
// letters go by what.
func TestArgumentsOverHTTP(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/queues/%2F/work", `{"durable": true, "arguments": {"x-max-length": 10}}`)
	shown := func() map[string]any { return n.must("GET", "/queues/%2F/work", "").object(t) }
	if got := shown(); got["declared_arguments"] != nil || got["effective_dead_letter"] != nil {
		t.Errorf("%v", got)
	}
	const at = "/office/queues/%2F/work/arguments"
	r := n.must("PUT", at, `{"set": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}, "unset": ["x-max-length"]}`).object(t)
	if args := r["arguments"].(map[string]any); args["x-dead-letter-routing-key"] != "dead" || args["x-max-length"] != nil {
		t.Errorf("%v", r)
	}
	got := shown()
	if args := got["arguments"].(map[string]any); args["x-dead-letter-routing-key"] != "dead" || args["x-max-length"] != nil {
		t.Errorf("arguments %v", args)
	}
	if args := got["declared_arguments"].(map[string]any); args["x-max-length"] != 10.0 {
		t.Errorf("declared %v", args)
	}
	if to := got["effective_dead_letter"].(map[string]any); to["routing_key"] != "dead" || to["from"] != "arguments" {
		t.Errorf("dead letters %v", to)
	}
	for body, why := range map[string]string{
		`{}`:                                    "must name an argument",
		`{"set": {"x-max-priority": 3}}`:        "cannot be changed",
		`{"unset": ["x-queue-type"]}`:           "cannot be changed",
		`{"set": {"x-max-length": -1}}`:         "value_negative",
		`{"unset": "x-max-length"}`:             "must be a list",
		`{"sets": {"x-max-length": 1}}`:         "unknown key",
		`{"set": {"x-max-length": "ten"}}`:      "expected integer",
		`{"unset": ["x-dead-letter-exchange"]}`: "routing_key_but_no_dlx_defined",
	} {
		if r := n.do("PUT", at, body); r.status != 400 || !strings.Contains(r.body, why) {
			t.Errorf("%s: %d %s, want %s", body, r.status, r.body, why)
		}
	}
	if r := n.do("PUT", "/office/queues/%2F/nope/arguments", `{"unset": ["x-max-length"]}`); r.status != 404 {
		t.Errorf("of a missing queue: %d", r.status)
	}
	n.must("PUT", "/vhosts/%2F", `{"default_dead_letter": "%q.dead", "lenient_declarations": true}`)
	n.must("PUT", "/queues/%2F/work", `{"durable": true, "arguments": {"x-max-length": 10}}`)
	n.must("PUT", "/queues/%2F/plain", `{"durable": true}`)
	if to := n.must("GET", "/queues/%2F/plain", "").object(t)["effective_dead_letter"].(map[string]any); to["routing_key"] != "plain.dead" || to["from"] != "virtual_host" {
		t.Errorf("by default %v", to)
	}
	// What is exported is what holds, and comes back.
	d := n.must("GET", "/definitions", "").body
	for _, want := range []string{`"default_dead_letter":"%q.dead"`, `"lenient_declarations":true`, `"x-dead-letter-routing-key":"dead"`} {
		if !strings.Contains(d, want) {
			t.Errorf("definitions without %s:\n%s", want, d)
		}
	}
	n.must("PUT", "/vhosts/%2F", `{"default_dead_letter": "", "lenient_declarations": false}`)
	n.must("POST", "/definitions", d)
	if v := n.must("GET", "/vhosts/%2F", "").object(t); v["default_dead_letter"] != "%q.dead" || v["lenient_declarations"] != true {
		t.Errorf("imported as %v", v)
	}
}

// The breaker of a queue is shown, closed by hand by who may, and told of in the audit. A job that replays into the queue is halted
// while it is open.
func TestBreakerOverHTTP(t *testing.T) {
	n := withOffice(t)
	reject := func(want int) {
		t.Helper()
		got := n.must("POST", "/queues/%2F/orders/get", `{"ackmode": "reject_requeue_false", "count": 5, "encoding": "auto"}`).list(t)
		n.b.CountQueues()
		if len(got) != want {
			t.Errorf("%d messages are handed out, want %d", len(got), want)
		}
	}
	breaker := func() map[string]any {
		t.Helper()
		b, _ := n.must("GET", "/queues/%2F/orders", "").object(t)["breaker"].(map[string]any)
		return b
	}
	const at = "/office/queues/%2F/orders/breaker/close"
	if breaker() != nil {
		t.Errorf("without a policy it shows %v", breaker())
	}
	if r := n.do("POST", at, ""); r.status != 400 || !strings.Contains(r.body, "queue 'orders' in vhost '/' has no breaker") {
		t.Errorf("without a policy: %d %s", r.status, r.body)
	}
	if r := n.do("POST", "/office/queues/%2F/nope/breaker/close", ""); r.status != 404 {
		t.Errorf("of a missing queue: %d %s", r.status, r.body)
	}
	if r := n.do("PUT", "/policies/%2F/breaks", `{"pattern": "^orders$", "definition": {"dead-letter-breaker": {"deaths": 0, "percent": 30, "window": 60000}}}`); r.status != 400 || !strings.Contains(r.body, "is not a valid dead letter breaker. deaths must be") {
		t.Errorf("a bad policy: %d %s", r.status, r.body)
	}
	n.must("PUT", "/policies/%2F/breaks", `{"pattern": "^orders$", "definition": {"dead-letter-breaker": {"deaths": 2, "percent": 50, "window": 3600000}}}`)
	if b := breaker(); b["state"] != "closed" || b["until_ms"] != nil || b["why"] != nil {
		t.Errorf("closed: %v", b)
	}
	for range 3 {
		n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key": "orders", "payload": "x", "payload_encoding": "string", "properties": {}}`)
	}
	reject(3) // all that were asked for were handed out before the first one died
	n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key": "orders", "payload": "x", "payload_encoding": "string", "properties": {}}`)
	reject(0)
	b := breaker()
	if until, _ := b["until_ms"].(float64); b["state"] != "open" || time.Until(time.UnixMilli(int64(until))) < 50*time.Minute || b["why"] != "2 of 2 deliveries that ended within 1h0m0s died" {
		t.Errorf("open: %v", b)
	}
	overview := func() string {
		t.Helper()
		b, _ := n.must("GET", "/overview", "").object(t)["breakers"].(map[string]any)
		return fmt.Sprintf("%v %v", b["open"], b["queues"])
	}
	if got := overview(); !strings.HasPrefix(got, "1 [map[name:orders state:open until_ms:") {
		t.Errorf("the overview has %s", got)
	}

	// A replay to the queue is halted, and goes on when the breaker is closed.
	var plan, j map[string]any
	const replay = `"action": "replay", "vhost": "/", "queue": "orders.dead", "filter": {"reason": "rejected"}`
	plan = n.must("POST", "/office/jobs?dry_run=true", `{`+replay+`}`).object(t)
	if w := plan["waits"].([]any)[0].(map[string]any); w["queue"] != "orders" || w["breaker"] != "open" || w["until_ms"] == nil {
		t.Errorf("the dry run does not tell of the breaker: %v", w)
	}
	j = n.must("POST", "/office/jobs", fmt.Sprintf(`{%s, "token": %q, "count": %v}`, replay, plan["token"], plan["count"])).object(t)
	job := fmt.Sprintf("/office/jobs/%v", j["id"])
	for end := time.Now().Add(10 * time.Second); j["state"] != "halted" && time.Now().Before(end); {
		j = n.must("GET", job, "").object(t)
	}
	if why, _ := j["why"].(string); j["state"] != "halted" || j["moved"] != 0.0 || !strings.HasPrefix(why, "halted by the breaker of queue 'orders', which delivers nothing until ") {
		t.Errorf("%v", j)
	}

	n.must("PUT", "/users/eve", `{"password": "eve", "tags": "management"}`)
	n.must("PUT", "/permissions/%2F/eve", `{"configure": "^$", "write": ".*", "read": ".*"}`)
	if r := n.as("eve").do("POST", at, ""); r.status != 401 && r.status != 403 || breaker()["state"] != "open" {
		t.Errorf("without permission to configure: %d %s", r.status, r.body)
	}
	n.must("PUT", "/permissions/%2F/eve", `{"configure": "^orders$", "write": "", "read": ""}`)
	if r := n.as("eve").must("POST", at, "").object(t); r["state"] != "closed" || r["was"] != "open" {
		t.Errorf("%v", r)
	}
	if r := n.must("POST", at, "").object(t); r["was"] != "closed" {
		t.Errorf("once more: %v", r)
	}
	if b := breaker(); b["state"] != "closed" || b["why"] != nil || overview() != "<nil> <nil>" {
		t.Errorf("%v, the overview has %s", b, overview())
	}
	acts := n.must("GET", "/office/audit?what=breaker.*", "").object(t)["items"].([]any)
	if len(acts) != 1 || acts[0].(map[string]any)["who"] != "eve" || acts[0].(map[string]any)["object"] != "orders" {
		t.Errorf("the audit has %v", acts)
	}
	n.must("POST", job+"/resume", "")
	if j := n.job(strings.TrimPrefix(job, "/office/jobs/")); j["moved"] != 6.0 {
		t.Errorf("%v", j)
	}
	reject(5)
	n.must("DELETE", "/policies/%2F/breaks", "")
	if breaker() != nil {
		t.Errorf("without the policy it shows %v", breaker())
	}
	reject(2)
}
