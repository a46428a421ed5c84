package api_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http/httptest"
	"strings"
	"testing"

	"bartleby.mq/internal/api"
)

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
