package partition

import (
	"context"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/safety/held"
)

// Move is a message that an operator wants moved, for example by a replay.
type Move struct {
	ID      queue.ID
	Targets []*Queue // distinct; none: the message leaves, and is nowhere then
	History []byte   // its new history; not empty
}

// Moved is the result of a Move.
type Moved struct {
	What MoveResult
	By   uint64 // for MoveRefused and MoveNoTarget: the incarnation of the first such target
}

// MoveResult says what became of a move.
type MoveResult uint8

// The results.
const (
	MoveOpen     MoveResult = iota // unknown: it is at its targets or where it was, or will be
	MoveDone                       // the message has left; of several targets in other logs, at least one took it
	MoveGone                       // the message was no longer ready in its queue
	MoveRefused                    // a target is full; the message stays where it was
	MoveNoTarget                   // a target was deleted; the message stays where it was
)

// Move carries out moves from q, in order, and returns when its results are durable. Each message leaves q and enters
// all its targets, or stays. moves should have at most a few hundred elements. The result has an element for each
// move, also after an error: then ctx ended, the node stops, or a group has no leader here (Lost), and the fate of
// open moves is unknown.
//
// Within one log a move is one frame or one command. To another log the message is offered: it stays in q, where
// nobody gets it, until its targets have answered (onOffer).
func (n *Node) Move(ctx context.Context, q *Queue, moves []Move) ([]Moved, error) {
	held.Nothing("a move")
	moved := make([]Moved, len(moves))
	for at := 0; at < len(moves); {
		e, err := n.move(q, moves[at:])
		if err == nil {
			err = n.await(ctx, q, e)
		}
		q.part.mu.Lock()
		at += copy(moved[at:], e.moved)
		q.part.mu.Unlock()
		if err != nil {
			return moved, err
		}
	}
	return moved, n.Journal.Sync()
}

// errand is a list of moves that a caller waits for. The mutex of their queue's partition guards it.
type errand struct {
	moved []Moved
	left  int           // number of moves on offer
	done  chan struct{} // closed when the last of them has its answers
}

func newErrand(moves int) *errand {
	return &errand{moved: make([]Moved, moves), done: make(chan struct{})}
}

// onOffer is an offered message: move i of an errand of this process.
type onOffer struct {
	e *errand
	i int
}

// await waits until all targets have answered.
func (n *Node) await(ctx context.Context, q *Queue, e *errand) error {
	q.part.mu.Lock()
	open := e.left > 0
	q.part.mu.Unlock()
	if !open {
		return nil
	}
	select {
	case <-e.done:
		q.part.mu.Lock() // the goroutine that closed done held the lock until its frame was written
		defer q.part.mu.Unlock()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stop:
		return errLost
	}
}

// move begins the moves, or the first of them; the caller begins the rest when these have their answers. So the room
// of targets is known, and only one slice of messages is in memory.
func (n *Node) move(q *Queue, moves []Move) (*errand, error) {
	moves = movesAtOnce(moves)
	if q.Replicated() {
		return n.moveReplicated(q, moves)
	}
	s := n.pinMoves(q, moves)
	moves = moves[:len(s.deaths)]
	e := newErrand(len(moves))
	s.crowded(moves, e.moved, map[*Queue]coming{})
	s.move(moves, e)
	s.release()
	n.relieve()
	return e, nil
}

// movesAtOnce returns the first moves, as many as fit into one command by the bytes of their histories and by their
// targets.
func movesAtOnce(moves []Move) []Move {
	size, steps := 0, 0
	for i := range moves {
		steps += 1 + len(moves[i].Targets)
		if i > 0 && (size >= frameBytes || steps > sliceSteps) {
			return moves[:i]
		}
		size += len(moves[i].History)
	}
	return moves
}

// leaves says whether a move is to another log.
func leaves(q *Queue, moves []Move) bool {
	return slices.ContainsFunc(moves, func(m Move) bool { return slices.ContainsFunc(m.Targets, q.apart) })
}

// apart says whether another queue is in another log.
func (q *Queue) apart(t *Queue) bool { return t.part.outboxes != q.part.outboxes }

