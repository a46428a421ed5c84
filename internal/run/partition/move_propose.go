package partition

// take applies an operator's move in a group, as Node.Move describes.
func (a *application) take(q *Queue) {
	id, history := a.r.take()
	if a.r.bad {
		return
	}
	p := a.plan(history)
	asked := len(a.r.targets)
	moved := Moved{What: MoveGone}
	if q != nil {
		if v, ok := q.m.View(id); ok {
			moved = a.g.node.moveOne(a.h, q, id, p, asked, v.Body)
		}
	}
	a.h.drop(p.history, 0)
	if ask := a.ask; ask != nil && ask.errand != nil && len(ask.moves) > 0 {
		ask.ok = true
		i := ask.moves[0]
		ask.moves = ask.moves[1:]
		if moved.What == MoveNoTarget && moved.By == 0 {
			moved.By = a.missing()
		}
		if ask.errand.moved[i] = moved; q != nil {
			q.await(id, ask.errand, i)
		}
	}
}

// missing is the first target of the operation that is gone, or whose log is gone.
func (a *application) missing() uint64 {
	for _, t := range a.r.targets {
		if t.log == 0 && a.g.p.queues[t.queue] == nil {
			return t.queue
		}
		if t.log != 0 && a.g.p.outboxes.Closed(t.log) {
			return t.queue
		}
	}
	return 0
}

// moveReplicated is move for a replicated queue. It proposes one command, without records.
func (n *Node) moveReplicated(q *Queue, moves []Move) (*errand, error) {
	e := newErrand(len(moves))
	load := map[*Queue]coming{}
	for at := 0; at < len(moves) && leaves(q, moves); {
		s := n.pinMoves(q, moves[at:])
		s.crowded(moves[at:], e.moved[at:], load)
		s.release()
		at += len(s.deaths)
	}
	a := &ask{errand: e}
	for i := range moves {
		if e.moved[i].What == MoveOpen {
			a.moves = append(a.moves, i)
		}
	}
	if len(a.moves) == 0 {
		return e, nil
	}
	err := n.askQueue(q, a, func(w *commandWriter) {
		for _, i := range a.moves {
			m := &moves[i]
			p := plan{targets: m.Targets}
			p.split(q.part)
			w.take(q.Incarnation, m.ID, m.History, &p)
		}
	})
	if Gone(err) {
		err = nil // each result says so
	}
	return e, err
}
