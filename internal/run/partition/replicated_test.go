package partition

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
)

// tee is the log of a group in a test: all replicas apply what the leader proposes, the followers in other pieces.
type tee struct {
	mu       sync.Mutex
	idle     sync.Cond
	pending  []cluster.Entry
	working  bool
	index    uint64
	replicas []*group // the leader first
	down     bool     // nothing can be proposed
	busy     bool     // nothing can be proposed for now: too much is undecided
	most     int      // size of the largest command in bytes
}

func (l *tee) Leader() (uint64, bool) { return 1, true }

func (l *tee) State(uint64) cluster.State { return cluster.State{} }

func (l *tee) Append(data []byte) (journal.Pos, error) { return 0, l.Propose(data) }

var errDown = errors.New("no leader")

func (l *tee) Propose(data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return errDown
	}
	if l.busy {
		return cluster.ErrBusy
	}
	l.most = max(l.most, len(data))
	l.index++
	l.pending = append(l.pending, cluster.Entry{Index: l.index, Term: 1, Data: slices.Clone(data)})
	if !l.working {
		l.working = true
		go l.apply()
	}
	return nil
}

func (l *tee) apply() {
	for {
		l.mu.Lock()
		batch := l.pending
		l.pending = nil
		if len(batch) == 0 {
			l.working = false
			l.idle.Broadcast()
			l.mu.Unlock()
			return
		}
		replicas := l.replicas
		l.mu.Unlock()
		for i, g := range replicas {
			step := len(batch)
			if i > 0 {
				step = i // followers take fewer at a time
			}
			for rest := batch; len(rest) > 0; {
				n := min(step, len(rest))
				g.Apply(rest[:n])
				rest = rest[n:]
			}
		}
	}
}

// quiesce waits until everything proposed is applied.
func (l *tee) quiesce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.working {
		l.idle.Wait()
	}
}

// fleet is a leader with replicas of its groups, and local queues beside them.
type fleet struct {
	t       rapid.TB
	leader  *Node
	others  []*Node
	logs    []*tee
	queues  map[string]*Queue
	routes  table
	now     atomic.Int64
	serial  message.Serial
	origins uint64
	fs      *vfs.MemFS
	asked   func() // called when the router is asked; may be nil
}

func (f *fleet) RouteDead(_ *Queue, exchange string, _ []string, _ message.Record, _ *deadletter.History, out []*Queue) ([]*Queue, bool, bool) {
	f.hear()
	names, ok := f.routes[exchange]
	for _, name := range names {
		out = append(out, f.queues[name])
	}
	return out, ok, true
}

func (f *fleet) HasVHost(message.VHost, uint64) bool {
	f.hear()
	return true
}

func (f *fleet) hear() {
	if f.asked != nil {
		f.asked()
	}
}

func (f *fleet) QueueUnused(*Queue) {}

func (f *fleet) Dropped(*Queue, deadletter.Reason, deadletter.Outcome, message.Record, *deadletter.History) {
}

func (f *fleet) node(fs *vfs.MemFS) *Node {
	j, err := journal.Open(journal.Options{FS: fs, Dir: "journal"})
	if err != nil {
		f.t.Fatal(err)
	}
	driver, err := cluster.New(cluster.Options{ID: 1, Journal: j})
	if err != nil {
		f.t.Fatal(err)
	}
	f.origins++
	n := New(Options{
		Partitions: 2, Journal: j, Bodies: bodies.New(), Router: f, Logger: slog.New(slog.DiscardHandler), Now: f.now.Load,
		Cluster: driver, NodeID: 1, Origin: NewOrigin(1, f.now.Load()+int64(f.origins)),
	})
	if err := j.Recover(0, func(journal.Pos, []byte) error { return nil }); err != nil {
		f.t.Fatal(err)
	}
	return n
}

