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

// A session does not change a replicated queue: it proposes a command to the
// queue's group and learns what became of it when the command is applied. The
// proposals of a process that are under way stand in the group's proposals, in
// the order of its log.

// errLost is what those get who wait for a group that stops or loses its leader.
var errLost = errors.New("the queue's leader is not available")

// Lost says whether err means that a replicated queue has no leader here, or lost
// it: nobody knows whether what was asked for will happen.
func Lost(err error) bool { return errors.Is(err, errLost) }

const (
	// maxUndecided is how many bytes of proposals of a group may be under way before publishers wait.
	maxUndecided = 16 << 20
	// stepBytes is what each further queue that a publish goes to counts for: others wait for the entry that is made there.
	stepBytes = 256
)

// proposal is a command of this process that is under way.
type proposal struct {
	number    uint64
	size      int         // of the command, and what more it counts for
	steps     int         // entries that it makes beyond one for each publish
	publishes []published // for each publish, in order
	ask       *ask        // somebody waits; nil: nobody does
	routing   *Queue      // it ends a slice of this queue's deaths
	ticking   []*Queue    // queues it ticks
	data      []byte      // the command, where it may have to be sent again or waits
}

// published is a publish of a proposal: its body, one reference to which is ours, 0
// if apply is to make its own, and who wants to know.
type published struct {
	body  message.Ref
	owner Owner
	token uint64
}

// ask is what somebody waits for. The results are valid once the operation was applied: of a group, once done is closed.
type ask struct {
	done chan struct{} // nil of a local partition
	err  error

	attached func()          // called with the queue locked, once the consumer is attached, or detached
	consumer *queue.Consumer // that attaches, detaches or gets

	ok       bool
	again    bool // a get or a purge is to be asked for once more
	retry    bool // of a local partition: held deaths are to be tried again
	delivery queue.Delivery
	left     int // ready messages, or consumers, that remain
	n        int // purged
	counts   Counts
	errand   *errand         // whose moves it asks for
	moves    []int           // which of them are not applied yet
	last     uint64          // of an outIn, up to where everything was taken
	refusals outbox.Refusals // but for these
}

// newAsk is an ask for whoever proposes it without question, which makes the channel itself.
func newAsk() *ask { return &ask{done: make(chan struct{})} }

// proposals are those of this process in one group. Their order is the log's.
type proposals struct {
	mu       held.Mutex
	room     sync.Cond // publishers that wait for undecided to fall
	last     uint64    // number of the newest
	taken    uint64    // of the one that was applied last, or is being applied
	list     []*proposal
	start    int    // of the oldest in list
	size     int    // bytes of all
	closed   bool   // the group has no leader that is known here
	leader   uint64 // who leads it; this node's own id if it does
	again    bool   // what is in list, from number from on, has to be proposed again
	from     uint64
	oldest   uint64 // number of the first in list when it was looked at last
	barriers []barrier
	quits    []func(*commandWriter) // ends of consumers that no group has taken
	idle     []*proposal            // to be used again
}

// barrier is somebody who waits until all proposals up to a number are applied.
type barrier struct {
	number uint64
	done   chan struct{}
}

// take returns the proposal of that number and forgets those before it, which went
// nowhere. It returns nil if there is none.
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

// forgetTaken moves what is under way to the front of list, once that is less than what is not any more: else the
// list of a process that always has something under way would grow for ever.
func (ps *proposals) forgetTaken() {
	if ps.start <= len(ps.list)/2 {
		return
	}
	n := copy(ps.list, ps.list[ps.start:])
	clear(ps.list[n:])
	ps.list, ps.start = ps.list[:n], 0
}

// settled is called once a proposal is applied and its effects are out.
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

// propose puts the command into the group's log. If commit is set the caller sees
// to it that the position returned is decided (Node.Await). On an error nothing
// was proposed. That the log is busy is none: the command waits in the list, with those
// that come after it, until there is room (Room). Whoever publishes waits before that.
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
	case ps.again: // behind those that wait
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

// keep has the proposal keep its command, which the writer will use again.
func (p *proposal) keep(data []byte) {
	if p.data == nil {
		p.data = slices.Clone(data)
	}
}

// Room implements cluster.Waiter: what waited is proposed.
func (g *group) Room() {
	ps := &g.proposals
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.again {
		g.again()
	}
}

// waitForRoom lets a publisher wait while too much is under way.
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
	if ps.start < len(ps.list) { // else what came after it was let go (abandon), and is never told of
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

// abandon tells everybody who waits that nobody knows what became of it.
func (g *group) abandon(closed bool) {
	ps := &g.proposals
	ps.mu.Lock()
	ps.closed = closed
	ps.mu.Unlock()
	g.lost(ps.upTo(math.MaxUint64))
}

// upTo takes the proposals up to a number out, and lets go who waits for them to be
// applied.
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

// lost tells whoever waits for proposals that nobody knows what became of them.
func (g *group) lost(list []*proposal) {
	for _, p := range list {
		for _, pub := range p.publishes {
			g.node.bodies.Release(pub.body)
			if pub.owner != nil {
				pub.owner.Answered([]Answer{{pub.token, true}})
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

// tell proposes a command with one operation and waits for nothing.
func (g *group) tell(build func(w *commandWriter)) error {
	w := g.node.writer()
	build(w)
	_, err := g.propose(w, g.proposals.fresh(), false)
	g.node.writers.Put(w)
	return err
}

// writer returns a writer with a command begun now.
func (n *Node) writer() *commandWriter {
	w := n.writers.Get().(*commandWriter)
	w.begin(n.Origin, n.Now())
	return w
}

// decideAll has everything decided that was proposed until now.
func (n *Node) decideAll() error {
	pos, _ := n.Cluster.Unsynced()
	return n.Await(Receipt{decided: pos})
}
