package cluster

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"bartleby.mq/internal/disk/journal"
)

// process does what Raft asks for, until it asks for nothing: frames go to the
// journal's buffer, messages to the transport, decisions to the queue for the
// machine. It neither waits nor runs the machine. REQUIRES: mu.
func (g *Group) process() {
	for {
		g.settle()
		if !g.raft.HasReady() {
			break
		}
		rd := g.raft.Ready()
		if !raft.IsEmptyHardState(rd.HardState) {
			g.hard = hardState{rd.GetTerm(), rd.GetVote(), rd.GetCommit()}
		}
		if rd.SoftState != nil {
			g.state, g.leader = rd.RaftState, rd.Lead
			g.reads.failAll(&NotLeaderError{g.id, g.leader})
		}
		g.reads.answered(rd.ReadStates)
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				g.append(m)
			case raft.LocalApplyThread:
				g.work = append(g.work, work{entries: m.GetEntries(), response: m.GetResponses()[0]})
			default:
				g.out = append(g.out, m)
			}
		}
	}
	g.send()
	g.quiet.Store(g.state == raft.StateLeader && g.members.alone(g.d.opts.ID))
}

// append writes what a MsgStorageAppend carries. A commit index alone is not worth a
// frame: it goes along with the next one, and nothing depends on it.
func (g *Group) append(m *raftpb.Message) {
	entries := m.GetEntries()
	var snap *snapshot
	if s := m.GetSnapshot(); s != nil {
		snap = g.incoming
		g.log.reset(s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm())
	}
	if g.hard.term != g.written.term || g.hard.vote != g.written.vote || len(entries) > 0 || snap != nil {
		g.write(snap, entries)
	}
	if len(m.GetResponses()) > 0 || snap != nil {
		g.waits = append(g.waits, wait{g.pos, snap, m.GetResponses()})
	}
}

// write puts a snapshot and entries into the journal, and the entries into the log.
// There is mostly one frame.
func (g *Group) write(snap *snapshot, entries []*raftpb.Entry) {
	var hard *hardState
	if g.hard != g.written {
		hard = &g.hard
		g.written = g.hard
	}
	for {
		n, size := 0, 0
		for n < len(entries) && (n == 0 || size+len(entries[n].GetData()) <= maxFrameEntries) {
			size += len(entries[n].GetData())
			n++
		}
		pos, body := g.frames.write(g.d.opts.Journal, g.id, hard, snap, entries[:n])
		g.pos = pos
		if snap != nil {
			snap.at, snap.frame = body, pos
			body += journal.Pos(len(snap.data))
			g.restoring = snap
		}
		if n > 0 {
			g.log.append(entries[:n], body)
			for _, e := range entries[:n] {
				if kindOf(e) == kindMembers {
					g.lastMembers = e.GetIndex()
				}
			}
		}
		g.d.opts.Failpoint(FailRaftAppend)
		hard, snap, entries = nil, nil, entries[n:]
		if len(entries) == 0 {
			break
		}
	}
	g.d.appended(g.pos)
}

// settle goes on with what the journal has by now.
func (g *Group) settle() {
	committed := g.d.opts.Journal.Committed()
	n := 0
	for ; n < len(g.waits) && (g.waits[n].pos < committed || g.waits[n].pos == 0); n++ {
		w := g.waits[n]
		if w.snapshot != nil {
			g.work = append(g.work, work{snapshot: w.snapshot})
		}
		for _, m := range w.responses {
			if m.GetTo() == g.d.opts.ID {
				_ = g.raft.Step(m) // refused if the replica is no member any more
			} else {
				g.out = append(g.out, m)
			}
		}
	}
	g.waits = slices.Delete(g.waits, 0, n)
}

// send hands the messages for others to the transport, those for one node together
// and in order.
func (g *Group) send() {
	for len(g.out) > 0 {
		to := g.out[0].GetTo()
		var batch []Message
		kept := g.out[:0]
		for _, m := range g.out {
			switch {
			case m.GetTo() != to:
				kept = append(kept, m)
			case m.GetType() == raftpb.MsgSnap:
				g.sendSnapshot(m)
			default:
				batch = append(batch, Message{raft: m})
			}
		}
		clear(g.out[len(kept):])
		g.out = kept
		if len(batch) > 0 {
			g.d.opts.Transport.Send(to, g.id, batch)
		}
	}
}
