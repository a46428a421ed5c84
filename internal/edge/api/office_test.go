package api_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
)

// startOffice is start with an office.
func startOffice(t *testing.T, change ...func(*office.Options)) *node {
	t.Helper()
	return start(t, func(o *api.Options) {
		with := office.Options{Broker: o.Broker}
		for _, f := range change {
			f(&with)
		}
		f, err := office.New(with)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		o.Office = f
	})
}

// withOffice is a node with an office, on which three orders and a bill have died.
func withOffice(t *testing.T, change ...func(*office.Options)) *node {
	t.Helper()
	n := startOffice(t, change...)
	for _, q := range []struct{ work, dead string }{{"orders", "orders.dead"}, {"bills", "bills.dead"}} {
		n.must("PUT", "/queues/%2F/"+q.dead, `{}`)
		n.must("PUT", "/queues/%2F/"+q.work, `{"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "`+q.dead+`"}}`)
	}
	die := func(queue, body, headers string) {
		text, _ := json.Marshal(body)
		n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key": "`+queue+`", "payload": `+string(text)+`, "payload_encoding": "string", "properties": {"message_id": "m", "headers": `+headers+`}}`)
		n.must("POST", "/queues/%2F/"+queue+"/get", `{"ackmode": "reject_requeue_false", "count": 1, "encoding": "auto"}`)
	}
	for i := range 3 {
		die("orders", fmt.Sprintf(`{"order": %d}`, i), fmt.Sprintf(`{"x-exception-message": "no customer %d", "tenant": "t%d"}`, i, i))
	}
	die("bills", "<script>alert(1)</script>", `{}`)
	n.b.CountQueues() // the dead are where they go
	return n
}

func (n *node) groups(path string) []map[string]any {
	n.t.Helper()
	var a struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(n.must("GET", path, "").body), &a); err != nil {
		n.t.Fatal(err)
	}
	return a.Items
}

func (n *node) letters(path string) (items []map[string]any) {
	n.t.Helper()
	var a struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(n.must("GET", path, "").body), &a); err != nil {
		n.t.Fatal(err)
	}
	return a.Items
}

// Queues, groups, letters and one letter, as the contract has them.
func TestOffice(t *testing.T) {
	n := withOffice(t)
	queues := n.must("GET", "/office/queues", "").list(t)
	if len(queues) != 2 || queues[1]["name"] != "orders.dead" || queues[1]["letters"] != 3.0 || queues[1]["type"] != "classic" {
		t.Errorf("%v", queues)
	}
	groups := n.groups("/office/groups")
	if len(groups) != 2 || groups[0]["letters"] != 3.0 || groups[0]["error"] != "no customer #" || groups[0]["state"] != "new" || groups[0]["source"] != "orders" {
		t.Errorf("%v", groups)
	}
	if g := n.groups("/office/groups/%2F/bills.dead?sort=last&order=asc&limit=1"); len(g) != 1 || g[0]["source"] != "bills" {
		t.Errorf("%v", g)
	}
	id := groups[0]["id"].(string)
	note := n.must("PUT", "/office/groups/%2F/"+id, `{"state": "triaged", "owner": "ann"}`).object(t)
	if note["state"] != "triaged" || note["noted_by"] != "guest" {
		t.Errorf("%v", note)
	}
	if g := n.groups("/office/groups/%2F?state=triaged"); len(g) != 1 || g[0]["owner"] != "ann" {
		t.Errorf("%v", g)
	}
	all := n.letters("/office/letters/%2F/orders.dead")
	oldest := n.letters("/office/letters/%2F/orders.dead?order=oldest&limit=1")
	if len(all) != 3 || all[2]["id"] != oldest[0]["id"] || oldest[0]["preview"] != `{"order": 0}` || oldest[0]["group"] != id || oldest[0]["state"] != "ready" {
		t.Errorf("%v\n%v", all, oldest)
	}
	if found := n.letters("/office/letters/%2F/orders.dead?where=header.tenant%3Dt1&where=header.tenant&group=" + id + "&body=order"); len(found) != 1 || found[0]["error"] != "no customer 1" {
		t.Errorf("%v", found)
	}
	letter := n.must("GET", "/office/letters/%2F/orders.dead/"+oldest[0]["id"].(string), "").object(t)
	same(t, "cause", letter["cause"], map[string]any{"class": "", "error": "no customer 0", "detail": "", "from": "spring"})
	same(t, "body", letter["body"], map[string]any{"bytes": 12.0, "encoding": "json", "text": `{"order": 0}`, "cut": false})
	same(t, "replay", letter["replay"], map[string]any{"exchange": "", "routing_keys": []any{"orders"}, "queues": []any{"orders"}, "problem": nil})
	if h := letter["headers"].(map[string]any); h["tenant"] != "t0" || h["x-first-death-queue"] != "orders" {
		t.Errorf("%v", h)
	}
	same(t, "rejected_by", letter["rejected_by"], map[string]any{"delivery_count": 1.0})
	if stops := letter["timeline"].([]any); len(stops) != 1 || stops[0].(map[string]any)["queue"] != "orders" {
		t.Errorf("%v", stops)
	}
}

