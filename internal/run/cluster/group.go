package cluster

import (
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/safety/held"
)

const (
	maxMessageBytes   = 1 << 20  // of entries, in one message
	maxApplyBytes     = 4 << 20  // of entries, under way to the machine
	maxInflight       = 256      // messages to a follower, not answered
	maxInflightBytes  = 16 << 20 // of their entries
	snapshotTailTimes = 4        // the tail may grow so much while a snapshot is under way
)

// Group is one replica of a group.
//
// Its lock guards what Raft and the log hold, and is never held while the machine
// runs. The machine is run in turns: who finds work takes the turn, does all there
// is, and gives it back; who finds it taken leaves the work to the other.
type Group struct {
	id       uint64
	d        *Driver
	machine  Machine
	statePos journal.Pos // frames before it are in the State it was opened with

	quiet atomic.Bool // needs no ticks

	mu      held.Mutex
	err     error // a *LostError: it must not run
	stopped bool
	raft    *raft.RawNode // nil before start
	log     log
	hard    hardState // as Raft has it
	written hardState // as the journal's last frame has it
	members Members   // as applied
	pos     journal.Pos
	frames  frameWriter
	waits   []wait            // for the journal, in order
	out     []*raftpb.Message // to other nodes

	state        raft.StateType
	leader       uint64 // 0: not known
	lastMembers  uint64 // index of the last change of members in the log
	outgoing     *snapshot
	outgoingAge  int // in ticks
	wantSnapshot bool
	incoming     *snapshot // of the message that is being stepped

	reads reads

	// The turn's.
	turning     bool
	unfinished  bool // the committer is to go on
	short       bool // a proposal was refused since room was made last
	room        bool // there may be some now, which the machine is to be told
	work        []work
	applied     uint64
	appliedTerm uint64
	led         uint64 // the term the machine was told it leads, 0: it was not
	told        uint64 // the leader the machine was told of
	batch       []Entry
	last        Entry     // of batch, without data
	restoring   *snapshot // the last one in the journal, not restored yet
}

// wait is what follows once the journal has committed pos.
type wait struct {
	pos       journal.Pos
	snapshot  *snapshot
	responses []*raftpb.Message
}

// work is something for the machine: entries, or a snapshot to restore.
type work struct {
	entries  []*raftpb.Entry
	response *raftpb.Message
	snapshot *snapshot
}

func newGroup(d *Driver, id uint64, m Machine, st *State) *Group {
	g := &Group{
		id: id, d: d, machine: m, statePos: st.Pos,
		hard:    hardState{st.Term, st.Vote, st.Commit},
		members: st.Members.clone(), applied: st.Applied, appliedTerm: st.AppliedTerm,
	}
	held.Name(&g.mu, "a group")
	if st.Pos > 0 {
		g.pos = st.Pos - 1
	}
	g.written = g.hard
	g.log.reset(st.Applied, st.AppliedTerm)
	for i := range st.Entries {
		e := &st.Entries[i]
		if e.Index != g.log.last()+1 {
			g.err = &LostError{id, g.log.last(), e.Index}
			break
		}
		g.put(raftEntry(e), e.At)
	}
	return g
}

// put appends one entry to the log in memory.
func (g *Group) put(e *raftpb.Entry, at journal.Pos) {
	if kindOf(e) == kindMembers {
		g.lastMembers = e.GetIndex()
	}
	g.log.append([]*raftpb.Entry{e}, at)
}

// start makes the replica run. The only member stands for election at once.
func (g *Group) start() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	if g.hard.commit < g.applied || g.hard.commit > g.log.last() {
		return &LostError{g.id, g.log.last(), g.hard.commit}
	}
	o := &g.d.opts
	var err error
	g.raft, err = raft.NewRawNode(&raft.Config{
		ID: o.ID, ElectionTick: o.ElectionTicks, HeartbeatTick: 1, Storage: storage{g}, Applied: g.applied,
		AsyncStorageWrites: true, MaxSizePerMsg: maxMessageBytes, MaxCommittedSizePerReady: maxApplyBytes,
		MaxUncommittedEntriesSize: uint64(o.MaxUncommitted), MaxInflightMsgs: maxInflight, MaxInflightBytes: maxInflightBytes,
		CheckQuorum: true, PreVote: true, Logger: raftLogger{o.Logger.With("group", g.id)},
		DisableProposalForwarding: true, StepDownOnRemoval: true,
	})
	if err != nil {
		return err
	}
	g.process()
	g.turn() // members that were decided on have to be known before an election
	if g.members.alone(o.ID) {
		if err := g.raft.Campaign(); err != nil {
			return err
		}
		g.process()
		g.turn()
	}
	return nil
}