func newFleet(t rapid.TB, defs []definition, routes table) *fleet {
	f := &fleet{t: t, routes: routes, queues: map[string]*Queue{}, fs: vfs.NewMem()}
	f.now.Store(1_700_000_000_000)
	f.leader = f.node(f.fs)
	f.others = []*Node{f.node(vfs.NewMem()), f.node(vfs.NewMem())}
	for k := range Groups {
		l := &tee{}
		l.idle.L = &l.mu
		for _, n := range append([]*Node{f.leader}, f.others...) {
			l.replicas = append(l.replicas, n.groups[k].group)
		}
		f.leader.groups[k].group.log = l
		f.logs = append(f.logs, l)
		f.leader.groups[k].group.Leading(1)
	}
	for i, d := range defs {
		q := &Queue{Incarnation: uint64(i + 1), VHost: "/", Name: d.name, Durable: true}
		f.leader.Create(q, d.config, d.settings, d.dead)
		f.queues[d.name] = q
	}
	f.quiesce()
	return f
}

func (f *fleet) quiesce() {
	for _, l := range f.logs {
		l.quiesce()
	}
}

// work does by hand the work of workers and senders, until there is nothing to do.
func (f *fleet) work() {
	for again := true; again; {
		again = f.route()
		again = f.send() || again
	}
}

// route does the work of workers once, and says whether there was any.
func (f *fleet) route() (worked bool) {
	n := f.leader
	f.quiesce()
	for _, p := range slices.Concat(n.parts, n.groups) {
		p.mu.Lock()
		busy := len(p.later)+len(p.retry)+len(p.buried) > 0 || len(p.timers) > 0 && p.timers[0].due <= f.now.Load()
		p.mu.Unlock()
		if !busy {
			continue
		}
		worked = true
		if p.group != nil {
			p.tickReplicated()
		} else {
			p.tick()
		}
		p.routeLater()
		p.bury()
	}
	f.quiesce()
	return worked
}

// send runs the senders once, and says whether there was anything to send.
func (f *fleet) send() (busy bool) {
	n := f.leader
	for _, s := range n.allOutboxes() {
		for k := 0; ; k++ {
			b, ok := s.load(k)
			if !ok {
				break
			}
			s.release(b.Entries)
			busy = busy || len(b.Entries) > 0
		}
		if !s.sendAll() {
			f.t.Fatal("an outbox cannot be emptied")
		}
	}
	return busy
}

// agree checks that the replicas of every group are in the same state.
func (f *fleet) agree() {
	f.quiesce()
	for k := range Groups {
		g := f.leader.groups[k].group
		g.p.mu.Lock()
		want := g.hash()
		for _, q := range g.p.queues {
			if err := q.m.Check(); err != nil {
				f.t.Fatalf("leader, queue %s: %v", q.Name, err)
			}
		}
		g.p.mu.Unlock()
		for i, n := range f.others {
			o := n.groups[k].group
			o.p.mu.Lock()
			if got := o.hash(); got != want {
				f.t.Fatalf("group %d: replica %d is in another state\nleader  %q\nreplica %q", g.id, i+1, g.appendState(nil), o.appendState(nil))
			}
			o.p.mu.Unlock()
		}
	}
}

// replace gives the leader's snapshot to a group of a follower, as to a new replica.
func (f *fleet) replace(node, k int) {
	f.quiesce()
	snapshot, err := f.leader.groups[k].group.Snapshot()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.others[node].groups[k].group.Restore(snapshot, 0); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) publish(name string, owner Owner, ttl int64) message.Serial {
	f.serial++
	e := message.Envelope{Serial: f.serial, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 8, Persistent: true}
	ref, b := f.leader.bodies.Alloc(e.Size())
	copy(e.Put(b), fmt.Sprintf("%8d", f.serial))
	message.Record(b).Seal()
	f.leader.Run([]Op{{Kind: Publish, Targets: []*Queue{f.queues[name]}, Body: ref, TTL: ttl, Priority: -1, Owner: owner, Token: uint64(f.serial)}})
	return f.serial
}

// places counts where each message is: in queues and outboxes.
func (f *fleet) places() map[message.Serial][]string {
	found := map[message.Serial][]string{}
	n := f.leader
	for name, q := range f.queues {
		q.part.mu.Lock()
		q.m.Browse(queue.Cursor{}, 1<<30, func(v queue.View) bool {
			s := message.Record(n.bodies.Bytes(v.Body)).Serial()
			found[s] = append(found[s], name)
			return true
		})
		q.part.mu.Unlock()
	}
	eachOutbox(n, func(b *outbox.Outbox) {
		for _, e := range slices.Concat(b.Waiting(), b.Stranded()) {
			if e.ID == 0 { // otherwise it is in its queue
				s := message.Record(n.bodies.Bytes(e.Body)).Serial()
				found[s] = append(found[s], "outbox")
			}
		}
	})
	return found
}

