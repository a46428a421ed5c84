package api_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/admission"
	"bartleby.mq/internal/run/broker"
)

// elsewhere is a login backend that says what err and tags are now.
type elsewhere struct {
	err  error
	tags []auth.Tag
}

func (*elsewhere) Name() string { return "elsewhere" }

func (e *elsewhere) Login(_ context.Context, c auth.Credentials) ([]auth.Tag, error) {
	if c.Password != "secret" {
		return nil, &admission.Refusal{Reason: "wrong"}
	}
	return e.tags, e.err
}

func (e *elsewhere) Allow(context.Context, admission.Question) error { return e.err }

// A session is worth no more than what the login backend says now: who is refused, or has other tags, makes no administrator.
func TestASessionEndsWithTheBackendsWord(t *testing.T) {
	for name, c := range map[string]struct {
		now          elsewhere
		status, then int // of a change; of a read when the backend is as before
	}{
		"refused":    {elsewhere{&admission.Refusal{Reason: "dismissed"}, []auth.Tag{auth.Administrator}}, http.StatusUnauthorized, http.StatusUnauthorized},
		"other tags": {elsewhere{nil, []auth.Tag{auth.Management}}, http.StatusUnauthorized, http.StatusUnauthorized},
		"no answer":  {elsewhere{errors.New("down"), nil}, http.StatusServiceUnavailable, http.StatusOK},
		"the same":   {elsewhere{nil, []auth.Tag{auth.Administrator}}, http.StatusNoContent, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			by := &elsewhere{tags: []auth.Tag{auth.Administrator}}
			b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem(), AuthBackends: []broker.AuthBackend{{Authn: by, Authz: by}, {}}}) // those of the node come last
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}()
			n := &node{t, b, api.New(api.Options{Broker: b}), ""}
			session := n.logIn("ada", "secret")
			if a := session.ask("PUT", "/users/first", `{"password":"x","tags":"administrator"}`); a.status != http.StatusCreated {
				t.Fatalf("a change of an administrator: %d %s", a.status, a.body)
			}
			*by = c.now
			if a := session.ask("PUT", "/users/first", `{"password":"y","tags":"administrator"}`); a.status != c.status {
				t.Errorf("a change: %d %s, want %d", a.status, a.body, c.status)
			}
			*by = elsewhere{tags: []auth.Tag{auth.Administrator}}
			session.wants(c.then, "GET", "/overview")
		})
	}
}
