package partition

import (
	"errors"
	"math"
	"slices"
	"sync"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/safety/held"
)

// A session does not change a replicated queue. It proposes a command to the queue's group, and gets the result when
// the command is applied. A process's proposals that are not applied yet are in the group's proposals, in the order
// of the log.

// errLost is what waiting callers get when the group stops or loses its leader.
var errLost = errors.New("the queue's leader is not available")

// Lost says whether err means that a replicated queue has or had no leader here: whether the operation will happen is
// unknown.
func Lost(err error) bool { return errors.Is(err, errLost) }

const (
	// maxUndecided is how many bytes of a group's proposals may be pending before publishers wait.
	maxUndecided = 16 << 20
	// stepBytes is what each further queue of a publish counts: making its entry keeps others waiting too.
	stepBytes = 256
)

// proposal is a pending command of this process.
type proposal struct {
	number    uint64
	size      int         // size of the command, plus stepBytes for each step
	steps     int         // entries it makes beyond one for each publish
	publishes []published // for each publish, in order
	ask       *ask        // set if a caller waits
	routing   *Queue      // a queue of which it ends a slice of deaths
	ticking   []*Queue    // queues that it ticks
	data      []byte      // the command, if it waits or may have to be sent again
}

// published is a publish of a proposal. The proposal holds a reference to body, or body is 0 and apply stores its
// own. owner gets the answer.
type published struct {
	body  message.Ref
	owner Owner
	token uint64
}

// ask is an operation that a caller waits for, with its results. They are valid once the operation was applied; in a
// group that is when done is closed.
type ask struct {
	done chan struct{} // nil in a local partition
	err  error

	attached func()          // called with the queue locked, once the consumer is attached or detached
	consumer *queue.Consumer // the consumer that attaches, detaches or gets

	ok       bool
	again    bool // the caller must ask for the get or the purge again
	retry    bool // local: held deaths are to be retried
	delivery queue.Delivery
	left     int // number of ready messages or consumers left
	n        int // purged
	counts   Counts
	errand   *errand         // the errand whose moves it asks for
	moves    []int           // indexes of the moves that are not applied yet
	last     uint64          // of an outIn: all up to this number were taken
	refusals outbox.Refusals // except these
}

// newAsk returns an ask for propose. question makes the channel itself.
func newAsk() *ask { return &ask{done: make(chan struct{})} }

// proposals are the pending proposals of this process in one group, in the order of the log.
type proposals struct {
	mu       held.Mutex
	room     sync.Cond // where publishers wait for size to fall
	last     uint64    // number of the newest
	taken    uint64    // number of the one applied last, or being applied
	list     []*proposal
	start    int    // index of the oldest in list
	size     int    // bytes of all in list
	closed   bool   // no leader is known here
	leader   uint64 // the node that leads; may be this one
	again    bool   // proposals in list, from number from on, must be proposed again
	from     uint64
	oldest   uint64 // number of the first in list at the last look
	barriers []barrier
	quits    []func(*commandWriter) // ends of consumers that no leader has taken yet
	idle     []*proposal            // to be reused
}

// barrier waits until all proposals up to a number are applied.
type barrier struct {
	number uint64
	done   chan struct{}
}

// take returns the proposal with this number and forgets earlier ones, which were lost. It returns nil if there is
// none.
func (ps *proposals) take(number uint64) *proposal {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for ps.start < len(ps.list) && ps.list[ps.start].number <= number {
		p := ps.list[ps.start]
		ps.list[ps.start] = nil
		ps.start++
		if p.number == number {
			ps.taken = number
			ps.forgetTaken()
			return p
		}
	}
	ps.forgetTaken()
	return nil
}

// forgetTaken moves the pending proposals to the front of list when they are less than half of it. Otherwise the list
// would grow for ever in a process that always has something pending.
func (ps *proposals) forgetTaken() {
	if ps.start <= len(ps.list)/2 {
		return
	}
	n := copy(ps.list, ps.list[ps.start:])
	clear(ps.list[n:])
	ps.list, ps.start = ps.list[:n], 0
}

// settled is called when a proposal was applied and its effects are out.
func (ps *proposals) settled(p *proposal) {
	ps.mu.Lock()
	ps.size -= p.size
	if ps.size < maxUndecided {
		ps.room.Broadcast()
	}
	for len(ps.barriers) > 0 && ps.barriers[0].number <= p.number {
		close(ps.barriers[0].done)
		ps.barriers = ps.barriers[1:]
	}
	if len(ps.idle) < 16 && cap(p.publishes) <= 2*sliceLimit {
		clear(p.publishes)
		*p = proposal{publishes: p.publishes[:0]}
		ps.idle = append(ps.idle, p)
	}
	ps.mu.Unlock()
}

// fresh returns an empty proposal.
func (ps *proposals) fresh() *proposal {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if k := len(ps.idle); k > 0 {
		p := ps.idle[k-1]
		ps.idle = ps.idle[:k-1]
		return p
	}
	return &proposal{}
}

