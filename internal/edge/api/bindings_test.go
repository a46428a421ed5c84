package api_test

import (
	"fmt"
	"net/url"
	"testing"
)

// A binding is found by its properties key without a look at what the others between its ends are called.
func TestABindingIsFoundAmongMany(t *testing.T) {
	n := start(t)
	n.must("PUT", "/exchanges/%2F/x", `{"type":"headers","durable":true}`)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	const between = "/bindings/%2F/e/x/q/q"
	const count = 600
	for i := range count {
		n.must("POST", between, fmt.Sprintf(`{"routing_key":"key %d"}`, i))
	}
	for i, key := range []string{"", "~", "a~b", "a b~", "100%", "%7E", "key 7"} {
		for _, arguments := range []string{`{}`, `{"n":1}`, fmt.Sprintf(`{"n":%d}`, i+2)} {
			made := n.must("POST", between, fmt.Sprintf(`{"routing_key":%q,"arguments":%s}`, key, arguments))
			location := "/bindings/%2F/e/x/q/" + made.header.Get("Location")
			got := n.must("GET", location, "").object(t)
			same(t, "the binding at "+location, got["routing_key"], key)
			if key == "100%" || key == "%7E" { // what is decoded twice is another key
				continue
			}
			once := n.must("GET", between+"/"+got["properties_key"].(string), "").object(t)
			if arguments != `{}` || key != "~" { // there the empty key is meant
				same(t, "the same, encoded once", once, got)
			}
		}
	}
	for _, none := range []string{"key%20601", "key%207~AAAA", "~AAAA", "%25zz", "a~b~c"} {
		if a := n.do("GET", between+"/"+none, ""); a.status != 404 {
			t.Errorf("%s: %d %s", none, a.status, a.body)
		}
	}
	path := between + "/" + url.PathEscape(url.QueryEscape("key 250"))
	if allocs := testing.AllocsPerRun(10, func() { n.must("GET", path, "") }); allocs > count {
		t.Errorf("%v allocations to find one of %d bindings", allocs, count)
	}
	n.must("DELETE", path, "")
	if a := n.do("GET", path, ""); a.status != 404 {
		t.Errorf("a binding that was removed: %d %s", a.status, a.body)
	}
}
