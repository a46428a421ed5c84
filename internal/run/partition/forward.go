package partition

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// A session may be on a node that does not lead its queue's group. Its commands are forwarded to the leader and
// applied by this node's replica like all others. So answers and deliveries come from this node.
//
// Nothing says whether a forwarded command has arrived. So a process numbers its commands without a gap, and a group
// takes number n+1 of a process only after n. For each node the group remembers one integer. A process may send what
// is not applied as often as it likes, to the leader of the moment: each command happens once, in order.
//
//	propose ──► Forwarder ──► Node.Forwarded, of the leader ──► log ──► applied here: the answer
//	   ▲                                                         │
//	   └── not applied: again, in order, to the next leader ◄────┘ lost with its leader

// Forwarder carries commands between nodes. It may lose, repeat, delay and reorder them. It must not block, and must
// not change what it is given.
type Forwarder interface {
	Forward(to uint64, f Forwarded)
}

// Forwarded are commands of one process for the leader of a group, in order.
type Forwarded struct {
	Group    uint64
	Commands [][]byte
}

// forwardBytes is how many bytes of pending commands are sent again at once.
const forwardBytes = 1 << 20

// Forwarded receives commands from another node. It ignores them if this node does not lead the group. The sender
// repeats commands; Forwarded ignores repetitions.
func (n *Node) Forwarded(f Forwarded) {
	g := n.groupByID(f.Group)
	if g == nil {
		return
	}
	for _, data := range f.Commands {
		var r commandReader
		origin, number, _, ok := r.head(data)
		if !ok {
			return // a later release sends this
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
		// The leader sets the time.
		data = slices.Clone(data)
		binary.LittleEndian.PutUint64(data[momentAt:], uint64(n.Now()))
		if g.log.Propose(data) != nil {
			return
		}
	}
}

// process is the newest process of a node: the newest of which the group has had a command.
type process struct {
	origin uint64
	last   uint64 // the number of its last command
}

// lastOf returns the newest process of a node, with origin 0 if there is none, and its index. REQUIRES: the partition
// is held.
func (g *group) lastOf(node uint64) (p process, i int) {
	i, ok := slices.BinarySearchFunc(g.processes, node, func(p process, node uint64) int { return cmp.Compare(p.origin>>originTimeBits, node) })
	if ok {
		return g.processes[i], i
	}
	return process{}, i
}

// past says whether the group has had a command already. REQUIRES: the partition is held.
func (g *group) past(origin, number uint64) bool {
	p, _ := g.lastOf(origin >> originTimeBits)
	return origin < p.origin || origin == p.origin && number <= p.last
}

// follows says whether a command is the next one of its process, and if so notes it as applied. The first command of
// a new process ends the node's old one.
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

// newest gives this process the highest origin of its node, even if the clock went back since the last one, and consumer
// numbers that go with it. It looks at the end of each log too, which is decided only when the group runs. REQUIRES: recovery has
// read everything, and nothing is proposed yet.
func (n *Node) newest() {
	node, last := n.Origin>>originTimeBits, uint64(0)
	for _, p := range n.groups {
		old, _ := p.group.lastOf(node)
		last = max(last, old.origin)
		for _, e := range p.group.log.State(p.group.applied).Entries {
			var r commandReader
			origin, _, now, ok := r.head(e.Data)
			if ok && origin>>originTimeBits == node {
				last = max(last, origin)
			}
			if ok && n.CatchUp != nil {
				n.CatchUp(now)
			}
		}
	}
	if n.Origin <= last {
		n.Origin = last + originTick
		n.numbers.Store(firstNumber(n.Origin))
	}
}

// errClock ends a process whose commands groups would take for commands of an earlier process: the last process has a
// later origin, of which recovery has seen nothing.
var errClock = errors.New("partition: the clock went back since the node ran last; start it again")

// checkNewest checks that again, once everything that earlier leaders decided is applied. REQUIRES: the partition is
// held.
func (g *group) checkNewest() {
	if p, _ := g.lastOf(g.node.Origin >> originTimeBits); p.origin > g.node.Origin {
		g.node.OnFatal(errClock)
	}
}

// lead sets where proposals go from now on: nowhere if there is no leader or the node stops. Pending proposals go
// there again.
func (g *group) lead(leader uint64) {
	ps := &g.proposals
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.closed, ps.leader, ps.from = leader == 0 || g.node.stopped(), leader, 0
	g.again()
}

// again sends pending proposals to the leader. If this node leads, it proposes the ones that the log has not had, from
// proposals.from on. REQUIRES: proposals are locked.
func (g *group) again() {
	ps := &g.proposals
	list := ps.list[ps.start:]
	if len(list) == 0 {
		ps.again = false // the next proposal need not wait for any
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

// ForwardAgain sends again what has not been applied since its last call: it may have been lost.
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