// propose puts the command into the group's log. With commit, the caller waits for the returned position to be
// decided (Node.Await). After an error nothing was proposed. A busy log is not an error: the command waits in the
// list with those after it until there is room (Room). Publishers wait earlier, in waitForRoom.
func (g *group) propose(w *commandWriter, p *proposal, commit bool) (pos journal.Pos, err error) {
	ps := &g.proposals
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return 0, errLost
	}
	data := w.numbered(ps.last + 1)
	p.number, p.size = ps.last+1, len(data)+p.steps*stepBytes
	n := g.node
	if n.Forwarder != nil {
		if p.data = slices.Clone(data); ps.size > 2*maxUndecided {
			return 0, errors.Join(errLost, cluster.ErrBusy)
		}
	}
	switch {
	case ps.leader != n.NodeID:
		n.Forwarder.Forward(ps.leader, Forwarded{g.id, [][]byte{p.data}})
	case ps.again: // behind proposals that wait
		p.keep(data)
	case commit:
		pos, err = g.log.Append(data)
	default:
		err = g.log.Propose(data)
	}
	if errors.Is(err, cluster.ErrBusy) {
		ps.again, ps.from, err = true, p.number, nil
		p.keep(data)
	}
	if err != nil {
		return 0, errors.Join(errLost, err)
	}
	ps.last++
	ps.size += p.size
	ps.list = append(ps.list, p)
	return pos, nil
}

// keep copies the command, because the writer will be reused.
func (p *proposal) keep(data []byte) {
	if p.data == nil {
		p.data = slices.Clone(data)
	}
}

// Room implements cluster.Waiter: it proposes what waited.
func (g *group) Room() {
	ps := &g.proposals
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.again {
		g.again()
	}
}

// waitForRoom makes a publisher wait while too much is pending.
func (g *group) waitForRoom() {
	held.Nothing("room in a group")
	ps := &g.proposals
	ps.mu.Lock()
	full := ps.size >= maxUndecided && !ps.closed
	ps.mu.Unlock()
	if !full || g.node.decideAll() != nil {
		return
	}
	ps.mu.Lock()
	for ps.size >= maxUndecided && !ps.closed {
		ps.room.Wait()
	}
	ps.mu.Unlock()
}

// settle waits until everything that this process has proposed so far is applied.
func (g *group) settle() error {
	held.Nothing("a group")
	ps := &g.proposals
	ps.mu.Lock()
	if ps.size == 0 {
		ps.mu.Unlock()
		return nil
	}
	b := barrier{ps.taken, make(chan struct{})}
	if ps.start < len(ps.list) { // otherwise proposals after taken were abandoned, and never reach settled
		b.number = ps.last
	}
	ps.barriers = append(ps.barriers, b)
	ps.mu.Unlock()
	if err := g.node.decideAll(); err != nil {
		return err
	}
	<-b.done
	return nil
}

// abandon tells all waiting callers that the result is unknown.
func (g *group) abandon(closed bool) {
	ps := &g.proposals
	ps.mu.Lock()
	ps.closed = closed
	ps.mu.Unlock()
	g.lost(ps.upTo(math.MaxUint64))
}

// upTo removes the proposals up to a number and releases callers who wait for them.
func (ps *proposals) upTo(number uint64) []*proposal {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	list := ps.list[ps.start:]
	n := 0
	for n < len(list) && list[n].number <= number {
		ps.size -= list[n].size
		n++
	}
	if ps.list, ps.start = list[n:], 0; n == len(list) {
		ps.list = nil
	}
	for len(ps.barriers) > 0 && (ps.barriers[0].number <= number) {
		close(ps.barriers[0].done)
		ps.barriers = ps.barriers[1:]
	}
	ps.room.Broadcast()
	return list[:n]
}

// lost tells the callers of these proposals that the result is unknown.
func (g *group) lost(list []*proposal) {
	for _, p := range list {
		for _, pub := range p.publishes {
			g.node.bodies.Release(pub.body)
			if pub.owner != nil {
				pub.owner.Answered([]Answer{{Token: pub.token, Refused: true}})
			}
		}
		if p.ask != nil {
			p.ask.err = errLost
			close(p.ask.done)
		}
	}
}

// question proposes a command with one operation and waits until it is applied.
func (g *group) question(a *ask, build func(w *commandWriter)) error {
	held.Nothing("a group")
	a.done = make(chan struct{})
	w := g.node.writer()
	build(w)
	pos, err := g.propose(w, &proposal{ask: a}, true)
	g.node.writers.Put(w)
	if err != nil {
		return err
	}
	if err := g.node.Await(Receipt{decided: pos}); err != nil {
		return errors.Join(errLost, err)
	}
	<-a.done
	return a.err
}

// tell proposes a command with one operation and does not wait.
func (g *group) tell(build func(w *commandWriter)) error {
	w := g.node.writer()
	build(w)
	_, err := g.propose(w, g.proposals.fresh(), false)
	g.node.writers.Put(w)
	return err
}

// writer returns a writer with a command that begins now.
func (n *Node) writer() *commandWriter {
	w := n.writers.Get().(*commandWriter)
	w.begin(n.Origin, n.Now())
	return w
}

// decideAll waits until everything proposed so far is decided.
func (n *Node) decideAll() error {
	pos, _ := n.Cluster.Unsynced()
	return n.Await(Receipt{decided: pos})
}
