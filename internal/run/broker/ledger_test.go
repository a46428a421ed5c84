package broker

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// disk is a disk that can hold back syncs of declarations, or of the journal, and that can crash.
type disk struct {
	*vfs.MemFS
	syncs atomic.Int64 // of declarations
	log   atomic.Bool  // the journal's syncs are held instead
	mu    sync.Mutex
	hold  chan struct{} // closed when they go on; nil: they are not held
	held  chan struct{} // has one token when one is held
}

func newDisk() *disk { return &disk{MemFS: vfs.NewCrashableMem(), held: make(chan struct{}, 1)} }

func (d *disk) fs() vfs.FS {
	return errorfs.Wrap(d.MemFS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
		of := "/state-log/"
		if d.log.Load() {
			of = "/journal/"
		}
		if !sync || !strings.Contains(op.Path, of) {
			return nil
		}
		d.syncs.Add(1)
		d.mu.Lock()
		hold := d.hold
		d.mu.Unlock()
		if hold != nil {
			select {
			case d.held <- struct{}{}:
			default:
			}
			<-hold
		}
		return nil
	}))
}

// holdSyncs holds back syncs of declarations until the returned function is called.
func (d *disk) holdSyncs() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hold := make(chan struct{})
	d.hold = hold
	return sync.OnceFunc(func() {
		d.mu.Lock()
		d.hold = nil
		d.mu.Unlock()
		close(hold)
	})
}

// crash is what is on disk if the power fails now.
func (d *disk) crash() *disk {
	return &disk{MemFS: d.CrashClone(vfs.CrashCloneCfg{}), held: make(chan struct{}, 1)}
}

// start starts a node on a disk.
func start(t *testing.T, d *disk, failpoint func(string)) *Connection {
	t.Helper()
	return startWith(t, d, Options{Failpoint: failpoint})
}

// startWith is start with options.
func startWith(t *testing.T, d *disk, o Options) *Connection {
	t.Helper()
	o.FS, o.Dir, o.Partitions = d.fs(), "/data", 2
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b.life.Err() != nil {
			return // the test has closed it
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if b.Empty() {
		if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"/", "/data"} {
		if err := journal.SyncDirectory(b.FS, dir); err != nil {
			t.Fatal(err)
		}
	}
	return b.As("guest", "/")
}

// offer publishes a persistent message to a queue and says whether the queue exists.
func offer(t *testing.T, c *Connection, key, body string) (routed bool) {
	t.Helper()
	persistent := uint8(2)
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: &persistent})
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	routed, err = c.PublishOne(&Publication{Key: []byte(key), Raw: raw, Props: props, Body: [][]byte{[]byte(body)}, Size: len(body)})
	if err != nil {
		t.Fatal(err)
	}
	return routed
}

