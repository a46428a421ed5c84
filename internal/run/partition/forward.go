package partition

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// A session may be on a node that does not lead its queue's group. What it asks for
// is forwarded to the node that does, and applied by this node's replica like
// everything else: so the answer comes from here, and deliveries leave from here.
//
// Nothing tells whether what was sent has arrived. A process numbers its commands
// without a gap, and a group takes number n+1 after n of a process and nothing else:
// all it has to remember is one integer for each node. So a process may send
// whatever is not applied again and again, to whoever leads by then, and each
// command happens once, in order.
//
//	propose ──► Forwarder ──► Node.Forwarded, of the leader ──► log ──► applied here: the answer
//	   ▲                                                         │
//	   └─── not applied: again, in order, to whoever leads ◄─────┘ lost with its leader

// Forwarder carries commands between nodes. It may lose, repeat, delay and reorder
// them. It must not block, and not change what it is given.
type Forwarder interface {
	Forward(to uint64, f Forwarded)
}

// Forwarded are commands of one process for whoever leads a group, in order.
type Forwarded struct {
	Group    uint64
	Commands [][]byte
}

// forwardBytes is how much of what is not applied is sent again at once.
const forwardBytes = 1 << 20

// Forwarded takes what another node sends. Where this node does not lead the group, and
// what it has had before, it is ignored: whoever sent it sends it again.
func (n *Node) Forwarded(f Forwarded) {
	g := n.groupByID(f.Group)
	if g == nil {
		return
	}
	for _, data := range f.Commands {
		var r commandReader
		origin, number, _, ok := r.head(data)
		if !ok || r.version < numberedVersion {
			return // no node of any release sends this
		}
		g.p.mu.Lock()
		leads, old := g.leads, g.past(origin, number)
		g.p.mu.Unlock()
		if !leads {
			return
		}
		if old {
			continue
		}
		// Whoever leads says when it is.
		data = slices.Clone(data)
		binary.LittleEndian.PutUint64(data[momentAt:], uint64(n.Now()))
		if g.log.Propose(data) != nil {
			return
		}
	}
}

// process is the newest process of a node that a group has had a command of.
type process struct {
	origin uint64
	last   uint64 // the number of its last command
}

// lastOf is the newest process of a node, with origin 0 if there is none. REQUIRES: the
// partition is held.
func (g *group) lastOf(node uint64) (p process, i int) {
	i, ok := slices.BinarySearchFunc(g.processes, node, func(p process, node uint64) int { return cmp.Compare(p.origin>>originTimeBits, node) })
	if ok {
		return g.processes[i], i
	}
	return process{}, i
}

// past says whether the group has had a command. REQUIRES: the partition is held.
func (g *group) past(origin, number uint64) bool {
	p, _ := g.lastOf(origin >> originTimeBits)
	return origin < p.origin || origin == p.origin && number <= p.last
}

// follows says whether a command is the next one of its process; if so it counts as
// applied. With the first of a new process its node's old one is over.
func (g *group) follows(origin, number uint64) bool {
	p, i := g.lastOf(origin >> originTimeBits)
	switch {
	case origin == p.origin && number == p.last+1:
		g.processes[i].last = number
	case origin > p.origin && number == 1 && p.origin == 0:
		g.processes = slices.Insert(g.processes, i, process{origin, number})
	case origin > p.origin && number == 1:
		g.processes[i] = process{origin, number}
	default:
		return false
	}
	return true
}

// newest makes this process the newest of its node, whatever the clock said when it
// started. REQUIRES: recovery has read all there is, and nothing is proposed yet.
func (n *Node) newest() {
	for _, p := range n.groups {
		if old, _ := p.group.lastOf(n.Origin >> originTimeBits); n.Origin <= old.origin {
			n.Origin = old.origin + 1
		}
	}
}

// errClock ends a process whose commands a group would take for those of one that is
// over: the last process began later by the clock, and recovery could not know yet.
var errClock = errors.New("partition: the clock went back since the node ran last; start it again")

// checkNewest looks again, once all that earlier leaders have decided is applied.
// REQUIRES: the partition is held.
func (g *group) checkNewest() {
	if p, _ := g.lastOf(g.node.Origin >> originTimeBits); p.origin > g.node.Origin {
		g.node.OnFatal(errClock)
	}
}

// lead says where proposals go from here on: nowhere if nobody leads, or the node stops. What is not
// applied goes there again.
func (g *group) lead(leader uint64) {
	ps := &g.proposals
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.closed, ps.leader, ps.from = leader == 0 || g.node.stopped(), leader, 0
	g.again()
}

// again sends what is not applied to whoever leads; here, what the log has not had
// (proposals.from). REQUIRES: proposals are locked.
func (g *group) again() {
	ps := &g.proposals
	list := ps.list[ps.start:]
	if len(list) == 0 {
		ps.again = false // what is proposed next need not wait for anything
	}
	if len(list) == 0 || ps.closed {
		return
	}
	if ps.leader == g.node.NodeID {
		ps.again = false
		for _, p := range list {
			if p.number < ps.from {
				continue
			}
			if g.log.Propose(p.data) != nil {
				ps.again, ps.from = true, p.number
				return
			}
		}
		return
	}
	var commands [][]byte
	for size := 0; len(list) > 0 && size < forwardBytes; list = list[1:] {
		size += len(list[0].data)
		commands = append(commands, list[0].data)
	}
	g.node.Forwarder.Forward(ps.leader, Forwarded{g.id, commands})
}

// ForwardAgain sends what has not been applied since it was called last to whoever leads
// its group: it may have been lost.
func (n *Node) ForwardAgain() {
	if n.Forwarder == nil {
		return
	}
	for _, p := range n.groups {
		ps := &p.group.proposals
		ps.mu.Lock()
		oldest := uint64(0)
		if ps.start < len(ps.list) {
			oldest = ps.list[ps.start].number
		}
		if ps.again || oldest != 0 && oldest == ps.oldest && ps.leader != n.NodeID {
			p.group.again()
		}
		ps.oldest = oldest
		ps.mu.Unlock()
		p.group.quitAgain()
	}
}
