package partition

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/cluster"
)

// wire is a Forwarder whose test decides what arrives.
type wire struct {
	mu   sync.Mutex
	sent []Forwarded
	to   *Node // nil: it waits for the test
}

func (w *wire) Forward(_ uint64, f Forwarded) {
	w.mu.Lock()
	to := w.to
	if to == nil {
		w.sent = append(w.sent, f)
	}
	w.mu.Unlock()
	if to != nil {
		to.Forwarded(f)
	}
}

func (w *wire) take() []Forwarded {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

// twoNodes is a fleet in which one follower is a node of its own, with its way to the leader.
func twoNodes(t *testing.T) (f *fleet, there *Node, way *wire) {
	f = newFleet(t, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}}, table{})
	there, way = f.others[0], &wire{}
	there.NodeID, there.Origin, there.Forwarder = 2, NewOrigin(2, 7), way
	for k, p := range there.groups {
		p.group.log = f.logs[k]
		for inc, q := range p.queues {
			q.wanted.settings = q.m.Settings()
			p.group.declared[inc] = q
		}
		p.group.Following(1)
	}
	return f, there, way
}

func publishAt(n *Node, q *Queue, owner Owner, serial message.Serial) {
	e := message.Envelope{Serial: serial, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 3, Persistent: true}
	ref, b := n.bodies.Alloc(e.Size())
	copy(e.Put(b), "abc")
	message.Record(b).Seal()
	n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: ref, TTL: -1, Priority: -1, Owner: owner, Token: uint64(serial)}})
}

// queueAt is a replica's queue.
func (f *fleet) queueAt(n *Node, name string) *Queue {
	q := f.queues[name]
	return n.groupByID(q.part.group.id).p.queues[q.Incarnation]
}

// Commands that are repeated, lost and overtaken happen once and in order. Each is answered once, where it was asked.
func TestForwardedOnceInOrder(t *testing.T) {
	f, there, way := twoNodes(t)
	owner := &answers{got: map[uint64]bool{}}
	q := f.queueAt(there, "q")
	for s := range message.Serial(4) {
		publishAt(there, q, owner, s+1)
	}
	sent := way.take()
	if len(sent) != 4 {
		t.Fatalf("%d were sent, want 4", len(sent))
	}
	for _, step := range []struct {
		arrives int
		ready   int
	}{{2, 0}, {0, 1}, {0, 1}, {1, 2}, {3, 2}, {0, 2}} {
		f.leader.Forwarded(sent[step.arrives])
		f.quiesce()
		if n := f.ready("q"); n != step.ready {
			t.Fatalf("after number %d the queue has %d messages, want %d", step.arrives+1, n, step.ready)
		}
	}
	if len(owner.got) != 2 {
		t.Errorf("%d publishes are answered, want 2", len(owner.got))
	}
	for range 2 { // the first time they may be on their way
		there.ForwardAgain()
	}
	again := way.take()
	if len(again) != 1 || len(again[0].Commands) != 2 {
		t.Fatalf("sent again: %d runs", len(again))
	}
	for range 2 {
		f.leader.Forwarded(again[0])
	}
	f.quiesce()
	there.ForwardAgain()
	there.ForwardAgain()
	if len(way.take()) != 0 {
		t.Error("what is applied is sent again")
	}
	if n := f.ready("q"); n != 4 || len(owner.got) != 4 {
		t.Errorf("the queue has %d messages and %d publishes are answered, want 4 of each", n, len(owner.got))
	}
	for s, refused := range owner.got {
		if refused {
			t.Errorf("publish %d was refused", s)
		}
	}
	// An old process has an end: a node that starts anew numbers its commands from 1.
	next := commandWriter{}
	next.begin(NewOrigin(2, 8), f.now.Load())
	next.op(cmdPurge, q.Incarnation)
	f.leader.Forwarded(Forwarded{q.part.group.id, [][]byte{next.numbered(1)}})
	f.quiesce()
	f.leader.Forwarded(sent[0])
	f.quiesce()
	if n := f.ready("q"); n != 0 {
		t.Errorf("a command of a process that is over was applied: %d messages", n)
	}
	f.agree()
}

