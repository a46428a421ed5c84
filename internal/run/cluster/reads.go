package cluster

import (
	"encoding/binary"
	"errors"

	"go.etcd.io/raft/v3"
)

// ErrNoAnswer is what a ReadIndex gets that was lost on its way.
var ErrNoAnswer = errors.New("cluster: no answer from the leader")

// reads are calls of ReadIndex under way. Guarded by the group's lock.
type reads struct {
	last     uint64
	asked    []read
	waiting  []read // for index to be applied
	failed   []func()
	patience int // in ticks
}

type read struct {
	id    uint64
	index uint64
	age   int
	done  func(error)
}

// ReadIndex calls done with nil when this replica's machine has applied all that
// was decided before the call, by whatever replica, or with an error: a change of
// leader, no answer in time, ErrStopped. done is called in the machine's turn, once.
func (g *Group) ReadIndex(done func(error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running() {
		g.unlocked(func() { done(ErrStopped) })
		return
	}
	g.reads.patience = 2 * g.d.opts.ElectionTicks
	if g.leader == 0 || g.state == raft.StateLeader && g.led != g.hard.term {
		g.reads.failed = append(g.reads.failed, func() { done(&NotLeaderError{g.id, 0}) })
		g.turn()
		return
	}
	g.raft.ReadIndex(g.reads.ask(done))
	g.process()
	g.turn()
}

// ask notes a read and returns what identifies it.
func (r *reads) ask(done func(error)) []byte {
	r.last++
	r.asked = append(r.asked, read{id: r.last, done: done})
	return binary.LittleEndian.AppendUint64(nil, r.last)
}

// answered takes the indices that reads have to wait for.
func (r *reads) answered(states []raft.ReadState) {
	for _, s := range states {
		if len(s.RequestCtx) != 8 {
			continue
		}
		id := binary.LittleEndian.Uint64(s.RequestCtx)
		for i := range r.asked {
			if r.asked[i].id == id {
				r.asked[i].index = s.Index
				r.waiting = append(r.waiting, r.asked[i])
				r.asked = append(r.asked[:i], r.asked[i+1:]...)
				break
			}
		}
	}
}

// failAll fails those that were not answered; those answered have their index
// whoever leads.
func (r *reads) failAll(err error) {
	for _, a := range r.asked {
		r.failed = append(r.failed, func() { a.done(err) })
	}
	r.asked = nil
}

// tick fails those that are not answered for too long.
func (r *reads) tick() {
	kept := r.asked[:0]
	for _, a := range r.asked {
		if a.age++; a.age > r.patience {
			r.failed = append(r.failed, func() { a.done(ErrNoAnswer) })
			continue
		}
		kept = append(kept, a)
	}
	r.asked = kept
}

// due takes out what can be called now that applied is.
func (r *reads) due(applied uint64) []func() {
	fns := r.failed
	r.failed = nil
	kept := r.waiting[:0]
	for _, w := range r.waiting {
		if w.index <= applied {
			fns = append(fns, func() { w.done(nil) })
			continue
		}
		kept = append(kept, w)
	}
	r.waiting = kept
	return fns
}
