package api_test

import (
	"fmt"
	"testing"

	"bartleby.mq/internal/run/definitions"
)

// What clients have done since must not keep a node from starting: a definitions file is imported at each start.
func TestAStartPassesOverWhatOthersHaveMadeImpossible(t *testing.T) {
	const file = `{"vhosts":[{"name":"/"}],"queues":[{"vhost":"/","name":"orders","durable":true,"arguments":{}},{"vhost":"/","name":"b","durable":true,"arguments":{}}],
		"exchanges":[{"vhost":"/","name":"events","type":"topic","durable":true}],
		"bindings":[{"vhost":"/","source":"events","destination":"orders","destination_type":"queue","routing_key":"orders.#","arguments":{}},
		{"vhost":"/","source":"events","destination":"b","destination_type":"queue","routing_key":"#","arguments":{}},
		{"vhost":"/","source":"amq.fanout","destination":"b","destination_type":"queue","routing_key":"","arguments":{}}]}`
	for name, done := range map[string]func(*node){
		"the queue limit is reached": func(n *node) {
			n.must("PUT", "/vhost-limits/%2F/max-queues", `{"value":3}`)
			n.must("DELETE", "/queues/%2F/orders", "")
			for i := range 2 {
				n.must("PUT", fmt.Sprintf("/queues/%%2F/q%d", i), `{"durable":true}`)
			}
		},
		"the exchange is of another type": func(n *node) {
			n.must("DELETE", "/exchanges/%2F/events", "")
			n.must("PUT", "/exchanges/%2F/events", `{"type":"x-consistent-hash","durable":true}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			if _, err := definitions.Import(n.b, []byte(file), definitions.How{}); err != nil {
				t.Fatal(err)
			}
			done(n)
			n.must("DELETE", "/bindings/%2F/e/amq.fanout/q/b/~", "")
			warnings, err := definitions.Import(n.b, []byte(file), definitions.How{})
			if err != nil || len(warnings) != 2 {
				t.Errorf("warnings %q, error %v", warnings, err)
			}
			n.must("GET", "/bindings/%2F/e/amq.fanout/q/b/~", "")
			if a := n.do("POST", "/definitions", file); a.status == 204 {
				t.Error("an import that somebody asks for tells of nothing")
			}
		})
	}
}
