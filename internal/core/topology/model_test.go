package topology

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/routing"
)

// TestStateModel makes random declarations and checks after each that both ends of every binding know it, and that a
// restart brings back exactly what is durable.
func TestStateModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(Options{})
		if _, _, err := s.PutVHost(vh, Metadata{}); err != nil {
			t.Fatal(err)
		}
		store := map[string][]byte{}
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		flag := rapid.Bool()
		binding := func(t *rapid.T) BindingDecl {
			d := toQueue(name.Draw(t, "source"), name.Draw(t, "destination"), name.Draw(t, "key"))
			if flag.Draw(t, "to exchange") {
				d.DestinationKind = ExchangeResource
			}
			return d
		}
		t.Repeat(map[string]func(*rapid.T){
			"declare queue": func(t *rapid.T) {
				_, _, _ = s.DeclareQueue(QueueDecl{ // a refusal must change nothing, which the check below sees
					VHost: vh, Name: message.QueueName(name.Draw(t, "queue")), Durable: flag.Draw(t, "durable"), Owner: "c1",
					Exclusive: flag.Draw(t, "exclusive"),
				}, nil)
			},
			"delete queue": func(t *rapid.T) {
				if q, ok := s.vhosts[vh].Queue(message.QueueName(name.Draw(t, "queue"))); ok {
					s.DeleteQueue(q)
				}
			},
			"declare exchange": func(t *rapid.T) {
				_, _, _ = s.DeclareExchange(ExchangeDecl{
					VHost: vh, Name: message.ExchangeName(name.Draw(t, "exchange")), Type: routing.Direct,
					Durable: flag.Draw(t, "durable"), AutoDelete: flag.Draw(t, "auto-delete"),
				}, nil)
			},
			"delete exchange": func(t *rapid.T) {
				_, _ = s.DeleteExchange(vh, message.ExchangeName(name.Draw(t, "exchange")), flag.Draw(t, "if unused"), nil)
			},
			"bind":   func(t *rapid.T) { _, _, _ = s.Bind(binding(t), nil) },
			"unbind": func(t *rapid.T) { _, _ = s.Unbind(binding(t), nil) },
			"policy": func(t *rapid.T) {
				d := PolicyDecl{Name: name.Draw(t, "policy"), Pattern: name.Draw(t, "pattern"), Definition: Definition{"expires": int64(1), alternateExchange: "a"}}
				if _, err := s.PutPolicy(vh, d, false); err != nil {
					t.Fatal(err)
				}
				takeOver(s)
			},
			"delete policy": func(t *rapid.T) {
				_, _ = s.DeletePolicy(vh, name.Draw(t, "policy"), false)
				takeOver(s)
			},
			"": func(t *rapid.T) {
				for key, value := range mutation.All(s.TakeChanges()) {
					if value == nil {
						delete(store, string(key))
					} else {
						store[string(key)] = value
					}
				}
				loaded, err := Load(Options{}, func(yield func(k, v []byte) bool) {
					for k, v := range store {
						if !yield([]byte(k), v) {
							return
						}
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				checkBindings(t, s.vhosts[vh])
				if got, want := describe(loaded.vhosts[vh]), describe(s.vhosts[vh]); got != want {
					t.Fatalf("after a restart there is\n%s\nwant\n%s", got, want)
				}
			},
		})
	})
}

// checkBindings: what is in one end's list is in the other's, and both ends are still there.
func checkBindings(t *rapid.T, v *VHost) {
	from, to := 0, 0
	ends := func(s *bindings) {
		for i, b := range s.list {
			if b.at[s.end] != i || s.byID[b.id] != b {
				t.Fatalf("binding %+v is not where it says", b.id)
			}
		}
		if len(s.list) != len(s.byID) {
			t.Fatalf("%d bindings are listed, %d are known", len(s.list), len(s.byID))
		}
	}
	for _, x := range v.Exchanges() {
		ends(&x.out)
		ends(&x.in)
		from += len(x.out.list)
		to += len(x.in.list)
		for id, b := range x.out.byID {
			if b.Source != x || b.id != id || b.incoming().byID[id] != b {
				t.Fatalf("binding %+v is not known at its other end", id)
			}
			if b.Queue != nil && v.queues[b.Queue.Name] != b.Queue || b.Exchange != nil && v.exchanges[b.Exchange.Name] != b.Exchange {
				t.Fatalf("binding %+v leads to something deleted", id)
			}
		}
	}
	for _, q := range v.Queues() {
		ends(&q.in)
		to += len(q.in.list)
	}
	if from != to {
		t.Fatalf("%d bindings at their sources, %d at their destinations", from, to)
	}
}

// describe prints the durable part of a virtual host, with the policies in force.
func describe(v *VHost) string {
	policy := func(p *Policy) string {
		if p == nil {
			return "none"
		}
		return p.Name
	}
	var text string
	for _, q := range v.Queues() {
		if q.Durable {
			text += fmt.Sprintf("queue %s %d policy %s\n", q.Name, q.Incarnation, policy(q.Policy))
		}
	}
	for _, x := range v.Exchanges() {
		if x.Durable {
			text += fmt.Sprintf("exchange %s auto-delete %v policy %s alternate %v\n", x.Name, x.AutoDelete, policy(x.Policy), x.Alternate != nil)
		}
	}
	for _, b := range v.Bindings() {
		if b.durable() {
			text += fmt.Sprintf("binding %+v\n", b.id)
		}
	}
	return text
}
