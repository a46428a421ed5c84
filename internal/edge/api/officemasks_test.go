package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/run/office"
)

// withMasks is a node with all of the office, and users without and with the tag reveal: ann and eve.
func withMasks(t *testing.T, change ...func(*office.Options)) *node {
	t.Helper()
	n := withOffice(t, change...)
	for name, tags := range map[string]string{"ann": "administrator,monitoring", "eve": "administrator,reveal"} {
		n.must("PUT", "/users/"+name, `{"password": "`+name+`", "tags": "`+tags+`"}`)
		n.must("PUT", "/permissions/%2F/"+name, `{"configure": ".*", "write": ".*", "read": ".*"}`)
	}
	return n
}

func (n *node) as(user string) *node { return &node{n.t, n.b, n.handler, user + ":" + user} }

// secrets makes values that nobody may see. Each begins with what a pattern matches, or is hidden by its place.
type secrets struct {
	random *rand.Rand
	n      int
}

func (s *secrets) pattern() string { s.n++; return fmt.Sprintf("tok_%dQ%dX", s.n, s.random.IntN(1e6)) }
func (s *secrets) placed() string  { s.n++; return fmt.Sprintf("HIDDEN%d", s.n) }

// letter is a random message with secrets all over.
func (s *secrets) letter() (key, payload string, properties map[string]any) {
	inner, _ := json.Marshal(map[string]any{"iban": s.placed(), "x": s.pattern()})
	body := map[string]any{"card": map[string]any{"number": s.placed(), "kind": "visa"}, "iban": []any{s.placed(), 7}, "note": "see " + s.pattern() + ".", "inner": string(inner), s.pattern(): 1}
	text, _ := json.Marshal(body)
	payload = string(text)
	switch s.random.IntN(5) {
	case 0: // duplicates of a key, and escapes
		payload = `{"iban":"` + s.placed() + `","\u0069BAN":"\u0048IDDEN` + s.placed() + `","a":"\u0074ok_1Qx` + s.pattern() + `"}`
	case 1: // no JSON
		payload = "iban=" + s.placed() + "&t=" + s.pattern()
	case 2: // the secret lies where a preview ends
		payload = `{"pad":"` + strings.Repeat("x", 60+s.random.IntN(40)) + `","t":"` + s.pattern() + s.pattern() + `","iban":"` + s.placed() + `"}`
	case 3:
		payload = "{\"iban\":\"" + s.placed() // cut off
	}
	properties = map[string]any{
		"message_id": "m " + s.pattern(), "type": "type." + s.pattern(), "correlation_id": s.pattern(), "app_id": s.pattern(), "reply_to": s.pattern(),
		"headers": map[string]any{
			"Authorization": s.placed(), "tenant": s.pattern(), "deep": map[string]any{"authorization": s.placed(), "list": []any{s.pattern(), map[string]any{"AUTHORIZATION": s.placed()}}},
			"x-exception-message": []string{s.pattern() + " failed for 'a'", "bad: " + strings.Repeat("y", 190) + s.pattern()}[s.random.IntN(2)],
			"x-exception-fqcn":    s.placed(), "x-exception-stacktrace": "a.BError: " + s.pattern() + "\n at x", "MT-Fault-Message": s.pattern(), s.pattern(): "name", "number": 4111,
		},
	}
	return "orders." + s.pattern(), payload, properties
}

