package broker

import (
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

func publishTo(t *testing.T, c *Connection, queue message.QueueName, headers ...amqp091.Field) {
	t.Helper()
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{Headers: headers})
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	p := Publication{Key: []byte(queue), Raw: raw, Props: props, Body: [][]byte{[]byte("x")}, Size: 1}
	if routed, err := c.PublishOne(&p); err != nil || !routed {
		t.Fatal(routed, err)
	}
}

// Arrivals name the queues that something came to which may be a letter, once for each time that somebody asks, and nothing while
// nobody wants to know.
func TestArrivalsAreNotedWhileSomebodyWantsThem(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			b := openWith(t, Options{})
			c := b.AsOperator("op", "/")
			args := func(more ...amqp091.Field) amqp091.Table {
				return append(amqp091.Table{{Key: "x-queue-type", Value: kind}}, more...)
			}
			for name, a := range map[message.QueueName]amqp091.Table{
				"plain": args(), "dead": args(),
				"work": args(amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "dead"}),
			} {
				if _, err := c.DeclareQueue(topology.QueueDecl{Name: name, Durable: true, Arguments: a}); err != nil {
					t.Fatal(err)
				}
			}
			woken := make(chan struct{}, 100)
			b.WatchArrivals(func() { woken <- struct{}{} })
			kill := func() {
				t.Helper()
				publishTo(t, c, "work")
				took := false
				if err := c.Take("work", 1, RejectRemoves, func(*Shown) (bool, error) { took = true; return true, nil }); err != nil || !took {
					t.Fatal(took, err)
				}
				c.Settle()
			}
			kill()
			if list := b.TakeArrivals(); len(list) != 0 || len(woken) != 0 {
				t.Fatalf("nobody wants to know, and there are %v", list)
			}
			b.WantArrivals(true)
			kill()
			kill()
			seen := map[message.QueueName]bool{}
			for end := time.Now().Add(10 * time.Second); !seen["dead"]; {
				if time.Now().After(end) {
					t.Fatal("the dead letters are not noted in 10 s")
				}
				<-woken
				for _, a := range b.TakeArrivals() {
					seen[a.Queue.Decl.Name] = seen[a.Queue.Decl.Name] || a.Died
				}
			}
			if seen["work"] || seen["plain"] {
				t.Errorf("letters in %v", seen)
			}
			eventually(t, "all three have died", func() bool { return ready(t, c, "dead") == 3 })
			b.TakeArrivals()
			if list := b.TakeArrivals(); len(list) != 0 {
				t.Errorf("asked again: %v", list)
			}
			publishTo(t, c, "plain", amqp091.Field{Key: "x-exception-message", Value: "no"})
			list := b.TakeArrivals()
			if len(list) != 1 || list[0].Queue.Decl.Name != "plain" || list[0].Died {
				t.Errorf("a parked message: %v", list)
			}
			if kind == "classic" { // a group does not look into records
				publishTo(t, c, "plain")
				if list := b.TakeArrivals(); len(list) != 0 {
					t.Errorf("a message without headers: %v", list)
				}
			}
			b.WantArrivals(false)
			publishTo(t, c, "plain", amqp091.Field{Key: "x-exception-message", Value: "no"})
			if list := b.TakeArrivals(); len(list) != 0 {
				t.Errorf("nobody wants to know any more: %v", list)
			}
		})
	}
}

// A listener hears the events that it wants, also while nothing is bound to the exchange, and learns when something is.
func TestAListenerHearsEvents(t *testing.T) {
	b := openWith(t, Options{})
	var heard []string
	bound := 0
	b.Listen(&Ear{
		Wants: func(key string) bool { return key == "queue.created" },
		Hear: func(key string, _ time.Time, facts amqp091.Table) {
			name, _ := facts.Get("name")
			heard = append(heard, key+" "+name.(string))
		},
		Bound: func() { bound++ },
	})
	c := b.AsOperator("op", "/")
	for _, name := range []message.QueueName{"a", "b"} {
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: name, Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.By("").Do(declare.DeleteVHost{Name: "/"}); err != nil {
		t.Fatal(err)
	}
	if len(heard) != 2 || heard[0] != "queue.created a" || heard[1] != "queue.created b" || bound != 0 {
		t.Errorf("heard %q, bound %d times", heard, bound)
	}
	b.Listen(nil)
}
