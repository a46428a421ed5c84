package api_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"bartleby.mq/internal/api"
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