func (g *Group) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	g.reads.failAll(ErrStopped)
	failed := g.reads.due(0)
	g.unlocked(func() {
		for _, fn := range failed {
			fn()
		}
	})
}

// running reports whether the group takes anything. REQUIRES: mu.
func (g *Group) running() bool { return g.raft != nil && !g.stopped && !g.d.stopped.Load() }

// ID is the group's.
func (g *Group) ID() uint64 { return g.id }

// Propose asks the group to decide data, which it copies. Nil means that it is on
// its way: once decided, every replica's Machine.Apply gets it; if this replica stops
// leading before that, it may or may not. It fails with a *NotLeaderError where this
// replica does not lead (or its machine was not told yet), with ErrBusy, ErrTooLarge,
// ErrStopped. It may be called with the machine locked.
func (g *Group) Propose(data []byte) error {
	_, err := g.Append(data)
	if err == nil {
		g.d.wake()
	}
	return err
}

// Append is Propose for callers that see to a Driver.Commit of the position they get,
// or a later one, themselves. Nobody is woken for it.
func (g *Group) Append(data []byte) (journal.Pos, error) {
	if len(data) > maxProposal {
		return 0, ErrTooLarge
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.leading(); err != nil {
		return 0, err
	}
	// Raft clones what is proposed, data included: the one copy it needs.
	if err := g.raft.Propose(data); err != nil {
		g.short = true
		return 0, ErrBusy
	}
	g.process()
	return g.pos, nil
}

// leading returns nil if this replica leads and its machine knows. REQUIRES: mu.
func (g *Group) leading() error {
	switch {
	case !g.running():
		return ErrStopped
	case g.state != raft.StateLeader:
		return &NotLeaderError{g.id, g.leader}
	case g.led != g.hard.term:
		return &NotLeaderError{g.id, 0}
	}
	return nil
}

// Leader returns the id of the node that leads, 0 if none is known to, and whether
// it is this one.
func (g *Group) Leader() (id uint64, me bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leader, g.state == raft.StateLeader
}

// State is what a checkpoint has to hold beside the machine's own state. It is to be
// called while the machine is locked, so that nothing is applied between the two;
// applied is the index of the last entry the machine has applied (or restored).
//
// The journal must have committed what it held at that moment before the checkpoint
// may count. Then segments before State.Pos hold nothing the group needs, but for the
// bodies that entries and the machine refer to by Entry.At.
func (g *Group) State(applied uint64) State {
	g.mu.Lock()
	defer g.mu.Unlock()
	applied = max(applied, g.applied) // a machine that was given nothing yet is where the group was opened
	st := State{
		Term: g.hard.term, Vote: g.hard.vote, Commit: g.hard.commit,
		Applied: applied, AppliedTerm: g.termApplied(applied), Members: g.members.clone(),
	}
	if g.restoring != nil {
		// A snapshot has replaced the log and waits for the machine. The frame that
		// holds it, and those behind it, will be read again.
		st.Pos, st.Commit, st.Restoring = g.restoring.frame, applied, true
		return st
	}
	st.Pos = max(g.pos+1, g.d.opts.Journal.Committed())
	for i := applied + 1; i <= g.log.last(); i++ {
		st.Entries = append(st.Entries, g.log.entry(i))
	}
	return st
}

// termApplied is the term of an entry the machine has applied, though perhaps nobody
// has taken note of that yet.
func (g *Group) termApplied(index uint64) uint64 {
	switch index {
	case g.applied:
		return g.appliedTerm
	case g.last.Index:
		return g.last.Term
	}
	term, _ := g.log.term(index)
	return term
}

// Compact forgets the log up to index, as far as it is applied. Followers that need
// it get a snapshot. The driver does so by itself, see Options.TailBytes.
func (g *Group) Compact(index uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log.drop(min(index, g.applied))
}

// receive steps messages of other replicas.
func (g *Group) receive(messages []Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running() {
		return
	}
	for _, m := range messages {
		if m.To() != g.d.opts.ID {
			continue
		}
		if m.isSnapshot() {
			meta := m.raft.GetSnapshot().GetMetadata()
			g.incoming = &snapshot{
				index: meta.GetIndex(), term: meta.GetTerm(), data: m.snapshot,
				members: Members{meta.GetConfState().GetVoters(), meta.GetConfState().GetLearners()},
			}
		}
		if g.lacks(m) {
			return
		}
		// An error means that the message is of no use any more.
		_ = g.raft.Step(m.raft)
		if g.incoming != nil {
			g.process()
			g.incoming = nil
		}
	}
	g.process()
	g.turn()
}

// lacks looks for the one thing a leader says that only a replica that has lost part of
// its log cannot believe: that it has what is decided, because it said so before.
// Then the replica ends.
func (g *Group) lacks(m Message) bool {
	if m.raft.GetType() != raftpb.MsgHeartbeat || m.raft.GetCommit() <= g.log.last() {
		return false
	}
	g.process() // a message before this one may have brought it
	if m.raft.GetCommit() <= g.log.last() || m.raft.GetTerm() < g.hard.term {
		return false
	}
	g.err = &LostError{g.id, g.log.last(), m.raft.GetCommit()}
	g.stopped = true
	g.reads.failAll(ErrStopped)
	failed := g.reads.due(0)
	g.unlocked(func() {
		for _, fn := range failed {
			fn()
		}
		g.d.opts.OnLost(g.err)
	})
	return true
}

// durable goes on with what waited for the journal.
func (g *Group) durable() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running() && (g.unfinished || len(g.waits) > 0 || len(g.work) > 0) {
		g.process()
		g.turn()
	}
}

