package partition

// The local partitions of a node are lost with its disk, and groups are not. If a
// message from a group had gone on to another log before the group knew that it was
// taken, and the disk went then, the group could not tell whether to send it
// elsewhere: it would be lost, or be in two places. So what the local partitions have
// for other logs waits until the groups it may have come from know.
//
//	group ──outIn──► local ──┬─answer──► group: outAck decided
//	                         └─ onward, to another log: not before that
//
// A replica of each group is on this node, so looking at it is enough. Neither is
// written down: after a start all that was ever taken is looked at anew.

// take is what the local partitions took from a group at once.
type take struct {
	from uint64 // the group
	last uint64 // the number of the last entry
}

// took notes a take: what is put into an outbox from here on may come of it.
func (m *mail) took(from, last uint64) {
	m.taken++
	m.unheard = append(m.unheard, take{from, last})
}

// free says whether nothing keeps an entry here any more.
func (m *mail) free(e *outEntry) bool { return e.after <= m.taken-uint64(len(m.unheard)) }

// retake takes everything that was ever taken as not heard of. REQUIRES: recovery has
// read all there is.
func (m *mail) retake() {
	for _, b := range m.in {
		m.took(b.from, b.last)
	}
	for _, b := range m.out {
		for i := range b.entries {
			b.entries[i].after = m.taken
		}
	}
}

// hear looks at the groups' own replicas for what they know to have been taken.
func (n *Node) hear() {
	n.mailMu.Lock()
	waits := len(n.mail.unheard) > 0
	n.mailMu.Unlock()
	if !waits {
		return
	}
	known := map[uint64]uint64{}
	for _, p := range n.groups {
		p.mu.Lock()
		if box := p.group.mail.find(localLog | n.NodeID); box != nil && !box.closed {
			known[p.group.id] = box.first - 1
		}
		p.mu.Unlock()
	}
	n.mailMu.Lock()
	defer n.mailMu.Unlock()
	m := &n.mail
	for len(m.unheard) > 0 && known[m.unheard[0].from] >= m.unheard[0].last {
		m.unheard = m.unheard[1:]
	}
	if len(m.unheard) == 0 {
		m.unheard = nil
	}
}

// heard has the local sender look whether the answer that a group has just applied
// lets something go.
func (n *Node) heard(to uint64) {
	if to != localLog|n.NodeID {
		return
	}
	select {
	case n.sendc <- struct{}{}:
	default:
	}
}