// holds is how many messages a queue has, -1 if it does not exist.
func holds(t *testing.T, c *Connection, name string) (n int) {
	t.Helper()
	n = -1
	c.b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		if _, ok := v.Queue(message.QueueName(name)); ok {
			n = 0
		}
	})
	if n < 0 {
		return n
	}
	err := c.Peek(message.QueueName(name), 0, func(*Shown) bool {
		n++
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kill takes the next message of a queue, of any type, and rejects it.
func kill(t *testing.T, c *Connection, name message.QueueName) {
	t.Helper()
	if err := c.Take(name, 1, RejectRemoves, func(*Shown) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
}

// consuming is a consumer that settles nothing.
type consuming struct{}

func (consuming) Deliver(_ *partition.Queue, _ *queue.Consumer, d *queue.Delivery) bool { return true }
func (consuming) Flush()                                                                {}
func (consuming) QueueGone(*partition.Queue, *queue.Consumer)                           {}
func (consuming) TimedOut(*partition.Queue, *queue.Consumer, int)                       {}

// deletions are the ways to delete a queue, except with its virtual host.
var deletions = []struct {
	name       string
	arguments  []amqp091.Field
	autoDelete bool
	delete     func(t *testing.T, c *Connection)
}{
	{name: "queue.delete", delete: func(t *testing.T, c *Connection) {
		if _, err := c.DeleteQueue("work", false, false); err != nil {
			t.Error(err)
		}
	}},
	{name: "quorum", arguments: []amqp091.Field{{Key: "x-queue-type", Value: "quorum"}}, delete: func(t *testing.T, c *Connection) {
		if _, err := c.DeleteQueue("work", false, false); err != nil {
			t.Error(err)
		}
	}},
	{name: "auto-delete", autoDelete: true, delete: func(t *testing.T, c *Connection) {
		k := &queue.Consumer{Target: consuming{}}
		q, err := c.Consume("work", k, func(*partition.Queue) {})
		if err != nil {
			t.Error(err)
			return
		}
		c.Cancel(q, k, nil)
	}},
	{name: "expires", arguments: []amqp091.Field{{Key: "x-expires", Value: int32(50)}}, delete: func(t *testing.T, c *Connection) {
		eventually(t, "the queue has expired", func() bool {
			_, err := c.find("work", func(topology.Resource) error { return nil })
			return err != nil
		})
	}},
}

// When a client learns of a queue's deletion, a dead letter that had left the queue is at its target, in whatever way
// the queue was deleted and in whatever log the target is.
func TestADeletionIsStoredAfterWhatLeftTheQueue(t *testing.T) {
	for _, way := range deletions {
		for _, target := range []string{"classic", "quorum"} {
			t.Run(way.name+" to "+target, func(t *testing.T) {
				d := newDisk()
				c := start(t, d, nil)
				mustDeclare(t, c, "dlq", amqp091.Field{Key: "x-queue-type", Value: target})
				_, err := c.DeclareQueue(topology.QueueDecl{Name: "work", Durable: true, AutoDelete: way.autoDelete, Arguments: slices.Concat(way.arguments, toDLQ)})
				if err != nil {
					t.Fatal(err)
				}
				if !offer(t, c, "work", "m") {
					t.Fatal("not routed")
				}
				kill(t, c, "work")
				eventually(t, "the dead letter moves", func() bool { return holds(t, c, "dlq") == 1 })
				way.delete(t, c)
				after := start(t, d.crash(), nil)
				eventually(t, "the dead letter is there after a crash", func() bool { return holds(t, after, "dlq") == 1 })
				if n := holds(t, after, "work"); n != -1 {
					t.Errorf("the deleted queue has %d messages", n)
				}
			})
		}
	}
}

// The same for a dead letter that is still on its way to another log when its queue is deleted, and only in the
// journal's memory: the deletion waits for it.
func TestADeletionWaitsForADeadLetterOnItsWay(t *testing.T) {
	for _, target := range []string{"classic", "quorum"} {
		t.Run("classic to "+target, func(t *testing.T) {
			d := newDisk()
			c := start(t, d, nil)
			mustDeclare(t, c, "dlq", amqp091.Field{Key: "x-queue-type", Value: target})
			mustDeclare(t, c, "work", toDLQ...)
			if !offer(t, c, "work", "m") {
				t.Fatal("not routed")
			}
			g, ok, err := c.Get("work", false)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			defer func() { c.b.bodies.Release(g.Body) }()
			d.log.Store(true)
			release := d.holdSyncs()
			defer release()
			c.Run([]partition.Op{{Kind: partition.Reject, Queue: g.Queue, ID: g.ID, Consumer: g.By, Failed: true}})
			eventually(t, "it has died and left", func() bool { n := c.b.node.Counts(g.Queue); return n.Out+n.Ready+n.Dying == 0 })
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, err := c.b.As("guest", "/").DeleteQueue("work", false, false); err != nil {
					t.Error(err)
				}
			}()
			stacks := make([]byte, 8<<20)
			eventually(t, "the deletion is being stored, or is", func() bool {
				select {
				case <-done:
					return true
				default:
					return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "broker.(*Broker).writeAll(")
				}
			})
			inOnePlace := func() {
				after := start(t, d.crash(), nil)
				eventually(t, "it is in one place after a crash", func() bool { return max(holds(t, after, "work"), 0)+holds(t, after, "dlq") == 1 })
			}
			inOnePlace()
			release()
			<-done
			inOnePlace()
		})
	}
}

// Nothing enters a queue whose number is not reserved on disk, transient or not: its dead letters may be in a group
// that outlives it.
func TestTransientQueuesHaveNumbersThatAreStored(t *testing.T) {
	d := newDisk()
	c := start(t, d, nil)
	mustDeclare(t, c, "dlq", amqp091.Field{Key: "x-queue-type", Value: "quorum"})
	dlq, err := c.find("dlq", c.readable)
	if err != nil {
		t.Fatal(err)
	}
	release := d.holdSyncs()
	defer release()
	var all sync.WaitGroup
	const many, atOnce = 1100, 1024 // numbers are reserved by as many, when half of them are left
	for i := range many {
		all.Go(func() {
			decl := topology.QueueDecl{Name: message.QueueName(fmt.Sprint("t", i)), Arguments: toDLQ}
			if _, err := c.b.As("guest", "/").DeclareQueue(decl); err != nil {
				t.Error(err)
			}
		})
	}
	blocked(t, many-atOnce/2)
	var last *topology.Queue
	c.b.topo.RLock()
	v, _ := c.b.state.VHost("/")
	v.EachQueue(func(q *topology.Queue) {
		if last == nil || q.Incarnation > last.Incarnation {
			last = q
		}
	})
	c.b.topo.RUnlock()
	if last.Incarnation > atOnce {
		t.Errorf("number %d is in use", last.Incarnation)
	}
	if !offer(t, c, string(last.Name), "m") {
		t.Fatal("not routed")
	}
	kill(t, c, last.Name)
	eventually(t, "the dead letter moves", func() bool { return c.b.node.Counts(runtimeOf(dlq)).Ready == 1 })
	if err := c.b.data.Journal.Sync(); err != nil {
		t.Fatal(err)
	}
	after := start(t, d.crash(), nil)
	if n := holds(t, after, "dlq"); n != 1 {
		t.Errorf("the dead letter is there %d times", n)
	}
	release()
	all.Wait()
}

// blocked waits until n goroutines wait for the store.
func blocked(t *testing.T, n int) {
	t.Helper()
	stacks := make([]byte, 8<<20)
	eventually(t, fmt.Sprintf("%d wait for the store", n), func() bool {
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "broker.(*Broker).AwaitStored(") >= n
	})
}

