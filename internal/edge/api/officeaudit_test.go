package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/edge/api"
)

// Four hundred letters may go with a virtual host: the audit names who deleted it.
func TestTheAuditNamesWhoDeletedAVirtualHost(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/users/ann", `{"password": "ann", "tags": "administrator"}`)
	n.must("PUT", "/vhosts/shop", `{}`)
	n.must("PUT", "/vhosts/depot", `{}`)
	n.as("ann").must("DELETE", "/vhosts/shop", "")
	w := httptest.NewRecorder()
	api.Local(n.handler).ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/api/vhosts/depot", nil))
	if w.Code != http.StatusNoContent {
		t.Fatal(w.Code, w.Body)
	}
	items := n.must("GET", "/office/audit?what=vhost.deleted", "").object(t)["items"].([]any)
	if len(items) != 2 {
		t.Fatal(items)
	}
	for i, want := range []struct{ vhost, who string }{{"depot", "local"}, {"shop", "ann"}} {
		act := items[i].(map[string]any)
		if act["vhost"] != want.vhost || act["who"] != want.who || act["peer"] == "" {
			t.Errorf("%v, want %+v", act, want)
		}
	}
}

// Whoever asks through the control socket has one name in jobs, rules and the audit. A user with that name is somebody else.
func TestTheOperatorHasOneName(t *testing.T) {
	n := withOffice(t)
	ask := func(method, path, body string) (a map[string]any) {
		t.Helper()
		w := httptest.NewRecorder()
		api.Local(n.handler).ServeHTTP(w, httptest.NewRequest(method, "/api"+path, strings.NewReader(body)))
		if w.Code/100 != 2 {
			t.Fatal(w.Code, w.Body)
		}
		_ = json.Unmarshal(w.Body.Bytes(), &a) // some answers are empty
		return a
	}
	schedule := fmt.Sprintf(`"action": "discard", "vhost": "/", "queue": "orders.dead", "schedule_ms": %d, "reason": "old"`, time.Now().Add(time.Hour).UnixMilli())
	plan := ask("POST", "/office/jobs?dry_run=true", "{"+schedule+"}")
	j := ask("POST", "/office/jobs", fmt.Sprintf(`{%s, "token": %q, "count": %v}`, schedule, plan["token"], plan["count"]))
	ask("PUT", "/office/rules/%2F/again", `{"queues": "^x$", "match": {}, "action": "hold", "on": true}`)
	acts := n.must("GET", "/office/audit?what=job.made", "").object(t)["items"].([]any)
	if by := acts[0].(map[string]any)["who"]; j["by"] != "local" || by != "local" {
		t.Errorf("the job is by %v, the audit says %v", j["by"], by)
	}
	if rule := n.must("GET", "/office/rules/%2F/again", "").object(t); rule["by"] != "local" {
		t.Errorf("%v", rule)
	}
	n.must("PUT", "/users/local", `{"password": "local", "tags": "management"}`)
	n.must("PUT", "/permissions/%2F/local", `{"configure": ".*", "write": ".*", "read": ".*"}`)
	if r := n.as("local").do("POST", fmt.Sprintf("/office/jobs/%v/cancel", j["id"]), ""); r.status != 401 && r.status != 403 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Whoever may not do something in the office learns which tag it takes.
func TestARefusalNamesTheTag(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/users/ann", `{"password": "ann", "tags": "management"}`)
	n.must("PUT", "/permissions/%2F/ann", `{"configure": ".*", "write": ".*", "read": ".*"}`)
	for at, tag := range map[string]string{"/office/audit": "monitoring", "/office/rules/%2F": "policymaker", "/office/webhooks": "administrator"} {
		if r := n.as("ann").do("GET", at, ""); r.status != 401 && r.status != 403 || !strings.Contains(r.body, "needs the tag "+tag+",") {
			t.Errorf("%s: %d %s", at, r.status, r.body)
		}
	}
	if r := n.as("ann").do("GET", "/users", ""); !strings.Contains(r.body, `"reason":"Not administrator user"`) { // as RabbitMQ has it
		t.Error(r.body)
	}
}
