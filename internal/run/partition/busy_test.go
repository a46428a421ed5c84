package partition

import (
	"slices"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/cluster"
)

// busy makes the logs refuse proposals because too much is undecided, or lets them have room again and says so.
func (f *fleet) busy(busy bool) {
	for k, l := range f.logs {
		l.mu.Lock()
		l.busy = busy
		l.mu.Unlock()
		if m, ok := any(f.leader.groups[k].group).(cluster.Waiter); ok && !busy {
			m.Room()
		}
	}
}

// Operations on a group whose log is busy happen later, in order; none is dropped.
func TestBusyLogDropsNothing(t *testing.T) {
	f := newFleet(t, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}, {"r", quorum, queue.Unlimited(), DeadLetter{}}}, nil)
	q, sessions := f.queues["q"], &client{}
	c := &queue.Consumer{Tag: "c", Target: sessions, Prefetch: 10}
	if ok, err := f.leader.Attach(q, c, func() {}); !ok {
		t.Fatal(err)
	}
	for range 3 {
		f.publish("q", nil, -1)
	}
	f.quiesce()
	got := sessions.take()
	f.busy(true)
	owner := &answers{got: map[uint64]bool{}}
	f.leader.Run([]Op{{Kind: Ack, Queue: q, ID: got[0].d.ID, Consumer: c}})
	serial := f.publish("q", owner, -1)
	done := make(chan error, 1)
	go func() {
		done <- f.leader.RunWhole([]Op{
			{Kind: Publish, Targets: []*Queue{q}, Body: f.record(), TTL: -1, Priority: -1},
			{Kind: Ack, Queue: q, ID: got[1].d.ID, Consumer: c}, {Kind: Reject, Queue: q, ID: got[2].d.ID, Consumer: c},
		})
	}()
	f.waitProposed(q, 3, done)
	f.busy(false)
	if err := <-done; err != nil {
		t.Error("the transaction: ", err)
	}
	f.quiesce()
	if n := q.m.Totals(); n.Out != 2 || n.Ready != 0 {
		t.Errorf("%+v", n)
	}
	if refused, ok := owner.got[uint64(serial)]; !ok || refused {
		t.Errorf("the publish was answered: %v, refused: %v", ok, refused)
	}
	var order []message.Serial
	for _, h := range sessions.take() {
		order = append(order, message.Record(f.leader.bodies.Bytes(h.d.Body)).Serial())
	}
	if !slices.IsSorted(order) || len(order) != 2 {
		t.Errorf("delivered %v", order)
	}
	f.agree()
}

// waitProposed waits until n commands are pending in a queue's group, or done returns true.
func (f *fleet) waitProposed(q *Queue, n int, done <-chan error) {
	ps := &q.group().proposals
	for len(done) == 0 {
		ps.mu.Lock()
		under := len(ps.list) - ps.start
		ps.mu.Unlock()
		if under >= n {
			return
		}
	}
}

// record makes a message with one reference.
func (f *fleet) record() message.Ref {
	f.serial++
	e := message.Envelope{Serial: f.serial, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 8, Persistent: true}
	ref, b := f.leader.bodies.Alloc(e.Size())
	e.Put(b)
	message.Record(b).Seal()
	return ref
}

// If a group does not take a transaction, the transaction fails and settles nothing there.
func TestTransactionOfLostGroupFails(t *testing.T) {
	f := newFleet(t, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}}, nil)
	q := f.queues["q"]
	f.publish("q", nil, -1)
	f.quiesce()
	d, _, _, err := f.leader.Get(q, false)
	if err != nil {
		t.Fatal(err)
	}
	f.refuse(true)
	if err := f.leader.RunWhole([]Op{{Kind: Ack, Queue: q, ID: d.ID, Consumer: d.By}}); !Lost(err) {
		t.Errorf("an acknowledgement that nobody takes: %v", err)
	}
}

// forwards is a Forwarder that keeps what it gets.
type forwards []Forwarded

func (c *forwards) Forward(_ uint64, f Forwarded) { *c = append(*c, f) }

// A log that was busy when it lost its leader takes new commands once it has a leader again, even if the waiting ones
// were applied by another leader meanwhile.
func TestALogThatWasBusyTakesWhatComesAfterwards(t *testing.T) {
	f := newFleet(t, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}}, nil)
	g := f.queues["q"].group()
	var sent forwards
	f.leader.Forwarder = &sent
	f.busy(true)
	owner := &answers{got: map[uint64]bool{}}
	waits := f.publish("q", owner, -1)
	g.Following(2)
	l := f.logs[g.id-1]
	l.mu.Lock()
	l.busy = false // and nobody reports that there is room
	l.mu.Unlock()
	for _, commands := range sent {
		for _, data := range commands.Commands {
			if err := l.Propose(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.quiesce()
	g.Leading(3)
	taken := f.publish("q", owner, -1)
	f.quiesce()
	for _, s := range []message.Serial{waits, taken} {
		if refused, ok := owner.got[uint64(s)]; !ok || refused {
			t.Errorf("publish %d was answered: %v, refused: %v", s, ok, refused)
		}
	}
}

// A client's end that comes while a group has no leader happens when there is one.
func TestTheEndOfAClientWaitsForALeader(t *testing.T) {
	f := newFleet(t, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}}, nil)
	q := f.queues["q"]
	g := q.group()
	c := &queue.Consumer{Tag: "c", Target: &client{}, Prefetch: 10}
	if ok, err := f.leader.Attach(q, c, func() {}); !ok {
		t.Fatal(err)
	}
	f.publish("q", nil, -1)
	f.quiesce()
	if n := q.m.Totals(); n.Out != 1 {
		t.Fatalf("%+v", n)
	}
	g.Following(0)
	f.leader.Quit([]Seat{{q, c}}, nil)()
	g.Leading(2)
	f.quiesce()
	if n := q.m.Totals(); n.Ready != 1 || n.Out != 0 || q.m.Consumers() != 0 {
		t.Errorf("the client is gone: %+v, %d consumers", n, q.m.Consumers())
	}
}