// Nobody sees a declaration before it is stored, and no other client waits for it.
func TestADeclarationIsSeenWhenItIsStored(t *testing.T) {
	d := newDisk()
	c := start(t, d, nil)
	mustDeclare(t, c, "other")
	mustDeclare(t, c, "work", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "q"})
	if !offer(t, c, "work", "dies") {
		t.Fatal("not routed")
	}
	release := d.holdSyncs()
	defer release()
	var released atomic.Bool
	var all sync.WaitGroup
	waits := 0
	wait := func(name string, f func(c *Connection) error) {
		waits++
		all.Go(func() {
			err := f(c.b.As("guest", "/"))
			if !released.Load() {
				t.Errorf("%s was answered before the declaration is stored", name)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	durable := topology.QueueDecl{Name: "q", Durable: true}
	wait("queue.declare", func(c *Connection) error { _, err := c.DeclareQueue(durable); return err })
	<-d.held
	bind := topology.BindingDecl{Source: "amq.fanout", DestinationKind: topology.QueueResource, Destination: "q"}
	x := topology.ExchangeDecl{Name: "x", Type: "direct", Durable: true}
	wait("another queue.declare", func(c *Connection) error { _, err := c.DeclareQueue(durable); return err })
	wait("a passive queue.declare", func(c *Connection) error { _, err := c.PassiveQueue("q"); return err })
	wait("queue.bind", func(c *Connection) error { _, err := c.Bind(bind); return err })
	wait("basic.get", func(c *Connection) error { _, _, err := c.Get("q", true); return err })
	wait("queue.purge", func(c *Connection) error { _, err := c.Purge("q"); return err })
	wait("basic.consume", func(c *Connection) error {
		k := &queue.Consumer{Target: consuming{}}
		q, err := c.Consume("q", k, func(*partition.Queue) {})
		if err == nil {
			c.Cancel(q, k, nil)
		}
		return err
	})
	wait("exchange.declare", func(c *Connection) error { _, err := c.DeclareExchange(x); return err })
	wait("connection.open", func(c *Connection) error {
		opened, err := c.b.Connect(Login{User: "guest"}, Peer{}, "/", nil)
		if err == nil {
			opened.Disconnect()
		}
		return err
	})
	wait("the API's list", func(c *Connection) error {
		c.b.Read(func(*topology.State, *auth.Users) {})
		return nil
	})
	blocked(t, waits)
	// An operation that does not name it goes on, and does not find it.
	if !offer(t, c, "other", "m") {
		t.Error("a message to another queue found none")
	}
	if offer(t, c, "q", "too early") {
		t.Error("a message was routed to a queue that a crash would take back")
	}
	kill(t, c, "work")
	if got, ok, err := c.Get("other", true); err != nil || !ok {
		t.Errorf("basic.get of another queue: %t, %v", ok, err)
	} else {
		c.b.bodies.Release(got.Body)
	}
	released.Store(true)
	release()
	all.Wait()
	if n := holds(t, c, "q"); n != 0 {
		t.Errorf("%d messages came into the queue before it was there", n)
	}
	if !offer(t, c, "q", "m") {
		t.Error("no message is routed to the queue that is stored")
	}
	if routed, err := c.PublishOne(&Publication{Exchange: []byte("amq.fanout")}); err != nil || !routed {
		t.Errorf("the binding: %t, %v", routed, err)
	}
}

// A deletion is answered when the store has it.
func TestADeletionIsSeenWhenItIsStored(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			d := newDisk()
			c := start(t, d, nil)
			quorum := amqp091.Field{Key: "x-queue-type", Value: kind}
			mustDeclare(t, c, "q", quorum)
			mustDeclare(t, c, "other")
			mustDeclare(t, c, "work", amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "q"})
			if !offer(t, c, "q", "m") || !offer(t, c, "work", "dies") {
				t.Fatal("not routed")
			}
			g, ok, err := c.Get("work", false)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			defer func() { c.b.bodies.Release(g.Body) }()
			if err := c.b.node.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			release := d.holdSyncs()
			defer release()
			var released atomic.Bool
			var all sync.WaitGroup
			waits := 0
			wait := func(name string, f func(c *Connection)) {
				waits++
				all.Go(func() {
					f(c.b.As("guest", "/"))
					if !released.Load() {
						t.Errorf("%s was answered before the deletion is stored", name)
					}
				})
			}
			wait("queue.delete", func(c *Connection) { _, _ = c.DeleteQueue("q", false, false) })
			<-d.held
			wait("another queue.delete", func(c *Connection) { _, _ = c.DeleteQueue("q", false, false) })
			wait("a passive queue.declare", func(c *Connection) { _, _ = c.PassiveQueue("q") })
			wait("a publish", func(c *Connection) { offer(t, c, "q", "goes nowhere") })
			wait("a dead letter", func(c *Connection) {
				c.Run([]partition.Op{{Kind: partition.Reject, Queue: g.Queue, ID: g.ID, Consumer: g.By, Failed: true}})
			})
			wait("a checkpoint", func(c *Connection) {
				if err := c.b.node.Checkpoint(); err != nil {
					t.Error(err)
				}
			})
			blocked(t, waits)
			if got, ok, err := c.Get("other", true); err != nil || ok {
				t.Errorf("basic.get of another queue: %t, %v", ok, err)
				c.b.bodies.Release(got.Body)
			}
			// Nobody was told anything: after a crash the queue may be there, but whole.
			after := start(t, d.crash(), nil)
			if n := holds(t, after, "q"); n != 1 {
				t.Errorf("the queue came back with %d messages", n)
			}
			if n := holds(t, after, "work"); n != 1 {
				t.Errorf("the message that died has %d places", n)
			}
			released.Store(true)
			release()
			all.Wait()
			if n := holds(t, c, "q"); n != -1 {
				t.Errorf("the deleted queue has %d messages", n)
			}
		})
	}
}

