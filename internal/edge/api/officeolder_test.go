package api_test

import (
	"fmt"
	"testing"
)

// A letter that was sent back, and that a consumer then rejects without a word, is not counted as the error of its first life.
func TestAReplayedLetterLosesTheErrorOfItsHeaders(t *testing.T) {
	n := startOffice(t)
	n.must("PUT", "/queues/%2F/orders.dead", `{}`)
	n.must("PUT", "/queues/%2F/orders", `{"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"}}`)
	die := func() {
		n.must("POST", "/queues/%2F/orders/get", `{"ackmode": "reject_requeue_false", "count": 1, "encoding": "auto"}`)
	}
	n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key": "orders", "payload": "x", "payload_encoding": "string", "properties": {"headers": {"x-exception-message": "no bank", "x-exception-fqcn": "a.BankException"}}}`)
	die()
	check := func(class string, replays, searched int) {
		t.Helper()
		ids := n.letterIDs("orders.dead")
		if len(ids) != 1 {
			t.Fatal(ids)
		}
		l := n.must("GET", "/office/letters/%2F/orders.dead/"+ids[0], "").object(t)
		if cause := l["cause"].(map[string]any); cause["class"] != class || l["error_class"] != class || l["replays"] != float64(replays) {
			t.Errorf("%v", l)
		}
		if again := replays > 0; (l["older_headers"] == true) != again || (l["replayed_from"] == "orders.dead") != again || len(l["timeline"].([]any)) != 1+replays {
			t.Errorf("%v", l)
		}
		if groups := n.groups("/office/groups?source=orders"); len(groups) != 1 || groups[0]["error_class"] != class {
			t.Errorf("%v", groups)
		}
		if found := n.letters("/office/letters/%2F/orders.dead?error=bank"); len(found) != searched {
			t.Errorf("%v", found)
		}
	}
	check("a.BankException", 0, 1)
	n.doJob(fmt.Sprintf(`{"action": "replay", "vhost": "/", "queue": "orders.dead", "ids": [%q]}`, n.letterIDs("orders.dead")[0]))
	die()
	check("", 1, 0)
}

// A letter in the archive says by whom and why it was discarded.
func TestAnArchivedLetterSaysWhoDiscardedIt(t *testing.T) {
	n := withOffice(t)
	_, j := n.doJob(fmt.Sprintf(`{"action": "discard", "vhost": "/", "queue": "orders.dead", "ids": [%q], "reason": "no such country"}`, n.letterIDs("orders.dead")[0]))
	l := n.must("GET", "/office/letters/%2F/bartleby.archive/"+n.letterIDs("bartleby.archive")[0], "").object(t)
	d, _ := l["discarded"].(map[string]any)
	if d["by"] != "guest" || d["reason"] != "no such country" || d["job"] != j["id"] || d["at_ms"] != j["began_ms"] {
		t.Errorf("%v, the job is %v", d, j)
	}
	if l := n.must("GET", "/office/letters/%2F/orders.dead/"+n.letterIDs("orders.dead")[0], "").object(t); l["discarded"] != nil {
		t.Errorf("%v", l)
	}
}
