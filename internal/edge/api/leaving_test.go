package api_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/definitions"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// A leaving is a node in which dead letters leave the queue work while something becomes of it, and
// what clients were told so far. At steps of the node it crashes; it goes on, and what a crash has
// left is looked at later.
type leaving struct {
	t     *testing.T
	fs    *vfs.MemFS
	b     *broker.Broker
	c     *broker.Connection
	vhost message.VHost
	both  bool // a message may be at both targets: a change of policy tries what waits for an answer again (DL-13.6)

	mu      sync.Mutex // guards what follows; nothing else is taken under it
	rng     *rand.Rand
	told    []string // messages that were confirmed
	moved   []string // those that had left work before anything became of it
	done    bool     // whoever asked was told that it is done
	armed   bool
	passed  map[string]int
	crashes []crashed
}

// crashed is what a crash has left, and what had been told before it.
type crashed struct {
	step        string
	fs          *vfs.MemFS
	told, moved []string
	done        bool
}

// most is how many crashes there are at each step.
const most = 3

// at passes a step.
func (l *leaving) at(step string) {
	leaves := strings.HasPrefix(step, "death-") || strings.HasPrefix(step, "mail-")
	if !leaves && !slices.Contains(broker.Failpoints, step) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Of what is passed for each slice of deaths, some.
	if !l.armed || l.passed[step] >= most || leaves && l.rng.IntN(4) > 0 {
		return
	}
	l.passed[step]++
	l.crashes = append(l.crashes, crashed{
		step, l.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[l.rng.IntN(3)], RNG: l.rng}), slices.Clone(l.told), slices.Clone(l.moved), l.done,
	})
}

// openLeaving starts a node on fs.
func openLeaving(t *testing.T, fs *vfs.MemFS, failpoint func(string)) *broker.Broker {
	t.Helper()
	o := broker.Options{Dir: "/data", FS: fs, Partitions: 2, NodeName: "rabbit@test", Failpoint: failpoint, StateHash: true, RetryHeld: time.Second}
	o.Storage = broker.Storage{CheckpointBytes: 100_000, SegmentBytes: 65_536}
	b, err := broker.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func closeLeaving(t *testing.T, b *broker.Broker) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// contents are the bodies of the messages that are ready in a queue; ok is false if it is not there.
func contents(t *testing.T, c *broker.Connection, name message.QueueName) (bodies []string, ok bool) {
	t.Helper()
	if _, err := c.PassiveQueue(name); err != nil {
		return nil, false
	}
	err := c.Peek(name, 0, func(s *broker.Shown) bool {
		bodies = append(bodies, string(s.Body))
		return true
	})
	return bodies, err == nil
}

func (l *leaving) declare(d topology.QueueDecl, kind string, arguments ...amqp091.Field) {
	l.t.Helper()
	d.Durable, d.Arguments = true, append(amqp091.Table{{Key: "x-queue-type", Value: kind}}, arguments...)
	if _, err := l.c.DeclareQueue(d); err != nil {
		l.t.Fatal(err)
	}
}

// publish publishes until stop is closed, or there is no queue any more.
func (l *leaving) publish(name string, stop <-chan struct{}) {
	persistent := uint8(2)
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: &persistent})
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		l.t.Error(err)
		return
	}
	c := l.b.As("guest", l.vhost)
	for i := range 400 {
		select {
		case <-stop:
			return
		default:
		}
		id := fmt.Sprintf("%s-%d", name, i)
		routed, err := c.PublishOne(&broker.Publication{Key: []byte("work"), Raw: raw, Props: props, Body: [][]byte{[]byte(id)}, Size: len(id)})
		if err != nil {
			return // the virtual host is gone
		}
		if routed {
			l.mu.Lock()
			l.told = append(l.told, id)
			l.mu.Unlock()
		}
	}
}

// reject lets messages die until stop is closed.
func (l *leaving) reject(stop <-chan struct{}) {
	c := l.b.As("guest", l.vhost)
	for {
		select {
		case <-stop:
			return
		default:
		}
		if c.Take("work", 3, broker.RejectRemoves, func(*broker.Shown) (bool, error) { return true, nil }) != nil {
			return // it is gone
		}
	}
}

// idle is a consumer who settles nothing.
type idle struct{}

