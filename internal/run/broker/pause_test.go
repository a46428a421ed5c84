package broker

import (
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// A publisher with very many keys to an exchange with very many patterns lets others change the topology meanwhile.
func TestADeclarationDoesNotWaitForAllKeysOfAMessage(t *testing.T) {
	c := open(t, Options{})
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: "q", Durable: true}); err != nil {
		t.Fatal(err)
	}
	err := c.b.change(func() error {
		const length = 13
		for i := range 1 << length {
			words := make([]string, length)
			for k := range words {
				words[k] = string("*a"[i>>k&1])
			}
			if _, _, err := c.b.state.Bind(topology.BindingDecl{
				VHost: "/", Source: "amq.topic", DestinationKind: topology.QueueResource, Destination: "q", Key: message.RoutingKey(strings.Join(words, ".") + ".zz"),
			}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var cc amqp091.Array
	for i := range 100 {
		cc = append(cc, fmt.Sprint(strings.Repeat("a.", 13), i))
	}
	pauses := 0
	c.b.onPause = func() {
		if pauses++; pauses > 1 {
			return
		}
		c.b.LetIn()
		if c.b.topo.TryLock() {
			t.Error("the topology is not held behind a pause")
			c.b.topo.Unlock()
		}
	}
	p := &Publication{Exchange: []byte("amq.topic"), Key: []byte("k"), Props: amqp091.Props{
		Headers: amqp091.AppendTable(nil, amqp091.Table{{Key: "CC", Value: cc}})[4:],
	}}
	if err := c.Check(p); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Route(p); err != nil {
		t.Fatal(err)
	}
	if pauses == 0 {
		t.Error("nobody else was let in")
	}
}

// Before a queue is declared, the targets of its dead letters are looked up with the topology locked for reading
// only.
func TestADeclarationLooksForItsDeadWhileOthersRead(t *testing.T) {
	c := open(t, Options{})
	quorum := amqp091.Field{Key: "x-queue-type", Value: "quorum"}
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: "first", Durable: true, Arguments: amqp091.Table{quorum}}); err != nil {
		t.Fatal(err)
	}
	const hops = 1 << 15 // so many that there is a pause
	last := "amq.fanout"
	if _, err := c.Bind(topology.BindingDecl{Source: "amq.fanout", DestinationKind: topology.QueueResource, Destination: "first"}); err != nil {
		t.Fatal(err)
	}
	b := c.b
	err := b.change(func() error {
		for i := range hops {
			name := fmt.Sprint("x", i)
			if _, _, err := b.state.DeclareExchange(topology.ExchangeDecl{VHost: "/", Name: message.ExchangeName(name), Type: "fanout"}, nil); err != nil {
				return err
			}
			if _, _, err := b.state.Bind(topology.BindingDecl{
				VHost: "/", Source: message.ExchangeName(name), DestinationKind: topology.ExchangeResource, Destination: last,
			}, nil); err != nil {
				return err
			}
			last = name
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	pauses := 0
	b.onPause = func() {
		pauses++
		if !b.topo.TryRLock() {
			t.Error("nobody else may look at the topology")
			return
		}
		b.topo.RUnlock()
	}
	for i := range 20 { // of which some would be elsewhere by their names
		name := message.QueueName(fmt.Sprint("q", i))
		d := topology.QueueDecl{Name: name, Durable: true, Arguments: amqp091.Table{quorum, {Key: "x-dead-letter-exchange", Value: last}}}
		if _, err := c.DeclareQueue(d); err != nil {
			t.Fatal(err)
		}
		v, _ := b.state.VHost("/")
		q, _ := v.Queue(name)
		if first, _ := v.Queue("first"); q.Group != first.Group {
			t.Errorf("%s is in the group %d, and its dead go to %d", name, q.Group, first.Group)
		}
	}
	if pauses == 0 {
		t.Error("nobody was let in")
	}
}

// A publisher with very many keys lets others change the topology while its keys are compared with permissions. The
// exchange that exists afterwards counts.
func TestADeclarationDoesNotWaitForAllPermissions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, b *Broker) // nil: nothing changes
		want   string
	}{
		"nothing": {nil, ""},
		"deleted": {func(t *testing.T, b *Broker) {}, "no exchange 'x' in vhost '/'"},
		"another": {func(t *testing.T, b *Broker) {
			if _, _, err := b.state.DeclareExchange(topology.ExchangeDecl{VHost: "/", Name: "x", Type: "topic", Internal: true}, nil); err != nil {
				t.Fatal(err)
			}
		}, "cannot publish to internal exchange 'x' in vhost '/'"},
		"not allowed": {func(t *testing.T, b *Broker) {
			if _, _, err := b.state.DeclareExchange(topology.ExchangeDecl{VHost: "/", Name: "x", Type: "topic"}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := b.users.PutTopicPermission(auth.TopicPermission{User: "u", VHost: "/", Exchange: "x", Write: "^k"}); err != nil {
				t.Fatal(err)
			}
		}, "write access to topic 'none' in exchange 'x' in vhost '/' refused for user 'u'"},
	} {
		t.Run(name, func(t *testing.T) {
			b := openWith(t, Options{})
			account(t, b)
			if _, err := b.As("u", "/").DeclareExchange(topology.ExchangeDecl{Name: "x", Type: "topic"}); err != nil {
				t.Fatal(err)
			}
			cc := amqp091.Array{"none"}
			for i := range 1000 {
				cc = append(cc, fmt.Sprint("k", i))
			}
			pauses := 0
			b.onPause = func() {
				b.LetIn()
				if pauses++; pauses > 1 || c.change == nil {
					return
				}
				b.topo.RUnlock()
				b.topo.Lock()
				if _, err := b.state.DeleteExchange("/", "x", false, nil); err != nil {
					t.Error(err)
				}
				c.change(t, b)
				b.topo.Unlock()
				b.topo.RLock()
			}
			p := &Publication{Exchange: []byte("x"), Key: []byte("k"), Props: amqp091.Props{
				Headers: amqp091.AppendTable(nil, amqp091.Table{{Key: "CC", Value: cc}})[4:],
			}}
			link := b.As("u", "/")
			if err := link.Check(p); err != nil {
				t.Fatal(err)
			}
			if _, err := link.Route(p); c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if pauses == 0 {
				t.Error("nobody was let in")
			}
		})
	}
}