// What waits for a retry is shown to who may see its queue.
func TestRetriesOfTheOffice(t *testing.T) {
	n := withOffice(t)
	if rows := n.must("GET", "/office/retries", "").list(t); len(rows) != 0 {
		t.Errorf("%v", rows)
	}
	n.must("PUT", "/queues/%2F/slow", `{"durable": true, "arguments": {"x-delayed-retry-type": "all", "x-delayed-retry-min": 3600000}}`)
	n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key": "slow", "payload": "m", "payload_encoding": "string", "properties": {}}`)
	n.must("POST", "/queues/%2F/slow/get", `{"ackmode": "reject_requeue_true", "count": 1, "encoding": "auto"}`)
	rows := n.must("GET", "/office/retries/%2F", "").list(t)
	if len(rows) != 1 || rows[0]["queue"] != "slow" || rows[0]["vhost"] != "/" || rows[0]["waiting"] != 1.0 || rows[0]["late_ms"] != 0.0 {
		t.Fatalf("%v", rows)
	}
	due := rows[0]["due"].(map[string]any)
	if counts := due["counts"].([]any); len(counts) != 60 || due["step_ms"] != 64000.0 || counts[56] != 1.0 {
		t.Errorf("%v", due)
	}
	n.must("PUT", "/users/reader", `{"password": "p", "tags": "management"}`)
	n.must("PUT", "/permissions/%2F/reader", `{"configure": "^$", "write": "^$", "read": "^orders$"}`)
	for _, path := range []string{"/office/retries/nowhere", "/office/retries?colour=red"} {
		if a := n.do("GET", path, ""); a.status != 404 && a.status != 400 {
			t.Errorf("%s: %+v", path, a)
		}
	}
	n.user = "reader:p"
	if rows := n.must("GET", "/office/retries", "").list(t); len(rows) != 0 {
		t.Errorf("who may not read the queue sees %v", rows)
	}
}

// The raw body, and parts of it. A browser does not run it.
func TestALettersBody(t *testing.T) {
	n := withOffice(t)
	path := "/office/letters/%2F/bills.dead/" + n.letters("/office/letters/%2F/bills.dead")[0]["id"].(string) + "/body"
	a := n.must("GET", path, "")
	if a.body != "<script>alert(1)</script>" || a.header.Get("Content-Type") != "application/octet-stream" || a.header.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment") || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%+v", a)
	}
	r := httptest.NewRequest("GET", "/api"+path, nil)
	r.Header.Set("Range", "bytes=8-12")
	if a := n.send(r); a.status != 206 || a.body != "alert" {
		t.Errorf("%+v", a)
	}
	r = httptest.NewRequest("GET", "/api"+path, nil)
	r.Header.Set("Range", "bytes=100-")
	if a := n.send(r); a.status != 416 {
		t.Errorf("%+v", a)
	}
}

// A stream has a line for each letter, and says at the end that it is one.
func TestLettersStream(t *testing.T) {
	n := withOffice(t)
	r := httptest.NewRequest("GET", "/api/office/letters/%2F/orders.dead?order=oldest", nil)
	r.Header.Set("Accept", "application/x-ndjson")
	a := n.send(r)
	lines := strings.Split(a.body, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], `{"letter":{"id":`) || lines[3] != `{"end":{"next":null,"examined":3,"stopped":null}}` || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%+v", a)
	}
}

