package partition

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/safety/held"
)

// group makes a partition a replicated one. Only commands of the log change its queues. Every replica applies them in
// the same order, and what Apply does depends only on the command and on the state here. The leader also acts: it
// delivers to sessions, routes the dead, reads the clock. What comes of that is another command.
//
// Invariant: two replicas that have applied the same commands have the same hash (Partition.hash).
type group struct {
	node *Node
	p    *Partition
	id   uint64
	log  Log

	// Guarded by the partition's mutex; the same on all replicas.
	applied    uint64 // index of the last entry
	clock      int64  // time of the last command
	consumers  map[uint64]*seat
	processes  []process    // by node
	departures []*departure // in the order in which they began

	// Guarded by the partition's mutex; only of this replica.
	leads    bool
	declared map[uint64]*Queue // queues of the topology, created by the log or about to be
	effects  effects

	proposals proposals
}

// Log decides a group's commands. It is a cluster.Group.
type Log interface {
	Propose(data []byte) error
	Append(data []byte) (journal.Pos, error)
	Leader() (id uint64, me bool)
	State(applied uint64) cluster.State
}

// seat is a consumer of a replicated queue, or the holder of a message from basic.get.
type seat struct {
	c        *queue.Consumer
	q        *Queue
	full     bool      // its session takes no more for now; only of this replica
	asked    int       // credit proposed and not applied; only of this replica
	departed *departed // set once a departure has detached it
}

// delivered notes that a consumer of this process got a message, and whether its session takes more. A consumer gets
// more credit when its session has sent half of its window.
func (g *group) delivered(c *queue.Consumer, more bool) {
	if !c.Metered || c.Credited {
		return
	}
	s := g.consumers[c.Number]
	if s == nil {
		return
	}
	s.full = s.full || !more
	if k := len(g.effects.credit); !s.full && window-c.Left()-s.asked >= window/2 && (k == 0 || g.effects.credit[k-1] != s) {
		g.effects.credit = append(g.effects.credit, s)
	}
}

// mayBeIdle makes the end of the command check whether the consumer can be forgotten.
func (g *group) mayBeIdle(c *queue.Consumer) {
	if s := g.consumers[c.Number]; s != nil {
		g.effects.idle = append(g.effects.idle, s)
	}
}

// effects are what is to be done when the partition is unlocked after an apply.
type effects struct {
	answers []ownedAnswer
	asks    []*ask
	settled []*proposal
	credit  []*seat // to be given more credit
	gone    []goneConsumer
	idle    []*seat // may be idle; checked at the end of their command

	senseless []Senseless // to be set aside
}

func (e *effects) reset() {
	clear(e.answers)
	clear(e.asks)
	clear(e.settled)
	clear(e.credit)
	clear(e.gone)
	clear(e.senseless)
	e.senseless = e.senseless[:0]
	e.answers, e.asks, e.settled, e.credit, e.gone = e.answers[:0], e.asks[:0], e.settled[:0], e.credit[:0], e.gone[:0]
}

type ownedAnswer struct {
	owner Owner
	Answer
}

type goneConsumer struct {
	q *Queue
	c *queue.Consumer
}

// Groups is how many groups of replicated queues a node has. They are numbered from 1.
const Groups = 2

// window is how many deliveries a consumer without a small prefetch limit may have that its session has not sent yet.
const window = 2048

func newGroup(n *Node, k int) *group {
	p := newPartition(n, len(n.parts)+k)
	g := &group{
		node: n, p: p, id: uint64(k) + 1, consumers: map[uint64]*seat{}, declared: map[uint64]*Queue{},
	}
	p.pages.Hot, p.pages.Log = cmp.Or(n.Budget.HotPages, index.HotPages), index.Commands
	held.Name(&g.proposals.mu, "a group's proposals")
	g.proposals.room.L = &g.proposals.mu
	g.proposals.closed = true
	p.group, p.driver, p.outboxes, p.tallies = g, g, newOutboxes(n, g), newTallies()
	return g
}

// groupOf returns the group of a replicated queue.
func (n *Node) groupOf(q *Queue) *group {
	g := n.groupByID(q.Group)
	if g == nil {
		q.Group = n.DefaultGroup(q.VHost, q.Name)
		g = n.groupByID(q.Group)
	}
	return g
}

// leaveQueue removes a deleted queue from the group's consumers, departures and declarations.
func (g *group) leaveQueue(q *Queue) {
	q.m.RangeSeated(func(c *queue.Consumer) { delete(g.consumers, c.Number) })
	g.departFrom(q)
	delete(g.declared, q.Incarnation)
}

// DefaultGroup is the group of a replicated queue for which nothing else decides.
func (n *Node) DefaultGroup(vhost message.VHost, name string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(vhost))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(name))
	return uint64(int(h.Sum32())%Groups) + 1
}

