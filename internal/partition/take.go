package partition

// take moves messages that somebody asked to be moved, as Node.Move does.
func (a *application) take(q *Queue) {
	id, history := a.r.take()
	if a.r.bad {
		return
	}
	p := a.plan(history)
	asked := len(a.r.targets)
	moved := MoveGone
	if q != nil {
		if v, ok := q.m.View(id); ok {
			moved = a.g.node.moveOne(a.h, q, id, p, asked, v.Body)
		}
	}
	a.h.drop(p.history, 0)
	if ask := a.answer(); ask != nil {
		ask.ok = true
		ask.moved = append(ask.moved, moved)
	}
}

// moveReplicated carries out moves from a replicated queue.
func (n *Node) moveReplicated(q *Queue, moves []Move) []Moved {
	a := newAsk()
	err := n.askQueue(q, a, func(w *commandWriter) {
		for i := range moves {
			m := &moves[i]
			p := plan{targets: m.Targets}
			p.split(q.part)
			w.take(q.Incarnation, m.ID, m.History, &p)
		}
	})
	if err != nil || len(a.moved) != len(moves) {
		a.moved = make([]Moved, len(moves))
		for i := range a.moved {
			a.moved[i] = MoveGone
		}
	}
	return a.moved
}
