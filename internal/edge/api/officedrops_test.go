package api_test

import (
	"testing"
	"time"
)

// lateToNowhere publishes a message to an exchange that leads nowhere. It waits there first: what a request publishes
// is answered, and is no drop.
func (n *node) lateToNowhere(vhost string) {
	n.t.Helper()
	n.must("PUT", "/exchanges/"+vhost+"/late", `{"type":"x-delayed-message","durable":true,"arguments":{"x-delayed-type":"fanout"}}`)
	n.must("POST", "/exchanges/"+vhost+"/late/publish", `{"properties":{"headers":{"x-delay":1}},"routing_key":"k","payload":"m","payload_encoding":"string"}`)
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

// Whatever lets a message go stands in the ledger, with what is known of it.
func TestDropsAreListed(t *testing.T) {
	n := startOffice(t)
	n.must("PUT", "/queues/%2F/plain", `{"durable":true}`)
	n.must("PUT", "/queues/%2F/typo", `{"durable":true,"arguments":{"x-dead-letter-exchange":"tpyo"}}`)
	n.must("PUT", "/queues/%2F/short", `{"durable":true,"arguments":{"x-max-length":1}}`)
	n.must("PUT", "/queues/%2F/quorum", `{"durable":true,"arguments":{"x-queue-type":"quorum","x-dead-letter-exchange":"amq.topic"}}`)
	publish := func(exchange, key string) {
		t.Helper()
		n.must("POST", "/exchanges/%2F/"+exchange+"/publish", `{"properties":{"message_id":"id-`+key+`","type":"order"},"routing_key":"`+key+`","payload":"12345","payload_encoding":"string"}`)
	}
	reject := func(queue string) {
		t.Helper()
		n.must("POST", "/queues/%2F/"+queue+"/get", `{"count":10,"ackmode":"reject_requeue_false","encoding":"auto"}`)
	}
	for _, q := range []string{"plain", "plain", "typo", "quorum", "short", "short", "short"} {
		publish("amq.default", q)
	}
	n.lateToNowhere("%2F")
	n.lateToNowhere("%2F")
	for _, q := range []string{"plain", "typo", "quorum"} {
		reject(q)
	}
	wants := map[string]struct {
		count    float64
		reason   any
		exchange string
		id       any
	}{
		"plain no_dlx":     {2, "rejected", "", "id-plain"},
		"typo dlx_missing": {1, "rejected", "", "id-typo"},
		"quorum no_route":  {1, "rejected", "", "id-quorum"},
		"short no_dlx":     {2, "maxlen", "", "id-short"},
		" unroutable":      {2, nil, "late", nil},
	}
	var items []any
	waitFor(t, "all entries", func() bool { // deaths are carried out by the node's workers
		all := n.must("GET", "/office/drops/%2F", "").object(t)
		items = all["items"].([]any)
		return all["dropped"] == float64(8)
	})
	same(t, "entries", len(items), len(wants))
	for _, item := range items {
		is := item.(map[string]any)
		queue, _ := is["queue"].(string)
		want, ok := wants[queue+" "+is["why"].(string)]
		if !ok {
			t.Errorf("not expected: %v", is)
			continue
		}
		for key, value := range map[string]any{"count": want.count, "reason": want.reason, "exchange": want.exchange, "message_id": want.id} {
			same(t, queue+" "+key, is[key], value)
		}
		if want.id != nil {
			same(t, queue+" type", is["type"], "order")
			same(t, queue+" bytes", is["bytes"], 5)
		}
	}
	all := n.must("GET", "/office/drops?why=no_dlx&limit=1", "").object(t)
	same(t, "total", all["total"], 2)
	same(t, "dropped", all["dropped"], 4)
	next := n.must("GET", "/office/drops?why=no_dlx&limit=1&cursor="+all["next"].(string), "").object(t)
	same(t, "next of the last", next["next"], nil)
	if first, second := all["items"].([]any)[0], next["items"].([]any)[0]; first.(map[string]any)["queue"] == second.(map[string]any)["queue"] {
		t.Error("two pages show the same entry")
	}
	for _, query := range []string{"limit=0", "limit=x", "limit=1001", "cursor=%25", "cursor=AAAA", "quue=a"} {
		if a := n.do("GET", "/office/drops?"+query, ""); a.status != 400 {
			t.Errorf("%s: %d %s, want 400", query, a.status, a.body)
		}
	}
}

// A user sees the drops of virtual hosts that it may see.
func TestDropsAreShownToThoseWhoMaySeeTheVirtualHost(t *testing.T) {
	n := startOffice(t)
	n.must("PUT", "/vhosts/other", "")
	n.must("PUT", "/permissions/other/guest", `{"configure":".*","write":".*","read":".*"}`)
	n.must("PUT", "/users/ada", `{"password":"p","tags":"management"}`)
	n.must("PUT", "/permissions/other/ada", `{"configure":"","write":"","read":""}`)
	n.must("PUT", "/users/watch", `{"password":"p","tags":"monitoring"}`)
	n.lateToNowhere("%2F")
	n.lateToNowhere("other")
	count := func(path string) any { return n.must("GET", path, "").object(t)["total"] }
	waitFor(t, "two drops", func() bool { return count("/office/drops") == float64(2) })
	n.user = "ada:p"
	same(t, "of all that ada sees", count("/office/drops"), 1)
	same(t, "of other", count("/office/drops/other"), 1)
	if a := n.do("GET", "/office/drops/%2F", ""); a.status != 404 {
		t.Errorf("of a virtual host that she does not see: %d %s", a.status, a.body)
	}
	n.user = "watch:p"
	same(t, "of all that watch sees", count("/office/drops"), 2)
}
