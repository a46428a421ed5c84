package partition

import (
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/sim"
)

// letters is a sim.Model: messages move through a chain of queues that dead-letter into each other, within a group,
// between groups, to classic queues and back. A message that no client settles ends in the last queue.
type letters struct {
	serial  message.Serial
	origins uint64
	backlog int // number of messages in a group at which publishing stops
	known   map[message.Serial]*letter
	hosts   map[uint64]*letterHost // by origin: those that live
	lost    []uint64               // nodes that have left for good
	out     [Groups + 1][]outLetter
	seen    map[sighting]seenCounts
	ends    map[ending]bool // whether a replica has seen what it ended
	policy  map[string]*letterPolicy
	deleted map[uint64]bool // incarnations
}

// letterPolicy is the policy of a queue, in force on all nodes at once.
type letterPolicy struct {
	settings queue.Settings
	declared uint64 // how often it was declared anew
}

// ending is a command that purges or deletes a queue.
type ending struct{ group, index uint64 }

// letter is what clients know of a message.
type letter struct {
	confirmed bool
	settled   bool   // a client asked for its end
	queue     *Queue // the queue it was published to
	free      bool   // its end is not seen: it may go to a consumer without acknowledgements
	classic   uint64 // the node whose classic queue took it last, 0: none did
}

// outLetter is a delivery that a client has not answered.
type outLetter struct {
	origin   uint64 // the process that the client is connected to
	queue    string
	id       queue.ID
	consumer uint64
	serial   message.Serial
}

// sighting names an entry; seenCounts are its counters at its last delivery.
type sighting struct {
	queue uint64
	id    queue.ID
}

type seenCounts struct {
	index  uint64 // of the command
	counts queue.Counts
}

const letterVHost = message.VHost("/")

// letterQueue is a queue of the chain.
type letterQueue struct {
	name     string
	group    uint64 // 0: a classic queue, of which each node has its own
	single   bool
	settings queue.Settings
	dead     string
}

// letterQueues is the chain. Messages leave it only when they are acknowledged, purged or deleted. Beside it is a
// queue whose consumers do not acknowledge.
var letterQueues = []letterQueue{
	{"e", 1, false, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 2000 }), "to-a"},
	{"a", 1, false, settings(func(s *queue.Settings) {
		s.DeadLetter, s.AtLeastOnce, s.Overflow, s.DeliveryLimit = true, true, queue.RejectPublish, 2
		s.Breaker = queue.Breaker{Deaths: 4, Percent: 30, Window: 300}
	}), "to-b"},
	{"b", 2, true, settings(func(s *queue.Settings) {
		s.DeadLetter, s.Overflow, s.MaxLength, s.ConsumerTimeout = true, queue.RejectPublish, 40, 500
		s.Retry = queue.Retry{Type: queue.RetryAll, Min: 50, Max: 400}
	}), "to-c"},
	{"c", 2, false, settings(func(s *queue.Settings) { s.DeadLetter, s.MaxLength = true, 6 }), "to-x"},
	{"x", 0, false, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 300 }), "to-d"},
	{"d", 1, false, queue.Unlimited(), ""},
	{unseen, 2, false, settings(func(s *queue.Settings) { s.TTL, s.MaxLength = 900, 20 }), ""},
}

const unseen = "n"

// letterChanges are other settings that a policy may put in force for a queue.
var letterChanges = map[string][]func(*queue.Settings){
	"e":    {func(s *queue.Settings) { s.TTL = 100 }, func(s *queue.Settings) { s.TTL = 60_000 }},
	"a":    {func(s *queue.Settings) { s.AtLeastOnce = false }, func(s *queue.Settings) { s.DeliveryLimit = 1 }, func(s *queue.Settings) { s.MaxLength = 30 }},
	"b":    {func(s *queue.Settings) { s.MaxLength = 3 }, func(s *queue.Settings) { s.Retry = queue.Retry{} }, func(s *queue.Settings) { s.Breaker = queue.Breaker{Deaths: 2, Percent: 1, Window: 200} }, func(s *queue.Settings) { s.TTL = 700 }},
	"c":    {func(s *queue.Settings) { s.MaxLength = 1 }, func(s *queue.Settings) { s.MaxBytes = 300 }, func(s *queue.Settings) { s.MaxLength = -1 }},
	"d":    {func(s *queue.Settings) { s.Breaker = queue.Breaker{Deaths: 1, Percent: 1, Window: 150} }},
	unseen: {func(s *queue.Settings) { s.MaxLength = 2 }, func(s *queue.Settings) { s.TTL = -1 }},
}

