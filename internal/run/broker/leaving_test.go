package broker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
)

// manyBindings makes a durable exchange and a durable queue with this many bindings between them.
func manyBindings(t *testing.T, c *Connection, n int) {
	t.Helper()
	if _, err := c.DeclareExchange(topology.ExchangeDecl{Name: "x", Type: routing.Direct, Durable: true}); err != nil {
		t.Fatal(err)
	}
	mustDeclare(t, c, "q")
	for i := range n {
		bindOne(t, c, message.RoutingKey(fmt.Sprint(i)))
	}
}

func bindOne(t *testing.T, c *Connection, key message.RoutingKey) {
	t.Helper()
	if _, err := c.Bind(topology.BindingDecl{Source: "x", DestinationKind: topology.QueueResource, Destination: "q", Key: key}); err != nil {
		t.Fatal(err)
	}
}

// stored is how many records of bindings, and of leaving objects, the store has.
func stored(t *testing.T, c *Connection) (bindings, marks int) {
	t.Helper()
	count := func(prefix string, n *int) {
		if err := c.b.data.State.Range([]byte(prefix), func(_, _ []byte) error { *n++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	count("topology/binding/", &bindings)
	count("topology/leaving/", &marks)
	return bindings, marks
}

// bound is how many bindings lead to a queue of the default virtual host, without that of the default exchange.
func bound(c *Connection) (n int) {
	c.b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		for _, b := range v.Bindings() {
			if b.Source != nil {
				n++
			}
		}
	})
	return n
}

var manyDeletions = map[string]func(b *Broker) error{
	"the exchange": func(b *Broker) error {
		_, err := b.state.DeleteExchange("/", "x", false, nil)
		return err
	},
	"the queue": func(b *Broker) error {
		v, _ := b.state.VHost("/")
		q, _ := v.Queue("q")
		_, err := b.node.Delete(runtimeOf(q), nil)
		b.state.DeleteQueue(q)
		return err
	},
}

// The deletion of an object with very many bindings is stored first, and answers wait for nothing else. The bindings
// follow: a crash in between brings none of them back, neither then nor for the next object of the name.
func TestBindingsOfWhatIsDeletedGoBehindIt(t *testing.T) {
	const n = leaveAtOnce + leaveSlice + 1
	for name, deletion := range manyDeletions {
		for slices := range 3 {
			t.Run(fmt.Sprintf("%s, %d slices", name, slices), func(t *testing.T) {
				d := newDisk()
				c := start(t, d, nil)
				manyBindings(t, c, n)
				ticket, err := c.b.mutate(func() error { return deletion(c.b) })
				if err = errors.Join(err, c.b.AwaitStored(ticket)); err != nil {
					t.Fatal(err)
				}
				if left, marks := stored(t, c); left != n || marks != 1 {
					t.Fatalf("%d bindings and %d marks are stored, want %d and 1", left, marks, n)
				}
				for range slices {
					c.b.between(func() { err = errors.Join(err, c.b.leave(&c.b.ledger.leaving[0])) })
				}
				mustDeclare(t, c, "synced")
				crashed := d.crash()
				after := start(t, crashed, nil)
				if left, marks := stored(t, after); err != nil || bound(after) != 0 || left != 0 || marks != 0 {
					t.Errorf("after a crash %d bindings are there, %d and %d marks are stored, %v", bound(after), left, marks, err)
				}
				manyBindings(t, after, 1)
				if again := start(t, crashed.crash(), nil); bound(again) != 1 {
					t.Errorf("what has the name next has %d bindings, want 1", bound(again))
				}
			})
		}
	}
}

// A declaration of the name before all bindings are gone makes them go first.
func TestWhatHasTheNameNextGetsNoOldBindings(t *testing.T) {
	const n = leaveAtOnce + 1
	for name, deletion := range manyDeletions {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			c := start(t, d, nil)
			manyBindings(t, c, n)
			ticket, err := c.b.mutate(func() error { return deletion(c.b) })
			if err = errors.Join(err, c.b.AwaitStored(ticket)); err != nil {
				t.Fatal(err)
			}
			again := func() error {
				if name == "the queue" {
					_, _, err := c.b.state.DeclareQueue(topology.QueueDecl{VHost: "/", Name: "q", Durable: true}, nil)
					return err
				}
				_, _, err := c.b.state.DeclareExchange(topology.ExchangeDecl{VHost: "/", Name: "x", Type: routing.Direct}, nil)
				return err
			}
			if _, err := c.b.mutate(again); !errors.Is(err, topology.ErrLeaving) {
				t.Errorf("declared while bindings are stored: %v", err)
			}
			manyBindings(t, c, 1)
			if left, marks := stored(t, c); left != 1 || marks != 0 || c.b.ledger.owing.Load() != 0 {
				t.Errorf("%d bindings and %d marks are stored, want 1 and 0", left, marks)
			}
			if after := start(t, d.crash(), nil); bound(after) != 1 {
				t.Errorf("after a crash there are %d bindings, want 1", bound(after))
			}
		})
	}
}

