package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// trio is three nodes with goroutines and timers of their own, in a bubble.
type trio struct {
	t     *testing.T
	net   *Network
	nodes map[uint64]*node
	lostc chan error
}

func newTrio(t *testing.T) *trio {
	c := &trio{t, NewNetwork(), map[uint64]*node{}, make(chan error, 8)}
	for id := uint64(1); id <= 3; id++ {
		c.join(id, vfs.NewCrashableMem(), FirstState(1, 2, 3))
	}
	return c
}

// join starts a node.
func (c *trio) join(id uint64, fs *vfs.MemFS, st State) {
	c.t.Helper()
	n := openNode(c.t, fs, st, &recorder{}, func(o *Options) {
		o.ID, o.Transport, o.TailBytes = id, c.net.Transport(id), 4<<10
		o.OnLost = func(err error) { c.lostc <- err }
	})
	if err := n.d.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.net.Join(n.d)
	c.nodes[id] = n
}

// leave stops a node, and gives back its disk as a crash leaves it.
func (c *trio) leave(id uint64) *vfs.MemFS {
	n := c.nodes[id]
	fs := n.fs.CrashClone(vfs.CrashCloneCfg{})
	c.net.Leave(id)
	n.d.Stop()
	if err := n.j.Close(); err != nil {
		c.t.Error(err)
	}
	delete(c.nodes, id)
	return fs
}

func (c *trio) close() {
	for id := range c.nodes {
		c.leave(id)
	}
	c.net.Close()
}

// eventually waits, in virtual time, for something to hold.
func (c *trio) eventually(what string, holds func() bool) {
	c.t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	for id, n := range c.nodes {
		c.t.Logf("node %d: %+v", id, n.g.Status())
	}
	c.t.Fatalf("after a minute: not %s", what)
}

// leader waits for one.
func (c *trio) leader() *node {
	c.t.Helper()
	var leader *node
	c.eventually("a leader", func() bool {
		for _, n := range c.nodes {
			if n.g.Status().Leading {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// propose has whoever leads decide a command.
func (c *trio) propose(command string) {
	c.t.Helper()
	c.eventually("decided "+command, func() bool {
		n := c.leader()
		if err := n.g.Propose([]byte(command)); err != nil {
			return false
		}
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		return slices.Contains(n.m.got(), command)
	})
}

// agree waits until all nodes have applied exactly the commands.
func (c *trio) agree(commands []string) {
	c.t.Helper()
	c.eventually("agreed", func() bool {
		for _, n := range c.nodes {
			if !slices.Equal(n.m.got(), commands) {
				return false
			}
		}
		return true
	})
}

func inBubble(t *testing.T, f func(t *testing.T, c *trio)) {
	synctest.Test(t, func(t *testing.T) {
		c := newTrio(t)
		defer c.close()
		f(t, c)
	})
}

// Three replicas decide the same, the leader dies, and two go on.
func TestThreeNodesSurviveTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		var all []string
		for i := range 5 {
			all = append(all, fmt.Sprintf("before %d", i))
			c.propose(all[i])
		}
		c.agree(all)
		dead := c.leader().d.opts.ID
		fs := c.leave(dead)
		all = append(all, "without it")
		c.propose("without it")
		c.agree(all)
		c.join(dead, fs, FirstState(1, 2, 3))
		c.agree(all)
	})
}

// Only the leader takes proposals; the others name it.
func TestFollowersRefuse(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		leader := c.leader()
		c.propose("a")
		c.agree([]string{"a"})
		for id, n := range c.nodes {
			if n == leader {
				continue
			}
			var not *NotLeaderError
			if err := n.g.Propose([]byte("b")); !errors.As(err, &not) || not.Leader != leader.d.opts.ID || !errors.Is(err, ErrNotLeader) {
				t.Errorf("node %d, a follower, answers a proposal with %v", id, err)
			}
			if err := n.g.Transfer(id); !errors.Is(err, ErrNotLeader) {
				t.Errorf("node %d, a follower, answers a transfer with %v", id, err)
			}
		}
	})
}

// A leader that is asked to hands over, and follows.
func TestTransfer(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		c.propose("a")
		c.agree([]string{"a"})
		old := c.leader()
		to := old.d.opts.ID%3 + 1
		if err := old.g.Transfer(to); err != nil {
			t.Fatal(err)
		}
		c.eventually("handed over", func() bool { return c.nodes[to].g.Status().Leading })
		synctest.Wait()
		calls := old.m.calls
		if last := calls[len(calls)-1]; last != fmt.Sprintf("following %d", to) {
			t.Errorf("the old leader's machine was told %v, want it to follow %d in the end", calls, to)
		}
		c.propose("b")
		c.agree([]string{"a", "b"})
	})
}

