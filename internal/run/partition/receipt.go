package partition

import (
	"errors"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/safety/held"
)

// A Receipt is what Run gives for operations: with it their caller waits until they may be answered for
// (Node.Await). The zero value is that of nothing, for which nobody need wait.
type Receipt struct {
	journal journal.Pos // what the journal must have committed: publishes into local queues
	decided journal.Pos // what the groups' log must have decided: publishes into replicated queues with an Owner
}

// Add makes r the receipt of other operations, too.
func (r *Receipt) Add(other Receipt) {
	r.journal, r.decided = max(r.journal, other.journal), max(r.decided, other.decided)
}

// Await returns when what was published is durable, and what was proposed to groups is decided: its Owners have their
// answers by then, or somebody else is about to give them. An error means that the disk failed and the node is stopping.
func (n *Node) Await(r Receipt) (err error) {
	held.Nothing("the journal")
	if r.decided != 0 {
		err = n.Cluster.Commit(r.decided)
	}
	if r.journal != 0 {
		err = errors.Join(err, n.Journal.Commit(r.journal))
	}
	return err
}

// Owner is told what became of publishes into replicated queues.
type Owner interface {
	// Answered is called with nothing locked, by whatever goroutine applies: once
	// for each group that a publish has targets in. It must not block.
	Answered(answers []Answer)
}

// Answer is what became of a publish in one group.
type Answer struct {
	Token   uint64 // Op.Token
	Refused bool   // a target did not take it, or nobody knows what became of it
}

// A Pending is a publish that its Owner has to answer for. It is done once it has run, what it
// rests on is durable, and every group has answered, in whatever order. The zero value has not run. It is guarded by its owner.
type Pending struct {
	waits   int32 // answers of groups still to come; below 0 while some came before it ran
	ran     bool
	durable bool
	refused bool
}

// Ran notes what is known of the publish when Run returns.
func (p *Pending) Ran(op *Op) {
	p.waits += op.Waits
	p.refused = p.refused || op.Refused
	p.ran = true
}

// Answer notes what a group says.
func (p *Pending) Answer(refused bool) {
	p.waits--
	p.refused = p.refused || refused
}

// Durable notes that the Receipt of all that has run was awaited. It says whether that was known of the publish.
func (p *Pending) Durable() (known bool) {
	known = p.durable
	p.durable = p.ran
	return known
}

// Done says whether everything is known of the publish, and whether it was refused.
func (p *Pending) Done() (done, refused bool) { return p.durable && p.waits == 0, p.refused }
