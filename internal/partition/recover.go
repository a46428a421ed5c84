package partition

import (
	"fmt"

	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// Recover redoes what the journal holds. The durable queues must have been
// created before, and nothing else may run. Queues that the journal knows and
// the topology does not have been deleted since; they are kept while recovery
// lasts, because messages may have moved from them into others.
//
// Outcomes are redone, not decisions: no limit, TTL or delivery is looked at
// until all is read.
func (n *Node) Recover() error {
	r := recovery{node: n, queues: map[uint64]*Queue{}}
	for _, p := range n.parts {
		for inc, q := range p.queues {
			r.queues[inc] = q
		}
	}
	h := n.lock(n.parts...) // one hold for all; its frame is thrown away
	r.hold = h
	err := n.Journal.Recover(r.frame)
	r.forget()
	h.frame.reset()
	for _, ref := range h.dropped {
		n.bodies.Release(ref)
	}
	h.dropped = h.dropped[:0]
	if err != nil {
		n.release(h)
		n.finish(h)
		return err
	}
	for _, q := range r.ghosts {
		q.m.Close()
		for q.m.BuryRest(1 << 20) {
		}
	}
	for _, p := range n.parts {
		for _, q := range p.queues {
			h.touch(q)
			q.m.Restored(h.now)
			q.m.Tick(h.now, sliceLimit)
		}
	}
	n.unlock(h)
	return nil
}

type recovery struct {
	node   *Node
	hold   *hold
	queues map[uint64]*Queue
	ghosts []*Queue

	history message.Ref // of the last move, one reference is ours
	// While a compaction is redone, the records it may refer to, by location, with
	// a reference to each.
	records map[uint64]message.Ref
	cut     bool // the beginning of one was seen
}

// queue returns the queue of an incarnation, which may have been deleted since.
func (r *recovery) queue(incarnation uint64) *Queue {
	if q := r.queues[incarnation]; q != nil {
		return q
	}
	q := &Queue{Incarnation: incarnation, Durable: true, part: r.node.parts[0], due: never}
	q.m = queue.New(queue.Config{Type: queue.Classic, Durable: true, MaxPriority: 255}, queue.Unlimited(), &q.part.pages, q, r.hold.now)
	r.queues[incarnation] = q
	r.ghosts = append(r.ghosts, q)
	return q
}

// frame redoes one frame of the journal.
func (r *recovery) frame(pos journal.Pos, payload []byte) error {
	r.node.at(FailRecoverFrame)
	if len(payload) == 0 || payload[0] != frameVersion {
		return fmt.Errorf("journal frame at %v: format version not known to this release", pos)
	}
	fr := &frameReader{all: payload, at: 1}
	base := uint64(r.node.Journal.PayloadPos(pos))
	r.setHistory(nil)
	for fr.more() {
		switch op := fr.byte(); op {
		case opPublish:
			r.publish(fr, base)
		case opCut:
			r.forget()
			r.records = map[uint64]message.Ref{}
			r.cut = true
		case opCutEnd:
			r.forget()
		case opSettle:
			q, id, count := r.queue(fr.uint()), fr.id(), fr.run()
			for k := uint64(0); k < count && !fr.bad; k++ {
				if body, history, ok := q.m.RestoreRemoved(id + queue.ID(k)); ok {
					r.hold.drop(body, history)
				}
			}
		case opDeliver:
			q, id, count := r.queue(fr.uint()), fr.id(), fr.run()
			for k := uint64(0); k < count && !fr.bad; k++ {
				q.m.RestoreOut(id + queue.ID(k))
			}
		case opReturn:
			q, id := r.queue(fr.uint()), fr.id()
			counts := queue.Counts{Deliveries: fr.small(), Acquired: fr.small()}
			if notBefore := fr.time(); !fr.bad {
				q.m.RestoreReturned(id, counts, notBefore)
			}
		case opMove:
			r.move(fr)
		case opEnter:
			r.enter(fr, base)
		case opPurge:
			q := r.queue(fr.uint())
			keep := map[queue.ID]bool{}
			for range fr.count(1) {
				keep[fr.id()] = true
			}
			if !fr.bad {
				q.m.RestorePurge(func(id queue.ID) bool { return keep[id] })
			}
		case opHold:
			q, id := r.queue(fr.uint()), fr.id()
			if reason, at := fr.reason(false), fr.time(); !fr.bad {
				q.m.RestoreHeld(id, reason, at)
			}
		case opAnswered:
			q, id := r.queue(fr.uint()), fr.id()
			for range fr.count(1) {
				q.answer(id, fr.uint())
			}
		default:
			fr.bad = true
		}
	}
	r.setHistory(nil)
	for _, ref := range r.hold.dropped {
		r.node.bodies.Release(ref)
	}
	r.hold.dropped = r.hold.dropped[:0]
	r.hold.frame.reset()
	if fr.bad {
		return fmt.Errorf("journal frame at %v: %w", pos, errFrame)
	}
	return nil
}

// setHistory makes b the history that moves share; the reference is ours.
func (r *recovery) setHistory(b []byte) {
	if r.history != 0 {
		r.node.bodies.Release(r.history)
		r.history = 0
	}
	if len(b) > 0 {
		ref, dst := r.node.bodies.Alloc(len(b))
		copy(dst, b)
		r.history = ref
	}
}

// store keeps a record that the journal holds at the location given.
func (r *recovery) store(b []byte, location uint64) message.Ref {
	ref, dst := r.node.bodies.Alloc(len(b))
	copy(dst, b)
	r.placed(ref, location)
	return ref
}

// placed notes where the journal holds a record.
func (r *recovery) placed(ref message.Ref, location uint64) {
	r.node.bodies.SetLocation(ref, location)
	if r.records != nil {
		r.node.bodies.Retain(ref, 1)
		r.records[location] = ref
	}
}

// forget gives up the records kept for a compaction.
func (r *recovery) forget() {
	for _, ref := range r.records {
		r.node.bodies.Release(ref)
	}
	r.records = nil
}

// restore makes an entry; body and history are retained for it. It returns false
// if the queue cannot have such an entry.
func (r *recovery) restore(q *Queue, id queue.ID, body, history message.Ref, s *queue.Restored) bool {
	rec := message.Record(r.node.bodies.Bytes(body))
	s.Body, s.History, s.Size = body, history, q.size(rec)
	r.node.bodies.Retain(body, 1)
	r.node.bodies.Retain(history, 1)
	if !q.m.Restore(id, s) {
		r.hold.drop(body, history)
		return false
	}
	return true
}

func (r *recovery) publish(fr *frameReader, base uint64) {
	b, at := fr.bytes()
	if fr.bad || message.CheckRecord(b) != nil {
		fr.bad = true
		return
	}
	body := r.store(b, base+uint64(at))
	for range fr.count(3) {
		q, id, due := r.queue(fr.uint()), fr.id(), fr.time()
		if fr.bad {
			break
		}
		s := queue.Restored{}
		s.Due = due
		fr.bad = !r.restore(q, id, body, 0, &s)
	}
	r.node.bodies.Release(body)
}

func (r *recovery) move(fr *frameReader) {
	src, id := r.queue(fr.uint()), fr.id()
	if b, _ := fr.bytes(); len(b) > 0 {
		r.setHistory(b)
	}
	keep := fr.byte() != 0
	n := fr.count(4)
	v, ok := src.m.View(id)
	for range n {
		q, to, due, deliveries := r.queue(fr.uint()), fr.id(), fr.time(), fr.small()
		if fr.bad {
			return
		}
		if !ok {
			continue // told anew by a later frame, see compact
		}
		s := queue.Restored{}
		s.Due, s.Counts, s.Redelivered = due, queue.Counts{Deliveries: deliveries}, deliveries > 0
		if !r.restore(q, to, v.Body, r.history, &s) {
			fr.bad = true
			return
		}
		if keep {
			src.answer(id, q.Incarnation)
		}
	}
	if ok && !keep && !fr.bad {
		delete(src.answered, id)
		if body, history, removed := src.m.RestoreRemoved(id); removed {
			r.hold.drop(body, history)
		}
	}
}

func (r *recovery) enter(fr *frameReader, base uint64) {
	q, id := r.queue(fr.uint()), fr.id()
	flags := fr.byte()
	var s queue.Restored
	s.Due = fr.time()
	s.Counts = queue.Counts{Deliveries: fr.small(), Acquired: fr.small()}
	s.NotBefore = fr.time()
	s.Held = fr.reason(true)
	s.DiedAt = fr.time()
	s.Redelivered, s.Out, s.Returned = flags&enterRedelivered != 0, flags&enterOut != 0, flags&enterReturned != 0
	history, _ := fr.bytes()
	location := fr.uint()
	var record []byte
	var at int
	if location == 0 {
		record, at = fr.bytes()
		location = base + uint64(at)
		if message.CheckRecord(record) != nil {
			fr.bad = true
		}
	}
	if fr.bad {
		return
	}
	var body message.Ref
	switch v, ok := q.m.View(id); {
	case ok && record != nil: // it is told anew; the body is the same
		body = v.Body
		r.node.bodies.Retain(body, 1)
		r.placed(body, location)
	case record != nil:
		body = r.store(record, location)
	case r.records[location] != 0:
		body = r.records[location]
		r.node.bodies.Retain(body, 1)
	case !r.cut:
		// Of an earlier compaction, of which only the end is left: if the entry
		// lives, the last one tells it anew.
		return
	default:
		fr.bad = true
		return
	}
	var kept message.Ref
	if len(history) > 0 {
		ref, dst := r.node.bodies.Alloc(len(history))
		copy(dst, history)
		kept = ref
	}
	fr.bad = !r.restore(q, id, body, kept, &s)
	r.node.bodies.Release(body)
	r.node.bodies.Release(kept)
}
