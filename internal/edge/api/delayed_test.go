package api_test

import (
	"slices"
	"testing"

	"bartleby.mq/internal/edge/api"
)

// What waits in an exchange that delays messages is shown with it, in no queue, and dropped by those who may delete the
// exchange.
func TestDelayedMessages(t *testing.T) {
	n := start(t)
	n.must("PUT", "/exchanges/%2F/later", `{"type":"x-delayed-message","durable":true,"arguments":{"x-delayed-type":"topic"}}`)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	n.must("POST", "/bindings/%2F/e/later/q/q", `{"routing_key":"#"}`)
	publish := func(headers string) {
		t.Helper()
		a := n.must("POST", "/exchanges/%2F/later/publish", `{"properties":{"headers":`+headers+`},"routing_key":"k","payload":"m","payload_encoding":"string"}`)
		same(t, "routed", a.object(t)["routed"], true)
	}
	delayed := func() any { return n.must("GET", "/exchanges/%2F/later", "").object(t)["messages_delayed"] }
	publish(`{"x-delay":4320000000}`)
	publish(`{"x-delay":9223372036854775807}`)
	publish(`{"x-delay":0}`)
	same(t, "messages_delayed", delayed(), 2)
	i := slices.IndexFunc(n.must("GET", "/exchanges/%2F", "").list(t), func(x map[string]any) bool { return x["messages_delayed"] == float64(2) })
	if i < 0 {
		t.Error("the list of exchanges does not show what waits")
	}
	if _, ok := n.must("GET", "/exchanges/%2F/amq.topic", "").object(t)["messages_delayed"]; ok {
		t.Error("an exchange that delays nothing has messages_delayed")
	}
	if q := n.must("GET", "/queues", "").list(t); len(q) != 1 || q[0]["name"] != "q" {
		t.Errorf("the queues are %v", q)
	}
	same(t, "messages in queues", n.must("GET", "/overview", "").object(t)["queue_totals"].(map[string]any)["messages"], 1)
	if a := n.do("POST", "/exchanges/%2F/later/publish", `{"properties":{"headers":{"x-delay":"soon"}},"routing_key":"k","payload":"m","payload_encoding":"string"}`); a.status != 400 {
		t.Errorf("a delay that is no number: %d %s, want 400", a.status, a.body)
	}

	n.must("PUT", "/users/ada", `{"password":"p","tags":"management"}`)
	n.must("PUT", "/permissions/%2F/ada", `{"configure":"^none","write":".*","read":".*"}`)
	guest := n.user
	n.user = "ada:p"
	if a := n.do("DELETE", "/exchanges/%2F/later/contents", ""); a.status != 401 && a.status != 403 {
		t.Errorf("without configure: %d %s", a.status, a.body)
	}
	n.user = guest
	for _, name := range []string{"none", "amq.topic"} {
		if a := n.do("DELETE", "/exchanges/%2F/"+name+"/contents", ""); a.status != map[string]int{"none": 404, "amq.topic": 400}[name] {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	same(t, "messages_delayed before", delayed(), 2)
	n.must("DELETE", "/exchanges/%2F/later/contents", "")
	same(t, "messages_delayed after", delayed(), 0)

	// A virtual host takes with it what waits in it, and definitions bring the exchange back without it.
	definitions := n.must("GET", "/definitions/%2F", "").body
	publish(`{"x-delay":4320000000}`)
	n.must("DELETE", "/vhosts/%2F", "")
	n.must("PUT", "/vhosts/%2F", "")
	n.must("POST", "/definitions/%2F", definitions)
	same(t, "messages_delayed of the next", delayed(), 0)
	if dropped := n.b.Totals.DelayedDropped.Load(); dropped != 3 {
		t.Errorf("%d messages count as dropped, want 3", dropped)
	}
}

// The type is listed, and its plugin, which images and scripts enable. In strict mode lists are those of RabbitMQ.
func TestDelayedTypeIsListed(t *testing.T) {
	for _, strict := range []bool{false, true} {
		n := start(t)
		n.b.Strict = strict
		n.handler = api.New(api.Options{Broker: n.b})
		for _, o := range []map[string]any{n.must("GET", "/overview", "").object(t), n.must("GET", "/nodes", "").list(t)[0]} {
			listed := slices.ContainsFunc(o["exchange_types"].([]any), func(x any) bool { return x.(map[string]any)["name"] == "x-delayed-message" })
			if listed == strict {
				t.Errorf("strict is %v, and the type is listed: %v", strict, listed)
			}
			if plugins, ok := o["enabled_plugins"].([]any); ok && slices.Contains(plugins, any("rabbitmq_delayed_message_exchange")) == strict {
				t.Errorf("strict is %v, and the plugins are %v", strict, plugins)
			}
		}
	}
}
