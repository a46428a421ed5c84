package broker

import (
	"context"
	"net/netip"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// A login belongs to the account it was made with. If that account is deleted and a new one of the same name is made,
// the new one lends it nothing: not before the client opens its virtual host, not on a connection that is still to be
// closed, not in a request. Another password, tags or limits leave it the same account (BR-2.8, BR-3.1).
func TestBR_2_8_ALoginHasNothingOfASuccessorsAccount(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, b *Broker)
		stays  bool
	}{
		"nothing happens": {func(*testing.T, *Broker) {}, true},
		"another password": {func(t *testing.T, b *Broker) {
			if _, err := b.By("").Do(declare.PutUser{Name: "u", Password: hashPassword(auth.SHA256, "other"), Tags: nil}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"a limit": {func(t *testing.T, b *Broker) {
			if _, err := b.By("").Do(declare.SetUserLimits{Name: "u", Limits: map[auth.Limit]any{auth.MaxChannels: int64(10)}}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"another account": {func(t *testing.T, b *Broker) {
			if _, err := b.By("").Do(declare.DeleteUser{Name: "u"}); err != nil {
				t.Fatal(err)
			}
			account(t, b)
		}, false},
	} {
		known := &oracle{passwords: map[string]string{"u": "secret"}}
		for kind, backends := range map[string][]AuthBackend{
			"by the accounts": nil,
			"known elsewhere, permitted by the accounts": {{Authn: known}},
			"known by the accounts, permitted elsewhere": {{Authz: known}},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				b := openWith(t, Options{AuthBackends: backends})
				account(t, b)
				id, err := b.Authenticate(context.Background(), auth.Credentials{User: "u", Password: "secret"}, nil)
				if err != nil {
					t.Fatal(err)
				}
				login := Login{Identity: id, User: "u"}
				open, err := b.Connect(login, Peer{Name: "open"}, "/", &told{})
				if err != nil {
					t.Fatal(err)
				}
				defer open.Disconnect()
				c.change(t, b)
				may := map[string]error{"open a channel": open.OpenChannel(), "enter": b.MayEnter(id, "/", netip.Addr{})}
				late, err := b.Connect(login, Peer{Name: "late"}, "/", &told{})
				if may["open the virtual host"] = err; err == nil {
					late.Disconnect()
				}
				_, may["declare a queue"] = open.DeclareQueue(topology.QueueDecl{Name: "q", Durable: true})
				_, may["declare one in a request"] = b.For(id, "/").DeclareQueue(topology.QueueDecl{Name: "q", Durable: true})
				_, may["set a parameter"] = b.By("").As(id).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: "c", Name: "p", Value: []byte("1")}})
				for what, err := range may {
					if (err == nil) != c.stays {
						t.Errorf("may it %s? %v", what, err)
					}
				}
				if open.Impersonates() && !c.stays {
					t.Error("it may take another's name")
				}
				for vhost, create := range map[message.VHost]func() (declare.Result, error){
					"created": func() (declare.Result, error) {
						return b.By("").As(id).Do(declare.PutVHost{Name: "created", Change: declare.All(topology.Metadata{}), OnlyNew: true})
					},
					"revised": func() (declare.Result, error) {
						return b.By("").As(id).Do(declare.PutVHost{Name: "revised"})
					},
				} {
					if _, err := create(); err != nil {
						t.Fatal(err)
					}
					b.Read(func(_ *topology.State, u *auth.Users) {
						if _, has := u.Permission(vhost, "u"); has != (c.stays && !id.Elsewhere()) {
							t.Errorf("the account has permissions in the virtual host that the client has %s: %t", vhost, has)
						}
					})
				}
			})
		}
	}
}

// account makes an account with all permissions.
func account(t *testing.T, b *Broker) {
	t.Helper()
	if _, err := b.By("").Do(declare.PutUser{Name: "u", Password: hashPassword(auth.SHA256, "secret"), Tags: []auth.Tag{auth.Impersonator}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.By("").Do(declare.PutPermission{Permission: auth.Permission{User: "u", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
}
