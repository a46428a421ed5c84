package api_test

import (
	"slices"
	"strings"
	"testing"
)

// hasKeys looks that an object has every key, named with blanks between.
func hasKeys(t *testing.T, what string, o map[string]any, keys string) {
	t.Helper()
	for _, key := range strings.Fields(keys) {
		if _, ok := o[key]; !ok {
			t.Errorf("%s has no %s", what, key)
		}
	}
}

// BR-15.12, DL-18.5: what a queue shows, in a list and alone, by its type.
func TestQueueObject(t *testing.T) {
	n := start(t)
	n.must("PUT", "/queues/%2F/c", `{"durable":true,"arguments":{"x-max-length":9}}`)
	n.must("PUT", "/queues/%2F/q", `{"durable":true,"arguments":{"x-queue-type":"quorum","x-delivery-limit":7}}`)
	n.must("PUT", "/policies/%2F/p", `{"pattern":"^c$","definition":{"dead-letter-exchange":"x","max-length":5},"apply-to":"queues"}`)
	n.must("PUT", "/operator-policies/%2F/o", `{"pattern":"^c$","definition":{"max-length":3},"apply-to":"queues"}`)
	const all = `name vhost durable auto_delete exclusive arguments type node state effective_policy_definition consumers
		consumer_utilisation consumer_capacity messages messages_ready messages_unacknowledged messages_details messages_ready_details
		messages_unacknowledged_details message_bytes message_bytes_ready message_bytes_unacknowledged messages_persistent messages_ram memory`
	// Lists leave out what a queue has not got; alone it shows that as null.
	const without = "policy operator_policy single_active_consumer_tag"
	const quorum = `leader members online delivery_limit delayed_retry messages_dlx message_bytes_dlx messages_delayed messages_ready_returned
		messages_by_priority messages_active_priorities publishers`
	const once = "head_message_timestamp exclusive_consumer_tag storage_version "
	const alone = "consumer_details deliveries incoming garbage_collection"
	list := n.must("GET", "/queues/%2F", "").list(t)
	hasKeys(t, "a classic queue of a list", list[0], all+" storage_version")
	hasKeys(t, "a quorum queue of a list", list[1], all+" "+quorum)
	for _, key := range strings.Fields(alone) {
		if _, there := list[0][key]; there {
			t.Errorf("a queue of a list has %s", key)
		}
	}
	c, q := n.must("GET", "/queues/%2F/c", "").object(t), n.must("GET", "/queues/%2F/q", "").object(t)
	hasKeys(t, "a classic queue", c, all+" "+without+" "+once+alone)
	hasKeys(t, "a quorum queue", q, all+" "+without+" "+quorum+" "+alone)
	same(t, "arguments", c["arguments"], map[string]any{"x-max-length": 9, "x-queue-type": "classic"})
	same(t, "policy", c["policy"], "p")
	same(t, "operator policy", c["operator_policy"], "o")
	same(t, "effective policy: values of policies only", c["effective_policy_definition"], map[string]any{"dead-letter-exchange": "x", "max-length": 3})
	same(t, "delivery limit", q["delivery_limit"], 7)
}

// BR-15.14: what the overview shows, and versions that tools can read.
func TestOverview(t *testing.T) {
	o := start(t).must("GET", "/overview", "").object(t)
	hasKeys(t, "the overview", o, `rabbitmq_version management_version product_name product_version erlang_version cluster_name node object_totals
		queue_totals message_stats churn_rates listeners contexts exchange_types rates_mode default_queue_type statistics_db_event_queue`)
	if v, _ := o["rabbitmq_version"].(string); !strings.HasPrefix(v, "4.3.") {
		t.Errorf("rabbitmq_version is %q, want 4.3.x", v)
	}
	if v, _ := o["erlang_version"].(string); v == "" {
		t.Error("erlang_version is empty")
	}
	totals, _ := o["object_totals"].(map[string]any)
	hasKeys(t, "object_totals", totals, "channels connections consumers exchanges queues")
}

// BR-15.16: what was declared is there at once, and what was deleted is not.
func TestObjectsAreThereAtOnce(t *testing.T) {
	n := start(t)
	names := func() (names []string) {
		for _, q := range n.must("GET", "/queues/%2F?columns=name", "").list(t) {
			names = append(names, q["name"].(string))
		}
		return names
	}
	n.must("PUT", "/queues/%2F/a", "{}")
	if got := names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after PUT: %v", got)
	}
	n.must("DELETE", "/queues/%2F/a", "")
	if got := names(); len(got) != 0 {
		t.Errorf("after DELETE: %v", got)
	}
}
