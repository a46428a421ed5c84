package broker

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// delaying declares a durable exchange that delays messages, bound to a queue.
func delaying(t *testing.T, c *Connection, name message.ExchangeName, by, queue string) {
	t.Helper()
	d := topology.ExchangeDecl{Name: name, Type: "x-delayed-message", Durable: true, Arguments: amqp091.Table{{Key: "x-delayed-type", Value: by}}}
	if _, err := c.DeclareExchange(d); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Bind(topology.BindingDecl{Source: name, DestinationKind: topology.QueueResource, Destination: queue, Key: "#"}); err != nil {
		t.Fatal(err)
	}
}

func delayBy(ms int64) amqp091.PropertyList {
	return amqp091.PropertyList{DeliveryMode: new(uint8(2)), Headers: amqp091.Table{{Key: "x-delay", Value: ms}}}
}

// delayedIn is how many messages wait in an exchange.
func delayedIn(t *testing.T, b *Broker, name message.ExchangeName) int {
	t.Helper()
	var x ExchangeInfo
	b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		decl, ok := v.Exchange(name)
		if !ok {
			t.Fatalf("no exchange %s", name)
		}
		x = b.DescribeExchange(decl)
	})
	n, _ := b.Delayed(x)
	return n
}

// openOn opens a broker that the caller closes, and has its first user if it has none.
func openOn(t *testing.T, o Options) *Connection {
	t.Helper()
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if b.Empty() {
		if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
			t.Fatal(err)
		}
	}
	return b.As("guest", "/")
}

// soon waits until something is so.
func soon(t *testing.T, what string, so func() bool) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not so after 10 s: %s", what)
		}
	}
}

// A message waits for fifty days to the millisecond, with a restart in between; one that asks for all of time is there still.
func TestDelayOfFiftyDays(t *testing.T) {
	const days = 50 * 24 * 3600 * 1000
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			var clock atomic.Int64
			began := time.Now().UnixMilli()
			clock.Store(began)
			o := Options{FS: vfs.NewMem(), Dir: "data", now: clock.Load}
			c := openOn(t, o)
			mustDeclare(t, c, "q", amqp091.Field{Key: "x-queue-type", Value: kind})
			delaying(t, c, "later", "topic", "q")
			publish(t, c, "later", "k", "fifty days", delayBy(days))
			publish(t, c, "later", "k", "all of time", delayBy(math.MaxInt64))
			clock.Store(began + days)
			if err := c.b.Close(); err != nil {
				t.Fatal(err)
			}
			c = openOn(t, o)
			defer func() { _ = c.b.Close() }()
			if n := delayedIn(t, c.b, "later"); n != 2 || ready(t, c, "q") != 0 {
				t.Errorf("%d messages wait before the last moment is over, want 2", n)
			}
			clock.Store(began + days + 1)
			soon(t, "one message left and the other stayed", func() bool { return delayedIn(t, c.b, "later") == 1 && ready(t, c, "q") == 1 })
			clock.Store(math.MaxInt64 - 1<<32)
			if n := delayedIn(t, c.b, "later"); n != 1 {
				t.Errorf("%d messages wait, want 1", n)
			}
		})
	}
}

// A backup has what waits, with its moments.
func TestBackupHasWhatWaits(t *testing.T) {
	files := vfs.NewMem()
	c := openOn(t, Options{FS: files, Dir: "/data"})
	defer func() { _ = c.b.Close() }()
	mustDeclare(t, c, "q")
	delaying(t, c, "later", "topic", "q")
	for range 3 {
		publish(t, c, "later", "k", "m", delayBy(1e9))
	}
	publish(t, c, "later", "k", "soon", delayBy(150))
	if _, err := c.b.BackUp(context.Background(), "/backup"); err != nil {
		t.Fatal(err)
	}
	restored := openOn(t, Options{FS: files, Dir: "/backup"})
	defer func() { _ = restored.b.Close() }()
	for _, c := range []*Connection{c, restored} {
		soon(t, "one came and three wait", func() bool { return delayedIn(t, c.b, "later") == 3 && ready(t, c, "q") == 1 })
	}
}

// A hundred thousand waiting messages leave memory as those of long queues do, and all are there after a restart.
func TestManyDelayedMessagesLeaveMemory(t *testing.T) {
	const messages, budget = 100_000, 1 << 20
	o := Options{FS: vfs.NewMem(), Dir: "data", Storage: Storage{CacheBudget: budget, IndexBudget: budget, HotPages: 1}}
	c := openOn(t, o)
	mustDeclare(t, c, "q")
	delaying(t, c, "later", "topic", "q")
	raw := amqp091.AppendPropsFrom(nil, delayBy(1e9))
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]Publication, 500)
	for i := range list {
		list[i] = Publication{Exchange: []byte("later"), Key: []byte("k"), Raw: raw, Props: props, Body: [][]byte{make([]byte, 200)}, Size: 200}
	}
	for range messages / len(list) {
		if refused, err := c.PublishAll(list, false); slices.Contains(refused, true) || err != nil {
			t.Fatal(refused, err)
		}
	}
	for range 2 {
		soon(t, "what waits has left memory", func() bool { return c.b.bodies.Memory() < 4*budget })
		if n := delayedIn(t, c.b, "later"); n != messages {
			t.Errorf("%d messages wait, want %d", n, messages)
		}
		if err := c.b.Close(); err != nil {
			t.Fatal(err)
		}
		c = openOn(t, o)
	}
	_ = c.b.Close()
}