// move moves pinned messages from a queue of the local partitions.
func (s *pinned) move(moves []Move, e *errand) {
	n, q := s.n, s.q
	parts := []*Partition{q.part}
	for i := range moves {
		for _, t := range moves[i].Targets {
			if t.part.group == nil {
				parts = append(parts, t.part)
			}
		}
	}
	h := n.lock(parts...)
	h.touch(q)
	for i := range moves {
		h.entries += 1 + len(moves[i].Targets)
		moved := &e.moved[i]
		if moved.What != MoveOpen {
			continue
		}
		p := plan{history: storeHistory(n.bodies, moves[i].History), stored: moves[i].History, targets: moves[i].Targets}
		p.split(q.part)
		*moved = n.moveOne(h, q, moves[i].ID, &p, len(moves[i].Targets), s.deaths[i].Body)
		q.await(moves[i].ID, e, i)
		h.dropped = append(h.dropped, p.history)
		n.split(h)
	}
	n.unlock(h)
}

// await notes who waits for a move that is on offer. REQUIRES: q is held.
func (q *Queue) await(id queue.ID, e *errand, i int) {
	if e.moved[i].What != MoveOpen {
		return
	}
	if q.offers == nil {
		q.offers = map[queue.ID]onOffer{}
	}
	q.offers[id] = onOffer{e, i}
	e.left++
}

// pinMoves reads the records of the next moves into memory before anything is locked for the move. A message that is
// gone gets no body. Neither does one whose record is lost on disk; it is set aside.
func (n *Node) pinMoves(q *Queue, moves []Move) *pinned {
	s := &pinned{n: n, q: q}
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
			s.deaths = append(s.deaths, queue.Death{ID: moves[i].ID, Content: queue.Content{Body: v.Body, Size: v.Size}})
			s.pin(&s.deaths[i])
		}
	})
	if gone != nil {
		s.deaths = make([]queue.Death, len(moves))
		return s
	}
	s.read()
	for i := range s.deaths {
		if d := &s.deaths[i]; s.unread[i] != nil {
			n.setAside(&spoilt{q: q, id: d.ID, body: d.Body, size: d.Size, err: s.unread[i]})
			n.bodies.Release(d.Body)
			d.Body = 0
		}
	}
	return s
}

// coming is how much this errand sends to a queue.
type coming struct {
	messages int
	bytes    int64
}

// crowded finds the moves for which a target in another log has no room now, counting earlier moves of the errand. So
// nothing is sent that would come back, and a message for several queues goes to all of them or to none. If a target
// fills up later, its answer says so.
func (s *pinned) crowded(moves []Move, moved []Moved, load map[*Queue]coming) {
	for i := range s.deaths {
		if s.deaths[i].Body == 0 {
			moved[i].What = MoveGone
			continue
		}
		rec := message.Record(s.n.bodies.Bytes(s.deaths[i].Body))
		for _, t := range moves[i].Targets {
			if moved[i].What != MoveOpen || !s.q.apart(t) {
				continue
			}
			c, room := load[t], false
			err := s.n.with(t, func(h *hold) {
				if !t.Replicated() {
					t.m.Expire(h.now)
				}
				room = t.m.Room(t.size(rec), c.messages, c.bytes)
			})
			switch {
			case err != nil:
				moved[i] = Moved{MoveNoTarget, t.Incarnation}
			case !room:
				moved[i] = Moved{MoveRefused, t.Incarnation}
			}
		}
		if moved[i].What != MoveOpen {
			continue
		}
		for _, t := range moves[i].Targets {
			c := load[t]
			load[t] = coming{c.messages + 1, c.bytes + int64(t.size(rec))}
		}
	}
}

// moveOne moves one entry that should go to `asked` queues. If one of them is in another log, the entry is offered
// and its fate is open. warm is the message's record in memory, 0 if it cannot be read. REQUIRES: q and the
// targets in its log are held.
func (n *Node) moveOne(h *hold, q *Queue, id queue.ID, p *plan, asked int, warm message.Ref) Moved {
	v, ok := q.m.View(id)
	if q.gone || !ok || warm == 0 {
		return Moved{What: MoveGone}
	}
	if len(p.targets)+len(p.remote) < asked {
		return Moved{What: MoveNoTarget}
	}
	d := queue.Death{ID: id, Content: queue.Content{Body: warm, Size: v.Size, Logged: v.Logged}, Stays: stays(v.Body)}
	c := carry{n: n, h: h, q: q, d: &d, plan: p}
	return c.move(asked, len(p.remote) > 0)
}