// A fourth node joins by a snapshot, is promoted when it has caught up, and takes
// the place of one that leaves.
func TestMembersChange(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		var all []string
		for i := range 40 {
			all = append(all, fmt.Sprintf("%04d %s", i, string(make([]byte, 500))))
			c.propose(all[i])
		}
		leader := c.leader()
		if err := leader.g.Promote(4); err == nil {
			t.Error("a node that is no learner was promoted")
		}
		if err := leader.g.AddLearner(4); err != nil {
			t.Fatal(err)
		}
		c.eventually("a fourth member", func() bool { return slices.Contains(leader.g.Status().Members.Learners, 4) })
		if err := leader.g.Promote(4); !errors.Is(err, ErrBehind) {
			t.Errorf("a learner that is not there is promoted: %v", err)
		}
		c.join(4, vfs.NewCrashableMem(), State{})
		c.eventually("a fourth voter", func() bool {
			_ = c.leader().g.Promote(4)
			return slices.Contains(c.leader().g.Status().Members.Voters, 4)
		})
		if calls := c.nodes[4].m.calls; !slices.Contains(calls, "restore") {
			t.Errorf("the fourth node was told %v: no snapshot", calls)
		}
		gone := c.leader().d.opts.ID%3 + 1
		c.eventually("removed", func() bool {
			_ = c.leader().g.Remove(gone)
			return !slices.Contains(c.leader().g.Status().Members.Voters, gone)
		})
		c.leave(gone)
		all = append(all, "the end")
		c.propose("the end")
		c.agree(all)
	})
}

// A leader that hears of nobody stops leading; what it was given meanwhile is not
// decided, and it forgets it when it is back.
func TestLeaderWithoutQuorum(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		c.propose("a")
		c.agree([]string{"a"})
		old := c.leader()
		c.net.Cut(old.d.opts.ID, true)
		if err := old.g.Propose([]byte("never")); err != nil {
			t.Fatal(err)
		}
		c.eventually("stepped down", func() bool { return errors.Is(old.g.Propose(nil), ErrNotLeader) })
		c.propose("b")
		c.net.Cut(old.d.opts.ID, false)
		c.agree([]string{"a", "b"})
	})
}

// A read anywhere sees all that was decided before it; without a quorum it fails.
func TestReadIndex(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		c.propose("a")
		for id, n := range c.nodes {
			answerc := make(chan error, 1)
			n.g.ReadIndex(func(err error) {
				if err == nil && !slices.Contains(n.m.got(), "a") {
					err = errors.New("the machine lacks what was decided")
				}
				answerc <- err
			})
			if err := <-answerc; err != nil {
				t.Errorf("node %d: %v", id, err)
			}
		}
		leader := c.leader()
		c.net.Cut(leader.d.opts.ID, true)
		answerc := make(chan error, 1)
		leader.g.ReadIndex(func(err error) { answerc <- err })
		if err := <-answerc; err == nil {
			t.Error("a leader without a quorum answered a read")
		}
	})
}

// Undecided proposals are bounded.
func TestBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		leader := c.leader()
		c.net.Cut(leader.d.opts.ID, true)
		var err error
		for range 40 {
			if err = leader.g.Propose(make([]byte, 1<<20)); err != nil {
				break
			}
		}
		if !errors.Is(err, ErrBusy) {
			t.Errorf("40 MiB undecided: %v, want ErrBusy", err)
		}
	})
}

// A follower whose disk forgot what it had promised is found out by the leader's next
// heartbeat, and ends. It joins again under a new id.
func TestFollowerLosesItsLog(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		c.propose("a")
		c.agree([]string{"a"})
		leader := c.leader()
		victim := leader.d.opts.ID%3 + 1
		old := c.nodes[victim].fs.CrashClone(vfs.CrashCloneCfg{})
		c.propose("b")
		c.agree([]string{"a", "b"})
		c.leave(victim)
		c.join(victim, old, FirstState(1, 2, 3))
		var lost *LostError
		if err := <-c.lostc; !errors.As(err, &lost) || lost.Group != 7 {
			t.Fatalf("OnLost(%v)", err)
		}
		if err := c.nodes[victim].g.Propose(nil); !errors.Is(err, ErrStopped) {
			t.Errorf("a proposal to a replica that lost its log: %v", err)
		}
		c.leave(victim)
		c.eventually("removed", func() bool {
			_ = c.leader().g.Remove(victim)
			return !slices.Contains(c.leader().g.Status().Members.Voters, victim)
		})
		if err := c.leader().g.AddLearner(4); err != nil {
			t.Fatal(err)
		}
		c.join(4, vfs.NewCrashableMem(), State{})
		c.agree([]string{"a", "b"})
	})
}

// A snapshot from before a replica joined does not know it, and so is of no use to
// it: it gets another.
func TestSnapshotFromBeforeAReplicaJoined(t *testing.T) {
	inBubble(t, func(t *testing.T, c *trio) {
		var all []string
		for i := range 40 {
			all = append(all, fmt.Sprintf("%04d %s", i, string(make([]byte, 500))))
			c.propose(all[i])
		}
		c.agree(all)
		g := c.leader().g
		g.mu.Lock()
		g.makeSnapshot()
		g.mu.Unlock()
		if err := g.AddLearner(4); err != nil {
			t.Fatal(err)
		}
		c.eventually("a fourth member", func() bool { return slices.Contains(g.Status().Members.Learners, 4) })
		c.join(4, vfs.NewCrashableMem(), State{})
		begin := time.Now()
		c.agree(all)
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the fourth node had everything after %v", took)
		}
	})
}