// letterIncarnation is the name of a group's queue that was declared anew this many times.
func letterIncarnation(i int, declared uint64) uint64 { return uint64(i+1) + 1000*declared }

var letterRoutes = map[string]string{"to-a": "a", "to-b": "b", "to-c": "c", "to-x": "x", "to-d": "d"}

func newLetters(seed uint64) *letters {
	m := &letters{
		ends: map[ending]bool{}, policy: map[string]*letterPolicy{}, deleted: map[uint64]bool{},
		backlog: []int{20, 60, 60, 600}[seed%4], known: map[message.Serial]*letter{}, hosts: map[uint64]*letterHost{},
		seen: map[sighting]seenCounts{},
	}
	for _, d := range letterQueues {
		m.policy[d.name] = &letterPolicy{settings: d.settings}
	}
	return m
}

// Open is not used: see Start.
func (m *letters) Open(sim.Env, []byte) (sim.Replica, error) { panic("letters has hosts") }

// Done implements sim.Model.
func (m *letters) Done(uint64, []sim.Replica) error { return nil }

// Failpoints implements sim.Hosts.
func (m *letters) Failpoints() []string { return Failpoints }

// Left implements sim.Hosts.
func (m *letters) Left(node uint64) { m.lost = append(m.lost, node) }

// note is what is known of a message.
func (m *letters) note(s message.Serial) *letter {
	l := m.known[s]
	if l == nil {
		l = &letter{}
		m.known[s] = l
	}
	return l
}

// Answered implements Owner.
func (m *letters) Answered(list []Answer) {
	for _, a := range list {
		l := m.note(message.Serial(a.Token))
		if !a.Refused && !m.deleted[l.queue.Incarnation] { // otherwise it may have come too late
			l.confirmed = true
		}
	}
}

// delivered checks the counters of a delivery.
func (m *letters) delivered(g *group, q *Queue, d *queue.Delivery) error {
	if d.NoAck {
		return nil // it may never have had a place
	}
	key, index := sighting{q.Incarnation, d.ID}, g.applied
	before, ok := m.seen[key]
	later, earlier := seenCounts{index, d.Counts}, before
	if ok && index < before.index {
		later, earlier = earlier, later // this replica is behind
	} else {
		m.seen[key] = later
	}
	switch {
	case !ok:
	case later.counts.Acquired <= earlier.counts.Acquired, later.counts.Deliveries < earlier.counts.Deliveries:
		return fmt.Errorf("queue %s entry %d was delivered with counts %+v, and later with %+v", q.Name, d.ID, earlier.counts, later.counts)
	case index >= before.index && !d.Redelivered:
		return fmt.Errorf("queue %s entry %d was delivered again and not as redelivered", q.Name, d.ID)
	}
	return nil
}

// End implements sim.Hosts: it looks for every message.
func (m *letters) End(hosts []sim.Host) error {
	census := census{nodes: map[uint64]*letterHost{}, found: map[message.Serial][]string{}}
	for _, each := range hosts {
		h := each.(*letterHost)
		if h.err != nil {
			return h.err
		}
		census.nodes[h.env.Node] = h
	}
	nodes := slices.Sorted(maps.Keys(census.nodes))
	first := census.nodes[nodes[0]]
	for i, p := range first.n.groups {
		for _, id := range nodes {
			g := census.nodes[id].n.groups[i].group
			if n := len(g.proposals.list) - g.proposals.start; n > 0 {
				return fmt.Errorf("group %d: %d proposals of node %d have no answer", g.id, n, id)
			}
			if g.applied == p.group.applied && g.hash() != p.group.hash() {
				return fmt.Errorf("group %d: the state of node %d is not that of node %d", g.id, id, nodes[0])
			}
		}
		census.queues(first, p)
		census.outboxes(first, p.outboxes, p.group.id)
	}
	for _, id := range nodes {
		h := census.nodes[id]
		for _, p := range h.n.parts {
			census.queues(h, p)
		}
		census.outboxes(h, h.n.outboxes, localLog|id)
	}
	blind := slices.Contains(slices.Collect(maps.Values(m.ends)), false)
	for _, s := range slices.Sorted(maps.Keys(m.known)) {
		l, places := m.known[s], census.found[s]
		switch {
		case len(places) > 1:
			return fmt.Errorf("message %d is in %v", s, places)
		case len(places) == 0 && l.confirmed && !l.settled && !l.free && !blind && (l.classic == 0 || census.nodes[l.classic] != nil):
			return fmt.Errorf("message %d was confirmed and is lost; a classic queue of node %d had it", s, l.classic)
		}
	}
	return nil
}

