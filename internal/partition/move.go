package partition

import (
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// Move is a message that somebody asked to be moved, such as by a replay.
type Move struct {
	ID      queue.ID
	Targets []*Queue // distinct; at least one
	History []byte   // the history it has from then on
}

// Moved is what became of a Move.
type Moved uint8

// The results.
const (
	MoveDone    Moved = iota
	MoveGone          // the message was not ready in its queue any more
	MoveRefused       // a target is full; the message is where it was
)

// Move carries out moves from q, in order: each message leaves q and enters all
// its targets in one frame of the journal, or stays. Call it with a slice of at
// most a few hundred. The result has an element for each move.
func (n *Node) Move(q *Queue, moves []Move) []Moved {
	parts := []*Partition{q.part}
	for i := range moves {
		for _, t := range moves[i].Targets {
			parts = append(parts, t.part)
		}
	}
	results := make([]Moved, len(moves))
	h := n.lock(parts...)
	h.entries = len(moves)
	h.touch(q)
	for i := range moves {
		results[i] = n.move(h, q, &moves[i])
		n.split(h)
	}
	n.unlock(h)
	n.relieve()
	return results
}

func (n *Node) move(h *hold, q *Queue, m *Move) Moved {
	v, ok := q.m.View(m.ID)
	if q.gone || !ok {
		return MoveGone
	}
	rec := message.Record(n.bodies.Bytes(v.Body))
	e := queue.Entry{Body: v.Body, Priority: -1, TTL: -1}
	if p, ok := rec.Priority(); ok {
		e.Priority = int(p)
	}
	for _, t := range m.Targets {
		e.Size = t.size(rec)
		if t.gone || t != q && !t.m.Accepts(&e) {
			return MoveRefused
		}
	}
	body, history, logged, ok := q.m.Take(m.ID)
	if !ok {
		return MoveGone
	}
	ref, b := n.bodies.Alloc(len(m.History))
	copy(b, m.History)
	d := queue.Death{ID: m.ID, Body: body, History: history, Logged: logged}
	p := plan{history: ref}
	h.entered = h.entered[:0]
	count := 0
	for _, t := range m.Targets {
		h.touch(t)
		e.History, e.Size, e.Logged = ref, t.size(rec), t.logs(rec.Persistent())
		n.bodies.Retain(body, 1)
		n.bodies.Retain(ref, 1)
		id, result := t.m.Force(h.now, &e)
		if result == queue.Refused { // full by an earlier target of the same move
			n.bodies.Release(body)
			n.bodies.Release(ref)
			continue
		}
		t.stats.Published++
		h.entered = append(h.entered, newEntry{t, id, e.Logged && id != 0})
		if e.Logged && id != 0 {
			count++
		}
	}
	n.logMove(h, q, &d, &p, queue.Counts{}, false, count)
	h.drop(body, history)
	h.dropped = append(h.dropped, ref)
	for _, in := range h.entered {
		in.q.m.Flow(h.now, in.id)
	}
	return MoveDone
}
