package api_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http/httptest"
	"strings"
	"testing"

	"bartleby.mq/internal/api"
	"bartleby.mq/internal/broker"
)

// A body may not be longer than the limit, announced or not.
func TestBodyLimit(t *testing.T) {
	n := start(t, func(o *api.Options) { o.MaxBody = 100 })
	long := `{"durable":true,"arguments":{"x":"` + strings.Repeat("x", 100) + `"}}`
	for name, body := range map[string]io.Reader{"announced": strings.NewReader(long), "in chunks": io.MultiReader(strings.NewReader(long))} {
		if a := n.send(httptest.NewRequest("PUT", "/api/queues/%2F/q", body)); a.status != 413 {
			t.Errorf("%s: %d %s, want 413", name, a.status, a.body)
		}
	}
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
}

// The node's token lets its owner in, without an account and its permissions.
func TestToken(t *testing.T) {
	n := start(t, func(o *api.Options) { o.Token = "secret" })
	n.must("PUT", "/vhosts/v", "{}")
	n.must("DELETE", "/permissions/v/guest", "")
	send := func(token, method, path string) answer {
		r := httptest.NewRequest(method, "/api"+path, strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+token)
		return n.send(r)
	}
	if a := send("secret", "PUT", "/queues/v/q"); a.status != 201 {
		t.Errorf("with the token: %d %s", a.status, a.body)
	}
	for _, wrong := range []string{"", "secre", "secret2"} {
		if a := send(wrong, "GET", "/whoami"); a.status != 401 {
			t.Errorf("with token %q: %d", wrong, a.status)
		}
	}
	if a := n.do("PUT", "/queues/v/q2", "{}"); a.status != 401 {
		t.Errorf("a user without permissions: %d %s", a.status, a.body)
	}
	bare := start(t)
	n = bare
	if a := send("", "GET", "/whoami"); a.status != 401 {
		t.Errorf("an empty token where none is set: %d", a.status)
	}
}

// BR-2.6: guest logs in from this machine only.
func TestGuestFromElsewhere(t *testing.T) {
	n := start(t)
	for _, addr := range []string{"192.0.2.1:5", "[2001:db8::1]:5", "nonsense"} {
		r := httptest.NewRequest("GET", "/api/whoami", nil)
		r.SetBasicAuth("guest", "guest")
		r.RemoteAddr = addr
		w := httptest.NewRecorder()
		n.handler.ServeHTTP(w, r)
		if w.Code != 401 {
			t.Errorf("from %s: %d", addr, w.Code)
		}
	}
}

// BR-15.11, BR-13.4
func TestAlarms(t *testing.T) {
	n := start(t)
	n.b.SetAlarm(broker.Memory, true)
	a := n.do("GET", "/health/checks/alarms", "")
	same(t, "status", a.status, 503)
	same(t, "body", a.object(t), map[string]any{
		"status": "failed", "reason": "There are alarms in effect in the cluster",
		"alarms": []any{map[string]any{"node": "rabbit@test", "resource": "memory"}},
	})
	same(t, "mem_alarm", n.must("GET", "/nodes/rabbit@test", "").object(t)["mem_alarm"], true)
	n.b.SetAlarm(broker.Memory, false)
	same(t, "status", n.do("GET", "/health/checks/alarms", "").status, 200)
}

// Ours: the node can be stopped where the server lets it, by administrators.
func TestStop(t *testing.T) {
	stopped := make(chan struct{})
	n := start(t, func(o *api.Options) { o.Stop = func() { close(stopped) } })
	n.must("PUT", "/users/m", `{"password":"m","tags":"management"}`)
	n.user = "m:m"
	same(t, "a user who may not", n.do("POST", "/control/stop", "").status, 401)
	n.user = "guest:guest"
	n.must("POST", "/control/stop", "")
	<-stopped
	same(t, "without Stop", start(t).do("POST", "/control/stop", "").status, 501)
}

// BR-16.5: definitions come as a form's file too.
func TestDefinitionsInAForm(t *testing.T) {
	n := start(t)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "d.json")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(file, `{"vhosts":[{"name":"v"}]}`)
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/api/definitions", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	if a := n.send(r); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	n.must("GET", "/vhosts/v", "")
}

// BR-16.6: keys of mirrored queues are left out with a warning.
func TestImportWarns(t *testing.T) {
	n := start(t)
	warnings, err := api.ImportDefinitions(n.b, []byte(`{"policies":[{"vhost":"/","name":"ha","pattern":"","definition":{"ha-mode":"all"}}]}`))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "ha-mode") {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
	if l := n.must("GET", "/policies", "").list(t); len(l) != 0 {
		t.Errorf("policies %v", l)
	}
	if _, err := api.ImportDefinitions(n.b, []byte(`{"queues":[{"vhost":"nope","name":"q"}]}`)); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("error %v, want one about the virtual host", err)
	}
}

// What one node exports another imports, and exports again.
func TestDefinitionsRoundTrip(t *testing.T) {
	n := start(t)
	n.must("PUT", "/vhosts/a%2Fb", `{"description":"d","tags":"x,y"}`)
	n.must("PUT", "/queues/a%2Fb/q", `{"durable":true,"arguments":{"x-message-ttl":5000,"x-dead-letter-exchange":""}}`)
	n.must("PUT", "/exchanges/a%2Fb/x", `{"type":"topic","durable":true,"arguments":{"alternate-exchange":"amq.fanout"}}`)
	n.must("POST", "/bindings/a%2Fb/e/x/q/q", `{"routing_key":"a.#","arguments":{"n":[1,{"m":true}]}}`)
	n.must("PUT", "/policies/a%2Fb/p", `{"pattern":"^q","definition":{"max-length":7},"apply-to":"queues","priority":1.5}`)
	n.must("PUT", "/vhost-limits/a%2Fb/max-queues", `{"value":9}`)
	n.must("PUT", "/users/u", `{"password":"x","tags":"monitoring"}`)
	n.must("PUT", "/topic-permissions/a%2Fb/guest", `{"exchange":"x","write":"a","read":"b"}`)
	exported := n.must("GET", "/definitions", "").body
	other := start(t)
	other.must("POST", "/definitions", exported)
	if again := other.must("GET", "/definitions", "").body; again != exported {
		t.Errorf("exported\n%s\nafter import\n%s", exported, again)
	}
}
