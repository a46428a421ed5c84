package partition

import (
	"context"

	"bartleby.mq/internal/core/message"
)

// Stranded messages are routed anew by themselves once their exchange leads somewhere.
// Where it never will, an operator says where they go: to a queue, or back to the one
// they left. Like a rerouting it is one command, or one frame: a message is stranded or
// where it was sent, wherever a crash comes.

// Outbox is what one log has for another.
type Outbox struct {
	From, To LogName
	Waiting  int  // on their way
	Stranded int  // waiting for another target
	Closed   bool // the other log is gone for good
}

// LogName says which log: a group's number, or 0 and the node whose classic queues it
// is of.
type LogName struct{ Group, Node uint64 }

func logName(id uint64) LogName {
	if id >= localLog {
		return LogName{Node: id &^ localLog}
	}
	return LogName{Group: id}
}

// Outboxes are those of this node's logs that hold anything or are closed, in order.
func (n *Node) Outboxes() (list []Outbox) {
	n.eachMail(func(g *group, m *mail) {
		from := LogName{Node: n.NodeID}
		if g != nil {
			from = logName(g.id)
		}
		for _, b := range m.out {
			if len(b.entries)+len(b.stranded) > 0 || b.closed {
				list = append(list, Outbox{from, logName(b.to), len(b.entries), len(b.stranded), b.closed})
			}
		}
	})
	return list
}

// Relocation says which stranded messages go where.
type Relocation struct {
	VHost  message.VHost // whose queues they left
	Source *Queue        // the queue they left; nil: any, also those deleted since
	Target *Queue        // where they go; nil: back to the queue they left
	Limit  int           // how many at most; 0: all
}

// wants says whether the entry is one of them.
func (r *Relocation) wants(e *outEntry) bool {
	return e.vhost == r.VHost && (r.Source == nil || e.source == r.Source.Incarnation)
}

// Relocate sends what is stranded now elsewhere and returns how many went. One that has
// no place there, because its queue was deleted or a classic target is full, stays
// stranded, or is so again. An error means that ctx has ended, that the node stops, or that a group has no
// leader here (Lost); those before it went.
func (n *Node) Relocate(ctx context.Context, r Relocation) (moved int, err error) {
	defer func() { n.relocated.Add(uint64(moved)) }()
	for _, g := range n.logs() {
		below := n.numbersNow(g)
		for stay := 0; ; {
			limit := sliceLimit
			if r.Limit > 0 {
				limit = min(limit, r.Limit-moved)
			}
			found := n.pinStranded(g, below, r.wants, stay, limit)
			for i := range found {
				done := false
				if err == nil {
					err = ctx.Err()
				}
				if err == nil && n.stopped() {
					err = errLost
				}
				if err == nil {
					done, err = n.relocate(&found[i], r.Target)
				}
				if done {
					moved++
				} else {
					stay++
				}
				n.unpinStranded(found[i : i+1]) // it is in memory now
			}
			if err != nil {
				return moved, err
			}
			if len(found) == 0 {
				break
			}
		}
	}
	return moved, n.Journal.Sync()
}

// relocate sends one where it is asked to go.
func (n *Node) relocate(s *strandedEntry, to *Queue) (moved bool, err error) {
	if !n.Router.HasVHost(s.e.vhost, s.e.source) {
		return false, nil // the next retry ends it
	}
	if to == nil {
		if to = n.sourceOf(s); to == nil {
			return false, nil
		}
	}
	if !n.warmStranded(s) {
		return false, nil
	}
	p := &plan{targets: []*Queue{to}}
	p.split(s.part(n))
	if s.g == nil {
		return n.rerouteLocal(s, p, mailMove), nil
	}
	a := newAsk()
	err = s.g.question(a, func(w *commandWriter) { n.writeReroute(w, cmdRelocate, s, p) })
	return a.n > 0, err
}

// sourceOf is the queue that a stranded entry has left, nil if it is gone.
func (n *Node) sourceOf(s *strandedEntry) *Queue {
	parts := n.parts
	if s.g != nil {
		parts = []*Partition{s.g.p}
	}
	for _, p := range parts {
		p.mu.Lock()
		q := p.queues[s.e.source]
		p.mu.Unlock()
		if q != nil {
			return q
		}
	}
	return nil
}

// Relocated is how many stranded messages operators have sent elsewhere since the start.
func (n *Node) Relocated() uint64 { return n.relocated.Load() }
