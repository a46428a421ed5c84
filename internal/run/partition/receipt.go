package partition

import (
	"errors"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/safety/held"
)

// A Receipt stands for operations that Run has carried out. Their caller waits with it until they may be answered
// (Node.Await). The zero value stands for nothing: there is nothing to wait for.
type Receipt struct {
	journal journal.Pos // the journal must commit up to here: publishes into local queues
	decided journal.Pos // the groups' log must be decided up to here: publishes into replicated queues with an Owner
}

// Add makes r cover other operations, too.
func (r *Receipt) Add(other Receipt) {
	r.journal, r.decided = max(r.journal, other.journal), max(r.decided, other.decided)
}

// Await returns when all publishes of r are durable and all its proposals decided. Then the Owners have their
// answers, or another goroutine is about to give them. An error means that the disk failed and the node is stopping.
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

// Owner gets the answers of replicated queues to its publishes.
type Owner interface {
	// Answered is called with nothing locked, by the goroutine that applies: once for each group that has targets of
	// a publish. It must not block.
	Answered(answers []Answer)
}

// Answer is the result of a publish in one group.
type Answer struct {
	Token     uint64 // Op.Token
	Refused   bool   // a target refused it, or the result is unknown
	RefusedBy *Queue // the first target of the group that did, nil if the result is unknown
}

// A Pending is a publish that its Owner must answer for. It is done when it has run, is durable, and every group has
// answered; these come in any order. The zero value has not run. Its owner guards it.
type Pending struct {
	waits   int32 // answers still to come; negative while groups have answered before Ran
	ran     bool
	durable bool
	refused bool
}

// Ran notes the result of the publish when Run returns.
func (p *Pending) Ran(op *Op) {
	p.waits += op.Waits
	p.refused = p.refused || op.Refused
	p.ran = true
}

// Answer notes the answer of a group.
func (p *Pending) Answer(refused bool) {
	p.waits--
	p.refused = p.refused || refused
}

// Durable is called when the Receipt of everything that has run was awaited: if the publish has run, it is durable. It
// says whether the publish was known to be durable before.
func (p *Pending) Durable() (known bool) {
	known = p.durable
	p.durable = p.ran
	return known
}

// Done says whether the publish is done, and whether it was refused.
func (p *Pending) Done() (done, refused bool) { return p.durable && p.waits == 0, p.refused }
