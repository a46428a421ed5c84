package broker

import (
	"context"
	"fmt"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/topology"
)

// asks is a handler that notes what the setter of a parameter may do.
type asks struct{ enters, permits bool }

func (h *asks) Check(_ topology.Parameter, by Setter) error {
	h.enters = by.Enters("/")
	h.permits = by.Permits(topology.Read, topology.Resource{VHost: "/", Kind: topology.QueueResource, Name: "q"}) == nil
	return nil
}
func (h *asks) Changed() {}

// A client that a backend knows does not have the permissions of the account of the same name.
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
		if _, err := b.By("").As(id).Do(declare.PutParameter{Parameter: topology.Parameter{VHost: "/", Component: "test", Name: "p", Value: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		if h.enters != want || h.permits != want {
			t.Errorf("with the password %q: enters %v, permitted %v, want %v", password, h.enters, h.permits, want)
		}
	}
}

// The setter of a parameter is the account that has set it. A new account of the same name has set nothing, at
// whatever moment the setter is read. Another password leaves it the same account.
func TestASetterHasNothingOfASuccessorsAccount(t *testing.T) {
	b := openWith(t, Options{})
	p := topology.Parameter{VHost: "/", Component: "test", Name: "p", Value: []byte("1")}
	q := topology.Resource{VHost: "/", Kind: topology.QueueResource, Name: "q"}
	now := func() (s Setter) {
		b.Read(func(state *topology.State, users *auth.Users) {
			v, _ := state.VHost("/")
			p, _ := v.Parameter("test", "p")
			s = b.Setter(p, users)
		})
		return s
	}
	check := func(when string, want bool, setters ...Setter) {
		t.Helper()
		for i, s := range setters {
			permits := s.Permits(topology.Read, q) == nil
			if s.Known() != want || s.Enters("/") != want || permits != want || s.MaySay("another") != want {
				t.Errorf("%s, setter %d: known %v, enters %v, permitted %v, may say another's name %v, want %v",
					when, i, s.Known(), s.Enters("/"), permits, s.MaySay("another"), want)
			}
		}
	}
	account(t, b)
	if _, err := b.By("u").As(&Identity{Name: "u"}).Do(declare.PutParameter{Parameter: p}); err != nil {
		t.Fatal(err)
	}
	first := now()
	check("at first", true, first)
	account(t, b)
	if again := now(); !again.Same(first) {
		t.Error("set anew the account is another")
	}
	if _, err := b.By("").Do(declare.DeleteUser{Name: "u"}); err != nil {
		t.Fatal(err)
	}
	without := now()
	check("without an account", false, first, without)
	account(t, b)
	after := now()
	check("with another's account", false, first, without, after)
	if !without.Same(after) || after.Same(first) {
		t.Error("an account that is gone is not told from one that is there")
	}
	if _, err := b.By("u").As(&Identity{Name: "u"}).Do(declare.PutParameter{Parameter: p}); err != nil {
		t.Fatal(err)
	}
	if s := now(); s.Same(after) {
		t.Error("the new account has not set it")
	}
	check("when it has set it", true, now())
}

// The same with very many parameters, and with the first user of a start that finds no users.
func TestVeryManyParametersAreNoSuccessors(t *testing.T) {
	b := openWith(t, Options{})
	for name, create := range map[string]func() error{
		"u": func() error {
			_, err := b.By("").Do(declare.PutUser{Name: "u", Password: auth.PasswordHash{}, Tags: nil})
			return err
		},
		"first": func() error { return b.CreateDefault(Default{VHost: "/", User: "first"}) },
	} {
		const many = 1500
		err := b.change(func() error {
			for i := range many {
				if _, err := b.state.PutParameter(topology.Parameter{VHost: "/", Component: "test", Name: fmt.Sprint(name, i), Value: []byte("1"), By: name}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := create(); err != nil {
			t.Fatal(err)
		}
		b.Read(func(state *topology.State, users *auth.Users) {
			v, _ := state.VHost("/")
			inherited := 0
			for i := range many {
				if p, _ := v.Parameter("test", fmt.Sprint(name, i)); !b.Setter(p, users).gone {
					inherited++
				}
			}
			if _, ok := users.User(name); !ok || inherited > 0 {
				t.Errorf("%s is made: %t, and has set %d parameters", name, ok, inherited)
			}
		})
	}
}