// listening is a consumer that notes when its queue is gone.
type listening struct {
	consuming
	gone func()
}

func (l listening) QueueGone(*partition.Queue, *queue.Consumer) { l.gone() }

// A consumer learns that its queue is gone when the store has the deletion, and with nothing locked.
func TestConsumersAreToldWhenTheDeletionIsStored(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		for _, way := range []string{"queue", "vhost"} {
			t.Run(kind+"/"+way, func(t *testing.T) {
				d := newDisk()
				c := start(t, d, nil)
				if _, err := c.b.By("guest").As(&Identity{Name: "guest"}).Do(declare.PutVHost{Name: "v", Change: declare.All(topology.Metadata{})}); err != nil {
					t.Fatal(err)
				}
				in := c.b.As("guest", "v")
				mustDeclare(t, in, "q", amqp091.Field{Key: "x-queue-type", Value: kind})
				var released atomic.Bool
				gone := make(chan struct{})
				k := &queue.Consumer{Target: listening{gone: func() {
					defer close(gone)
					if !released.Load() {
						t.Error("the consumer was told before the deletion is stored")
					}
					if !c.b.topo.TryLock() {
						t.Error("the consumer was told with the topology locked")
						return
					}
					c.b.topo.Unlock()
				}}}
				if _, err := in.Consume("q", k, func(*partition.Queue) {}); err != nil {
					t.Fatal(err)
				}
				release := d.holdSyncs()
				defer release()
				var all sync.WaitGroup
				all.Go(func() {
					if way == "vhost" {
						if _, err := c.b.By("").Do(declare.DeleteVHost{Name: "v"}); err != nil {
							t.Error(err)
						}
					} else if _, err := in.DeleteQueue("q", false, false); err != nil {
						t.Error(err)
					}
				})
				<-d.held
				released.Store(true)
				release()
				all.Wait()
				<-gone
			})
		}
	}
}

