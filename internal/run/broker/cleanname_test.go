package broker

import (
	"errors"
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// BR-5.12, BR-3.3: a carriage return or line feed in a name does not give access to objects that the user may not
// use. Operations that clean a name ask permission for the clean one; others find nothing under the name.
func TestBR_5_12_PermissionsAreAskedForTheNameThatIsUsed(t *testing.T) {
	c := open(t, Options{})
	exchange := func(name message.ExchangeName) {
		t.Helper()
		if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: name, Type: "topic", Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	exchange("_x")
	exchange("x")
	mustDeclare(t, c, "_q")
	mustDeclare(t, c, "q")
	for _, d := range []topology.BindingDecl{
		{Source: "_x", DestinationKind: topology.QueueResource, Destination: "_q", Key: "#"},
		{Source: "_x", DestinationKind: topology.QueueResource, Destination: "q", Key: "there"},
		{Source: "x", DestinationKind: topology.QueueResource, Destination: "_q", Key: "there"},
	} {
		if _, err := c.Bind(d); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, c, "", "_q", "secret", amqp091.PropertyList{})
	if _, err := c.b.By("").Do(declare.PutUser{Name: "bob", Password: auth.PasswordHash{}, Tags: nil}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.b.By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "bob", Configure: "^[^_]", Write: "^[^_]", Read: "^[^_]"}}); err != nil {
		t.Fatal(err)
	}
	bob := c.b.As("bob", "/")

	onQueue := func(f func(q message.QueueName) error) func(string, string) error {
		return func(q, _ string) error { return f(message.QueueName(q)) }
	}
	onExchange := func(f func(x message.ExchangeName) error) func(string, string) error {
		return func(_, x string) error { return f(message.ExchangeName(x)) }
	}
	binding := func(f func(d topology.BindingDecl) error, d topology.BindingDecl) error {
		d.Key = "new"
		return f(d)
	}
	bind := func(d topology.BindingDecl) error { _, err := bob.Bind(d); return err }
	bindAs := func(d topology.BindingDecl) error { _, err := bob.BindAs(d); return err }
	unbindThere := func(d topology.BindingDecl) error { d.Key = "there"; return bob.Unbind(d) }
	argument := func(name, value string) amqp091.Table { return amqp091.Table{{Key: name, Value: value}} }
	publication := func(exchange string) *Publication {
		raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{})
		props, err := amqp091.ParseProps(raw)
		if err != nil {
			t.Fatal(err)
		}
		return &Publication{Exchange: []byte(exchange), Key: []byte("k"), Raw: raw, Props: props, Body: [][]byte{nil}}
	}
	operations := map[string]func(q, x string) error{
		"declare a queue": onQueue(func(q message.QueueName) error {
			_, err := bob.DeclareQueue(topology.QueueDecl{Name: q, Durable: true})
			return err
		}),
		"declare a new queue": onQueue(func(q message.QueueName) error {
			_, err := bob.DeclareQueue(topology.QueueDecl{Name: q + "2", Durable: true})
			return err
		}),
		"declare a queue passively": onQueue(func(q message.QueueName) error { _, err := bob.PassiveQueue(q); return err }),
		"get":                       onQueue(func(q message.QueueName) error { _, _, err := bob.Get(q, true); return err }),
		"consume": onQueue(func(q message.QueueName) error {
			_, err := bob.Consume(q, &queue.Consumer{}, nil)
			return err
		}),
		"find": onQueue(func(q message.QueueName) error { _, err := bob.Find(q, topology.Read); return err }),
		"subscribe": onQueue(func(q message.QueueName) error {
			s, err := bob.Subscribe(q, "tag", 1)
			if err == nil {
				s.Cancel()
			}
			return err
		}),
		"take": onQueue(func(q message.QueueName) error {
			return bob.Take(q, 1, AckRemoves, func(*Shown) (bool, error) { return false, nil })
		}),
		"peek":           onQueue(func(q message.QueueName) error { return bob.Peek(q, 1, func(*Shown) bool { return false }) }),
		"purge":          onQueue(func(q message.QueueName) error { _, err := bob.Purge(q); return err }),
		"delete a queue": onQueue(func(q message.QueueName) error { _, err := bob.DeleteQueue(q, false, false); return err }),
		"declare an exchange": onExchange(func(x message.ExchangeName) error {
			_, err := bob.DeclareExchange(topology.ExchangeDecl{Name: x, Type: "topic", Durable: true})
			return err
		}),
		"declare a new exchange": onExchange(func(x message.ExchangeName) error {
			_, err := bob.DeclareExchange(topology.ExchangeDecl{Name: x + "2", Type: "topic", Durable: true})
			return err
		}),
		"declare an exchange passively": onExchange(bob.PassiveExchange),
		"delete an exchange":            onExchange(func(x message.ExchangeName) error { return bob.DeleteExchange(x, false) }),
		"find an exchange": onExchange(func(x message.ExchangeName) error {
			found, err := bob.FindExchange(x)
			if err == nil && !found {
				err = topology.NoExchange("/", x)
			}
			return err
		}),
		"publish": onExchange(func(x message.ExchangeName) error {
			_, err := bob.PublishOne(publication(string(x)))
			return err
		}),
		"ask for a publish": onExchange(func(x message.ExchangeName) error { return bob.MayPublish(publication(string(x))) }),
		"ask for a key":     onExchange(func(x message.ExchangeName) error { return bob.MayUseTopics(publication(string(x))) }),
	}
	for name, f := range map[string]func(topology.BindingDecl) error{"bind": bind, "bind as": bindAs, "unbind": unbindThere} {
		operations[name+" from"] = func(_, x string) error {
			return binding(f, topology.BindingDecl{Source: message.ExchangeName(x), DestinationKind: topology.QueueResource, Destination: "q"})
		}
		operations[name+" a queue"] = func(q, _ string) error {
			return binding(f, topology.BindingDecl{Source: "x", DestinationKind: topology.QueueResource, Destination: q})
		}
		operations[name+" an exchange"] = func(_, x string) error {
			return binding(f, topology.BindingDecl{Source: "x", DestinationKind: topology.ExchangeResource, Destination: x})
		}
	}
	// These use the name as it is: no exchange has the strange name, and messages to it go nowhere.
	asItIs := map[string]func(_, x string) error{
		"dead letter exchange": func(_, x string) error {
			_, err := bob.DeclareQueue(topology.QueueDecl{Name: "dying", Durable: true, Arguments: argument("x-dead-letter-exchange", x)})
			return err
		},
		"alternate exchange": func(_, x string) error {
			_, err := bob.DeclareExchange(topology.ExchangeDecl{Name: "leading", Type: "fanout", Durable: true, Arguments: argument("alternate-exchange", x)})
			return err
		},
		"a message that is there already": func(_, x string) error {
			r, err := bob.RouteAgain(message.ExchangeName(x), &routing.Message{Key: []byte("k")})
			if len(r.Queues) > 0 {
				t.Errorf("it goes from %q to %d queues", x, len(r.Queues))
			}
			return err
		},
	}
	refusal := func(err error) (kind topology.Kind, refused bool) {
		var e *topology.Error
		if errors.As(err, &e) {
			return e.Kind, true
		}
		return 0, false
	}
	state := func() (list []string) {
		c.b.Read(func(s *topology.State, _ *auth.Users) {
			v, _ := s.VHost("/")
			for _, q := range v.Queues() {
				list = append(list, "queue "+string(q.Name))
			}
			for _, x := range v.Exchanges() {
				list = append(list, "exchange "+string(x.Name))
				for _, b := range x.BindingsFrom() {
					list = append(list, "binding "+string(x.Name)+" "+b.Destination().Name+" "+string(b.Key))
				}
			}
		})
		return list
	}
	before := strings.Join(state(), "\n")
	for what, f := range operations {
		if kind, refused := refusal(f("_q", "_x")); !refused || kind != topology.AccessRefused {
			t.Errorf("%s: not refused by the plain name, so this shows nothing", what)
		}
		for _, form := range []string{"\n_", "\r_", "_\n", "\r\n_"} {
			err := f(form+"q", form+"x")
			if kind, refused := refusal(err); !refused || kind != topology.AccessRefused && kind != topology.NotFound {
				t.Errorf("%s of %q: %v", what, form, err)
			}
		}
	}
	if n := ready(t, c, "_q"); n != 1 {
		t.Errorf("%d messages are in the queue, want 1", n)
	}
	if after := strings.Join(state(), "\n"); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
	for what, f := range asItIs {
		if kind, refused := refusal(f("_q", "_x")); !refused || kind != topology.AccessRefused {
			t.Errorf("%s: not refused by the plain name, so this shows nothing", what)
		}
		_ = f("_q", "\n_x") // nothing comes of it
	}
	mustDeclare(t, c, "seen")
	if _, err := c.Bind(topology.BindingDecl{Source: "_x", DestinationKind: topology.QueueResource, Destination: "seen", Key: "#"}); err != nil {
		t.Fatal(err)
	}
	publish(t, c, "", "dying", "m", amqp091.PropertyList{})
	reject(t, c, "dying")
	if _, err := c.PublishOne(publication("leading")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the dead letter is gone", func() bool { return holds(t, c, "dying") == 0 })
	for _, q := range []string{"seen", "_q"} {
		if n, want := ready(t, c, q), map[string]int{"_q": 1}[q]; n != want {
			t.Errorf("%d messages are in %s, want %d", n, q, want)
		}
	}
}

// BR-5.12, BR-7.2: a name that is empty after cleaning asks for one of the broker's.
func TestBR_5_12_ANameOfWhichNothingIsLeft(t *testing.T) {
	c := open(t, Options{})
	d, err := c.DeclareQueue(topology.QueueDecl{Name: "\r\n", Exclusive: true})
	if err != nil || !strings.HasPrefix(string(d.Name), "amq.gen-") {
		t.Errorf("declared as %q, %v", d.Name, err)
	}
}
