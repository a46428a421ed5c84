package sim

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/run/cluster"
)

// newDisk is an empty one that forgets what was not synced.
func newDisk() *vfs.MemFS { return vfs.NewCrashableMem() }

const second = 1_000_000 // microseconds

// schedule plans clients and faults. How bad the weather is, the seed says.
func (w *World) schedule() {
	mild := []float64{0, 0, 0.01, 0.1, 0.3}
	w.net.drop = mild[w.rng.IntN(len(mild))]
	w.net.repeat = mild[w.rng.IntN(len(mild))]
	w.net.slow = mild[w.rng.IntN(len(mild))]
	pace := 2000 + w.rng.Int64N(20_000)
	w.every(pace, w.client)
	w.every(100_000, w.read)
	w.every(second, w.store)
	if _, ok := w.opts.Model.(Hosts); ok {
		w.every(2000, w.work)
	}
	faults := []struct {
		mean int64
		do   func()
	}{
		{2 * second, w.crash}, {2 * second, w.crashAtFailpoint}, {2 * second, w.divide}, {2 * second, w.pause},
		{second, w.flush}, {3 * second, w.transfer}, {3 * second, w.removeVoter}, {10 * second, w.loseDisk},
	}
	for _, f := range faults {
		// Each world has its own share of each kind of trouble.
		if often := w.rng.IntN(4); often > 0 {
			w.every(f.mean*int64(often), func() {
				if !w.calm {
					f.do()
				}
			})
		}
	}
	w.every(second/4, w.mend)
}