// tick lets a tick pass.
func (g *Group) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running() || g.quiet.Load() {
		return
	}
	g.raft.Tick()
	g.reads.tick()
	g.ageSnapshot()
	g.process()
	g.turn()
}

// ticks reports whether the group needs any: not where the only member leads.
func (g *Group) ticks() bool { return !g.quiet.Load() }

// recovered takes a frame of the journal, before start.
func (g *Group) recovered(pos journal.Pos, f *frame) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil || pos < g.statePos {
		return g.err
	}
	g.pos = pos
	if f.hard != nil {
		g.hard, g.written = *f.hard, *f.hard
	}
	if s := f.snapshot; s != nil {
		var err error
		g.unlocked(func() { err = g.machine.Restore(s.data, s.at) })
		if err != nil {
			return err
		}
		g.log.reset(s.index, s.term)
		g.applied, g.appliedTerm, g.members = s.index, s.term, s.members.clone()
		g.hard.commit = max(g.hard.commit, s.index)
	}
	for i := range f.entries {
		e := &f.entries[i]
		if e.Index > g.log.last()+1 {
			g.err = &LostError{g.id, g.log.last(), e.Index}
			return g.err
		}
		if e.Index <= g.applied {
			continue
		}
		e.Data = append([]byte(nil), e.Data...) // the frame is the journal's
		g.put(raftEntry(e), e.At)
	}
	g.redo()
	return nil
}

// redo applies what is known to be decided, so that a long journal is not held in
// memory.
func (g *Group) redo() {
	to := min(g.hard.commit, g.log.last())
	if to <= g.applied {
		return
	}
	g.batch = g.batch[:0]
	for i := g.applied + 1; i <= to; i++ {
		e := g.log.entry(i)
		if e.kind == kindMembers {
			g.members.change(membersChange(e.Data))
			e.Data = nil
		}
		g.batch = append(g.batch, e)
	}
	g.unlocked(func() { g.machine.Apply(g.batch) })
	g.applied, g.appliedTerm = to, g.batch[len(g.batch)-1].Term
	clear(g.batch)
	g.log.drop(to)
}

// trim bounds the tail of the log that is kept for followers.
func (g *Group) trim() {
	if g.members.alone(g.d.opts.ID) {
		g.log.drop(g.applied)
		return
	}
	limit := g.d.opts.TailBytes
	if g.outgoing != nil {
		limit *= snapshotTailTimes
	}
	over, to := g.log.bytes-limit, g.log.base
	for i := 0; over > 0 && to < g.applied; i++ {
		over -= len(g.log.entries[i].GetData())
		to++
	}
	g.log.drop(to)
}

// Status is a replica as it sees itself and, if it leads, the others.
type Status struct {
	Group, Node uint64
	Leader      uint64 // 0: not known
	Leading     bool   // it leads, and its machine knows
	Term        uint64
	Commit      uint64 // decided up to here, as far as it knows
	Applied     uint64
	First, Last uint64 // of the log in memory
	LogBytes    int    // of data in it
	Members     Members
	Peers       []Peer // of a leader: all others, by id
}

// Peer is a replica as the leader sees it.
type Peer struct {
	ID      uint64
	Learner bool
	Match   uint64 // it has the log up to here
	State   string // probe, replicate or snapshot
	Active  bool   // it was heard of lately
}

// Status describes the replica.
func (g *Group) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := Status{
		Group: g.id, Node: g.d.opts.ID, Leader: g.leader, Leading: g.running() && g.leading() == nil,
		Term: g.hard.term, Commit: g.hard.commit, Applied: g.applied,
		First: g.log.first(), Last: g.log.last(), LogBytes: g.log.bytes, Members: g.members.clone(),
	}
	if st.Leading {
		st.Peers = g.peers()
	}
	return st
}