func (idle) Deliver(*partition.Queue, *queue.Consumer, *queue.Delivery) bool { return false }
func (idle) Flush()                                                          {}
func (idle) QueueGone(*partition.Queue, *queue.Consumer)                     {}
func (idle) TimedOut(*partition.Queue, *queue.Consumer, int)                 {}

// there says whether the queue work is declared; the question is no use of it.
func (l *leaving) there() (there bool) {
	l.b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(l.vhost); ok {
			_, there = v.Queue("work")
		}
	})
	return there
}

// soon waits for what comes by itself.
func soon(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

// untilGone waits until a client is told that the queue is not there.
func (l *leaving) untilGone() {
	soon(l.t, "the queue is gone", func() bool { return !l.there() })
	if _, err := l.c.PassiveQueue("work"); err == nil {
		l.t.Error("the queue is gone, and is declared")
	}
}

// fate is what becomes of the queue work while dead letters leave it.
type fate struct {
	name      string
	classic   bool // no quorum queue has this fate
	vhost     bool // the virtual host shares it
	stays     bool // it stays declared
	transient bool // it does not outlive the node
	used      bool // somebody may use it meanwhile
	declare   topology.QueueDecl
	arguments []amqp091.Field
	begin     func(l *leaving) (end func()) // end returns when a client was told
	after     func(t *testing.T, c *broker.Connection)
}

// toQueue is the policy by which dead letters of work go to a queue.
func toQueue(name string) topology.PolicyDecl {
	return topology.PolicyDecl{Name: "p", Pattern: "^work$", Definition: topology.Definition{"dead-letter-exchange": "", "dead-letter-routing-key": name}}
}

func (l *leaving) policy(name string) {
	if _, err := l.b.By("").Do(declare.PutPolicy{VHost: l.vhost, Policy: toQueue(name)}); err != nil {
		l.t.Error(err)
	}
}

// goesBy fails unless dead letters of work go to the queue named.
func goesBy(t *testing.T, c *broker.Connection, name string) {
	c.Broker().Read(func(s *topology.State, _ *auth.Users) {
		v, _ := s.VHost("v")
		if q, ok := v.Queue("work"); !ok || q.Effective.DeadLetterRoutingKey == nil || *q.Effective.DeadLetterRoutingKey != name {
			t.Error("the policy that was put is not in force")
		}
	})
}

var fates = []fate{
	{name: "virtual host deleted", vhost: true, used: true, begin: func(l *leaving) func() {
		return func() {
			if _, err := l.b.By("").Do(declare.DeleteVHost{Name: l.vhost}); err != nil {
				l.t.Error(err)
			}
		}
	}},
	{name: "queue deleted", used: true, begin: func(l *leaving) func() {
		return func() {
			if _, err := l.c.DeleteQueue("work", false, false); err != nil {
				l.t.Error(err)
			}
		}
	}},
	{name: "auto-deleted", classic: true, used: true, declare: topology.QueueDecl{AutoDelete: true}, begin: func(l *leaving) func() {
		k := &queue.Consumer{Target: idle{}, Tag: "c", Prefetch: 1}
		q, err := l.c.Consume("work", k, func(*partition.Queue) {})
		if err != nil {
			l.t.Error(err)
			return func() {}
		}
		return func() {
			l.c.Cancel(q, k, nil)
			l.untilGone()
		}
	}},
	{name: "gone with its connection", classic: true, transient: true, used: true, declare: topology.QueueDecl{Exclusive: true}, begin: func(l *leaving) func() {
		return func() {
			l.c.Disconnect()
			l.untilGone()
		}
	}},
	{name: "expired", arguments: []amqp091.Field{{Key: "x-expires", Value: int32(500)}}, begin: func(l *leaving) func() { return l.untilGone }},
	{name: "policy changed", stays: true, used: true, begin: func(l *leaving) func() {
		return func() {
			for range 5 {
				l.policy("second")
				l.policy("dead")
			}
			l.policy("second")
		}
	}, after: func(t *testing.T, c *broker.Connection) { goesBy(t, c, "second") }},
	{name: "definitions imported", stays: true, used: true, begin: func(l *leaving) func() {
		return func() {
			_, err := definitions.Import(l.b, []byte(`{
				"users":[{"name":"u","password":"p","tags":["monitoring"],"limits":{"max-channels":9}}],
				"vhosts":[{"name":"v"},{"name":"w"}],
				"permissions":[{"user":"u","vhost":"v","configure":"a","write":"b","read":"c"}],
				"exchanges":[{"vhost":"v","name":"x","type":"topic","durable":true,"auto_delete":false,"internal":false,"arguments":{}}],
				"policies":[{"vhost":"v","name":"p","pattern":"^work$","apply-to":"all","priority":0,"definition":{"dead-letter-exchange":"","dead-letter-routing-key":"second"}}],
				"queues":[{"vhost":"v","name":"more","durable":true,"auto_delete":false,"arguments":{}},{"vhost":"v","name":"dead","durable":true,"auto_delete":false,"arguments":{}}],
				"bindings":[{"vhost":"v","source":"x","destination":"more","destination_type":"queue","routing_key":"k","arguments":{}}]}`), definitions.How{})
			if err != nil {
				l.t.Error(err)
			}
		}
	}, after: func(t *testing.T, c *broker.Connection) {
		goesBy(t, c, "second")
		if n, err := c.PassiveQueue("more"); err != nil || n.Messages != 0 {
			t.Errorf("the queue that was imported: %+v, %v", n, err)
		}
		c.Broker().Read(func(s *topology.State, u *auth.Users) {
			v, _ := s.VHost("v")
			user, ok := u.User("u")
			x, there := v.Exchange("x")
			if !ok || !there || len(x.BindingsFrom()) != 1 {
				t.Error("the exchange, its binding or the user that were imported are not there")
				return
			}
			_, permitted := u.Permission("v", "u")
			if n, limited := user.Limit(auth.MaxChannels); n != 9 || !limited || !permitted {
				t.Error("the limit or the permission that were imported are not there")
			}
		})
	}},
}

// DL-21.3: whatever becomes of a queue while dead letters leave it, and wherever a crash comes: what
// clients were told holds after it, and each message is in one place.
func TestDL_21_3_DeadLettersLeaveWhileAQueueGoes(t *testing.T) {
	seeds := uint64(leavings)
	if testing.Short() {
		seeds = 1
	}
	for _, f := range fates {
		for _, source := range []string{"classic", "quorum"} {
			for _, target := range []string{"classic", "quorum"} {
				if source == "quorum" && f.classic {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s to %s", f.name, source, target), func(t *testing.T) {
					for seed := range seeds {
						newLeaving(t, &f, source, target, seed)
					}
				})
			}
		}
	}
}