// Consumers of a node that does not lead get messages there.
func TestConsumeWhereNobodyLeads(t *testing.T) {
	f, there, way := twoNodes(t)
	way.to = f.leader
	q := f.queueAt(there, "q")
	s := &client{}
	c := &queue.Consumer{Tag: "c", Prefetch: 2, Target: s}
	if ok, err := there.Attach(q, c, func() {}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for range 3 {
		f.publish("q", nil, -1)
	}
	f.quiesce()
	got := s.take()
	if len(got) != 2 {
		t.Fatalf("%d deliveries, want 2", len(got))
	}
	for _, h := range got {
		there.Run([]Op{{Kind: Ack, Queue: q, ID: h.d.ID, Consumer: c}})
		there.bodies.Release(h.d.Body)
		there.bodies.Release(h.d.History)
	}
	if d, _, ok, err := there.Get(q, false); ok || err != nil {
		t.Error(d, err) // the consumer has it
	}
	f.quiesce()
	if rest := s.take(); len(rest) != 1 {
		t.Errorf("%d more deliveries, want 1", len(rest))
	}
	if left, was := there.Detach(q, c, nil); left != 0 || !was {
		t.Errorf("%d consumers are left, it was one: %t", left, was)
	}
	f.agree()
}

// Commands that were on their way when the leader was lost are sent to the next leader. While there is none, nothing
// is taken.
func TestForwardedToTheNextLeader(t *testing.T) {
	f, there, way := twoNodes(t)
	owner := &answers{got: map[uint64]bool{}}
	q := f.queueAt(there, "q")
	publishAt(there, q, owner, 1)
	sent := way.take()
	for _, p := range there.groups {
		p.group.Following(0)
	}
	publishAt(there, q, owner, 2)
	if refused, answered := owner.got[2]; !answered || !refused || len(owner.got) != 1 {
		t.Errorf("without a leader: %v", owner.got)
	}
	if _, _, _, err := there.Get(q, false); !Lost(err) {
		t.Errorf("without a leader a get says: %v", err)
	}
	for k, p := range there.groups {
		f.leader.groups[k].group.Following(2)
		p.group.Leading(2)
	}
	f.leader.Forwarded(sent[0]) // late, and to a node that no longer leads
	there.Forwarded(sent[0])    // late
	f.quiesce()
	if refused, answered := owner.got[1]; !answered || refused {
		t.Errorf("the publish under way was not answered: %v", owner.got)
	}
	if n := q.m.Totals().Ready; n != 1 {
		t.Errorf("the queue has %d messages, want 1", n)
	}
}

// A replica that gets a snapshot tells callers whose commands are in it that the result is unknown.
func TestForwardedIntoASnapshot(t *testing.T) {
	f, there, way := twoNodes(t)
	owner := &answers{got: map[uint64]bool{}}
	q := f.queueAt(there, "q")
	g := q.part.group
	for _, l := range f.logs { // it hears nothing
		l.replicas = slices.DeleteFunc(slices.Clone(l.replicas), func(g *group) bool { return g.node == there })
	}
	publishAt(there, q, owner, 1)
	publishAt(there, q, owner, 2)
	f.leader.Forwarded(way.take()[0])
	f.quiesce()
	if len(owner.got) != 0 {
		t.Fatal("an answer before the command is applied")
	}
	f.replace(0, int(g.id)-1)
	if refused, answered := owner.got[1]; !answered || !refused || len(owner.got) != 1 {
		t.Errorf("answers: %v", owner.got)
	}
	there.ForwardAgain()
	there.ForwardAgain()
	if again := way.take(); len(again) != 1 || len(again[0].Commands) != 1 {
		t.Errorf("sent again: %v", again)
	}
}

// undecided is a log whose end is not decided.
type undecided struct {
	tee
	entries []cluster.Entry
}

func (l *undecided) State(uint64) cluster.State { return cluster.State{Entries: l.entries} }

// A process is newer than all earlier ones of its node, whatever the clock says, and its consumers have numbers of
// their own.
func TestNewestProcess(t *testing.T) {
	quiet := func() *Node {
		n, _ := follower(t)
		for _, p := range n.groups {
			p.group.log = &tee{}
		}
		return n
	}
	n := quiet()
	old := NewOrigin(1, 1<<40)
	n.groups[1].group.processes = []process{{old, 5}}
	n.newest()
	if n.Origin <= old || n.Origin>>originTimeBits != 1 {
		t.Errorf("the process is %x after %x", n.Origin, old)
	}
	// The newest command may be in a log that is not decided yet: its process is not known from what is applied.
	n = quiet()
	last := NewOrigin(1, 1<<40)
	var w commandWriter
	w.begin(last, 1)
	n.groups[1].group.processes = []process{{last - 1, 5}}
	n.groups[1].group.log = &undecided{entries: []cluster.Entry{{Data: w.numbered(1)}}}
	numbers := n.numbers.Load()
	n.newest()
	if n.Origin <= last || n.numbers.Load() == numbers || n.numbers.Load() == firstNumber(last) {
		t.Errorf("the process is %x after %x, its consumers begin with %x", n.Origin, last, n.numbers.Load())
	}

	later, fatal := follower(t)
	g := later.groups[0].group
	g.processes = []process{{later.Origin + 1, 1}}
	g.log = &tee{}
	if g.Leading(1); !errors.Is(*fatal, errClock) {
		t.Errorf("a process that is not the newest leads: %v", *fatal)
	}
	now := int64(1_800_000_000_000)
	a, b := firstNumber(NewOrigin(1, now)), firstNumber(NewOrigin(2, now))
	if a>>originTimeBits == b>>originTimeBits || firstNumber(NewOrigin(1, now+1000)) != a+1<<14 {
		t.Errorf("consumers begin with %x and %x", a, b)
	}
}
