package api_test

import (
	"strings"
	"testing"
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
