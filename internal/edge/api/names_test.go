package api_test

import (
	"net/url"
	"strings"
	"testing"
)

// DESIGN 9, BR-15.1: a name is one segment, whatever is in it.
func TestNamesInPaths(t *testing.T) {
	n := start(t)
	names := []string{
		"/", "a/b", "..", ".", "a+b", "a b", "%", "%2F", "50%", "ünïcode", "日本語", "q?x=1", "a#b", "a&b", "~", "a;b", `back\slash`, "'\"",
		strings.Repeat("x", 255),
	}
	for _, name := range names {
		at := "/queues/%2F/" + url.PathEscape(name)
		if a := n.do("PUT", at, `{"durable":true}`); a.status != 201 {
			t.Errorf("PUT %s: %d %s", at, a.status, a.body)
			continue
		}
		same(t, at, n.must("GET", at, "").object(t)["name"], name)
		a := n.must("POST", "/bindings/%2F/e/amq.topic/q/"+url.PathEscape(name), `{"routing_key":"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string([]rune(name)[:1]))+`"}`)
		location, err := url.Parse("http://host/api/bindings/%2F/e/amq.topic/q/" + url.PathEscape(name))
		if err != nil {
			t.Fatal(err)
		}
		if location, err = location.Parse(a.header.Get("Location")); err != nil {
			t.Errorf("Location of %q: %v", name, err)
			continue
		}
		path := strings.TrimPrefix(location.EscapedPath(), "/api")
		if b := n.do("DELETE", path, ""); b.status != 204 && name != "." && name != ".." { // clients resolve those
			t.Errorf("DELETE %s, the Location of %q: %d", path, name, b.status)
		}
		if a := n.do("DELETE", at, ""); a.status != 204 {
			t.Errorf("DELETE %s: %d %s", at, a.status, a.body)
		}
	}
	for _, name := range []string{"/", "a/b", "日本語"} {
		n.must("PUT", "/vhosts/"+url.PathEscape(name), "{}")
		same(t, "vhost", n.must("GET", "/vhosts/"+url.PathEscape(name), "").object(t)["name"], name)
	}
}

// A segment that is no encoding, or is empty, is not found.
func TestBrokenPaths(t *testing.T) {
	n := start(t)
	for _, path := range []string{"/queues//q", "//", "/queues/%2F//get", "/"} {
		if a := n.do("GET", path, ""); a.status != 404 {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
}

// Names and keys have at most 255 bytes and are UTF-8, whatever they name and wherever they come in: they are written with
// a byte for their length, and as text.
func TestNamesThatCannotBeKept(t *testing.T) {
	n := start(t)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	long := strings.Repeat("n", 300)
	for _, c := range []struct{ method, path, body, reason string }{
		{"PUT", "/queues/%2F/NAME", `{}`, "queue"},
		{"PUT", "/exchanges/%2F/NAME", `{"type":"fanout"}`, "exchange"},
		{"PUT", "/vhosts/NAME", `{}`, "vhost"},
		{"PUT", "/users/NAME", `{"password":"x","tags":""}`, "user"},
		{"PUT", "/policies/%2F/NAME", `{"pattern":"x","definition":{"max-length":1}}`, "policy name"},
		{"PUT", "/operator-policies/%2F/NAME", `{"pattern":"x","definition":{"max-length":1}}`, "policy name"},
		{"PUT", "/global-parameters/NAME", `{"value":1}`, "global parameter name"},
		{"PUT", "/parameters/federation-upstream/%2F/NAME", `{"value":{"uri":"amqp://"}}`, "parameter name"},
		{"POST", "/bindings/%2F/e/amq.direct/q/q", `{"routing_key":"TEXT"}`, "routing_key"},
		{"POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"TEXT","properties":{},"payload":"","payload_encoding":"string"}`, "routing_key"},
		{"PUT", "/queues/%2F/q2", `{"arguments":{"x-dead-letter-exchange":"TEXT"}}`, "value"},
		{"PUT", "/queues/%2F/q2", `{"arguments":{"x-dead-letter-exchange":"","x-dead-letter-routing-key":"TEXT"}}`, "value"},
		{"PUT", "/exchanges/%2F/x2", `{"type":"fanout","arguments":{"alternate-exchange":"TEXT"}}`, "value"},
		{"PUT", "/policies/%2F/p", `{"pattern":"x","definition":{"dead-letter-exchange":"TEXT"}}`, "dead-letter-exchange"},
		{"PUT", "/policies/%2F/p", `{"pattern":"x","definition":{"dead-letter-routing-key":"TEXT"}}`, "dead-letter-routing-key"},
		{"PUT", "/policies/%2F/p", `{"pattern":"x","definition":{"alternate-exchange":"TEXT"}}`, "alternate-exchange"},
		{"POST", "/definitions", `{"topic_permissions":[{"user":"guest","vhost":"/","exchange":"TEXT","write":"","read":""}]}`, "exchange"},
		{"POST", "/definitions", `{"users":[{"name":"TEXT","password_hash":"","tags":[]}]}`, "user"},
		{"POST", "/definitions", `{"vhosts":[{"name":"TEXT"}]}`, "vhost"},
		{"POST", "/definitions", `{"queues":[{"name":"TEXT","vhost":"/","durable":true,"arguments":{}}]}`, "queue"},
		{"POST", "/definitions", `{"exchanges":[{"name":"TEXT","vhost":"/","type":"fanout","durable":true,"arguments":{}}]}`, "exchange"},
		{"POST", "/definitions", `{"bindings":[{"vhost":"/","source":"amq.direct","destination":"q","destination_type":"queue","routing_key":"TEXT","arguments":{}}]}`, "routing_key"},
		{"POST", "/definitions", `{"policies":[{"vhost":"/","name":"TEXT","pattern":"x","definition":{"max-length":1}}]}`, "policy name"},
	} {
		a := n.do(c.method, strings.ReplaceAll(c.path, "NAME", long), strings.ReplaceAll(c.body, "TEXT", long))
		if want := c.reason + " should be at most 255 bytes, actually was 300"; a.status != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s %s %s with a name of 300 bytes: %d %s, want 400 with %s", c.method, c.path, c.body, a.status, a.body, want)
		}
		a = n.do(c.method, strings.ReplaceAll(c.path, "NAME", "n%ff"), strings.ReplaceAll(c.body, "TEXT", "n\xff"))
		want := c.reason + " should be UTF-8"
		if strings.Contains(c.body, "TEXT") {
			want = "json" // whose text is UTF-8
		}
		if a.status != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s %s %s with a name that is not UTF-8: %d %s, want 400 with %s", c.method, c.path, c.body, a.status, a.body, want)
		}
	}
	longest := strings.Repeat("n", 255)
	for _, path := range []string{"/queues/%2F/", "/exchanges/%2F/", "/vhosts/"} {
		if a := n.do("PUT", path+longest, `{"type":"classic"}`); path == "/queues/%2F/" && a.status != 201 {
			t.Errorf("PUT %s with a name of 255 bytes: %d %s", path, a.status, a.body)
		}
	}
}

// Values nested deep are refused, and nothing is made of them.
func TestDeepArgumentsAreRefused(t *testing.T) {
	n := start(t)
	for _, depth := range []int{101, 4999, 9000} {
		list := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		for path, body := range map[string]string{
			"/queues/%2F/deep": `{"durable":true,"arguments":{"x":` + list + `}}`, "/exchanges/%2F/deep": `{"type":"fanout","durable":true,"arguments":{"x":` + list + `}}`,
			"/global-parameters/deep": `{"value":` + list + `}`, "/policies/%2F/deep": `{"pattern":"x","definition":{"max-length":` + list + `}}`,
			"/parameters/shovel/%2F/deep": `{"value":` + list + `}`,
		} {
			if a := n.do("PUT", path, body); a.status != 400 {
				t.Errorf("PUT %s %d deep: %d %s", path, depth, a.status, a.body)
			}
		}
		if a := n.do("POST", "/definitions", `{"queues":[{"name":"deep","vhost":"/","durable":true,"arguments":{"x":`+list+`}}]}`); a.status != 400 {
			t.Errorf("an import %d deep: %d %s", depth, a.status, a.body)
		}
	}
	if a := n.must("GET", "/queues", ""); a.body != "[]" {
		t.Errorf("there are queues: %s", a.body)
	}
}