// A letter that has gone answers 410, one that never was 404, and what is wrong is named.
func TestOfficeRefusals(t *testing.T) {
	n := withOffice(t)
	id := n.letters("/office/letters/%2F/orders.dead?order=oldest")[0]["id"].(string)
	n.must("POST", "/queues/%2F/orders.dead/get", `{"ackmode": "ack_requeue_false", "count": 1, "encoding": "auto"}`)
	for _, c := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", "/office/letters/%2F/orders.dead/" + id, "", 410, "has left queue 'orders.dead'"},
		{"GET", "/office/letters/%2F/orders.dead/" + id + "/body", "", 410, "has left queue"},
		{"GET", "/office/letters/%2F/orders.dead/1.1", "", 410, ""},
		{"GET", "/office/letters/%2F/orders.dead/" + id + "zzz", "", 404, "no letter of queue 'orders.dead'"},
		{"GET", "/office/letters/%2F/orders.dead/x", "", 404, "no letter"},
		{"GET", "/office/letters/%2F/nowhere", "", 404, "nowhere"},
		{"GET", "/office/letters/nowhere/orders.dead", "", 404, ""},
		{"GET", "/office/letters/%2F/orders.dead?reason=tired", "", 400, "filter 'reason': 'tired' is no reason"},
		{"GET", "/office/letters/%2F/orders.dead?colour=red", "", 400, "filter 'colour'"},
		{"GET", "/office/letters/%2F/orders.dead?limit=0", "", 400, "limit '0' must be a number from 1 to 1000"},
		{"GET", "/office/letters/%2F/orders.dead?order=up", "", 400, "must be newest or oldest"},
		{"GET", "/office/letters/%2F/orders.dead?cursor=x", "", 400, "cursor 'x' is none"},
		{"GET", "/office/letters/%2F/orders.dead?a;b", "", 400, "cannot be read"},
		{"GET", "/office/groups?sort=colour", "", 400, "sort 'colour' is unknown"},
		{"GET", "/office/groups?colour=red", "", 400, "unknown parameter 'colour'"},
		{"GET", "/office/queues?colour=red", "", 400, "unknown parameter 'colour'"},
		{"PUT", "/office/groups/%2F/A!", `{}`, 404, "no id of a group"},
		{"PUT", "/office/groups/%2F/1", `{"state": "lost"}`, 400, "state 'lost' is unknown"},
		{"PUT", "/office/groups/%2F/1", `{"colour": "red"}`, 400, "unknown key 'colour'"},
		{"PUT", "/office/groups/%2F/1", `{"owner": 7}`, 400, "owner must be text"},
	} {
		if a := n.do(c.method, c.path, c.body); a.status != c.status || !strings.Contains(a.body, c.has) {
			t.Errorf("%s %s: %d %s, want %d with %q", c.method, c.path, a.status, a.body, c.status, c.has)
		}
	}
}