// Permissions on topics hold for an exchange that routes by topic, whether a message waits or not.
func TestWhatAFullQueueRefusesComesWhenItHasRoom(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			c := openOn(t, Options{Dir: "data", FS: vfs.NewMem(), RetryHeld: time.Hour})
			defer func() { _ = c.b.Close() }()
			mustDeclare(t, c, "small", amqp091.Field{Key: "x-queue-type", Value: kind}, amqp091.Field{Key: "x-max-length", Value: int64(10)}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})
			delaying(t, c, "later", "topic", "small")
			const messages = 60
			for range messages {
				publish(t, c, "later", "k", "m", delayBy(1))
			}
			got := 0
			soon(t, "all have come", func() bool {
				for {
					g, ok, err := c.Get("small", true)
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						return got == messages
					}
					c.b.bodies.Release(g.Body)
					c.b.bodies.Release(g.History)
					got++
				}
			})
			soon(t, "the exchange has heard of all of them", func() bool { return delayedIn(t, c.b, "later") == 0 })
		})
	}
}

func TestDelayedTopicPermissions(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	delaying(t, c, "later", "topic", "q")
	if _, err := c.b.By("").Do(declare.PutUser{Name: "tenant", Password: auth.PasswordHash{}, Tags: nil}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.b.By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "tenant", Configure: "^$", Write: ".*", Read: ".*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.b.By("").Do(declare.PutTopicPermission{TopicPermission: auth.TopicPermission{VHost: "/", User: "tenant", Exchange: "later", Write: "^mine", Read: "^mine"}}); err != nil {
		t.Fatal(err)
	}
	tenant := c.b.As("tenant", "/")
	refused := func(err error) bool {
		var e *topology.Error
		return errors.As(err, &e) && e.Kind == topology.AccessRefused
	}
	for _, ms := range []int64{0, 1e6} {
		for key, want := range map[string]bool{"mine.k": false, "theirs.k": true} {
			raw := amqp091.AppendPropsFrom(nil, delayBy(ms))
			props, err := amqp091.ParseProps(raw)
			if err != nil {
				t.Fatal(err)
			}
			_, err = tenant.PublishOne(&Publication{Exchange: []byte("later"), Key: []byte(key), Raw: raw, Props: props, Size: 1, Body: [][]byte{{'m'}}})
			if refused(err) != want {
				t.Errorf("a delay of %d with key %s: %v", ms, key, err)
			}
		}
	}
	bind := topology.BindingDecl{Source: "later", DestinationKind: topology.QueueResource, Destination: "q", Key: "theirs"}
	if _, err := tenant.Bind(bind); !refused(err) {
		t.Errorf("a binding with a key of others: %v", err)
	}
	if _, err := tenant.PurgeExchange("later"); !refused(err) {
		t.Errorf("a purge without the permission to configure: %v", err)
	}
	if n, err := c.PurgeExchange("later"); n != 1 || err != nil {
		t.Errorf("purged %d, %v; want 1", n, err)
	}
}

// No operation on queues reaches what waits in an exchange, and a limit of queues does not count it.
func TestWhatWaitsIsNoQueue(t *testing.T) {
	c := open(t, Options{})
	mustDeclare(t, c, "q")
	if _, err := c.b.By("").Do(declare.SetVHostLimits{Name: "/", Limits: map[topology.Limit]any{topology.MaxQueues: int64(1)}}); err != nil {
		t.Fatal(err)
	}
	delaying(t, c, "later", "topic", "q")
	publish(t, c, "later", "k", "m", delayBy(1e6))
	var name message.QueueName
	c.b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		x, _ := v.Exchange("later")
		name = x.Waiting.Name
	})
	if _, err := c.PassiveQueue(name); err == nil {
		t.Errorf("there is a queue %q", name)
	}
	if _, err := c.Purge(name); err == nil {
		t.Errorf("queue %q was purged", name)
	}
	if offer(t, c, string(name), "m") {
		t.Errorf("the default exchange routes to %q", name)
	}
	if n := delayedIn(t, c.b, "later"); n != 1 {
		t.Errorf("%d messages wait, want 1", n)
	}
}
