package partition

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/safety/held"
)

// Recover brings the queues back to what the journal says. The caller has created the durable queues before, and
// nothing else may run.
//
// Invariant: recovery repeats outcomes and makes no decisions. No limit, TTL or delivery is applied until the whole
// journal is read.
//
// The journal may name a queue that is not declared, because it was deleted later. Recovery keeps it as a ghost until
// the end: messages may have moved from it into other queues.
func (n *Node) Recover() error {
	if err := n.redo(); err != nil || n.Cluster == nil {
		return err
	}
	if err := n.Cluster.Start(); err != nil {
		return err
	}
	err := n.outboxes.fill()
	if err == nil && n.Repair.KeepUndeclared {
		err = undeclared(n.undeclaredOfGroups()) // queues that no checkpoint has
	}
	if err != nil {
		n.Cluster.Stop()
		return err
	}
	n.forgetRedone()
	return nil
}

// forgetRedone resets what groups counted while they applied their logs again: all that was counted before the node
// started.
func (n *Node) forgetRedone() {
	for _, p := range n.groups {
		p.mu.Lock()
		for _, q := range p.queues {
			q.stats = Stats{}
		}
		for _, g := range p.buried { // deaths that went with a deleted queue do not count either; the queue is buried only now
			g.q.ended = false
		}
		p.outboxes.late, p.outboxes.ended = nil, nil
		p.mu.Unlock()
	}
	n.deaths.forget(queue.Quorum)
	n.deaths.confirmed.Store(0) // no deaths of classic queues are routed yet
}

// redo is Recover without starting the groups.
func (n *Node) redo() error {
	r := recovery{node: n, queues: map[uint64]*Queue{}}
	for _, p := range n.parts {
		for inc, q := range p.queues {
			r.queues[inc] = q
		}
	}
	h := n.lock(n.parts...) // one hold for all partitions; its frame is discarded
	r.hold, h.redoes = h, true
	cut, err := r.loadCheckpoint()
	r.highest = max(r.highest, r.named) // includes the queues of the checkpoint
	if err == nil && n.Repair.Salvage != nil {
		err = r.beginSalvage()
	}
	if err == nil {
		if cut == 0 && n.Repair.Salvage == nil {
			cut = journal.Beginning
		}
		err = n.Journal.Recover(cut, r.redoFrame)
	}
	if err == nil && n.Known != nil {
		held.Apart(func() { err = n.Known(n.declared.at, r.highest) }) // Known may wait for disks; no other goroutine runs yet
	}
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
	if n.Repair.KeepUndeclared {
		err = r.undeclared()
	}
	if err == nil && r.salvage != nil {
		err = r.salvage.end()
	}
	if err == nil {
		err = r.checkFiles()
	}
	if err != nil {
		n.release(h)
		n.finish(h)
		return err
	}
	h.redoes = false
	for _, q := range r.ghosts {
		q.leftWithQueue(h)
		q.m.Close()
		shelf{q}.discardMeta(q.part.pages.Version())
		q.part.dig(q)
	}
	for _, p := range n.parts {
		for _, q := range p.queues {
			h.touch(q)
			q.m.Restored(h.now)
			q.forgetRefusals()
			q.withdrawLost()
			q.m.Tick(h.now, sliceLimit)
		}
	}
	n.outboxes.recovered()
	n.newest()
	n.unlock(h)
	return nil
}

// forgetRefusals drops refusals of held deaths: the journal records which targets have taken one, not which have
// refused. A target that has not taken it counts as not heard of. So a last answer from another log does not bury the
// death; it is retried, and all such targets answer again.
func (q *Queue) forgetRefusals() {
	maps.DeleteFunc(q.waiting.taken, func(id queue.ID, _ targetSet) bool { return !q.m.Dead(id) && !q.m.Offered(id) })
	for id := range q.waiting.asked {
		q.waiting.note(id, q.m.Dead(id))
	}
}

// withdrawLost makes offered entries ready again if no queue is asked for them. Damage may leave such entries.
func (q *Queue) withdrawLost() {
	q.m.RangeOffered(func(id queue.ID) bool {
		if len(q.waiting.asked[id]) == 0 {
			q.m.Withdraw(id)
		}
		return true
	})
}