// Who may not read a queue learns nothing of its letters; who has the tag monitoring sees metadata.
func TestOfficeRights(t *testing.T) {
	n := withOffice(t)
	for _, u := range []struct{ name, tags, read string }{{"reader", "management", "^orders.dead$"}, {"watch", "monitoring", "^$"}, {"policy", "policymaker", "^$"}} {
		n.must("PUT", "/users/"+u.name, `{"password": "p", "tags": "`+u.tags+`"}`)
		n.must("PUT", "/permissions/%2F/"+u.name, `{"configure": "^$", "write": "^$", "read": "`+u.read+`"}`)
	}
	n.must("PUT", "/users/stranger", `{"password": "p", "tags": "management"}`)
	count := func(path string) int {
		t.Helper()
		if strings.Contains(path, "queues") {
			return len(n.must("GET", path, "").list(t))
		}
		return len(n.groups(path))
	}
	for _, c := range []struct {
		user           string
		queues, groups int
	}{{"guest:guest", 2, 2}, {"reader:p", 1, 1}, {"watch:p", 2, 2}, {"policy:p", 0, 0}, {"stranger:p", 0, 0}} {
		n.user = c.user
		if q, g := count("/office/queues"), count("/office/groups"); q != c.queues || g != c.groups {
			t.Errorf("%s sees %d queues and %d groups, want %d and %d", c.user, q, g, c.queues, c.groups)
		}
	}
	n.user = "reader:p"
	if g := n.groups("/office/groups/%2F/bills.dead"); len(g) != 0 {
		t.Errorf("%v", g)
	}
	id := n.letters("/office/letters/%2F/orders.dead")[0]["id"].(string)
	if l := n.must("GET", "/office/letters/%2F/orders.dead/"+id, "").object(t); !strings.Contains(fmt.Sprint(l["replay"]), "write access to exchange 'amq.default' in vhost '/' refused") {
		t.Errorf("%v", l["replay"])
	}
	for _, c := range []struct {
		user, method, path string
		status             int
	}{
		{"reader:p", "GET", "/office/letters/%2F/bills.dead", 401}, {"reader:p", "GET", "/office/letters/%2F/nowhere", 401}, {"watch:p", "GET", "/office/letters/%2F/orders.dead", 401},
		{"watch:p", "GET", "/office/letters/%2F/orders.dead/" + id, 401}, {"watch:p", "GET", "/office/letters/%2F/orders.dead/" + id + "/body", 401},
		{"stranger:p", "GET", "/office/letters/%2F/orders.dead", 404}, {"stranger:p", "GET", "/office/groups/%2F", 404}, {"reader:p", "PUT", "/office/groups/%2F/1", 401},
		{"policy:p", "PUT", "/office/groups/%2F/1", 200}, {"nobody:p", "GET", "/office/queues", 401},
	} {
		n.user = c.user
		if a := n.do(c.method, c.path, "{}"); a.status != c.status {
			t.Errorf("%s %s %s: %d %s, want %d", c.user, c.method, c.path, a.status, a.body, c.status)
		}
	}
}

// What was discarded is in the archive, which is shown to those who ask for it: nobody has to do anything about it.
func TestDiscardedLettersAreNotAmongTheGroups(t *testing.T) {
	n := withOffice(t)
	before := len(n.groups("/office/groups"))
	archive := string(broker.Archive)
	n.must("PUT", "/queues/%2F/"+archive, `{"durable":true,"arguments":{"x-queue-type":"classic","x-message-ttl":604800000}}`)
	n.must("PUT", "/queues/%2F/thrown", `{"durable":true,"arguments":{"x-dead-letter-exchange":"","x-dead-letter-routing-key":"bartleby.archive"}}`)
	n.must("POST", "/exchanges/%2F/amq.default/publish", `{"properties":{},"routing_key":"thrown","payload":"m","payload_encoding":"string"}`)
	n.must("POST", "/queues/%2F/thrown/get", `{"count":1,"ackmode":"reject_requeue_false","encoding":"auto"}`)
	waitFor(t, "the discarded letter", func() bool { return len(n.groups("/office/groups/%2F/"+archive)) == 1 })
	if got := len(n.groups("/office/groups")); got != before {
		t.Errorf("%d groups, %d before", got, before)
	}
	if a := n.do("GET", "/office/groups/%2F/nosuch", ""); a.status != 404 || !strings.Contains(a.body, "no queue 'nosuch'") {
		t.Errorf("groups of a queue that does not exist: %d %s", a.status, a.body)
	}
}