// Leading implements cluster.Machine. It takes up what the last leader, or the last run of this node, left undone.
func (g *group) Leading(uint64) {
	n := g.node
	g.lead(n.NodeID)
	h := n.lock(g.p)
	g.leads = true
	g.checkNewest()
	origins := g.originsOf(n.Origin >> originTimeBits)
	for _, q := range g.sorted() {
		q.routing, q.ticking = false, false
		g.p.unschedule(q)
		h.touch(q)
	}
	n.leaveDead(n.finishHold(h))
	for _, origin := range origins {
		_ = g.tell(func(w *commandWriter) {
			w.op(cmdGone, origin)
		})
	}
	g.quitAgain()
	g.reconcile()
	g.p.outboxes.wake()
}

// originsOf returns the other processes of a node of which the group has consumers or departures, in order. REQUIRES:
// the partition is held.
func (g *group) originsOf(node uint64) (list []uint64) {
	for _, s := range g.consumers {
		if o := s.c.Origin; o != g.node.Origin && o>>originTimeBits == node && !slices.Contains(list, o) {
			list = append(list, o)
		}
	}
	for _, d := range g.departures {
		if o := d.origin; o != g.node.Origin && o>>originTimeBits == node && !slices.Contains(list, o) {
			list = append(list, o)
		}
	}
	slices.Sort(list)
	return list
}

// Following implements cluster.Machine.
func (g *group) Following(leader uint64) {
	g.p.mu.Lock()
	g.leads = false
	for _, q := range g.p.queues {
		q.calm() // the new leader routes
	}
	g.p.outboxes.Resend()
	g.p.mu.Unlock()
	if g.node.Forwarder == nil {
		g.abandon(true)
		return
	}
	g.lead(leader)
	g.quitAgain()
}

// reconcile makes the log agree with the topology: it creates missing queues, deletes queues that are no longer
// declared, and changes settings that differ.
func (g *group) reconcile() {
	g.p.mu.Lock()
	var create, configure, deleted []*Queue
	for _, q := range g.declared {
		switch {
		case !q.live:
			create = append(create, q)
		case q.m.Settings() != q.wanted.settings || q.dead != q.wanted.dead:
			configure = append(configure, q)
		}
	}
	for inc, q := range g.p.queues {
		if g.declared[inc] == nil && !g.node.Repair.KeepUndeclared {
			deleted = append(deleted, q)
		}
	}
	g.p.mu.Unlock()
	for _, list := range [][]*Queue{create, configure, deleted} {
		sortQueues(list)
	}
	for _, q := range create {
		_ = g.tell(q.creation)
	}
	for _, q := range configure {
		_ = g.tell(q.configuration)
	}
	for _, q := range deleted {
		_ = g.tell(func(w *commandWriter) { remove{}.write(w, q.Incarnation) })
	}
}

// sorted returns the group's queues by incarnation. REQUIRES: the partition is held.
func (g *group) sorted() []*Queue {
	list := make([]*Queue, 0, len(g.p.queues))
	for _, q := range g.p.queues {
		list = append(list, q)
	}
	sortQueues(list)
	return list
}

// sortQueues sorts queues by incarnation.
func sortQueues(list []*Queue) {
	slices.SortFunc(list, func(a, b *Queue) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
}

// seats returns the group's consumers by number. REQUIRES: the partition is held.
func (g *group) seats() []*seat {
	list := make([]*seat, 0, len(g.consumers))
	for _, s := range g.consumers {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *seat) int {
		if a.c.Number < b.c.Number {
			return -1
		}
		return 1
	})
	return list
}

// ErrLaterRelease ends a node that has opened the data of a later release.
var ErrLaterRelease = errors.New("the data directory was written by a later release: start that one, or this one on a backup from before")

// broken is called for a command of a later release, which this one cannot apply. To continue would make this replica
// differ from the others.
func (g *group) broken(index uint64, version byte) {
	g.node.Logger.Error("a command of a group was written by a later release", slog.Uint64("group", g.id), slog.Uint64("index", index),
		slog.Int("version", int(version)), slog.Int("known", commandVersion))
	g.node.OnFatal(ErrLaterRelease)
}

// senseless skips the rest of a command that makes no sense, from the byte `from` on: it has no effect on any
// replica. The command is set aside.
func (g *group) senseless(e *cluster.Entry, from int) {
	g.effects.senseless = append(g.effects.senseless, Senseless{
		Pos: e.At, Group: g.id, Index: e.Index, Frame: e.Data, From: from, To: len(e.Data),
		Why: fmt.Sprintf("command %d of group %d makes no sense from byte %d on", e.Index, g.id, from),
	})
}

// Snapshot implements cluster.Machine.
func (g *group) Snapshot() ([]byte, error) {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	var state []byte
	// It reads bodies with the partition locked. It is only called for another replica; a node alone has none.
	held.Apart(func() { state = g.appendState(nil) })
	return state, nil
}

// Restore implements cluster.Machine.
func (g *group) Restore(snapshot []byte, at journal.Pos) error {
	h := g.node.lock(g.p)
	err := g.restoreState(snapshot, at)
	last, _ := g.lastOf(g.node.NodeID)
	g.node.finishHold(h)
	if err == nil && last.origin == g.node.Origin {
		g.lost(g.proposals.upTo(last.last)) // they were applied, but not by this replica
	}
	return err
}

var _ cluster.Machine = (*group)(nil)
