package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/definitions"
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

// The command line's control socket lets the operator in, without an account and its permissions
// and whatever credentials it shows; no other listener takes anybody for the operator.
func TestOperator(t *testing.T) {
	n := start(t)
	n.must("PUT", "/vhosts/v", "{}")
	n.must("DELETE", "/permissions/v/guest", "")
	n.must("DELETE", "/users/guest", "")
	ask := func(h http.Handler, login string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("PUT", "/api/queues/v/q", strings.NewReader(`{"durable":true}`))
		r.RemoteAddr = "@" // as a socket's peer is called
		if login != "" {
			r.Header.Set("Authorization", login)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, login := range []string{"", "Bearer x", "Basic Z3Vlc3Q6Z3Vlc3Q="} {
		if w := ask(n.handler, login); w.Code != 401 {
			t.Errorf("from anywhere with %q: %d %s, want 401", login, w.Code, w.Body)
		}
		if w := ask(api.Local(n.handler), login); w.Code/100 != 2 {
			t.Errorf("from the command line with %q: %d %s", login, w.Code, w.Body)
		}
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

// An exchange tells who declared it first; whoever runs
// the node is rmq-cli, and nobody in particular rmq-internal, as RabbitMQ calls them.
func TestWhoDeclaredAnExchange(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/ada", `{"password":"a","tags":"administrator"}`)
	n.must("PUT", "/permissions/%2F/ada", `{"configure":".*","write":".*","read":".*"}`)
	n.must("PUT", "/exchanges/%2F/guests", `{"durable":true}`)
	n.user = "ada:a"
	n.must("PUT", "/exchanges/%2F/guests", `{"durable":true}`)
	n.must("POST", "/definitions", `{"exchanges":[{"vhost":"/","name":"imported","type":"fanout"}]}`)
	r := httptest.NewRequest("PUT", "/api/exchanges/%2F/operators", strings.NewReader("{}"))
	api.Local(n.handler).ServeHTTP(httptest.NewRecorder(), r)
	if _, err := definitions.Import(n.b, []byte(`{"exchanges":[{"vhost":"/","name":"booted","type":"fanout"}]}`), definitions.How{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"guests": "guest", "imported": "ada", "operators": "rmq-cli", "booted": "rmq-internal", "amq.direct": "rmq-internal", "amq.default": "rmq-internal",
	} {
		same(t, name, n.must("GET", "/exchanges/%2F/"+name, "").object(t)["user_who_performed_action"], want)
	}
}

// Whoever logs in by a form is not known before it is read: it is as large as a form is.
func TestLoginReadsNoMoreThanAForm(t *testing.T) {
	n := start(t)
	form := "username=guest&password=guest&more=" + strings.Repeat("x", 64<<10)
	if a := n.do("POST", "/login", form); a.status != 413 {
		t.Errorf("a form of %d bytes: %d %.60s", len(form), a.status, a.body)
	}
	if a := n.do("POST", "/login", form[:1000]); a.status != 200 {
		t.Errorf("a form of 1,000 bytes: %d %.60s", a.status, a.body)
	}
}

// Of users to be deleted none is, where one of the names is no name.
func TestUsersAreDeletedOnlyIfAllNamesAreRead(t *testing.T) {
	n := start(t)
	n.must("PUT", "/users/ada", `{"password":"a","tags":""}`)
	if a := n.do("POST", "/users/bulk-delete", `{"users":["ada",1]}`); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	n.must("GET", "/users/ada", "")
}

// Which deprecated features are in use is told of the virtual hosts that the user may list.
func TestUsedFeaturesAreThoseOfWhatAUserSees(t *testing.T) {
	n := start(t)
	n.must("PUT", "/queues/%2F/q", `{"durable":false}`)
	n.must("PUT", "/users/ada", `{"password":"a","tags":"management"}`)
	same(t, "to an administrator", len(n.must("GET", "/deprecated-features/used", "").list(t)), 1)
	n.user = "ada:a"
	same(t, "to a user who may enter nothing", len(n.must("GET", "/deprecated-features/used", "").list(t)), 0)
}