// The audit shows who did what to the letters, to those with the tag monitoring.
func TestAuditOverHTTP(t *testing.T) {
	n := withOffice(t)
	id := n.groups("/office/groups/%2F/bills.dead")[0]["id"].(string)
	n.must("PUT", "/office/groups/%2F/"+id, `{"state": "triaged", "note": "see ticket 7"}`)
	n.must("PUT", "/office/groups/%2F/"+id, `{"state": "resolved"}`)
	read := func(query string) (items []any, next any) {
		a := n.must("GET", "/office/audit"+query, "").object(t)
		return a["items"].([]any), a["next"]
	}
	items, next := read("?limit=1")
	if len(items) != 1 || next != "2" {
		t.Fatalf("%v, %v", items, next)
	}
	items, next = read("?limit=1&cursor=2")
	if e := items[0].(map[string]any); e["who"] != "guest" || e["peer"] != "127.0.0.1:1234" || e["what"] != "group.noted" || e["object"] != id || e["why"] != "see ticket 7" || next != nil {
		t.Errorf("%v, %v", e, next)
	}
	if items, _ := read("?vhost=other"); len(items) != 0 {
		t.Errorf("%v", items)
	}
	for _, query := range []string{"?limit=0", "?cursor=x", "?cursor=0", "?nobody=1"} {
		if a := n.do("GET", "/office/audit"+query, ""); a.status != 400 {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	n.must("PUT", "/users/ann", `{"password": "ann", "tags": "policymaker"}`)
	n.user = "ann:ann"
	if a := n.do("GET", "/office/audit", ""); a.status != 401 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Lint shows what loses dead letters, to those who see all or make policies.
func TestLintOverHTTP(t *testing.T) {
	n := withOffice(t)
	n.must("PUT", "/queues/%2F/lost", `{"arguments": {"x-dead-letter-exchange": "gone"}}`)
	n.must("PUT", "/vhosts/other", `{}`)
	want := `{"vhost":"/","kind":"queue","name":"lost","rule":"dlx-missing","severity":"error","text":"its argument x-dead-letter-exchange names the exchange 'gone', which does not exist, for its dead letters: they are dropped","mend":"declare the exchange 'gone', or change it with bartleby set_queue_arguments, or declare the queue anew without or with another x-dead-letter-exchange"}`
	if a := n.must("GET", "/office/lint", ""); a.body != "["+want+"]" {
		t.Error(a.body)
	}
	if a := n.must("GET", "/office/lint/other", ""); a.body != "[]" {
		t.Error(a.body)
	}
	for _, c := range []struct {
		tags, vhost string
		status      int
		body        string
	}{{"management", "/", 401, ""}, {"policymaker", "/", 200, "[" + want + "]"}, {"policymaker", "other", 200, "[]"}, {"monitoring", "other", 200, "[" + want + "]"}} {
		n.user = "guest:guest"
		n.must("PUT", "/users/ann", `{"password": "ann", "tags": "`+c.tags+`"}`)
		n.do("DELETE", "/permissions/%2F/ann", "")
		n.must("PUT", "/permissions/"+strings.ReplaceAll(c.vhost, "/", "%2F")+"/ann", `{"configure": "", "write": "", "read": ""}`)
		n.user = "ann:ann"
		if a := n.do("GET", "/office/lint", ""); a.status != c.status || c.body != "" && a.body != c.body {
			t.Errorf("%+v: %d %s", c, a.status, a.body)
		}
		n.user = "guest:guest"
		n.must("DELETE", "/users/ann", "")
	}
}

// The map shows where dead letters go, and how many are there.
func TestMapOverHTTP(t *testing.T) {
	n := withOffice(t)
	a := n.must("GET", "/office/topology/%2F", "").object(t)
	nodes, edges := a["nodes"].([]any), a["edges"].([]any)
	if len(nodes) != 4 || len(edges) != 2 || a["left_out"] != 0.0 {
		t.Fatalf("%v", a)
	}
	same(t, "an edge", edges[1], map[string]any{
		"from": "orders", "from_kind": "queue", "to": "orders.dead", "to_kind": "queue", "kind": "dead-letter", "key": "orders.dead", "from_arguments": true, "from_policy": "", "from_vhost": false, "loop": false, "problem": "",
	})
	same(t, "a target", nodes[3], map[string]any{"name": "orders.dead", "kind": "queue", "missing": false, "letters": nil, "messages": 3})
	for n.must("GET", "/office/groups", "").object(t)["reading"] == true {
	}
	nodes = n.must("GET", "/office/topology/%2F", "").object(t)["nodes"].([]any)
	same(t, "a target", nodes[3], map[string]any{"name": "orders.dead", "kind": "queue", "missing": false, "letters": 3, "messages": 3})
	if a := n.do("GET", "/office/topology/gone", ""); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