// eachOutbox calls f for the outboxes of all logs, locked.
func eachOutbox(n *Node, f func(*outbox.Outbox)) {
	for _, o := range n.allOutboxes() {
		o.mu.Lock()
		for _, b := range o.Outboxes() {
			f(b)
		}
		o.mu.Unlock()
	}
}

// answers collects the answers to an Owner.
type answers struct {
	mu  sync.Mutex
	got map[uint64]bool
}

func (a *answers) Answered(list []Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, each := range list {
		if _, twice := a.got[each.Token]; twice {
			panic("answered twice")
		}
		a.got[each.Token] = each.Refused
	}
}

// Replicas that apply the same commands are in the same state, whatever the commands are, in whatever pieces they
// come, or from a snapshot. Every message is in one place, across groups and local queues.
func TestReplicasAgree(t *testing.T) {
	dead := func(exchange string) (func(*queue.Settings), DeadLetter) {
		return func(s *queue.Settings) { s.DeadLetter = true }, DeadLetter{Exchange: exchange}
	}
	quorumDead, toClassic := dead("classic")
	_, toQuorum := dead("quorum")
	_, toBack := dead("back")
	defs := []definition{
		{"a", quorum, settings(func(s *queue.Settings) {
			quorumDead(s)
			s.DeliveryLimit, s.Breaker = 3, queue.Breaker{Deaths: 1, Percent: 20, Window: 500}
		}), toClassic},
		{"b", quorum, settings(func(s *queue.Settings) { quorumDead(s); s.MaxLength = 5; s.TTL = 400 }), toQuorum},
		{"c", quorum, settings(func(s *queue.Settings) {
			quorumDead(s)
			s.AtLeastOnce, s.Overflow = true, queue.RejectPublish
			s.Retry = queue.Retry{Type: queue.RetryFailed, Min: 50, Max: 200}
		}), DeadLetter{Exchange: "both"}},
		{"d", queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1, SingleActive: true}, settings(func(s *queue.Settings) {
			quorumDead(s)
			s.ConsumerTimeout, s.Breaker = 300, queue.Breaker{Deaths: 2, Percent: 1, Window: 200}
		}), toBack},
		{"x", classic, settings(func(s *queue.Settings) { quorumDead(s); s.TTL = 700 }), toQuorum},
		{"e", quorum, queue.Unlimited(), DeadLetter{}},
	}
	routes := table{"classic": {"x"}, "quorum": {"d"}, "back": {"a"}, "both": {"e", "x"}}
	names := []string{"a", "b", "c", "d", "x", "e"}
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, defs, routes)
		owner := &answers{got: map[uint64]bool{}}
		type consumer struct {
			q *Queue
			c *queue.Consumer
		}
		var consumers []consumer
		type delivery struct {
			outstanding
			by *queue.Consumer
		}
		var out []delivery
		published, copied := 0, map[message.Serial]bool{}
		sessions, next := &client{}, 100
		collect := func() {
			for _, h := range sessions.take() {
				i := slices.IndexFunc(consumers, func(c consumer) bool { return c.c.Tag == h.by })
				if i >= 0 && !h.d.NoAck {
					out = append(out, delivery{h, consumers[i].c})
				}
				f.leader.bodies.Release(h.d.Body)
				f.leader.bodies.Release(h.d.History)
			}
		}
		settle := func(op Op) {
			if len(out) == 0 {
				t.Skip("nothing is out")
			}
			i := rapid.IntRange(0, len(out)-1).Draw(t, "delivery")
			d := out[i]
			out = slices.Delete(out, i, i+1)
			op.Queue, op.ID, op.Consumer = d.q, d.d.ID, d.by
			if op.Kind != Ack && rapid.Bool().Draw(t, "noted") {
				op.Note = &deadletter.Note{Cause: deadletter.Cause{Error: "why"}, Key: "k", HasKey: rapid.Bool().Draw(t, "key")}
				op.Wait = rapid.SampledFrom([]int64{0, 1, 200}).Draw(t, "wait")
			}
			f.leader.Run([]Op{op})
		}
		anyName := func() string { return rapid.SampledFrom(names).Draw(t, "queue") }
		actions := map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				name := anyName()
				ttl := rapid.SampledFrom([]int64{-1, -1, 0, 100, 1000}).Draw(t, "ttl")
				for range rapid.IntRange(1, 4).Draw(t, "messages") {
					s := f.publish(name, owner, ttl)
					if name == "c" {
						copied[s] = true // its dead go to two queues
					}
					if f.queues[name].Replicated() {
						published++
					}
				}
			},
			"consume": func(t *rapid.T) {
				q := f.queues[anyName()]
				if !q.Replicated() || len(consumers) > 6 {
					t.Skip("enough")
				}
				next++
				c := &queue.Consumer{
					Tag: fmt.Sprint("c", next), NoAck: rapid.IntRange(0, 4).Draw(t, "no ack") == 0,
					Prefetch: rapid.IntRange(0, 3).Draw(t, "prefetch"), Priority: rapid.Int64Range(0, 2).Draw(t, "priority"),
				}
				s := &tagged{sessions, c.Tag}
				c.Target = s
				if ok, err := f.leader.Attach(q, c, func() {}); !ok || err != nil {
					t.Fatalf("consume: %v, %v", ok, err)
				}
				consumers = append(consumers, consumer{q, c})
			},
			"cancel": func(t *rapid.T) {
				if len(consumers) == 0 {
					t.Skip("nobody")
				}
				c := consumers[rapid.IntRange(0, len(consumers)-1).Draw(t, "consumer")]
				f.leader.Detach(c.q, c.c, nil)
			},
			"quit": func(t *rapid.T) {
				f.quiesce()
				collect()
				var seats []Seat
				for _, c := range consumers {
					if rapid.Bool().Draw(t, "quits") {
						seats = append(seats, Seat{c.q, c.c})
					}
				}
				var returns []Delivered
				for i := len(out) - 1; i >= 0; i-- {
					quits := slices.ContainsFunc(seats, func(s Seat) bool { return s.Consumer == out[i].by })
					if quits && rapid.Bool().Draw(t, "known") {
						returns = append(returns, Delivered{out[i].q, out[i].d.ID, out[i].by})
						out = slices.Delete(out, i, i+1)
					}
				}
				f.leader.quitSlice = rapid.SampledFrom([]int{1, 2, 3, sliceSteps}).Draw(t, "slice")
				at := rapid.IntRange(0, 20).Draw(t, "replaced at")
				walked := 0
				f.leader.Quit(seats, func(yield func(Delivered) bool) {
					for _, d := range returns {
						if walked++; walked == at {
							f.replace(at%2, at/2%Groups)
							f.agree()
						}
						if !yield(d) {
							return
						}
					}
				})()
				for _, s := range seats {
					if s.Consumer.Out() > 0 {
						t.Fatalf("%s has quit and holds %d messages", s.Consumer.Tag, s.Consumer.Out())
					}
				}
			},
			"ack": func(t *rapid.T) {
				f.quiesce()
				collect()
				settle(Op{Kind: Ack})
			},
			"reject": func(t *rapid.T) {
				f.quiesce()
				collect()
				settle(Op{Kind: Reject, Failed: rapid.Bool().Draw(t, "failed")})
			},
			"return": func(t *rapid.T) {
				f.quiesce()
				collect()
				settle(Op{Kind: Return, How: queue.ReturnKind(rapid.IntRange(0, int(queue.ReturnFailed)).Draw(t, "how"))})
			},
			"get": func(t *rapid.T) {
				q := f.queues[anyName()]
				d, _, ok, err := f.leader.Get(q, false)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					out = append(out, delivery{outstanding{q: q, d: d}, d.By})
					f.leader.bodies.Release(d.Body)
					f.leader.bodies.Release(d.History)
				}
			},
			"time":  func(t *rapid.T) { f.now.Add(int64(rapid.IntRange(1, 300).Draw(t, "ms"))) },
			"work":  func(*rapid.T) { f.work() },
			"route": func(*rapid.T) { f.route() },
			"send":  func(*rapid.T) { f.quiesce(); f.send() },
			"send again": func(*rapid.T) {
				f.quiesce()
				for _, p := range f.leader.groups {
					p.mu.Lock()
					p.outboxes.Resend()
					p.mu.Unlock()
				}
				f.leader.outboxes.Resend()
				f.send()
			},
			"configure": func(t *rapid.T) {
				name := anyName()
				s := defs[slices.IndexFunc(defs, func(d definition) bool { return d.name == name })]
				if rapid.Bool().Draw(t, "short") {
					s.settings.MaxLength = 2
				}
				if rapid.Bool().Draw(t, "lax") {
					s.settings.AtLeastOnce = false
				}
				f.leader.Configure(f.queues[name], s.settings, s.dead)
			},
			"purge": func(t *rapid.T) {
				if _, err := f.leader.Purge(f.queues[anyName()]); err != nil {
					t.Fatal(err)
				}
			},
			"move": func(t *rapid.T) {
				q := f.queues[anyName()]
				to := f.queues[rapid.SampledFrom([]string{"a", "b", "d", "x", "e"}).Draw(t, "to")]
				var moves []Move
				h := deadletter.History{Exchange: "quorum", Keys: []string{"k"}, ReplayedFrom: q.Name}
				_, _, _ = f.leader.Browse(q, queue.Cursor{}, 3, func(v queue.View, _ message.Record, _ []byte) bool {
					moves = append(moves, Move{ID: v.ID, Targets: []*Queue{to}, History: h.Append(nil)})
					return true
				})
				if len(moves) > 0 {
					if _, err := f.leader.move(q, moves); err != nil {
						t.Fatal(err)
					}
				}
			},
			"declare anew": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"b", "d", "e"}).Draw(t, "queue")
				q := f.queues[name]
				if _, err := f.leader.Delete(q, nil); err != nil {
					t.Fatal(err)
				}
				f.leader.Deleted(q, Counts{})
				next++
				d := defs[slices.IndexFunc(defs, func(d definition) bool { return d.name == name })]
				again := &Queue{Incarnation: uint64(next), VHost: "/", Name: name, Durable: true}
				f.leader.Create(again, d.config, d.settings, d.dead)
				f.queues[name] = again
				out = slices.DeleteFunc(out, func(d delivery) bool { return d.q == q })
				consumers = slices.DeleteFunc(consumers, func(c consumer) bool { return c.q == q })
			},
			"counts": func(*rapid.T) { f.leader.Counts(f.queues[anyName()]); f.leader.Touch(f.queues[anyName()]) },
			"retry":  func(*rapid.T) { f.quiesce(); f.leader.RetryAllHeld() },
			"snapshot": func(t *rapid.T) {
				f.replace(rapid.IntRange(0, 1).Draw(t, "replica"), rapid.IntRange(0, Groups-1).Draw(t, "group"))
			},
			"sessions gone": func(*rapid.T) {
				f.quiesce()
				for _, p := range f.leader.groups {
					_ = p.group.tell(func(w *commandWriter) { w.op(cmdGone, f.leader.Origin) })
				}
			},
			"": func(*rapid.T) { f.agree() },
		}
		t.Repeat(actions)
		f.now.Add(5000)
		f.work()
		for range 2 {
			f.leader.RetryAllHeld()
			f.work()
		}
		f.agree()
		if n := f.leader.Stranded(); n > 0 {
			t.Errorf("%d messages stay stranded", n)
		}
		owner.mu.Lock()
		if len(owner.got) != published {
			t.Errorf("%d of %d publishes were answered", len(owner.got), published)
		}
		owner.mu.Unlock()
		for s, places := range f.places() {
			if len(places) > 1 && !copied[s] {
				t.Errorf("message %d is in %v", s, places)
			}
		}
		for _, p := range f.leader.groups {
			if p.group.proposals.size != 0 {
				t.Errorf("group %d: %d bytes are said to be undecided", p.group.id, p.group.proposals.size)
			}
		}
	})
}

// tagged is a consumer's session in a test.
type tagged struct {
	*client
	tag string
}

func (s *tagged) Deliver(q *Queue, _ *queue.Consumer, d *queue.Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, outstanding{q: q, d: *d, by: s.tag})
	return true
}
