package partition

import (
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/queue"
)

// Move is a message that somebody asked to be moved, such as by a replay.
type Move struct {
	ID      queue.ID
	Targets []*Queue // distinct; at least one
	History []byte   // the history it has from then on; not empty
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
	if q.Replicated() {
		return n.moveReplicated(q, moves)
	}
	results := make([]Moved, 0, len(moves))
	for len(moves) > 0 {
		warm := n.warmMoves(q, moves)
		results = n.moveSome(q, moves[:len(warm)], warm, results)
		n.releaseAll(warm)
		moves = moves[len(warm):]
	}
	n.relieve()
	return results
}

// moveSome carries out the moves whose records are in memory, and appends what became of them.
func (n *Node) moveSome(q *Queue, moves []Move, warm []message.Ref, results []Moved) []Moved {
	parts := []*Partition{q.part}
	for i := range moves {
		for _, t := range moves[i].Targets {
			if t.part.group == nil {
				parts = append(parts, t.part)
			}
		}
	}
	h := n.lock(parts...)
	h.entries = len(moves)
	h.touch(q)
	for i := range moves {
		p := plan{history: storeHistory(n.bodies, moves[i].History), stored: moves[i].History, targets: moves[i].Targets}
		p.split(q.part)
		results = append(results, n.moveOne(h, q, moves[i].ID, &p, len(moves[i].Targets), warm[i]))
		h.dropped = append(h.dropped, p.history)
		n.split(h)
	}
	n.unlock(h)
	return results
}

// warmMoves brings the records of what is to be moved next into memory before anything
// is locked for it. It returns a reference for each of these moves, 0 for what is not there
// any more; what is lost on disk is set aside.
func (n *Node) warmMoves(q *Queue, moves []Move) []message.Ref {
	warm, sizes := make([]message.Ref, 0, len(moves)), make([]uint32, len(moves))
	gone := n.with(q, func(*hold) {
		var w warming
		for i := range moves {
			v, ok := q.m.View(moves[i].ID)
			switch {
			case !ok:
				v.Body = 0
			case !w.takes(v.Body, v.Size):
				return
			}
			n.bodies.Retain(v.Body, 1)
			warm, sizes[i] = append(warm, v.Body), v.Size
		}
	})
	if gone != nil {
		return warm[:len(moves)]
	}
	for i, ref := range warm {
		var err error
		if warm[i], err = n.bodies.Warm(ref); err != nil {
			n.setAside(&spoilt{q: q, id: moves[i].ID, body: ref, size: sizes[i], err: err})
			n.bodies.Release(ref)
			warm[i] = 0
		}
	}
	return warm
}

func (n *Node) releaseAll(refs []message.Ref) {
	for _, ref := range refs {
		n.bodies.Release(ref)
	}
}

// moveOne moves one entry, asked to go to so many queues. Those in other logs
// cannot be asked whether they have room: what they refuse is stranded. warm is
// the message's record in memory, 0 if it cannot be had.
func (n *Node) moveOne(h *hold, q *Queue, id queue.ID, p *plan, asked int, warm message.Ref) Moved {
	v, ok := q.m.View(id)
	if q.gone || !ok || warm == 0 {
		return MoveGone
	}
	d := queue.Death{ID: id, Body: warm, Size: v.Size, Stays: stays(v.Body)}
	rec, priority := n.recordOf(q, &d)
	e := queue.Entry{Body: warm, Priority: priority, TTL: -1, Size: v.Size, Logged: true}
	if len(p.targets)+len(p.remote) < asked {
		return MoveRefused // one is gone
	}
	for _, t := range p.targets {
		if rec != nil {
			e.Size = t.size(rec)
		}
		if t.gone || t != q && !t.m.Accepts(&e) {
			return MoveRefused
		}
	}
	body, history, logged, ok := q.m.Take(id)
	if !ok {
		return MoveGone
	}
	d.History, d.Logged = history, logged
	h.entered = h.entered[:0]
	count := 0
	for _, t := range p.targets {
		h.touch(t)
		if e.History = p.history; rec != nil {
			e.Size, e.Logged = t.size(rec), t.logs(rec.Persistent())
		}
		n.bodies.Retain(warm, 1)
		n.bodies.Retain(p.history, 1)
		if e.Body = warm; d.Stays && t.m.Consumers() == 0 {
			e.Body, _ = n.bodies.Cool(e.Body) // as in moveDeath
		}
		id, result := t.m.Force(h.now, &e)
		if result == queue.Refused { // full by an earlier target of the same move
			n.bodies.Release(e.Body)
			n.bodies.Release(p.history)
			continue
		}
		t.stats.Published++
		h.entered = append(h.entered, newEntry{t, id, e.Logged && id != 0})
		if e.Logged && id != 0 {
			count++
		}
	}
	for _, t := range p.remote {
		n.send(h, q, &d, p, t, 0, mailMove, false)
	}
	n.logMove(h, q, &d, p, queue.Counts{}, false, count)
	h.drop(body, history)
	for _, in := range h.entered {
		in.q.m.Flow(h.now, in.id)
	}
	return MoveDone
}
