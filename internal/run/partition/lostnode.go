package partition

import "bartleby.mq/internal/core/outbox"

// A node that has lost its disk, or was taken out of the cluster, never answers again.
// What groups have for its classic queues is stranded then, as if these had been
// deleted, and is routed anew; its consumers of replicated queues are gone, and what they
// held comes back. Both are decided in each group's log.
//
// Nothing is in two places by it: what the node had taken without a group's knowing
// has not left it (outbox.Boxes.Took), but for what a consumer of its classic queue got, which
// is delivered again, as an unsettled message is.

// ForgetNode has the groups led here give up a node that will never come back. Its id must
// not be used again. Whoever leads a group has to be told, so it may be called again
// and again, on every node; what was done already is not done twice.
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

// close strands what an outbox has, and lets nothing into it any more.
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