// When a deletion is answered, the deleting client has nothing left to wait for.
func TestADeletionLeavesNothingBehind(t *testing.T) {
	c := start(t, newDisk(), nil)
	manyBindings(t, c, leaveAtOnce+3*leaveSlice)
	if err := c.DeleteExchange("x", false); err != nil {
		t.Fatal(err)
	}
	if left, marks := stored(t, c); left != 0 || marks != 0 {
		t.Errorf("%d bindings and %d marks are stored, want none", left, marks)
	}
}

// While the deletions of bindings are stored, changes of others are written before each slice. A client that changes
// nothing does none of that work.
func TestASweepLetsOthersIn(t *testing.T) {
	var c *Connection
	var watching atomic.Bool
	var mu sync.Mutex // a worker of the node may be the one who writes
	var left []int    // bindings that were still to go when a change of somebody was stored
	d := newDisk()
	c = start(t, d, func(at string) {
		if watching.Load() && at == FailDeclareStored {
			n := 0
			for _, l := range c.b.ledger.leaving {
				n += len(l.bindings)
			}
			mu.Lock()
			left = append(left, n)
			mu.Unlock()
		}
	})
	const n = leaveAtOnce + 2*leaveSlice
	manyBindings(t, c, n)
	mustDeclare(t, c, "other")
	ticket, err := c.b.mutate(func() error { return manyDeletions["the exchange"](c.b) })
	if err = errors.Join(err, c.b.AwaitStored(ticket)); err != nil {
		t.Fatal(err)
	}
	if err := c.b.change(func() error { return nil }); err != nil || c.b.ledger.owing.Load() != 1 {
		t.Errorf("who has changed nothing has swept: %v", err)
	}
	watching.Store(true)
	if _, err = c.b.mutate(func() error { return manyDeletions["the queue"](c.b) }); err != nil {
		t.Fatal(err)
	}
	if err := c.b.sweep(ticket); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(left) == 0 || left[0] != n {
		t.Errorf("a change that waited was stored when %v bindings were left, want all %d", left, n)
	}
}

// A client that waits for another change that is not stored yet does none of the work either.
func TestWhoNeedsNoNameThatLeavesDoesNotSweep(t *testing.T) {
	c := start(t, newDisk(), nil)
	manyBindings(t, c, leaveAtOnce+1)
	ticket, err := c.b.mutate(func() error { return manyDeletions["the exchange"](c.b) })
	if err = errors.Join(err, c.b.AwaitStored(ticket)); err != nil {
		t.Fatal(err)
	}
	tries := 0
	err = c.b.change(func() error {
		if tries++; tries == 1 {
			return topology.ErrUnstored // as Bind of a queue that is not stored yet
		}
		return nil
	})
	if left, _ := stored(t, c); err != nil || left == 0 {
		t.Errorf("it has swept: %v", err)
	}
}