// DamageError says that something on disk is not what was written there.
type DamageError struct{ Err error }

// Error describes the damage.
func (e *DamageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }

type recovery struct {
	node           *Node
	hold           *hold
	queues         map[uint64]*Queue
	ghosts         []*Queue
	named, highest uint64 // named: highest incarnation in the present operation; highest: in all operations that made sense

	lost bool // frames were lost: later operations may name entries that they made
	gap  bool // an outbox misses a number, and nothing can fill it

	salvage *salvager // set if the index is lost: it recovers the records that are left

	accepted []accepted // entries that answers in the present frame have taken out of their queues

	history message.Ref // the history of the last move; holds a reference
	common  []byte      // the part of history that similar ones share (deadletter.Divide); empty if not computed
	own     []byte      // scratch space for computing common
}

// queue returns the queue of an incarnation, or makes a ghost for it.
func (r *recovery) queue(incarnation uint64) *Queue {
	r.named = max(r.named, incarnation)
	if q := r.queues[incarnation]; q != nil {
		return q
	}
	q := &Queue{Incarnation: incarnation, Durable: true, part: r.node.parts[0], due: never}
	q.config = queue.Config{Type: queue.Classic, Durable: true, MaxPriority: 255}
	q.m = queue.New(q.config, queue.Unlimited(), &q.part.pages, q, r.hold.now)
	if r.node.Index != nil {
		q.m.SetCold(shelf{q}) // a checkpoint may have pages of it
	}
	r.queues[incarnation] = q
	r.ghosts = append(r.ghosts, q)
	return q
}

// redoFrame repeats one frame of the journal.
func (r *recovery) redoFrame(pos journal.Pos, payload []byte) error {
	r.node.at(FailRecoverFrame)
	if r.salvage != nil {
		if r.salvage.see(pos); len(payload) > 0 && payload[0] == cluster.FrameFirstByte {
			return r.salvage.commands(pos, payload)
		}
	}
	if r.node.Cluster != nil && len(payload) > 0 && payload[0] == cluster.FrameFirstByte {
		return r.node.Cluster.Recovered(pos, payload)
	}
	if IsDeclared(payload) {
		r.node.declared.at = ReadDeclared(payload)
		return nil
	}
	if !IsFrame(payload) {
		return fmt.Errorf("journal frame at %v: format version not known to this release", pos)
	}
	fr := &frameReader{all: payload, at: 1}
	base := uint64(r.node.Journal.PayloadPos(pos))
	r.setHistory(nil)
	for fr.more() {
		begins := fr.at
		op := fr.byte()
		r.named = 0
		switch op {
		case opPublish:
			r.publish(fr, base)
		case opClock:
			if at := fr.time(); !fr.bad && r.node.CatchUp != nil {
				r.node.CatchUp(at)
			}
		case opCut:
		case opLost:
			r.lost, fr.at = true, len(fr.all)
			if r.salvage != nil {
				r.salvage.gap(pos.Segment() + 1)
			}
		case opHash:
			if err := r.checkHash(fr.uint(), fr.uint()); err != nil && !fr.bad && !r.lost {
				return fmt.Errorf("journal frame at %v: %w", pos, err)
			}
		case opSettle:
			q, id, count := r.queue(fr.uint()), fr.id(), fr.run()
			r.settled(q, id, count)
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
		case opDelay:
			q, id := r.queue(fr.uint()), fr.id()
			if notBefore := fr.time(); !fr.bad {
				q.m.RestoreDelayed(id, notBefore)
			}
		case opMove:
			r.move(fr)
		case opAlike:
			r.alike(fr)
		case opEnter:
			r.enter(fr, base)
		case opNote:
			r.note(fr)
		case opHold:
			q, id := r.queue(fr.uint()), fr.id()
			if reason, at := fr.reason(false), fr.time(); !fr.bad {
				q.m.RestoreHeld(id, reason, at)
			}
		case opMailOut:
			r.mailOut(fr, base)
		case opMailAck:
			r.mailAck(fr)
		case opMailIn:
			r.mailIn(fr)
		case opMailBack:
			r.mailBack(fr)
		case opTally:
			r.tally(fr)
		default:
			fr.tear()
		}
		if r.gap {
			return &DamageError{fmt.Errorf("journal frame at %v: an entry of an outbox is missing before operation %d at byte %d", pos, op, begins)}
		}
		if fr.bad {
			if err := r.senseless(pos, fr, op, begins); err != nil {
				return err
			}
			continue
		}
		r.highest = max(r.highest, r.named)
	}
	r.setHistory(nil)
	r.leftUntold()
	for _, ref := range r.hold.dropped {
		r.node.bodies.Release(ref)
	}
	r.hold.dropped = r.hold.dropped[:0]
	r.hold.frame.reset()
	return nil
}

