package partition

import (
	"encoding/binary"
	"fmt"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
)

// The parts of a checkpoint beside the pages of queues. They are noted at the cut under the partitions' locks: for
// each group what its log must know (cluster.State) and its state without entries; for the local partitions their
// outboxes and which targets have taken held deaths. Consumers and their deliveries may be millions, so the cut only
// begins an image of them (groupImage). All is written in the batch that makes the checkpoint count.
//
//	group  'g' | id u64      state length | cluster.State | the group's state, see state.go
//	local  'l'               version byte | outboxes | n | n × (queue | id | n × answered) | tallies | n | n × (queue | sent)
const localVersion = 1

// extra is such a part as key and value. The value of a group is completed by completeExtras.
type extra struct {
	key, value []byte
	image      *groupImage
}

func groupKey(id uint64) []byte { return binary.BigEndian.AppendUint64([]byte{keyGroup}, id) }

// extrasAtCut begins these parts. It returns the first segment of the journal that recovery may need for commands
// that groups have not applied yet. ok is false if a group is about to be replaced by a snapshot: recovery would not
// find the snapshot behind the cut. REQUIRES: all partitions and their outboxes are held.
func (n *Node) extrasAtCut(cut journal.Pos) (extras []extra, floor uint32, ok bool) {
	floor = cut.Segment()
	for _, p := range n.groups {
		st := p.group.log.State(p.group.applied)
		if st.Restoring {
			return nil, 0, false
		}
		for i := range st.Entries {
			if at := st.Entries[i].At; at != 0 {
				floor = min(floor, at.Segment())
			}
		}
		w := commandWriter{}
		w.raw(st.Append(nil))
		extras = append(extras, extra{key: groupKey(p.group.id), value: w.b})
	}
	for i, p := range n.groups {
		extras[i].image = p.group.image((*queue.Machine).KeepRest, n.locate)
	}
	return append(extras, extra{key: []byte{keyLocal}, value: n.appendLocal(nil)}), floor, true
}

// completeExtras completes the groups' values. It holds one group at a time, for slices.
func (n *Node) completeExtras(extras []extra) error {
	for i := range extras {
		e := &extras[i]
		if e.image == nil {
			continue
		}
		if err := e.image.collect(); err != nil {
			return err
		}
		e.value = e.image.append(e.value, nil)
		e.image = nil
	}
	return nil
}

func (n *Node) appendLocal(b []byte) []byte {
	w := commandWriter{b: append(b, localVersion)}
	n.outboxes.append(&w, n.locate)
	type held struct {
		queue, id uint64
		answered  []uint64
	}
	var list []held
	for _, p := range n.parts {
		for _, q := range p.queues {
			for id, answered := range q.waiting.taken {
				if q.Durable {
					list = append(list, held{q.Incarnation, uint64(id), answered})
				}
			}
		}
	}
	w.uint(uint64(len(list)))
	for _, h := range list {
		w.uint(h.queue)
		w.uint(h.id)
		w.numbers(h.answered)
	}
	n.tallies.append(&w)
	var sent []*Queue
	for _, p := range n.parts {
		for _, q := range p.queues {
			if q.Durable && len(q.sent) > 0 {
				sent = append(sent, q)
			}
		}
	}
	w.uint(uint64(len(sent)))
	for _, q := range sent {
		w.uint(q.Incarnation)
		q.appendSent(&w)
	}
	return w.b
}

// locate writes the place of a body in the journal or the keep, which is enough for a checkpoint. A body that is only
// in memory is written itself.
func (n *Node) locate(w *commandWriter, body message.Ref) {
	if at := n.bodies.Location(body); at != 0 && at.Space() != message.InScratch {
		w.uint(uint64(at))
		return
	}
	w.uint(0)
	w.record(n.bodies.Bytes(body))
}

// located reads what locate wrote. The reference is the caller's.
func (r *commandReader) located(n *Node) (message.Ref, bool) {
	if at := message.Location(r.uint()); at != 0 {
		if r.bad || !at.Valid() {
			return 0, false
		}
		return n.bodies.Adopt(at), true
	}
	record, _ := r.record()
	if r.bad {
		return 0, false
	}
	ref, b := n.bodies.Alloc(len(record))
	copy(b, record)
	return ref, true
}

// loadGroups restores groups as they were at the cut, except their entries, and opens their logs.
func (r *recovery) loadGroups() error {
	n := r.node
	for _, p := range n.groups {
		g := p.group
		var st *cluster.State
		if n.Index != nil {
			value, ok, err := n.Index.Get(nil, groupKey(g.id))
			if err != nil {
				return err
			}
			if ok {
				saved, err := r.loadGroup(g, value)
				if err != nil {
					return fmt.Errorf("group %d in the checkpoint: %w", g.id, err)
				}
				st = &saved
			}
		}
		log, err := n.OpenGroup(g.id, g, st)
		if err != nil {
			return err
		}
		g.log = log
	}
	return nil
}

func (r *recovery) loadGroup(g *group, value []byte) (st cluster.State, err error) {
	fr := frameReader{all: value}
	head, _ := fr.bytes()
	if fr.bad {
		return st, errState
	}
	if st, err = cluster.DecodeState(head); err != nil {
		return st, err
	}
	h := r.node.lock(g.p)
	err = g.restoreMeta(value[fr.at:])
	r.node.release(h)
	r.node.finish(h)
	for inc, q := range g.p.queues {
		r.queues[inc] = q
	}
	return st, err
}

// loadLocal restores the outboxes of the local partitions. The entries of their queues may be restored later.
func (r *recovery) loadLocal() error {
	n := r.node
	if n.Index == nil {
		return nil
	}
	value, ok, err := n.Index.Get(nil, []byte{keyLocal})
	if err != nil || !ok {
		return err
	}
	return r.readLocal(value)
}

// readLocal reads what appendLocal wrote.
func (r *recovery) readLocal(value []byte) error {
	n := r.node
	cr := &commandReader{}
	cr.all = value
	if cr.byte() != localVersion {
		return errState
	}
	cr.outboxes(n.outboxes, func() (message.Ref, bool) { return cr.located(n) }, r.queue)
	for range cr.count(4) {
		q, id := r.queue(cr.uint()), cr.id()
		for range cr.count(1) {
			q.waiting.take(id, cr.uint())
		}
	}
	n.tallies.restore(cr)
	for range cr.count(2) {
		cr.sentTo(r.queue(cr.uint()))
	}
	if cr.bad || cr.at != len(value) {
		return errState
	}
	return nil
}

// finishGroups gives the groups' queues what refers to their entries.
func (r *recovery) finishGroups() error {
	for _, p := range r.node.groups {
		h := r.node.lock(p)
		err := p.group.restoreRests()
		r.node.release(h)
		r.node.finish(h)
		if err != nil {
			return fmt.Errorf("group %d in the checkpoint: %w", p.group.id, err)
		}
	}
	return nil
}
