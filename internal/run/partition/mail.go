package partition

import (
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
)

// A message moves between two logs, two groups or a group and the local
// partitions, through an outbox: the move puts it there, in the same frame or
// command that takes it out of its queue, and its number follows the one before
// without a gap. The receiver takes number n+1 after n and nothing else: all it has
// to remember is one integer for each source, and what is sent again does nothing.
// When the source has the answer in its own log the entry is gone.
//
// So wherever a crash comes, the message is in its queue, or in the outbox, or in
// the outbox and its target, where the outbox only waits to hear so.

// mail is what a log has for other logs and knows of theirs. A group's is guarded
// by its partition's mutex, that of the local partitions by Node.mailMu.
type mail struct {
	out []*outbox // by destination
	in  []*inbox  // by source

	// Held deaths whose queue was deleted, and that nobody has taken yet who was asked. They
	// are for counters, and this process's own.
	late map[heldDeath]*lateDeath
	// Queues that were deleted and are not buried yet, if some of their held deaths were sent here: by incarnation.
	ended map[uint64]*Queue

	// Of the local partitions in this process; see onward.go.
	taken   uint64 // how many takes there were
	unheard []take // the newest of them, in order
}

// heldDeath names a death that is held in its queue.
type heldDeath struct {
	source uint64
	id     queue.ID
}

// lateDeath is what becomes of it.
type lateDeath struct {
	asked  int // who have not answered
	reason deadletter.Reason
}

// outbox is what one log has for another. Entries are numbered from first on.
type outbox struct {
	to       uint64
	first    uint64
	entries  []outEntry
	stranded []outEntry // whose queue is gone: they wait until they can be routed anew
	closed   bool       // the log is gone for good

	// This process's own.
	sent uint64      // up to this number they were sent
	pos  journal.Pos // local: the frame that made the newest

	unread int64 // since when something in it cannot be read, 0: all can
}

// outEntry is a message on its way to another log.
type outEntry struct {
	number  uint64
	target  uint64   // queue it goes to
	source  uint64   // queue it comes from
	id      queue.ID // not 0: it is held there until all targets have taken it, or with mailMove offered until they have answered
	flags   uint8
	reason  deadletter.Reason // why it died; 0 for a replay
	vhost   message.VHost     // of the source
	failed  uint32            // deliveries that failed
	body    message.Ref
	history message.Ref

	after uint64 // the takes of this process that it may come of
}

// The flags of an entry on its way.
const (
	mailForce  = 1 << iota // a quorum queue takes it beyond its limit (DL-6.12)
	mailCounts             // what becomes of it is the outcome of its death
	mailMove               // somebody asked for the move: it is not lost if a target is full
	mailImpose             // the target takes it beyond its limit: others have it already
	mailShared             // others got the same death: if its queue is gone it has gone with that
	mailFlags  = 1<<iota - 1
)

// inbox is what a log has taken from another.
type inbox struct {
	from     uint64
	last     uint64    // everything up to it was taken or refused
	refusals []refusal // that the source may not have heard of
}

// refusal says that an entry was not taken.
type refusal struct {
	number uint64
	why    mailAnswer
}

// mailAnswer is why an entry was not taken.
type mailAnswer uint8

// The answers.
const (
	mailFull   mailAnswer = iota + 1 // the queue is full (DL-10.7)
	mailGone                         // the queue is gone
	mailUnread                       // there was none: what was sent took the place of what could not be read (blank)
)

// Log numbers: a group's is its id.
const localLog = 1 << 32 // and the node's id

// box is the outbox for a log, made if there is none.
func (m *mail) box(to uint64) *outbox {
	i, ok := m.search(to)
	if !ok {
		m.out = slices.Insert(m.out, i, &outbox{to: to, first: 1})
	}
	return m.out[i]
}

// find is the outbox for a log, nil if there is none.
func (m *mail) find(to uint64) *outbox {
	if i, ok := m.search(to); ok {
		return m.out[i]
	}
	return nil
}

func (m *mail) search(to uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(m.out, to, func(b *outbox, to uint64) int { return compare(b.to, to) })
}

func (m *mail) inbox(from uint64) *inbox {
	i, ok := slices.BinarySearchFunc(m.in, from, func(b *inbox, from uint64) int { return compare(b.from, from) })
	if !ok {
		m.in = slices.Insert(m.in, i, &inbox{from: from})
	}
	return m.in[i]
}

// last is the number up to which everything from a log was taken.
func (m *mail) last(from uint64) uint64 {
	for _, b := range m.in {
		if b.from == from {
			return b.last
		}
	}
	return 0
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// unsent forgets what was sent, so that it is sent again.
func (m *mail) unsent() {
	for _, b := range m.out {
		b.sent = 0
	}
}

// written notes the frame that holds what was put into the outboxes.
func (m *mail) written(pos journal.Pos) {
	for _, b := range m.out {
		b.pos = max(b.pos, pos)
	}
}

// next is the number that the next entry gets.
func (b *outbox) next() uint64 { return b.first + uint64(len(b.entries)) }

// put appends an entry; its references pass to the outbox.
func (b *outbox) put(e outEntry) uint64 {
	e.number = b.next()
	b.entries = append(b.entries, e)
	return e.number
}

// answered takes the entries up to a number out, in order.
func (b *outbox) answered(upTo uint64) []outEntry {
	if upTo < b.first {
		return nil
	}
	n := min(upTo-b.first+1, uint64(len(b.entries)))
	taken := b.entries[:n]
	b.first += n
	if b.entries = b.entries[n:]; len(b.entries) == 0 {
		b.entries = nil
	}
	return taken
}

// accept says whether an entry is the next one; if so it counts as taken.
func (b *inbox) accept(number uint64) bool {
	if number != b.last+1 {
		return false
	}
	b.last = number
	return true
}

// heard forgets the refusals that the source has acted on.
func (b *inbox) heard(upTo uint64) {
	n := 0
	for n < len(b.refusals) && b.refusals[n].number <= upTo {
		n++
	}
	if b.refusals = b.refusals[n:]; len(b.refusals) == 0 {
		b.refusals = nil
	}
}

func (b *inbox) refuse(number uint64, why mailAnswer) {
	b.refusals = append(b.refusals, refusal{number, why})
}

// why is the refusal of an entry, 0 if it was taken.
func why(list []refusal, number uint64) mailAnswer {
	i, ok := slices.BinarySearchFunc(list, number, func(r refusal, n uint64) int { return compare(r.number, n) })
	if !ok {
		return 0
	}
	return list[i].why
}

// logID is the number of the log that the partition's queues are in.
func (p *Partition) logID() uint64 {
	if p.group != nil {
		return p.group.id
	}
	return localLog | p.node.NodeID
}

// mailOf is the mail of q's log. That of the local partitions stays locked until
// the hold has written its frame, so that numbers and frames are in one order.
// REQUIRES: the partition of q is held by h.
func (n *Node) mailOf(h *hold, q *Queue) *mail {
	if g := q.part.group; g != nil {
		return &g.mail
	}
	if !h.mailing {
		n.mailMu.Lock()
		h.mailing = true
	}
	return &n.mail
}
