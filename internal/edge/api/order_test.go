package api_test

import (
	"fmt"
	"slices"
	"testing"
)

// Lists are put in order after they were taken: by virtual host, then by name.
func TestListsAreInOrder(t *testing.T) {
	n := start(t)
	const each = 20
	for _, vhost := range []string{"b", "a"} {
		n.must("PUT", "/vhosts/"+vhost, "")
		n.must("PUT", "/permissions/"+vhost+"/guest", `{"configure":".*","write":".*","read":".*"}`)
		n.must("PUT", "/exchanges/"+vhost+"/x", `{"type":"fanout"}`)
		for i := each; i > 0; i-- {
			name := fmt.Sprintf("%02d", i)
			n.must("PUT", "/queues/"+vhost+"/"+name, `{"durable":true}`)
			n.must("PUT", "/exchanges/"+vhost+"/"+name, `{"type":"fanout"}`)
			n.must("PUT", "/policies/"+vhost+"/"+name, `{"pattern":"^none","definition":{"max-length":1}}`)
			n.must("PUT", "/operator-policies/"+vhost+"/"+name, `{"pattern":"^none","definition":{"max-length":1}}`)
			n.must("PUT", "/parameters/federation-upstream/"+vhost+"/"+name, `{"value":{"uri":"amqp://"}}`)
			n.must("POST", "/bindings/"+vhost+"/e/x/q/"+name, `{}`)
			n.must("POST", "/bindings/"+vhost+"/e/x/e/"+name, `{}`)
		}
		for i := each; i > 0; i-- {
			n.must("POST", "/bindings/"+vhost+"/e/amq.direct/q/01", fmt.Sprintf(`{"routing_key":"%02d"}`, i))
		}
	}
	for _, path := range []string{
		"/queues", "/exchanges", "/policies", "/operator-policies", "/parameters/federation-upstream", "/parameters/operator_policy", "/bindings", "/queues/a/01/bindings",
		"/bindings/a/e/amq.direct/q/01", "/exchanges/a/x/bindings/source", "/exchanges/a/01/bindings/destination",
	} {
		var keys []string
		for _, o := range n.must("GET", path, "").list(t) {
			key := o["vhost"].(string)
			for _, part := range []string{"component", "source", "destination", "destination_type", "name", "routing_key"} {
				text, _ := o[part].(string)
				key += "\x00" + text
			}
			keys = append(keys, key)
		}
		if len(keys) == 0 || !slices.IsSorted(keys) {
			t.Errorf("%s: %d objects, not in order: %q", path, len(keys), keys)
		}
	}
}
