package partition

import "bartleby.mq/internal/core/outbox"

// A node that lost its disk, or was removed from the cluster, never answers again. Messages that groups have for its
// classic queues are stranded, as if these queues were deleted, and routed anew. Its consumers of replicated queues
// are detached, and their deliveries come back. Both are decided in each group's log.
//
// No message is duplicated by that: what the node took while the group did not know it yet has not left the node
// (outbox.Boxes.Took). The exception is a message that went to a consumer of a classic queue there: it is delivered
// again, like any unsettled message.

// ForgetNode makes the groups led here give up a node that will never come back. Its id must not be used again. The
// leader of each group must be called, so call it on every node, as often as needed: what was done is not done again.
func (n *Node) ForgetNode(node uint64) {
	if node == n.NodeID {
		return
	}
	for _, p := range n.groups {
		g := p.group
		p.mu.Lock()
		box := p.outboxes.Find(localLog | node)
		shut := g.leads && box != nil && !box.Closed()
		var origins []uint64
		if g.leads {
			origins = g.originsOf(node)
		}
		p.mu.Unlock()
		if shut {
			_ = g.tell(func(w *commandWriter) { w.op(cmdClose, localLog|node) })
		}
		for _, origin := range origins {
			_ = g.tell(func(w *commandWriter) { w.op(cmdGone, origin) })
		}
	}
}

// close strands the content of an outbox and closes it.
func (a *application) close() {
	to := a.r.uint()
	if a.r.bad {
		return
	}
	o := a.g.p.outboxes
	box := o.To(to)
	entries := box.Close()
	a.h.entries += len(entries)
	for i := range entries {
		o.settle(a.h, box, &entries[i], outbox.Gone, o.queue)
	}
	a.h.flowWithdrawn()
}
