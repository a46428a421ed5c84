package cluster

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"bartleby.mq/internal/safety/bug"
)

// maxTurn is how many things one goroutine does for the machine before it leaves the
// rest to the committer: a proposer must not work for the others for ever.
const maxTurn = 64

// turn runs the machine until there is nothing for it to do, unless another
// goroutine is at it. REQUIRES: mu, which is released while the machine runs.
func (g *Group) turn() {
	if g.turning {
		return
	}
	g.turning, g.unfinished = true, false
	for n := 1; g.running() && g.next(); n++ {
		if n%maxTurn == 0 && g.d.committer.owe() {
			g.unfinished = true
			break
		}
	}
	g.turning = false
}

// next does one thing for the machine. What it is told of its role comes before
// the decisions that role brings.
func (g *Group) next() bool {
	leads := g.state == raft.StateLeader
	switch {
	case g.led != 0 && (!leads || g.led != g.hard.term), !leads && g.told != g.leader:
		g.led, g.told = 0, g.leader
		if leads {
			g.told = 0
		}
		g.unlocked(func() { g.machine.Following(g.told) })
	case len(g.work) > 0:
		w := g.work[0]
		g.work[0] = work{}
		g.work = g.work[1:]
		if w.snapshot != nil {
			g.restore(w.snapshot)
		} else {
			g.apply(&w)
		}
	case leads && g.led == 0 && g.appliedTerm == g.hard.term:
		g.led, g.told = g.hard.term, g.d.opts.ID
		g.unlocked(func() { g.machine.Leading(g.led) })
	case g.room:
		g.room = false
		if m, ok := g.machine.(Waiter); ok && leads {
			g.unlocked(m.Room)
		}
	case g.wantSnapshot:
		g.makeSnapshot()
	default:
		done := g.reads.due(g.applied)
		if len(done) == 0 {
			return false
		}
		g.unlocked(func() {
			for _, fn := range done {
				fn()
			}
		})
	}
	return true
}

// unlocked runs fn without the group's lock.
func (g *Group) unlocked(fn func()) {
	g.mu.Unlock()
	defer g.mu.Lock()
	defer bug.End(g.d.opts.Logger, "a group") // before it: nobody waits for a lock in a panic
	fn()
}

// apply hands decisions to the machine. Members change before it sees their entry:
// a State taken in between has them a moment early, and taking them again changes
// nothing.
func (g *Group) apply(w *work) {
	if w.entries[0].GetIndex() < g.log.first() {
		_ = g.raft.Step(w.response) // a snapshot to come has them
		g.process()
		return
	}
	g.batch = g.batch[:0]
	quiet := g.quiet.Load()
	for _, r := range w.entries {
		e := g.log.entry(r.GetIndex())
		if e.kind == kindMembers {
			cc := membersChange(e.Data)
			g.members.change(cc)
			g.raft.ApplyConfChange(cc)
			e.Data = nil
		}
		g.batch = append(g.batch, e)
	}
	g.last = g.batch[len(g.batch)-1]
	g.last.Data = nil
	g.unlocked(func() {
		g.d.opts.Failpoint(FailRaftCommit)
		g.machine.Apply(g.batch)
		g.d.opts.Failpoint(FailRaftApplied)
	})
	clear(g.batch)
	g.applied, g.appliedTerm = g.last.Index, g.last.Term
	_ = g.raft.Step(w.response)
	g.room, g.short = g.room || g.short, false
	g.trim()
	g.process()
	if quiet && !g.quiet.Load() {
		g.d.ticker.arm()
	}
}

// membersChange decodes the data of an entry that changes members: our own, or
// checked when it arrived.
func membersChange(data []byte) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(data, cc); err != nil {
		panic("cluster: a change of members in the log does not decode: " + err.Error())
	}
	return cc
}