// leavings is how often each is tried, by chance.
const leavings = 2

func newLeaving(t *testing.T, f *fate, source, target string, seed uint64) {
	l := &leaving{t: t, fs: vfs.NewCrashableMem(), vhost: "v", rng: rand.New(rand.NewPCG(seed, 5)), passed: map[string]int{}}
	l.b = openLeaving(t, l.fs, l.at)
	defer func() { closeLeaving(t, l.b) }()
	if err := l.b.CreateDefault(broker.Default{VHost: "v", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	l.c = l.b.As("guest", l.vhost)
	l.declare(topology.QueueDecl{Name: "dead"}, target)
	l.declare(topology.QueueDecl{Name: "second"}, target)
	l.policy("dead")
	d := f.declare
	d.Name = "work"
	arguments := append([]amqp091.Field{{Key: "x-message-ttl", Value: int32(15)}}, f.arguments...)
	if source == "quorum" && seed%2 == 1 {
		arguments = append(arguments, amqp091.Field{Key: "x-dead-letter-strategy", Value: "at-least-once"}, amqp091.Field{Key: "x-overflow", Value: "reject-publish"})
		l.both = f.stays
	}
	l.declare(d, source, arguments...)
	end := f.begin(l)

	var all sync.WaitGroup
	stop := make(chan struct{})
	for p := range 2 {
		all.Go(func() { l.publish(fmt.Sprint("p", p), stop) })
	}
	if f.used {
		all.Go(func() { l.reject(stop) })
	}
	soon(t, "some dead letters have left", func() bool {
		bodies, _ := contents(t, l.c, "dead")
		l.mu.Lock()
		defer l.mu.Unlock()
		l.moved = bodies
		return len(bodies) > 20
	})
	l.mu.Lock()
	l.armed = true
	l.mu.Unlock()
	end()
	l.mu.Lock()
	l.done = true
	l.mu.Unlock()
	time.Sleep(time.Millisecond) // for what is still done when the answer has left
	close(stop)
	all.Wait()
	l.lived(f)
	l.mu.Lock()
	crashes := l.crashes
	l.armed = false
	l.mu.Unlock()
	if len(crashes) == 0 && !f.transient {
		t.Error("there was no crash")
	}
	for _, c := range crashes {
		l.judge(f, &c)
	}
}

// lived looks at the node that did not crash: of those that died, each was routed or deleted, and
// those that were routed are at their targets.
func (l *leaving) lived(f *fate) {
	if f.vhost {
		return // they went with it
	}
	var found []string
	soon(l.t, "all that were routed are where they went, and what was not was deleted", func() bool {
		found = l.found(l.t, l.b.As("guest", l.vhost), "dead", "second")
		dead := l.deaths()
		return dead[deadletter.Routed] == uint64(len(found)) && (!f.stays || len(found) == len(l.told))
	})
	l.once(found, "without a crash")
	dead := l.deaths()
	if n := dead[deadletter.NoExchange] + dead[deadletter.NoRoute] + dead[deadletter.Cycle] + dead[deadletter.TargetRefused] + dead[deadletter.MissingExchange]; n > 0 {
		l.t.Errorf("%d dead letters went nowhere: %v", n, dead)
	}
}

// found are the messages in queues; those that may be in two of them count once.
func (l *leaving) found(t *testing.T, c *broker.Connection, names ...message.QueueName) (all []string) {
	for _, name := range names {
		bodies, _ := contents(t, c, name)
		before := slices.Clone(all)
		for _, id := range bodies {
			if !l.both || !slices.Contains(before, id) {
				all = append(all, id)
			}
		}
	}
	return all
}

// deaths are how many died, by what became of them.
func (l *leaving) deaths() (n [deadletter.Outcomes]uint64) {
	var total partition.Stats
	for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
		gone := l.b.StatsOfDeleted(kind)
		total.Add(&gone)
	}
	for _, q := range l.b.CountQueues() {
		total.Add(&q.Counts.Stats)
	}
	for _, outcomes := range total.Dead {
		for o, k := range outcomes {
			n[o] += uint64(k)
		}
	}
	return n
}

func (l *leaving) once(found []string, when string) {
	slices.Sort(found)
	for i := 1; i < len(found); i++ {
		if found[i] == found[i-1] {
			l.t.Errorf("%s: %s is there twice, of %d messages", when, found[i], len(found))
			return
		}
	}
}

// judge starts a node on what a crash has left.
func (l *leaving) judge(f *fate, at *crashed) {
	t := l.t
	when := fmt.Sprintf("crash at %s, told %v", at.step, at.done)
	b := openLeaving(t, at.fs, nil)
	defer closeLeaving(t, b)
	c := b.As("guest", l.vhost)
	vhost, work := false, false
	b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(l.vhost); ok {
			vhost = true
			_, work = v.Queue("work")
		}
	})
	switch {
	case at.done && f.vhost && vhost:
		t.Errorf("%s: the virtual host came back", when)
	case at.done && !f.stays && work:
		t.Errorf("%s: the queue came back", when)
	case !vhost && f.vhost:
		return
	case !vhost || !work && (f.stays || f.vhost):
		t.Errorf("%s: the virtual host is there: %v, the queue: %v", when, vhost, work)
		return
	case at.done && f.after != nil:
		f.after(t, c)
	}
	expected := at.told
	switch {
	case f.transient:
		expected = nil // they are gone with their queue
	case !work:
		expected = at.moved
	}
	var found []string
	missing := ""
	deadline := time.Now().Add(10 * time.Second)
	for ; ; time.Sleep(time.Millisecond) {
		waiting := l.found(t, c, "work")
		found, missing = append(waiting, l.found(t, c, "dead", "second")...), ""
		for _, id := range expected {
			if !slices.Contains(found, id) {
				missing = id
			}
		}
		if missing == "" && len(waiting) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if missing != "" {
		t.Errorf("%s: %s of %d messages is lost, the queue is there: %v", when, missing, len(expected), work)
	}
	l.once(found, when)
}