// Property: no answer of the office shows a masked value to users without the tag reveal, whatever they ask.
func TestNoAnswerShowsAMaskedValue(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &secrets{random: rand.New(rand.NewPCG(seed, 1))}
	n := withMasks(t, func(o *office.Options) { o.WebhooksLocal = true })
	told := make(chan string, 1000)
	hears := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		told <- string(text)
	}))
	defer hears.Close()
	n.must("PUT", "/office/webhooks/desk", `{"url": "`+hears.URL+`", "events": ["#"], "secret": "a secret of some length"}`)
	n.must("PUT", "/office/rules/%2F/tell", `{"on": true, "action": "webhook", "webhook": "desk", "queues": "^orders.dead$"}`)
	n.must("PUT", "/office/masks/%2F", `{"headers": ["authorization", "x-exception-fqcn"], "paths": ["$.card.number", "$..iban"], "patterns": ["tok_[0-9A-Za-z]+", "\\b4111\\b"]}`)
	n.must("PUT", "/exchanges/%2F/in", `{"type": "topic"}`)
	n.must("PUT", "/queues/%2F/lost", `{}`)
	for _, q := range []string{"orders", "lost"} {
		n.must("POST", "/bindings/%2F/e/in/q/"+q, `{"routing_key": "orders.#"}`)
	}
	die := func() {
		key, payload, properties := s.letter()
		m, _ := json.Marshal(map[string]any{"routing_key": key, "payload": payload, "payload_encoding": "string", "properties": properties})
		n.must("POST", "/exchanges/%2F/in/publish", string(m))
		n.must("POST", "/queues/%2F/orders/get", `{"ackmode": "reject_requeue_false", "count": 1, "encoding": "auto"}`)
		n.must("POST", "/queues/%2F/lost/get", `{"ackmode": "reject_requeue_false", "count": 1, "encoding": "auto"}`)
	}
	for range 12 {
		die()
	}
	n.b.CountQueues()
	eve, ann := n.as("eve"), n.as("ann")

	// Eve sees all, and what she asks for is kept: in a job, in a note, in the audit.
	all := eve.letters("/office/letters/%2F/orders.dead?reveal=true&limit=1000")
	if len(all) != 15 {
		t.Fatalf("%d letters", len(all))
	}
	i := slices.IndexFunc(all, func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l["type"]), "tok_") })
	if i < 0 {
		t.Fatalf("nothing is revealed: %v", all)
	}
	group := fmt.Sprint(all[i]["group"])
	n.must("PUT", "/office/groups/%2F/"+group, `{"note": "it is `+s.pattern()+`", "owner": "`+s.pattern()+`"}`)
	ask, _ := json.Marshal(map[string]any{"action": "replay", "vhost": "/", "queue": "orders.dead", "reason": "for " + s.pattern(), "filter": map[string]any{
		"where": []string{"header.Authorization=HIDDEN0", "header.tenant!=" + s.pattern()}, "error": s.pattern(), "body": "HIDDEN1"}})
	var plan map[string]any
	if err := json.Unmarshal([]byte(eve.must("POST", "/office/jobs?dry_run=true&reveal=true", string(ask)).body), &plan); err != nil {
		t.Fatal(err)
	}
	eve.must("POST", "/office/jobs?reveal=true", strings.TrimSuffix(string(ask), "}")+fmt.Sprintf(`, "token": %q, "count": %v}`, plan["token"], plan["count"]))

	seen, secret := 0, regexp.MustCompile(`HIDDEN|tok_|\b4111\b`)
	check := func(path string, a answer) {
		t.Helper()
		seen++
		text := a.body
		var decoded any
		if json.Unmarshal([]byte(text), &decoded) == nil {
			text += " " + spell(decoded)
		}
		if at := secret.FindStringIndex(text); at != nil {
			t.Errorf("%s shows %.60q, in %.300q", path, text[at[0]:], text[max(0, at[0]-150):])
		}
	}
	get := func(path string) answer {
		a := ann.must("GET", path, "")
		check(path, a)
		return a
	}
	for end := time.Now().Add(10 * time.Second); get("/office/groups").object(t)["reading"] == true && time.Now().Before(end); {
	}
	for _, path := range []string{
		"/office/queues", "/office/queues/%2F", "/office/groups?sort=source", "/office/groups?sort=last&limit=2", "/office/groups/%2F/orders.dead?text=failed", "/office/jobs", "/office/jobs/1", "/office/drops",
		"/office/drops/%2F?limit=1", "/office/audit?limit=1000", "/office/lint", "/office/topology/%2F", "/office/letters/%2F/orders.dead?order=oldest&limit=3", "/office/letters/%2F/orders.dead?where=header.tenant~.",
		"/office/letters/%2F/orders.dead?error=.&limit=1000", "/office/letters/%2F/orders.dead?where=header.number%3E4000",
	} {
		get(path)
	}
	if a := get("/office/letters/%2F/orders.dead?where=header.number%3E4000"); len(a.object(t)["items"].([]any)) != 0 {
		t.Errorf("a hidden number can be compared: %s", a.body)
	}
	if a := get("/office/groups?text=tok_"); a.object(t)["total"] != 0.0 {
		t.Errorf("groups can be searched by what is hidden: %s", a.body)
	}
	for _, filter := range []string{"where=header.tenant~tok_", "error=tok_", "type=" + url.QueryEscape(fmt.Sprint(all[i]["type"])), "message_id=" + url.QueryEscape(fmt.Sprint(all[i]["message_id"])), "where=property.app_id~tok",
		"key=" + url.QueryEscape(fmt.Sprint(all[i]["routing_keys"].([]any)[0])), "class=" + url.QueryEscape(fmt.Sprint(all[i]["error_class"]))} {
		if a := get("/office/letters/%2F/orders.dead?" + filter); len(a.object(t)["items"].([]any)) != 0 {
			t.Errorf("%s finds what is hidden: %s", filter, a.body)
		}
	}
	for _, l := range ann.letters("/office/letters/%2F/orders.dead?limit=1000") {
		at := "/office/letters/%2F/orders.dead/" + fmt.Sprint(l["id"])
		whole := get(at).object(t)
		if masked := whole["headers"].(map[string]any)["x-exception-fqcn"] != nil; whole["masked"] != masked {
			t.Errorf("masked %v: %v", whole["masked"], whole)
		}
		get(at + "/body")
		r := httptest.NewRequest("GET", "/api"+at+"/body", http.NoBody)
		r.Header.Set("Range", "bytes=0-40")
		check(at+"/body", ann.send(r))
	}
	stream := httptest.NewRequest("GET", "/api/office/letters/%2F/orders.dead", http.NoBody)
	stream.Header.Set("Accept", "application/x-ndjson")
	check("the stream", ann.send(stream))
	check("what a rule would do", ann.must("POST", "/office/rules/%2F/try", `{"action": "discard", "queues": "dead$"}`))
	if a := ann.do("POST", "/office/rules/%2F/try", `{"action": "discard", "match": {"where": ["header.authorization=HIDDEN1"]}}`); a.status != 403 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := ann.do("GET", "/office/export/%2F/orders.dead", ""); a.status != 403 {
		t.Errorf("%d %s", a.status, a.body)
	}
	heard := map[string]bool{}
	for end := time.After(10 * time.Second); !heard["letter.group.created"] || !heard["job.started"] || !heard["rule"]; {
		select {
		case text := <-told:
			var m struct {
				Event string
				Facts map[string]any
			}
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				t.Fatal(err)
			}
			if heard[m.Event] = true; m.Facts["rule"] == "tell" {
				heard["rule"] = true
			}
			check("a webhook's "+m.Event, answer{body: text})
		case <-time.After(100 * time.Millisecond):
			die() // groups that there were when the watch began are no news
		case <-end:
			t.Fatalf("a webhook has heard only %v in 10 s", heard)
		}
	}
	check("a plan", ann.do("POST", "/office/jobs?dry_run=true", `{"action": "replay", "vhost": "/", "queue": "orders.dead"}`))
	if seen < 40 {
		t.Errorf("only %d answers were looked at", seen)
	}
}

