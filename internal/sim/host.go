package sim

import (
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
)

// Hosts is a Model whose replicas on one node are parts of one thing, which reads the
// journal itself and keeps its own checkpoints.
type Hosts interface {
	Model
	// Start makes what runs on a node that starts. It recovers what the node's disk
	// holds, opens every group, and does not start the driver.
	Start(env HostEnv) (Host, error)
	// Failpoints are the steps at which a node may crash beside the driver's.
	Failpoints() []string
	// Left is told that a node will never come back.
	Left(node uint64)
	// End is called once, after Done for each group, with what is left.
	End(hosts []Host) error
}

// Host is such a thing on one node.
type Host interface {
	// Work does a little of what its goroutines would do. It must not wait.
	Work(rng *rand.Rand)
	// Checkpoint stores all that Start needs beside the journal from here on, and
	// gives back what the journal does not need any more.
	Checkpoint(rng *rand.Rand) error
	// Stop gives back what it holds. The node is dead.
	Stop()
}

// HostEnv is where a host lives.
type HostEnv struct {
	Node      uint64
	FS        *vfs.MemFS // with the journal in "journal", and its kept segments in "keep"
	Journal   *journal.Journal
	Driver    *cluster.Driver
	Now       func() int64 // virtual milliseconds
	Failpoint func(name string)
	// Open joins a group: in the state of a checkpoint, or if st is nil as in the beginning.
	Open func(group uint64, r Replica, st *cluster.State) (*cluster.Group, error)
	// Send has something happen on a node after a while, this one or another, or
	// never: as the network is.
	Send func(to uint64, do func(there Host))
	// Leader is the node that leads a group, as far as anybody knows; 0 if none does.
	Leader func(group uint64) uint64
}

// hostEnv is where the node's host lives in this life of the node.
func (n *node) hostEnv() HostEnv {
	w := n.w
	return HostEnv{
		Node: n.id, FS: n.fs, Journal: n.journal, Driver: n.driver,
		Now:       func() int64 { return w.now / 1000 },
		Failpoint: func(name string) { w.failpoint(n, name) },
		Open: func(group uint64, r Replica, st *cluster.State) (*cluster.Group, error) {
			if st == nil {
				first := n.first()
				st = &first
			}
			return n.join(group, r, *st)
		},
		Send: func(to uint64, do func(Host)) { w.carry(n, to, do) },
		Leader: func(group uint64) uint64 {
			if leader := w.leader(group); leader != nil {
				return leader.id
			}
			return 0
		},
	}
}

// carry brings something from one host to another, or loses it.
func (w *World) carry(from *node, to uint64, do func(Host)) {
	if from.dead || to != from.id && (w.net.cut(from.id, to) || w.rng.Float64() < w.net.drop) {
		return
	}
	w.after(w.net.delay(), func() {
		n := w.node(to)
		if n == nil || !n.up || n.host == nil || n.paused > w.now || w.net.cut(from.id, to) {
			return
		}
		do(n.host)
		w.settle(n)
	})
}

// work has some node's host do what its goroutines would.
func (w *World) work() {
	n := w.anybody()
	if n == nil || w.still {
		return
	}
	n.host.Work(w.rng)
	w.settle(n)
}

// hosts are those of the nodes that run.
func (w *World) hosts() (list []Host) {
	for _, n := range w.nodes {
		if n.up {
			list = append(list, n.host)
		}
	}
	return list
}
