package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// What masks hide is not shown in filters of rules and exports, to whoever may not see it: neither in answers nor in the audit.
func TestRulesAndExportsHideTheirFilters(t *testing.T) {
	n := withMasks(t)
	n.must("PUT", "/office/masks/%2F", `{"headers": ["authorization"], "patterns": ["tok_[0-9]+", "[a-z]+@[a-z.]+"]}`)
	eve, ann := n.as("eve"), n.as("ann")
	const rule = `{"on": true, "action": "hold", "match": {"where": ["header.authorization=Bearer HIDDEN1"], "error": "tok_123"}}`
	eve.must("PUT", "/office/rules/%2F/r?reveal=true", rule)
	eve.must("PUT", "/office/rules/%2F?reveal=true", `{"rules": [`+strings.Replace(rule, "{", `{"name": "r", `, 1)+`]}`)
	eve.must("GET", "/office/export/%2F/orders.dead?reveal=true&where="+url.QueryEscape("header.authorization!=HIDDEN1")+"&error="+url.QueryEscape("bob@example.org|."), "")
	hidden := func(what, body string) {
		t.Helper()
		for _, secret := range []string{"HIDDEN1", "tok_123", "bob", "example.org"} {
			if strings.Contains(body, secret) {
				t.Errorf("%s shows %s: %s", what, secret, body)
			}
		}
	}
	for _, at := range []string{"/office/rules/%2F", "/office/rules/%2F/r", "/office/audit?what=rule*", "/office/audit?what=letters.exported"} {
		a := ann.must("GET", at, "")
		hidden(at, a.body)
		if !strings.Contains(a.body, "authorization") {
			t.Errorf("%s: %s", at, a.body)
		}
	}
	hidden("switched", ann.must("POST", "/office/rules/%2F/r/off", "").body)
	if a := eve.must("GET", "/office/rules/%2F/r?reveal=true", ""); !strings.Contains(a.body, "HIDDEN1") || !strings.Contains(a.body, "tok_123") {
		t.Errorf("with reveal: %s", a.body)
	}
	if a := ann.do("GET", "/office/rules/%2F/r?reveal=true", ""); a.status != 403 {
		t.Errorf("without the tag: %d %s", a.status, a.body)
	}
	// A rule that is sent back as it was shown keeps its filters.
	hidden("sent back", ann.must("PUT", "/office/rules/%2F/r", ann.must("GET", "/office/rules/%2F/r", "").body).body)
	if a := eve.must("GET", "/office/rules/%2F/r?reveal=true", ""); !strings.Contains(a.body, "HIDDEN1") || !strings.Contains(a.body, "tok_123") || !strings.Contains(a.body, `"by":"eve"`) {
		t.Errorf("sent back: %s", a.body)
	}
}

// The filters user and client see what is shown: no question tells what the masks hide.
func TestFiltersOfWhoRejectedSeeWhatIsShown(t *testing.T) {
	n := withMasks(t)
	n.must("PUT", "/office/masks/%2F", `{"patterns": ["tok_[0-9]+"]}`)
	n.must("POST", "/office/import/%2F/orders.dead", `{"exchange":"","routing_key":"imp","properties":{},"body":"x","body_encoding":"text","history":{"deaths":[{"queue":"q","reason":"rejected","count":1,"first_ms":1,"last_ms":1,"exchange":"","routing_keys":["a"],"expiration_ms":null}],"first":0,"exchange":"","routing_keys":[],"rejected_by":{"user":"tok_1","connection_name":"tok_2","product":"tok_3","version":"tok_4"}}}`)
	at := "/office/letters/%2F/orders.dead?"
	for _, filter := range []string{"user=tok_1", "client=tok_2", "client=tok_3", "client=tok_3%20tok_4"} {
		if a := n.as("ann").letters(at + filter); len(a) != 0 {
			t.Errorf("%s tells what is hidden", filter)
		}
		if a := n.as("eve").letters(at + "reveal=true&" + filter); len(a) != 1 {
			t.Errorf("%s with reveal: %d letters", filter, len(a))
		}
	}
	for _, filter := range []string{"user=", "client="} {
		if a := n.as("ann").letters(at + filter + url.QueryEscape("•••")); len(a) != 1 {
			t.Errorf("%s of what is shown: %d letters", filter, len(a))
		}
	}
}