// move moves a ready entry into all its targets or none. With offer, the entry stays until targets in other logs have
// answered.
func (c *carry) move(asked int, offer bool) Moved {
	h, q, d, p := c.h, c.q, c.d, c.plan
	rec, _ := c.record()
	for _, t := range p.targets {
		size := d.Size
		if rec != nil {
			size = t.size(rec)
		}
		switch {
		case t.gone:
			return Moved{MoveNoTarget, t.Incarnation}
		case (t != q || offer) && !t.m.Accepts(size): // an offered message takes room in its queue until it has left
			return Moved{MoveRefused, t.Incarnation}
		}
	}
	// From here on the entry is imposed. A target must not be asked again: its delayed messages that are due become
	// ready before anything enters, and might fill it. A message that returns to its own queue had room there.
	var body, history message.Ref
	ok := false
	if offer {
		ok = q.m.Offer(d.ID)
	} else {
		var logged bool
		if body, history, logged, ok = q.m.Take(d.ID); ok {
			q.movedOut(history, p.history, logged)
		}
	}
	if !ok {
		return Moved{What: MoveGone}
	}
	flags := outbox.Move
	if offer && asked > 1 {
		flags |= outbox.Impose // crowded found room
	}
	for _, t := range p.remote {
		q.part.outboxes.send(h, q, d, p, t, 0, flags, offer)
	}
	c.enter(imposed)
	if offer {
		var told, took []uint64
		for _, t := range p.remote {
			told = append(told, t.queue)
		}
		for _, in := range h.entered {
			took = append(took, in.q.Incarnation)
		}
		q.waiting.tell(d.ID, told, took)
	}
	c.log(offer)
	h.drop(body, history)
	h.flow()
	if offer {
		return Moved{What: MoveOpen}
	}
	return Moved{What: MoveDone}
}

// takenOffer does what follows when a target has answered for an offered entry. When all have answered, the entry
// leaves its queue if at least one has taken it; a target that was deleted would have lost it anyway. If none has
// taken it, it is ready again in its place.
func (n *Node) takenOffer(h *hold, q *Queue, e *outbox.Entry, answer outbox.Answer) {
	all, taken := q.heardOffer(e, answer)
	q.answeredOffer(e, answer, all, taken)
	if !all {
		return
	}
	if !taken {
		if q.m.Withdraw(e.ID) {
			if k := len(h.withdrawn); k == 0 || h.withdrawn[k-1] != q {
				h.withdrawn = append(h.withdrawn, q)
			}
		}
		return
	}
	body, history, logged, ok := q.m.Accept(e.ID)
	if !ok {
		return // it was set aside meanwhile
	}
	q.movedOut(history, e.History, logged)
	h.drop(body, history)
	if logged {
		h.frame.settle(q.Incarnation, e.ID)
	}
}

// heardOffer notes a target's answer for an offered entry. It says whether all have answered, and whether any has
// taken it.
func (q *Queue) heardOffer(e *outbox.Entry, answer outbox.Answer) (all, taken bool) {
	if answer == outbox.Taken {
		q.waiting.take(e.ID, e.Target)
	}
	if q.waiting.unask(e.ID, e.Target) > 0 {
		return false, false
	}
	taken = len(q.waiting.taken[e.ID]) > 0
	delete(q.waiting.taken, e.ID)
	return true, taken
}

// answeredOffer passes the answer to the caller who waits for the move.
func (q *Queue) answeredOffer(e *outbox.Entry, answer outbox.Answer, all, taken bool) {
	o, ok := q.offers[e.ID]
	if !ok {
		return
	}
	m := &o.e.moved[o.i]
	switch {
	case all && taken:
		*m = Moved{What: MoveDone}
	case (answer == outbox.Gone || answer == outbox.Unread) && m.By == 0:
		*m = Moved{MoveNoTarget, e.Target}
	case answer != outbox.Taken && m.By == 0:
		*m = Moved{MoveRefused, e.Target}
	}
	if all {
		q.endOffer(e.ID, o)
	}
}

func (q *Queue) endOffer(id queue.ID, o onOffer) {
	delete(q.offers, id)
	if o.e.left--; o.e.left == 0 {
		close(o.e.done)
	}
}

// endOffers tells the callers who wait for moves from a queue that it is gone. REQUIRES: q is held.
func (q *Queue) endOffers() {
	for id, o := range q.offers {
		o.e.moved[o.i] = Moved{What: MoveGone}
		q.endOffer(id, o)
	}
}

// flowWithdrawn does what follows for entries that are ready again. It runs after all entries of one answer are
// withdrawn, so that they keep their order.
func (h *hold) flowWithdrawn() {
	for _, q := range h.withdrawn {
		if !q.gone {
			q.m.Expire(h.now)
			q.m.Flow(h.now, 0)
		}
	}
	clear(h.withdrawn)
	h.withdrawn = h.withdrawn[:0]
}