// census says where messages were found. The first node stands for everything that is replicated.
type census struct {
	nodes map[uint64]*letterHost
	found map[message.Serial][]string
}

func (c *census) queues(h *letterHost, p *Partition) {
	for _, q := range p.queues {
		q.m.Browse(queue.Cursor{}, 1<<30, func(v queue.View) bool {
			s := h.serialOf(v.Body)
			c.found[s] = append(c.found[s], q.Name)
			return true
		})
	}
}

// outboxes counts entries that the destination has not taken. It removes from their queue the messages that wait for
// an answer which the destination has given already.
func (c *census) outboxes(h *letterHost, m *outboxes, from uint64) {
	for _, b := range m.Outboxes() {
		for _, e := range b.Stranded() {
			c.found[h.serialOf(e.Body)] = append(c.found[h.serialOf(e.Body)], "stranded")
		}
		taken, refused := h.taken(c.nodes, from, b.To())
		for _, e := range b.Waiting() {
			s := h.serialOf(e.Body)
			in := e.Number <= taken && refused.Of(e.Number) == outbox.Taken
			switch {
			case e.ID == 0 && !in:
				c.found[s] = append(c.found[s], fmt.Sprintf("outbox %d to %d", from, b.To()))
			case e.ID != 0 && in:
				if k := slices.Index(c.found[s], "a"); k >= 0 {
					c.found[s] = slices.Delete(c.found[s], k, k+1)
				}
			}
		}
	}
}

// taken returns up to which number a log has taken another's entries, and which of them it refused.
func (h *letterHost) taken(nodes map[uint64]*letterHost, from, to uint64) (uint64, outbox.Refusals) {
	var m *outboxes
	switch {
	case to < localLog:
		m = h.n.groupByID(to).p.outboxes
	case nodes[to&^localLog] != nil:
		m = nodes[to&^localLog].n.outboxes
	default:
		return 0, nil
	}
	for _, b := range m.Inboxes() {
		if b.From() == from {
			return b.Last(), b.Refusals()
		}
	}
	return 0, nil
}

// serialOf is the serial of a record, in memory or on disk.
func (h *letterHost) serialOf(body message.Ref) (serial message.Serial) {
	held.Apart(func() { // the caller may hold a partition; no other goroutine runs that could wait
		b, err := h.n.bodies.Read(body, &h.window)
		if err != nil {
			panic(err)
		}
		serial = message.Record(b).Serial()
	})
	return serial
}

var _ Router = (*letterHost)(nil)

// RouteDead implements Router.
func (h *letterHost) RouteDead(_ *Queue, exchange string, _ []string, _ message.Record, _ *deadletter.History, out []*Queue) ([]*Queue, bool, bool) {
	return append(out, h.queues[letterRoutes[exchange]]), true, true
}

// HasVHost implements Router.
func (h *letterHost) HasVHost(message.VHost, uint64) bool { return true }

// QueueUnused implements Router.
func (h *letterHost) QueueUnused(*Queue) {}

// Dropped implements Router.
func (h *letterHost) Dropped(q *Queue, reason deadletter.Reason, outcome deadletter.Outcome, r message.Record, _ *deadletter.History) {
	if q.Name == unseen {
		return
	}
	h.fail(fmt.Errorf("message %d was dropped: %s in %s, %s", r.Serial(), reason, q.Name, outcome))
}
