package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// BR-15.10: names are filtered by an expression. A short one may stand for a program of a hundred
// megabytes, and anybody who may ask may ask many times at once.
func TestBR_15_10_AFilterIsBounded(t *testing.T) {
	n := start(t)
	n.must("PUT", "/queues/%2F/orders", `{"durable":true}`)
	ask := func(expression string) answer {
		return n.do("GET", "/queues?page=1&use_regex=true&name="+url.QueryEscape(expression), "")
	}
	if a := ask(strings.Repeat("a{1000}", 3000)); a.status != http.StatusBadRequest {
		t.Errorf("a filter of 21,000 characters: %d %.80s", a.status, a.body)
	}
	same(t, "found by a usual filter", len(ask("^ord").object(t)["items"].([]any)), 1)
	same(t, "found by a long filter", len(ask("^(ord|" + strings.Repeat("x", 1000) + ")").object(t)["items"].([]any)), 1)
}

// Expressions that are kept are bounded wherever they come in, and the answer says so in few words.
func TestExpressionsThatAreKeptAreBounded(t *testing.T) {
	n := start(t)
	huge := strings.Repeat("a{1000}", 3000)
	for path, body := range map[string]string{
		"/policies/%2F/p":                   `{"pattern":"` + huge + `","definition":{"max-length":1}}`,
		"/operator-policies/%2F/p":          `{"pattern":"` + huge + `","definition":{"max-length":1}}`,
		"/permissions/%2F/guest":            `{"configure":".*","write":"` + huge + `","read":".*"}`,
		"/topic-permissions/%2F/guest":      `{"exchange":"amq.topic","write":".*","read":"` + huge + `"}`,
		"/parameters/operator_policy/%2F/p": `{"value":{"pattern":"` + huge + `","definition":{"max-length":1}}}`,
	} {
		if a := n.do("PUT", path, body); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "4096 at most") || len(a.body) > 1000 {
			t.Errorf("%s: %d %.80s", path, a.status, a.body)
		}
	}
	a := n.do("POST", "/definitions", `{"permissions":[{"user":"guest","vhost":"/","configure":"`+huge+`","write":"","read":""}]}`)
	if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "4096 at most") {
		t.Errorf("definitions: %d %.80s", a.status, a.body)
	}
}