// senseless skips an operation that is intact and impossible, or the rest of the frame if the end of the operation is
// unknown. The frame is set aside. What the operation said is lost, as after the loss of a frame.
func (r *recovery) senseless(pos journal.Pos, fr *frameReader, op byte, begins int) error {
	fr.at, fr.bad, fr.torn = begins+1, false, false
	fr.operation(op)
	if fr.torn {
		fr.at = len(fr.all)
	}
	fr.bad, fr.torn, r.lost = false, false, true
	return r.node.passOver(Senseless{
		Pos: pos, Frame: fr.all, From: begins, To: fr.at,
		Why: fmt.Sprintf("operation %d at byte %d of the journal frame at %v makes no sense", op, begins, pos),
	})
}

// checkHash compares a queue with its state hash when the frame was written.
func (r *recovery) checkHash(incarnation, sum uint64) error {
	q := r.queues[incarnation]
	if !r.node.StateHash || q == nil || slices.Contains(r.ghosts, q) {
		return nil
	}
	if got := q.m.StateHash(); got != sum {
		return fmt.Errorf("queue %q in vhost %q was recovered with state %x, was %x before: %+v", q.Name, q.VHost, got, sum, q.m.Totals())
	}
	return nil
}

// setHistory makes b the history that moves refer to, and holds a reference to it.
func (r *recovery) setHistory(b []byte) {
	if r.history != 0 {
		r.node.bodies.Release(r.history)
		r.history = 0
	}
	r.common = r.common[:0]
	if len(b) > 0 {
		r.history = deathstore.Keep(r.node.bodies, b)
	}
}

// alike reads a history that shares all but its own bytes with the history before.
func (r *recovery) alike(fr *frameReader) {
	own, _ := fr.bytes()
	if len(r.common) == 0 && !fr.bad {
		ok := false
		r.common, r.own, ok = deadletter.Divide(r.node.historyBytes(r.history), r.common, r.own[:0])
		fr.bad = !ok
	}
	if !fr.bad {
		r.node.bodies.Release(r.history)
		r.history = deathstore.KeepParts(r.node.bodies, r.common, own)
	}
}

// placed returns a reference to a record in the journal. The record stays on disk until it is read.
func (r *recovery) placed(location uint64) message.Ref {
	at := message.Location(location)
	r.node.bodies.Place(at.Space(), at.Segment(), 1)
	return r.node.bodies.Adopt(at)
}

// restore makes an entry and retains body and history for it. It returns false if the queue cannot have such an
// entry.
func (r *recovery) restore(q *Queue, id queue.ID, body, history message.Ref, s *queue.Restored) bool {
	s.Body, s.History = body, history
	r.node.bodies.Retain(body, 1)
	r.node.bodies.Retain(history, 1)
	if !q.m.Restore(id, s) {
		r.hold.drop(body, history)
		return false
	}
	return true
}

