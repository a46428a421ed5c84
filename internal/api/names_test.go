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
		a := n.must("POST", "/bindings/%2F/e/amq.topic/q/"+url.PathEscape(name), `{"routing_key":"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name[:1])+`"}`)
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