// spell joins all texts of a decoded answer, and those of JSON in it.
func spell(v any) string {
	var b strings.Builder
	switch v := v.(type) {
	case string:
		b.WriteString(v + " ")
		var inner any
		if json.Unmarshal([]byte(v), &inner) == nil {
			b.WriteString(spell(inner))
		}
	case []any:
		for _, e := range v {
			b.WriteString(spell(e))
		}
	case map[string]any:
		for k, e := range v {
			b.WriteString(k + " " + spell(e))
		}
	}
	return b.String()
}

// Masks are set by policymakers, hold after a restart, and are gone when they are empty; what reveals stands in the audit, and needs the tag.
func TestMasksOverHTTP(t *testing.T) {
	n := withMasks(t)
	if a := n.must("GET", "/office/masks/%2F", ""); a.body != `{"headers":[],"paths":[],"patterns":[]}` {
		t.Error(a.body)
	}
	set := `{"headers":["x-exception-message"],"paths":[],"patterns":["script"]}`
	if a := n.must("PUT", "/office/masks/%2F", set); a.body != set {
		t.Error(a.body)
	}
	for _, body := range []string{`{"header": []}`, `{"headers": "a"}`, `{"paths": [1]}`, `{"patterns": ["("]}`, `{"patterns": ["a*"]}`} {
		if a := n.do("PUT", "/office/masks/%2F", body); a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	again, err := office.New(office.Options{Broker: n.b})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	same(t, "after a restart", again.Masks().Mask("/").Rules(), json.RawMessage(set))

	ann, eve := n.as("ann"), n.as("eve")
	for _, c := range []struct {
		user       *node
		path, want string
		status     int
	}{
		{ann, "/office/letters/%2F/orders.dead?limit=1", `"error":"•••"`, 200},
		{eve, "/office/letters/%2F/orders.dead?limit=1", `"error":"•••"`, 200},
		{eve, "/office/letters/%2F/orders.dead?limit=1&reveal=true", `"error":"no customer 2"`, 200},
		{ann, "/office/letters/%2F/orders.dead?reveal=true", "needs the tag reveal", 403},
		{ann, "/office/groups?reveal=true", "needs the tag reveal", 403},
		{ann, "/office/letters/%2F/orders.dead?reveal=yes", "must be true or false", 400},
		{ann, "/office/letters/%2F/orders.dead?where=header.x-exception-message~1", "would tell", 403},
		{ann, "/office/letters/%2F/orders.dead?body=order", "would tell", 403},
		{eve, "/office/letters/%2F/orders.dead?body=order&reveal=true", `"preview":"{\"order\": 2}"`, 200},
		{ann, "/office/letters/%2F/bills.dead", `"preview":"<•••>alert(1)</•••>"`, 200},
		{ann, "/office/drops?reveal=true", "needs the tag reveal", 403},
		{ann, "/office/jobs?reveal=true", "needs the tag reveal", 403},
	} {
		if a := c.user.do("GET", c.path, ""); a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%s: %d %s", c.path, a.status, a.body)
		}
	}
	id := fmt.Sprint(ann.letters("/office/letters/%2F/orders.dead")[0]["id"])
	edit := `{"action": "edit", "vhost": "/", "queue": "orders.dead", "ids": ["` + id + `"], "edit": {"body": "x"}, "then": "stay"}`
	if a := ann.do("POST", "/office/jobs?dry_run=true", edit); a.status != 403 || strings.Contains(a.body, "customer") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := eve.must("POST", "/office/jobs?dry_run=true&reveal=true", edit); a.object(t)["count"] != 1.0 {
		t.Error(a.body)
	}
	stream := httptest.NewRequest("GET", "/api/office/letters/%2F/orders.dead?body=order", http.NoBody)
	stream.Header.Set("Accept", "application/x-ndjson")
	if a := ann.send(stream); a.status != 403 {
		t.Errorf("%d %s", a.status, a.body)
	}
	job := `{"action": "replay", "vhost": "/", "queue": "orders.dead", "filter": {"where": "header.x-exception-message~1"}}`
	if a := ann.do("POST", "/office/jobs?dry_run=true", job); a.status != 403 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := eve.must("POST", "/office/jobs?dry_run=true&reveal=true", job); a.object(t)["count"] != 1.0 {
		t.Error(a.body)
	}
	var audit struct {
		Items []struct{ Who, What, Object string }
	}
	if err := json.Unmarshal([]byte(n.must("GET", "/office/audit", "").body), &audit); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range audit.Items {
		got += fmt.Sprintf("%s %s %s; ", e.Who, e.What, e.Object)
	}
	if got != "eve job.revealed orders.dead; eve letters.revealed orders.dead; guest masks.changed /; " {
		t.Error(got)
	}
	n.must("PUT", "/office/masks/%2F", `{}`)
	if a := ann.must("GET", "/office/letters/%2F/orders.dead?limit=1", ""); !strings.Contains(a.body, `"error":"no customer 2"`) {
		t.Error(a.body)
	}
	if a := n.as("ann").do("PUT", "/office/masks/gone", `{}`); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