// Declarations at the same time share a sync.
func TestDeclarationsShareASync(t *testing.T) {
	d := newDisk()
	c := start(t, d, nil)
	release := d.holdSyncs()
	defer release()
	const declarers = 1200 // more than there are numbers reserved
	var all sync.WaitGroup
	declareOne := func(i int) {
		all.Go(func() {
			if _, err := c.b.As("guest", "/").DeclareQueue(topology.QueueDecl{Name: message.QueueName(fmt.Sprint("q", i)), Durable: true}); err != nil {
				t.Error(err)
			}
		})
	}
	declareOne(0)
	<-d.held
	before := d.syncs.Load()
	for i := range declarers - 1 {
		declareOne(i + 1)
	}
	blocked(t, declarers)
	release()
	all.Wait()
	if n := d.syncs.Load() - before; n > declarers/4 {
		t.Errorf("%d declarations took %d syncs", declarers, n)
	}
	c.b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		numbers := map[uint64]bool{}
		for _, q := range v.Queues() {
			numbers[q.Incarnation] = true
		}
		if len(numbers) != declarers {
			t.Errorf("%d queues, want %d", len(numbers), declarers)
		}
	})
}

// A crash at any step of a declaration or a deletion leaves the state before or after it, and each message in one
// place.
func TestCrashAtEachStepOfAChange(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		for _, step := range Failpoints {
			t.Run(kind+"/"+step, func(t *testing.T) {
				d := newDisk()
				var armed atomic.Bool
				var crashed atomic.Pointer[disk]
				c := start(t, d, func(at string) {
					if at == step && armed.CompareAndSwap(true, false) {
						crashed.Store(d.crash())
					}
				})
				crash := func(change func()) *Connection {
					armed.Store(true)
					change()
					return start(t, crashed.Load(), nil)
				}
				arguments := append([]amqp091.Field{{Key: "x-queue-type", Value: kind}}, toDLQ...)
				mustDeclare(t, c, "dlq")
				after := crash(func() { mustDeclare(t, c, "work", arguments...) })
				if n, known := holds(t, after, "work"), step == FailDeclareStored || step == FailDeclareOpened; n == 0 != known || n > 0 {
					t.Errorf("declared: %d messages", n)
				}
				if !offer(t, c, "work", "dies") || !offer(t, c, "work", "stays") {
					t.Fatal("not routed")
				}
				kill(t, c, "work")
				eventually(t, "the dead letter moves", func() bool { return holds(t, c, "dlq") == 1 })
				after = crash(func() {
					if _, err := c.DeleteQueue("work", false, false); err != nil {
						t.Fatal(err)
					}
				})
				dead, alive := holds(t, after, "dlq"), holds(t, after, "work")
				switch step {
				case FailDeclareStored, FailDeclareOpened:
					if alive != -1 || dead != 1 {
						t.Errorf("deleted: %d in the queue, %d dead", alive, dead)
					}
				default:
					if alive+dead != 2 {
						t.Errorf("not deleted yet: %d in the queue, %d dead", alive, dead)
					}
				}
				after = crash(func() { mustDeclare(t, c, "work", arguments...) })
				if n := holds(t, after, "work"); n > 0 {
					t.Errorf("declared again: %d messages", n)
				}
				if n := holds(t, after, "dlq"); n != 1 {
					t.Errorf("declared again: %d dead", n)
				}
			})
		}
	}
}