// anybody is a node that runs, or nil.
func (w *World) anybody() *node {
	var up []*node
	for _, n := range w.nodes {
		if n.up && n.paused <= w.now {
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[w.rng.IntN(len(up))]
}

func (w *World) group() uint64 { return 1 + w.rng.Uint64N(uint64(w.opts.Groups)) }

// client has somebody act on some replica, most of the time one that leads.
func (w *World) client() {
	if w.quiet {
		return
	}
	n, group := w.anybody(), w.group()
	if w.rng.IntN(10) > 0 {
		n = w.leader(group)
	}
	if n == nil || n.paused > w.now {
		return
	}
	n.replicas[group].Act(w.rng)
	w.settle(n)
}

// read asks a replica for a linearizable moment: when it comes, all that any
// replica had applied before the question is applied there.
func (w *World) read() {
	n, group := w.anybody(), w.group()
	if n == nil {
		return
	}
	floor, life := w.records[group].last(), n.life
	n.driver.Group(group).ReadIndex(func(err error) {
		if err != nil || n.life != life || n.dead {
			return
		}
		w.counts["reads"]++
		if applied, _ := n.replicas[group].Hash(); applied < floor && len(w.records[group].entries) > 0 {
			w.fail("node %d group %d: a read at index %d misses what was decided before, up to %d", n.id, group, applied, floor)
		}
	})
	w.settle(n)
}

// store takes a checkpoint somewhere.
func (w *World) store() {
	n := w.anybody()
	if n == nil {
		return
	}
	w.logf("node %d stores a checkpoint", n.id)
	w.counts["checkpoints"]++
	if err := n.checkpoint(); err != nil {
		w.fail("node %d: checkpoint: %v", n.id, err)
	}
	n.driver.Durable() // it synced
	w.settle(n)
}

// crash takes a node down for a while.
func (w *World) crash() {
	if n := w.anybody(); n != nil {
		w.down(n)
	}
}

func (w *World) down(n *node) {
	w.logf("node %d crashes", n.id)
	w.counts["crashes"]++
	n.crash()
	w.restart(n)
}

// restart starts a node again, in a moment or after a while: a voter that is back
// before the election ends is the one that could vote twice.
func (w *World) restart(n *node) {
	away := int64(5000)
	if w.rng.IntN(2) == 0 {
		away = 3 * second
	}
	w.after(w.rng.Int64N(away), func() { w.start(n) })
}

// voted makes a vote matter now and then: the voter crashes and is back at once, and
// the candidate, which has won by then, is cut off from it, so that the others
// stand in a term they have not heard of.
func (w *World) voted(n *node, candidate uint64) {
	if w.calm || w.rng.IntN(4) > 0 {
		return
	}
	w.after(1000, func() {
		if !n.up {
			return
		}
		w.counts["crashes after a vote"]++
		n.crash()
		w.after(w.rng.Int64N(5000), func() { w.start(n) })
		w.part(func(id uint64) int {
			if id == candidate {
				return 1
			}
			return 0
		})
	})
}

// crashAtFailpoint has whoever comes to a named step first crash there.
func (w *World) crashAtFailpoint() {
	points := cluster.Failpoints
	if m, ok := w.opts.Model.(Hosts); ok {
		points = slices.Concat(points, m.Failpoints())
	}
	w.crashAt = points[w.rng.IntN(len(points))]
}

// failpoint is called by a node's driver at a named step. The rest of the event happens
// to a node that is dead already.
func (w *World) failpoint(n *node, name string) {
	if w.crashAt != name || w.calm || !n.up || n.dead {
		return
	}
	w.crashAt = ""
	w.counts["crash at "+name]++
	w.logf("node %d dies at %s", n.id, name)
	n.die()
	w.doomed = append(w.doomed, n)
}

// bury ends the nodes that crashed in the last event.
func (w *World) bury() {
	for len(w.doomed) > 0 && w.err == nil {
		n := w.doomed[0]
		w.doomed = w.doomed[1:]
		if n.up {
			n.bury()
			w.restart(n)
		}
	}
}

// flush has a node hand its buffer to the file without a sync.
func (w *World) flush() {
	if n := w.anybody(); n != nil {
		if err := n.journal.Flush(); err != nil {
			w.fail("node %d: flush: %v", n.id, err)
		}
	}
}

// pause stops a node for a while, as a slow disk or a busy machine does.
func (w *World) pause() {
	if n := w.anybody(); n != nil {
		n.paused = w.now + w.rng.Int64N(4*second)
		w.counts["pauses"]++
		w.logf("node %d pauses until %d", n.id, n.paused)
	}
}

// divide cuts the network in two, or one direction between two nodes, for a while.
func (w *World) divide() {
	if w.rng.IntN(3) > 0 || len(w.nodes) < 2 {
		w.part(func(uint64) int { return w.rng.IntN(2) })
		return
	}
	w.part(func(uint64) int { return 0 })
	order := w.rng.Perm(len(w.nodes))
	w.net.oneWay = [2]uint64{w.nodes[order[0]].id, w.nodes[order[1]].id}
	w.logf("nothing arrives from node %d at node %d", w.net.oneWay[0], w.net.oneWay[1])
}

// part puts the nodes into parts of the network for a while.
func (w *World) part(of func(id uint64) int) {
	w.counts["divisions"]++
	w.net.oneWay = [2]uint64{}
	for _, n := range w.nodes {
		w.net.parts[n.id] = of(n.id)
	}
	w.logf("the network divides: %v", w.net.parts)
	w.net.divisions++
	division := w.net.divisions
	w.after(w.rng.Int64N(4*second), func() {
		if w.net.divisions != division {
			return // there was another one since
		}
		clear(w.net.parts)
		w.net.oneWay = [2]uint64{}
		w.logf("the network is whole")
	})
}

// transfer asks a leader to hand over.
func (w *World) transfer() {
	group := w.group()
	n := w.leader(group)
	if n == nil {
		return
	}
	voters := n.status(group).Members.Voters
	to := voters[w.rng.IntN(len(voters))]
	if n.driver.Group(group).Transfer(to) == nil {
		w.counts["transfers"]++
		w.logf("node %d group %d hands over to %d", n.id, group, to)
	}
	w.settle(n)
}

// removeVoter marks a node to be replaced, one that still has its data.
func (w *World) removeVoter() {
	if len(w.lost) > 0 || len(w.nodes) > w.opts.Nodes {
		return
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	w.replace(n)
	w.counts["replaced"]++
}

// loseDisk destroys a node. Another one with its disk gone has to be replaced first:
// two of three are what nobody survives.
func (w *World) loseDisk() {
	if len(w.lost) > 0 || len(w.nodes) > w.opts.Nodes {
		return
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.up {
		n.crash()
	}
	w.counts["lost disks"]++
	w.replace(n)
}

// replace marks a node as one to leave and adds one to join in its place.
func (w *World) replace(n *node) {
	w.logf("node %d is to be replaced", n.id)
	w.lost[n.id] = true
	w.add()
}

// mend does what an operator does: new nodes become learners, learners voters, and
// a node to be replaced leaves once its successor votes.
func (w *World) mend() {
	done := true
	for group := uint64(1); group <= uint64(w.opts.Groups); group++ {
		done = w.mendGroup(group) && done
	}
	if !done {
		return
	}
	for id := range w.lost { // there is one at most
		w.logf("node %d is gone", id)
		if n := w.node(id); n.up {
			n.stop()
			n.up = false
		}
		w.nodes = slices.DeleteFunc(w.nodes, func(n *node) bool { return n.id == id })
		if m, ok := w.opts.Model.(Hosts); ok {
			m.Left(id)
		}
	}
	clear(w.lost)
}

// mendGroup takes the next step, if the group can, and reports whether there is none.
func (w *World) mendGroup(group uint64) bool {
	n := w.leader(group)
	if n == nil {
		return false
	}
	g := n.driver.Group(group)
	members := g.Status().Members
	step := func(what string, id uint64, err error) bool {
		if err == nil {
			w.logf("node %d group %d: %s %d", n.id, group, what, id)
			w.counts[what]++
		} else if !errors.Is(err, cluster.ErrBusy) && !errors.Is(err, cluster.ErrBehind) && !errors.Is(err, cluster.ErrNotLeader) {
			w.fail("%s %d: %v", what, id, err)
		}
		w.settle(n)
		return false
	}
	for _, other := range w.nodes {
		switch id := other.id; {
		case w.lost[id]:
		case slices.Contains(members.Voters, id):
		case slices.Contains(members.Learners, id):
			return step("promote", id, g.Promote(id))
		default:
			return step("add learner", id, g.AddLearner(id))
		}
	}
	for _, id := range slices.Concat(members.Voters, members.Learners) {
		if w.lost[id] {
			return step("remove", id, g.Remove(id))
		}
	}
	return true
}

// heal ends all faults.
func (w *World) heal() {
	w.logf("calm")
	w.calm = true
	w.net.drop, w.net.repeat, w.net.slow = 0, 0, 0
	w.crashAt = ""
	for _, n := range w.nodes {
		n.paused = 0
		w.start(n)
	}
}
