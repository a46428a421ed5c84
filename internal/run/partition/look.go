package partition

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// Extent is what a queue holds at one moment, without its entries.
type Extent struct {
	There   queue.Cursor // before the first entry; it ends with what is there now
	Entries int
	Ready   int // of these
	Offered int // of these: on their way to another log, whose answer is not there
}

// Left rises with each entry that leaves the queue. If it is the same at two moments, nothing has left in between.
// It may also rise by numbers that no entry got.
func (e *Extent) Left() uint64 {
	issued := uint64(0)
	for _, end := range e.There.Ends() {
		issued += end
	}
	return issued - uint64(e.Entries)
}

// Extent returns what the queue holds now.
func (n *Node) Extent(q *Queue) (e Extent, err error) {
	err = n.with(q, func(*hold) {
		c := q.m.Count
		e = Extent{q.m.WhatIsThere(), c.Ready + c.Out + c.Delayed + c.Dying + c.Held + c.Offered, c.Ready, c.Offered}
	})
	return e, err
}

// Look shows entries by their ids, as Browse does. Those that are not there any more are left out.
func (n *Node) Look(q *Queue, ids []queue.ID, f func(v queue.View, r message.Record, history []byte) bool) error {
	var views []queue.View
	err := n.with(q, func(*hold) {
		for _, id := range ids {
			if v, ok := q.m.View(id); ok {
				views = append(views, n.pin(v))
			}
		}
	})
	if _, whole, failed := n.show(q, queue.Cursor{}, views, f); !whole {
		return failed
	}
	return err
}