// A queue whose virtual host is deleted before the queue is stored is deleted with it.
func TestAVirtualHostGoesWithWhatIsNotStored(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			d := newDisk()
			c := start(t, d, nil)
			if _, err := c.b.By("guest").As(&Identity{Name: "guest"}).Do(declare.PutVHost{Name: "v", Change: declare.All(topology.Metadata{})}); err != nil {
				t.Fatal(err)
			}
			release := d.holdSyncs()
			defer release()
			var all sync.WaitGroup
			all.Go(func() {
				_, err := c.b.As("guest", "v").DeclareQueue(topology.QueueDecl{Name: "q", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}})
				if err != nil {
					t.Error(err)
				}
			})
			<-d.held
			all.Go(func() {
				if _, err := c.b.By("").Do(declare.DeleteVHost{Name: "v"}); err != nil {
					t.Error(err)
				}
			})
			blocked(t, 2)
			release()
			all.Wait()
			for _, c := range []*Connection{c, start(t, d.crash(), nil)} {
				c.b.Read(func(s *topology.State, _ *auth.Users) {
					if _, ok := s.VHost("v"); ok {
						t.Error("the virtual host is there")
					}
				})
			}
		})
	}
}

// Callers that wait for a failing store get its error, after it has ended the node.
func TestAStoreThatFailsEndsTheNode(t *testing.T) {
	d := newDisk()
	var failing atomic.Bool
	fatal := make(chan error, 1)
	b, err := Open(Options{Dir: "/data", FS: errorfs.Wrap(d.fs(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && strings.Contains(op.Path, "state-log") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			return errors.New("injected")
		}
		return nil
	})), OnFatal: func(err error) { fatal <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }() // it has failed
	if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	failing.Store(true)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			_, err := b.As("guest", "/").DeclareQueue(topology.QueueDecl{Name: message.QueueName(fmt.Sprint("q", i)), Durable: true})
			if err == nil {
				t.Error("a declaration that is not stored was accepted")
			}
		})
	}
	all.Wait()
	if err := <-fatal; !strings.Contains(err.Error(), "injected") {
		t.Errorf("the node ends with %v", err)
	}
}

// A backup has the messages that left a queue which is deleted meanwhile, or has the queue, whatever is being copied
// at that moment.
func TestBackupOfAQueueThatGoes(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		for _, part := range []string{datadir.IndexDir, datadir.JournalDir, datadir.StateDir} {
			t.Run(kind+", "+part, func(t *testing.T) { backUpWhileAQueueGoes(t, kind, part) })
		}
	}
}

