package partition

import (
	"maps"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/deathstore"
)

// The bytes of tallies. A frame has the changes of the local partitions' tallies, a checkpoint and a group's state have:
//
//	tallies   n | n × (job | came | acknowledged | died again | expired | dropped | removed | moved)
//	sent      n | n × (job | entries)            of each queue

// tally writes a change.
func (f *frame) tally(c *jobChange) {
	f.begin(opTally)
	f.uint(c.queue)
	f.uint(c.job)
	f.uint(uint64(c.outcome))
	f.uint(c.n)
}

// tally reads a change.
func (r *frameReader) tally() (c jobChange) {
	c = jobChange{queue: r.uint(), job: r.uint(), logged: true}
	outcome := r.uint()
	c.n = r.uint()
	if outcome >= uint64(jobOutcomes) || c.job == 0 || c.n == 0 {
		r.bad = true
		return c
	}
	c.outcome = JobOutcome(outcome)
	return c
}

// tally repeats a change.
func (r *recovery) tally(fr *frameReader) {
	c := fr.tally()
	if fr.bad || r.salvage != nil { // salvage: what was counted before is lost, and the rest would say nothing
		return
	}
	r.change(r.queue(c.queue), &c)
}

func (r *recovery) change(q *Queue, c *jobChange) {
	if !q.changeSent(c.job, c.outcome, c.n, true) {
		return
	}
	t := r.node.tallies
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apply(c)
}

// accepted is an entry that the answer of its targets has taken out of its queue. Its frame then also says that it is
// settled, and which tallies change; but not if the queue was being deleted, and is back.
type accepted struct {
	q           *Queue
	id          queue.ID
	before, now message.Ref // its history, and the one it has in its targets; the hold has references
}

// settled notes that the frame says what followed from the answers for these entries.
func (r *recovery) settled(q *Queue, first queue.ID, count uint64) {
	r.accepted = slices.DeleteFunc(r.accepted, func(a accepted) bool {
		return a.q == q && a.id >= first && uint64(a.id-first) < count
	})
}

// leftUntold counts the entries that have left queues that are back. REQUIRES: the frame is repeated.
func (r *recovery) leftUntold() {
	for _, a := range r.accepted {
		for i, history := range []message.Ref{a.before, a.now} {
			if history == 0 {
				continue
			}
			if job := deathstore.Sent(r.node.bodies, history); job != 0 {
				r.change(a.q, &jobChange{queue: a.q.Incarnation, job: job, n: 1, outcome: []JobOutcome{JobRemoved, JobMoved}[i], logged: true})
			}
		}
	}
	r.accepted = r.accepted[:0]
}

// append appends the tallies of logged entries.
func (t *tallies) append(w *commandWriter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.uint(uint64(len(t.logged)))
	for _, job := range slices.Sorted(maps.Keys(t.logged)) {
		w.uint(job)
		for _, v := range t.logged[job].numbers() {
			w.uint(*v)
		}
	}
}

// restore reads what append wrote. REQUIRES: nothing is there.
func (t *tallies) restore(r *commandReader) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range r.count(8) {
		job, j := r.uint(), new(JobTally)
		for _, v := range j.numbers() {
			*v = r.uint()
		}
		if r.bad = r.bad || t.logged[job] != nil; r.bad {
			return
		}
		t.logged[job] = j
	}
}

func (t *tallies) forgetAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.logged)
	clear(t.passing)
}

// unknown returns the jobs that are not known, in order.
func (t *tallies) unknown(known func(uint64) bool) (jobs []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for job := range t.logged {
		if !known(job) {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return jobs
}

// appendSent appends how many logged entries of each job the queue has.
func (q *Queue) appendSent(w *commandWriter) {
	jobs := make([]uint64, 0, len(q.sent))
	for job, c := range q.sent {
		if c.logged > 0 {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	w.uint(uint64(len(jobs)))
	for _, job := range jobs {
		w.uint(job)
		w.uint(q.sent[job].logged)
	}
}

// sentTo reads what appendSent wrote.
func (r *commandReader) sentTo(q *Queue) {
	for range r.count(2) {
		job, n := r.uint(), r.uint()
		if r.bad = r.bad || job == 0 || n == 0 || q.sent[job].logged != 0; r.bad {
			return
		}
		q.changeSent(job, JobCame, n, true)
	}
}

// forget writes that these jobs are not known any more.
func (w *commandWriter) forget(jobs []uint64) {
	w.endAcks()
	w.b = append(w.b, cmdForget)
	w.numbers(jobs)
}

// jobs reads what forget wrote.
func (r *commandReader) jobs() (jobs []uint64) {
	for range r.count(1) {
		jobs = append(jobs, r.uint())
	}
	return jobs
}

// forget drops the tallies of jobs.
func (a *application) forget() {
	jobs := a.r.jobs()
	t := a.g.p.tallies
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, job := range jobs {
		delete(t.logged, job)
	}
}