func (r *recovery) publish(fr *frameReader, base uint64) {
	b, at := fr.recordBytes()
	if fr.bad || message.CheckRecord(b) != nil {
		fr.bad = true
		return
	}
	rec := message.Record(b)
	body := r.placed(base + uint64(at))
	for range fr.count(3) {
		q, id, due := r.queue(fr.uint()), fr.id(), fr.time()
		if fr.bad {
			break
		}
		s := queue.Restored{}
		s.Due, s.Size = due, q.size(rec)
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
	fr.bad = fr.bad || !ok && !r.lost
	for range n {
		inc, to, due, deliveries := fr.uint(), fr.id(), fr.time(), fr.small()
		size := fr.small()
		switch {
		case fr.bad:
			return
		case to == 0 && ok && keep: // a consumer got it directly; its queue may not be declared
			src.waiting.take(id, inc)
			continue
		}
		q := r.queue(inc)
		if !ok {
			continue // the entry was lost before it died
		}
		s := queue.Restored{}
		s.Due, s.Size, s.Counts, s.Redelivered = due, size, queue.Counts{Deliveries: deliveries}, deliveries > 0
		if !r.restore(q, to, v.Body, r.history, &s) {
			fr.bad = true
			return
		}
		if keep {
			src.waiting.take(id, q.Incarnation)
		}
	}
	if ok && !keep && !fr.bad {
		delete(src.waiting.taken, id)
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
	s.Offered = flags&enterOffered != 0
	history := fr.historyOr(flags&enterAgain != 0)
	b, at := fr.recordBytes()
	if fr.bad || message.CheckRecord(b) != nil {
		fr.bad = true
		return
	}
	record := message.Record(b)
	s.Size = q.size(record)
	body := r.placed(base + uint64(at))
	var kept message.Ref
	if len(history) > 0 {
		kept = deathstore.Keep(r.node.bodies, history)
	}
	fr.bad = !r.restore(q, id, body, kept, &s)
	r.node.bodies.Release(body)
	r.node.bodies.Release(kept)
}

// note gives an entry the history with which it died.
func (r *recovery) note(fr *frameReader) {
	q, id := r.queue(fr.uint()), fr.id()
	b, _ := fr.bytes()
	if fr.bad = fr.bad || len(b) == 0; fr.bad {
		return
	}
	history := deathstore.Keep(r.node.bodies, b)
	if before, ok := q.m.RestoreNoted(id, history); ok {
		history = before
	}
	r.hold.drop(0, history)
}

// MissingFile is a file of messages that is not there.
type MissingFile struct {
	Name     string // in the data directory, as the file of a record that outlived the journal
	Messages int64
}

// MissingFiles returns the files with live bodies that do not exist.
func (n *Node) MissingFiles() (missing []MissingFile, err error) {
	kept, err := n.Keep.List()
	if err != nil {
		return nil, err
	}
	there := map[bodyFile]bool{}
	for _, f := range kept {
		space := message.InKeep
		if f.Kind == bodyfile.Retired {
			space = message.InJournal
		}
		there[bodyFile{Space: space, Segment: f.Number}] = true
	}
	for _, s := range n.Journal.Segments() {
		there[bodyFile{Space: message.InJournal, Segment: s.Number}] = true
	}
	n.bodies.RangeSegments(func(space message.Space, segment uint32, live, _ int64) bool {
		if live > 0 && space != message.InScratch && !there[bodyFile{Space: space, Segment: segment}] {
			kind := bodyfile.Dense
			if space == message.InJournal {
				kind = bodyfile.Retired
			}
			missing = append(missing, MissingFile{"keep/" + bodyfile.File{Number: segment, Kind: kind}.Name(), live})
		}
		return true
	})
	return missing, nil
}

// checkFiles checks that every file with live bodies exists, and deletes kept files without any.
func (r *recovery) checkFiles() error {
	n := r.node
	if n.Keep == nil || r.salvage != nil { // records that no queue has stay until the next start, for the repair
		return nil
	}
	missing, err := n.MissingFiles()
	if err != nil {
		return err
	}
	if len(missing) > 0 && !n.Repair.Damaged {
		var all error
		for _, f := range missing {
			all = errors.Join(all, fmt.Errorf("the file %s, with %d messages, is missing", f.Name, f.Messages))
		}
		return &DamageError{all}
	}
	return n.Keep.Retain(func(f bodyfile.File) bool {
		space := message.InKeep
		if f.Kind == bodyfile.Retired {
			space = message.InJournal
		}
		live, _ := n.bodies.Live(space, f.Number)
		if live == 0 {
			n.bodies.SetPlaced(space, f.Number, 0)
		}
		return live > 0
	})
}