func backUpWhileAQueueGoes(t *testing.T, kind, part string) {
	files := vfs.NewCrashableMem()
	var c *Connection
	var once sync.Once
	o := Options{Dir: "/data", Partitions: 2}
	var began atomic.Bool
	o.FS = errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if began.Load() && op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, "/backup.unfinished/"+part+"/") {
			once.Do(func() {
				kill(t, c, "work")
				eventually(t, "the dead letter moves", func() bool { return holds(t, c, "dlq") == 1 })
				if _, err := c.DeleteQueue("work", false, false); err != nil {
					t.Error(err)
				}
				mustDeclare(t, c, "work", toDLQ...)
			})
		}
		return nil
	}))
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CreateDefault(Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	c = b.As("guest", "/")
	mustDeclare(t, c, "dlq")
	mustDeclare(t, c, "work", append([]amqp091.Field{{Key: "x-queue-type", Value: kind}}, toDLQ...)...)
	if !offer(t, c, "work", "m") {
		t.Fatal("not routed")
	}
	began.Store(true)
	if _, err := b.BackUp(t.Context(), "/backup"); err != nil {
		t.Fatal(err)
	}
	once.Do(func() { t.Error("the queue was not deleted") })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err = Open(Options{FS: files, Dir: "/backup"}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	after := b.As("guest", "/")
	if alive, dead := holds(t, after, "work"), holds(t, after, "dlq"); alive+dead != 1 {
		t.Errorf("%d in the queue, %d dead", alive, dead)
	}
}

// Fields that policies change are read with the topology locked. Otherwise the race detector fails this test.
func TestPoliciesChangeWhileQueuesAreUsed(t *testing.T) {
	c := open(t, Options{})
	quorum := amqp091.Field{Key: "x-queue-type", Value: "quorum"}
	mustDeclare(t, c, "q", quorum)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 100 {
			d := topology.PolicyDecl{Name: "p", Pattern: ".*", Definition: topology.Definition{"max-length": int64(i + 1)}, Priority: int64(0)}
			if _, err := c.b.By("").Do(declare.PutPolicy{VHost: "/", Policy: d}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 100 {
		mine := c.b.As("guest", "/")
		if _, _, err := mine.Get("q", true); err != nil {
			t.Fatal(err)
		}
		k := &queue.Consumer{Target: consuming{}}
		q, err := mine.Consume("q", k, func(*partition.Queue) {})
		if err != nil {
			t.Fatal(err)
		}
		mine.Cancel(q, k, nil)
		if _, err := mine.PassiveQueue("q"); err != nil {
			t.Fatal(err)
		}
		offer(t, mine, "q", "m")
		mustDeclare(t, mine, fmt.Sprint("q", i), quorum)
	}
	all.Wait()
}

// A confirm that comes while a deletion is being made waits until the deletion is stored or has failed.
func TestConfirmWaitsForADeletionThatIsBeingMade(t *testing.T) {
	for _, refused := range []error{nil, topology.Refuse(topology.PreconditionFailed, "in use")} {
		c := start(t, newDisk(), nil)
		mustDeclare(t, c, "q")
		q, err := c.find("q", func(topology.Resource) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		other := c.b.As("guest", "/")
		making, goOn := make(chan struct{}), make(chan struct{})
		done := sync.OnceFunc(func() { close(goOn) })
		defer done()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.b.remove(q, "", func(partition.Counts) error {
				close(making)
				<-goOn
				return refused
			}); !errors.Is(err, refused) {
				t.Error(err)
			}
		})
		<-making
		all.Go(func() {
			if err := other.Await(partition.Receipt{}); err != nil {
				t.Error(err)
			}
		})
		blocked(t, 1)
		done()
		all.Wait()
	}
}

// Nobody waits while a policy's expression is matched with the names of many queues.
func TestOthersGoOnWhileAPolicyIsMatched(t *testing.T) {
	c := start(t, newDisk(), nil)
	const queues = 300
	long := strings.Repeat("a", 200)
	for i := range queues {
		mustDeclare(t, c, fmt.Sprint(long, i))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d := topology.PolicyDecl{Name: "p", Pattern: ".{0,240}.{0,240}b$|[0-9]$", Definition: topology.Definition{"max-length": int64(7)}} // a millisecond for each name
		if _, err := c.b.By("").Do(declare.PutPolicy{VHost: "/", Policy: d}); err != nil {
			t.Error(err)
		}
	}()
	turns := 0 // of others, after the change and before its end
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		c.b.topo.Lock()
		v, _ := c.b.state.VHost("/")
		last, _ := v.Queue(message.QueueName(fmt.Sprint(long, 99))) // in the order of names
		if _, set := v.Policy("p", false); set && last.Policy == nil {
			turns++
		}
		c.b.topo.Unlock()
	}
	if turns == 0 {
		t.Errorf("others had %d turns while %d names were matched", turns, queues)
	}
	c.b.Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("/")
		for _, q := range v.Queues() {
			if q.Policy == nil || q.Effective.MaxLength == nil || *q.Effective.MaxLength != 7 {
				t.Fatalf("%s does not go by the policy", q.Name)
			}
		}
	})
}

// mutate changes something as change does, without waiting.
func (b *Broker) mutate(f func() error) (ticket uint64, err error) {
	ticket, _, _, err = b.mutating(f)
	return ticket, err
}
