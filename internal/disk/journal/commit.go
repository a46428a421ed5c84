package journal

import (
	"fmt"
	"sync"

	"bartleby.mq/internal/safety/held"
)

// rounds is how leaders and followers take turns. All of it is guarded by the
// journal's mu.
//
// A round is one write and one sync by its leader for all who wait. While round r
// runs, those whose frames it covers sleep on turn[r&1] and are all woken when it
// ends; those who came later sleep on turn[(r+1)&1], and one of them is woken to
// lead round r+1 (which covers them all: a leader takes the whole buffer).
//
// Invariant: when nobody is busy and somebody sleeps on the next turn, one that
// slept there has been woken and has not run yet; whoever leads before it wakes the
// next on ending. So no wake-up is lost. A Flush holds the file without being a
// round: it covers nobody, and wakes one when it ends, like a leader.
type rounds struct {
	busy   bool
	round  uint64 // number of the current round, or of the last
	covers Pos    // frames below it are in the round that runs; 0 between rounds
	turn   [2]sync.Cond
}

func (r *rounds) init(mu *sync.Mutex) { r.turn[0].L, r.turn[1].L = mu, mu }

// waitRound sleeps until the round that runs ends.
func (r *rounds) waitRound() { r.turn[r.round&1].Wait() }

// waitNext sleeps until it is time to lead, or somebody else has.
func (r *rounds) waitNext() { r.turn[(r.round+1)&1].Wait() }

// wakeNext wakes one that waits to lead.
func (r *rounds) wakeNext() { r.turn[(r.round+1)&1].Signal() }

func (r *rounds) wakeAll() {
	r.turn[0].Broadcast()
	r.turn[1].Broadcast()
}

// begin makes the caller the leader; covers is 0 for a Flush.
func (r *rounds) begin(covers Pos) {
	r.busy, r.covers = true, covers
	if covers != 0 {
		r.round++
	}
}

// end is the leader's last step.
func (r *rounds) end() {
	if r.covers != 0 {
		r.turn[r.round&1].Broadcast()
	}
	r.busy, r.covers = false, 0
	r.wakeNext()
}

// Commit returns when the frame at pos, and every frame before it, is durable. The
// first caller writes and syncs for all who wait; those who come meanwhile share
// the next round. The error is final: the first failed write or sync, or
// ErrClosed. A position that no Append returned is an error, too.
func (j *Journal) Commit(pos Pos) error {
	held.Nothing("the journal")
	if pos < Pos(j.durable.Load()) {
		return nil
	}
	j.mu.Lock()
	for {
		switch {
		case pos < Pos(j.durable.Load()):
			j.mu.Unlock()
			return nil
		case j.err != nil:
			err := j.err
			j.mu.Unlock()
			return err
		case pos >= j.tail.pos():
			j.mu.Unlock()
			return fmt.Errorf("journal: commit of position %s, which is behind the end", pos)
		case !j.busy:
			return j.lead(true)
		case pos < j.covers:
			j.rounds.waitRound()
		default:
			j.rounds.waitNext()
		}
	}
}

// Sync is Commit of everything that was appended before the call.
func (j *Journal) Sync() error {
	held.Nothing("the journal")
	j.mu.Lock()
	end, none := j.tail.pos(), j.tail.offset == headerBytes
	j.mu.Unlock()
	if none || end <= Pos(j.durable.Load()) {
		return nil
	}
	return j.Commit(end - 1) // it is in the last frame
}

// Flush writes what is buffered to the file without syncing it, so that a killed
// process loses nothing (a dead machine may). It also leaves a mark that proves
// the last sync, if no frame does yet. The owner calls it a few milliseconds after
// the buffer was filled and before it exits. Where the buffer goes over into a new segment the old one is
// synced. The error is final, as Commit's.
func (j *Journal) Flush() error {
	held.Nothing("the journal")
	j.mu.Lock()
	if j.open {
		j.mark()
	}
	target := j.tail.pos()
	for j.busy && j.err == nil && j.written < target {
		j.rounds.waitNext()
	}
	if j.err != nil || j.written >= target || len(j.active.buf) == 0 {
		err := j.err
		if !j.busy {
			j.rounds.wakeNext() // the wake-up may have been meant for a leader
		}
		j.mu.Unlock()
		return err
	}
	return j.lead(false)
}

// lead takes the buffer and writes it, and syncs it if sync is set. It is called
// with mu held and nobody busy, and returns with mu released.
func (j *Journal) lead(sync bool) error {
	end := j.tail.pos()
	var covers Pos
	if sync {
		covers = end
	}
	j.rounds.begin(covers)
	j.writing, j.active = j.active, j.writing
	j.mu.Unlock()

	err := j.write(&j.writing)
	if err == nil && sync {
		err = j.sync()
	}
	if err != nil {
		return j.abandon(err)
	}
	j.finish(end, sync)
	return nil
}

// finish ends a leader's turn that went well. Notices run after the turn has
// passed on, so that the next sync overlaps them; running keeps them in order all
// the same.
func (j *Journal) finish(end Pos, synced bool) {
	j.waiting.running.Lock()
	defer j.waiting.running.Unlock()
	j.mu.Lock()
	j.writing.reset()
	j.written = end
	if synced {
		j.durable.Store(uint64(end))
		j.waiting.collect(end)
	}
	j.rounds.end()
	j.mu.Unlock()
	j.waiting.run()
}

// abandon ends a leader's turn that failed, and the journal with it. It returns the
// error that everybody gets.
func (j *Journal) abandon(err error) error {
	j.mu.Lock()
	first := j.stop(err)
	err = j.err
	j.writing.reset()
	j.rounds.end()
	j.mu.Unlock()
	if first {
		j.opts.OnFatal(err)
	}
	return err
}
