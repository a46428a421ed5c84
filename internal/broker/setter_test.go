package broker

import (
	"context"
	"testing"

	"bartleby.mq/internal/auth"
	"bartleby.mq/internal/topology"
)

// asks is a handler that notes what whoever sets a parameter may do.
type asks struct{ enters, permits bool }

func (h *asks) Check(_ topology.Parameter, by Setter) error {
	h.enters = by.Enters("/")
	h.permits = by.Permits(topology.Read, topology.Resource{VHost: "/", Kind: topology.QueueResource, Name: "q"}) == nil
	return nil
}
func (h *asks) Changed() {}

// Whom a backend knows has no permissions of the account that has the same name.
func TestASetterWhomABackendKnowsIsNoAccount(t *testing.T) {
	o := &oracle{passwords: map[string]string{"guest": "elsewhere"}, tags: []auth.Tag{auth.PolicyMaker}}
	b := openWith(t, Options{AuthBackends: []AuthBackend{{o, o}, {}}})
	h := &asks{}
	b.HandleParameters("test", h)
	for password, want := range map[string]bool{"elsewhere": false, "guest": true} {
		id, err := b.Authenticate(context.Background(), auth.Credentials{User: "guest", Password: password}, loopback)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.PutParameterFor(topology.Parameter{VHost: "/", Component: "test", Name: "p", Value: []byte("1")}, id); err != nil {
			t.Fatal(err)
		}
		if h.enters != want || h.permits != want {
			t.Errorf("with the password %q: enters %v, permitted %v, want %v", password, h.enters, h.permits, want)
		}
	}
}
