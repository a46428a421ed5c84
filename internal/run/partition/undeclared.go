package partition

import (
	"cmp"
	"fmt"
	"slices"

	"bartleby.mq/internal/core/message"
)

// Undeclared is a queue that has messages and is not declared.
type Undeclared struct {
	Incarnation uint64
	VHost       message.VHost // of a replicated queue, from its log; else ""
	Name        string        // the same
	Group       uint64        // of a replicated queue
	MaxPriority int           // the highest level that it is known to have had
	Messages    int
}

// UndeclaredError is what Recover returns if Repair.KeepUndeclared is set and there are such queues. A start would
// take them for deleted and drop their messages. Nothing was dropped.
type UndeclaredError struct{ Queues []Undeclared }

// Error says how many queues and messages there are.
func (e *UndeclaredError) Error() string {
	n := 0
	for _, q := range e.Queues {
		n += q.Messages
	}
	return fmt.Sprintf("%d queues with %d messages are not declared", len(e.Queues), n)
}

// undeclared finds the undeclared queues that recovery has met.
func (r *recovery) undeclared() error {
	var found []Undeclared
	for _, q := range r.ghosts {
		if u := undeclaredQueue(q, 0); u.Messages > 0 {
			found = append(found, u)
		}
	}
	return undeclared(append(found, r.node.undeclaredOfGroups()...))
}

// undeclaredOfGroups returns the queues that groups have and that are not declared.
func (n *Node) undeclaredOfGroups() (found []Undeclared) {
	for _, p := range n.groups {
		for inc, q := range p.queues {
			if p.group.declared[inc] == nil {
				found = append(found, undeclaredQueue(q, p.group.id))
			}
		}
	}
	return found
}

func undeclaredQueue(q *Queue, group uint64) Undeclared {
	t := q.m.Totals()
	u := Undeclared{Incarnation: q.Incarnation, VHost: q.VHost, Name: q.Name, Group: group, Messages: t.Ready + t.Out + t.Delayed + t.Dying + t.Held + t.Offered}
	u.MaxPriority = q.m.Levels() - 1
	return u
}

// undeclared returns an error for these queues, nil if there are none.
func undeclared(found []Undeclared) error {
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b Undeclared) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
	return &UndeclaredError{found}
}