// The masks of a virtual host go with it. What stays of its jobs and in the audit does not show what they hid.
func TestAVirtualHostThatIsGoneStaysMasked(t *testing.T) {
	n := withMasks(t)
	eve, ann := n.as("eve"), n.as("ann")
	n.must("PUT", "/vhosts/v", `{}`)
	for _, user := range []string{"eve", "ann", "guest"} {
		n.must("PUT", "/permissions/v/"+user, `{"configure": ".*", "write": ".*", "read": ".*"}`)
	}
	n.must("PUT", "/queues/v/dead", `{}`)
	n.must("PUT", "/office/masks/v", `{"headers": ["authorization"], "patterns": ["tok_[0-9]+"]}`)
	ask := `{"action": "replay", "vhost": "v", "queue": "dead", "reason": "tok_999", "filter": {"where": ["header.authorization=HIDDEN1"]}`
	plan := eve.must("POST", "/office/jobs?dry_run=true&reveal=true", ask+"}").object(t)
	eve.must("POST", "/office/jobs?reveal=true", ask+fmt.Sprintf(`, "token": %q, "count": %v}`, plan["token"], plan["count"]))
	for round := range 3 {
		gone := round > 0
		switch round {
		case 1:
			n.must("DELETE", "/vhosts/v", "")
		case 2: // another one of the name has other masks
			n.must("PUT", "/vhosts/v", `{}`)
			n.must("PUT", "/users/new", `{"password": "new", "tags": "policymaker"}`)
			n.must("PUT", "/permissions/v/new", `{"configure": ".*", "write": ".*", "read": ".*"}`)
			if a := n.as("new").must("GET", "/office/jobs", ""); len(a.list(t)) != 0 {
				t.Errorf("the users of a new virtual host see the jobs of the one before it: %s", a.body)
			}
			if a := n.as("new").do("GET", "/office/jobs/1", ""); a.status != 404 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		for _, at := range []string{"/office/jobs", "/office/jobs?limit=10", "/office/jobs/1", "/office/audit?vhost=v"} {
			a := ann.must("GET", at, "")
			if strings.Contains(a.body, "tok_999") || strings.Contains(a.body, "HIDDEN1") || !strings.Contains(a.body, "•••") {
				t.Errorf("gone %t: %s: %s", gone, at, a.body)
			}
		}
		for _, at := range []string{"/office/jobs?reveal=true", "/office/audit?vhost=v&reveal=true"} {
			if a := eve.must("GET", at, ""); !strings.Contains(a.body, "tok_999") {
				t.Errorf("gone %t: with reveal: %s: %s", gone, at, a.body)
			}
		}
	}
}

// The audit tells of changes of a virtual host's default dead-letter queue and lenient declarations, once each, and of imports of definitions.
func TestTheAuditTellsOfDefaultsAndImports(t *testing.T) {
	n := withMasks(t)
	ann := n.as("ann")
	for _, body := range []string{`{"description": "x"}`, `{"default_dead_letter": "%q.dead"}`, `{"default_dead_letter": "%q.dead", "description": "y"}`, `{"lenient_declarations": true}`} {
		ann.must("PUT", "/vhosts/%2F", body)
	}
	n.must("POST", "/definitions/%2F", `{"queues": [{"name": "made", "durable": true, "auto_delete": false, "arguments": {}}]}`)
	if a := n.do("POST", "/definitions", `{"queues": [{"name": "made", "vhost": "none", "durable": true, "auto_delete": false, "arguments": {}}]}`); a.status < 400 {
		t.Fatal(a.body)
	}
	var got []string
	for _, what := range []string{"vhost.changed", "definitions.imported"} {
		for _, v := range n.must("GET", "/office/audit?what="+what, "").object(t)["items"].([]any) {
			e := v.(map[string]any)
			got = append(got, fmt.Sprint(e["who"], " ", e["what"], " ", e["object"], " ", e["times"], " ", strings.SplitN(e["detail"].(string), ":", 2)[0]))
		}
	}
	want := "ann vhost.changed / 1 {\"default_dead_letter\"\nann vhost.changed / 1 {\"default_dead_letter\"\nguest definitions.imported  1 it ended early\nguest definitions.imported / 1 "
	if strings.Join(got, "\n") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}
