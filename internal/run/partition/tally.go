package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/safety/held"
)

// A job moves dead letters to queues, and whoever started it wants to know what became of them. The history of an entry
// says whether a job has sent it to the queue where it is (deadletter.Marks.Sent). Each log keeps a tally for each job. It
// changes in the hold, and so in the frame or the command, in which such an entry comes or goes.
//
//	came       n.enter, the only way into a queue
//	goes       Queue.leaves: acknowledged or delivered without acknowledgement, dead, moved on, set aside; a purge, which
//	           tells of each; a deletion, which counts by Queue.sent what was there
//
// Invariant: Queue.sent has, for each job, how many entries with its mark the queue has. So an entry that goes is looked at
// only in a queue that has such entries, and what came is what is there and what has gone.
//
// Recovery of the local partitions decides nothing here either: a frame says which tallies it changes (opTally), and the
// functions that redo what happened to entries count nothing. A deletion is not in the journal but in the declarations'
// store. So it is not in a frame: if it counts after a crash, the queue is a ghost, and is counted when recovery ends.
//
// Entries that are not logged end with the process, and the journal says nothing of them: so does what was counted of
// them. A group logs every entry; its tallies are part of its state.

// JobOutcome is what becomes of an entry that a job has sent.
type JobOutcome uint8

// The outcomes. The numbers are part of the format of frames.
const (
	JobCame         JobOutcome = iota // it is in a queue now
	JobAcknowledged                   // a consumer has acknowledged it, or got it without having to
	JobDiedAgain                      // it died and was sent on; the dead letter does not count any more
	JobExpired                        // its TTL passed, and it was sent nowhere
	JobDropped                        // it died for another reason, and was sent nowhere; or it could not be read
	JobRemoved                        // it was purged, deleted with its queue, or moved by an operator
	JobMoved                          // not of such an entry: the job has moved an entry out of the queue
	// jobPassed is an entry that a delaying exchange has sent on: it counts where it has come now.
	jobPassed

	jobOutcomes
	jobCounted JobOutcome = jobOutcomes // for Queue.why: somebody else counts
)

// JobTally counts what became of the entries that a job has sent.
type JobTally struct {
	Came, Acknowledged, DiedAgain, Expired, Dropped, Removed uint64
	// Moved is how many entries the job has taken out of queues: one that has gone to several queues has come several times.
	Moved uint64
}

// Waiting is how many have had no outcome yet.
func (t *JobTally) Waiting() uint64 {
	return t.Came - (t.Acknowledged + t.DiedAgain + t.Expired + t.Dropped + t.Removed)
}

// numbers are the fields in the order of their outcomes.
func (t *JobTally) numbers() [7]*uint64 {
	return [...]*uint64{&t.Came, &t.Acknowledged, &t.DiedAgain, &t.Expired, &t.Dropped, &t.Removed, &t.Moved}
}

// add adds another tally.
func (t *JobTally) add(o *JobTally) {
	from := o.numbers()
	for i, v := range t.numbers() {
		*v += *from[i]
	}
}

// tallies are the tallies of one log.
type tallies struct {
	mu      held.Mutex           // taken last of all; held only for a moment
	logged  map[uint64]*JobTally // of logged entries, by job
	passing map[uint64]*JobTally // of the others
}

func newTallies() *tallies {
	t := &tallies{logged: map[uint64]*JobTally{}, passing: map[uint64]*JobTally{}}
	held.Name(&t.mu, "tallies of jobs")
	return t
}

// sentCounts is how many entries of one job a queue has.
type sentCounts struct{ logged, passing uint64 }

func (c *sentCounts) of(logged bool) *uint64 {
	if logged {
		return &c.logged
	}
	return &c.passing
}

// jobChange is a change of a tally.
type jobChange struct {
	queue, job, n uint64
	outcome       JobOutcome
	logged        bool
	told          bool // the frame has it
}

// apply makes a change. What becomes of entries of a job that is forgotten is not counted. REQUIRES: t.mu is held.
func (t *tallies) apply(c *jobChange) {
	of := t.passing
	if c.logged {
		of = t.logged
	}
	j := of[c.job]
	switch {
	case j == nil && c.outcome != JobCame && c.outcome != JobMoved:
		return
	case j == nil:
		j = &JobTally{}
		of[c.job] = j
	}
	if c.outcome == jobPassed {
		j.Came -= min(j.Came, c.n)
		return
	}
	*j.numbers()[c.outcome] += c.n
}

// tallied makes the changes that the hold has collected, and writes them into its frame.
func (h *hold) tallied() {
	if len(h.tally) == 0 {
		return
	}
	t := h.parts[0].tallies
	t.mu.Lock()
	for i := range h.tally {
		t.apply(&h.tally[i])
	}
	t.mu.Unlock()
	for i := range h.tally {
		if c := &h.tally[i]; c.logged && c.told && h.frame != nil {
			h.frame.tally(c)
		}
	}
	h.tally = h.tally[:0]
}

// change notes a change, together with an equal one just before. But what leaves is not told before what has come since the equal one:
// recovery, which makes the changes in their order, would not know of an entry that could leave.
func (h *hold) change(c jobChange) {
	for k := len(h.tally) - 1; k >= max(0, len(h.tally)-4); k-- {
		o := &h.tally[k]
		if o.queue == c.queue && o.job == c.job && o.outcome == c.outcome && o.logged == c.logged && o.told == c.told {
			o.n += c.n
			return
		}
		if o.queue == c.queue && o.job == c.job && o.outcome == JobCame && c.outcome != JobMoved {
			break
		}
	}
	h.tally = append(h.tally, c)
}

// countSent notes that n entries of a job have come to the queue or have gone. Entries that nobody has seen come do not go:
// the tallies are lost, see recovery.salvage. REQUIRES: q is held.
func (q *Queue) countSent(job uint64, outcome JobOutcome, n uint64, logged bool) {
	h := q.part.hold
	if h.redoes {
		return
	}
	logged = logged || q.part.group != nil
	if q.changeSent(job, outcome, n, logged) {
		h.change(jobChange{queue: q.Incarnation, job: job, n: n, outcome: outcome, logged: logged, told: true})
	}
}

// changeSent changes Queue.sent. It says whether it could.
func (q *Queue) changeSent(job uint64, outcome JobOutcome, n uint64, logged bool) bool {
	c := q.sent[job]
	of := c.of(logged)
	switch {
	case outcome == JobMoved:
		return true
	case outcome == JobCame:
		*of += n
	case *of < n:
		return false
	default:
		*of -= n
	}
	switch {
	case c == sentCounts{}:
		delete(q.sent, job)
	case q.sent == nil:
		q.sent = map[uint64]sentCounts{job: c}
	default:
		q.sent[job] = c
	}
	return true
}

// came counts an entry that has just entered the queue. id is 0 if a consumer without acknowledgements has it. REQUIRES:
// q is held.
func (q *Queue) came(id queue.ID, history message.Ref, logged bool) {
	job := deathstore.Sent(q.part.node.bodies, history)
	if job == 0 {
		return
	}
	q.countSent(job, JobCame, 1, logged)
	if id == 0 {
		q.countSent(job, JobAcknowledged, 1, logged)
	}
}

// leaves counts an entry that has just left the queue. REQUIRES: q is held.
func (q *Queue) leaves(history message.Ref, outcome JobOutcome, logged bool) {
	if len(q.sent) == 0 || history == 0 {
		return
	}
	if job := deathstore.Sent(q.part.node.bodies, history); job != 0 {
		q.countSent(job, outcome, 1, logged)
	}
}

// movedOut counts an entry that an operator's move has just taken out of the queue: as gone, if a job had sent it, and for
// the job that has moved it, if the history that it has now says so. REQUIRES: q is held.
func (q *Queue) movedOut(before, now message.Ref, logged bool) {
	q.leaves(before, JobRemoved, logged)
	if now == 0 {
		return
	}
	if job := deathstore.Sent(q.part.node.bodies, now); job != 0 {
		q.countSent(job, JobMoved, 1, true)
	}
}

// leftDead counts a dead entry that has just left the queue. REQUIRES: q is held.
func (q *Queue) leftDead(history message.Ref, logged bool, reason deadletter.Reason, outcome deadletter.Outcome) {
	switch {
	case outcome.Dropped():
		q.leaves(history, lostBy(reason), logged)
	case q.config.Delays:
		q.leaves(history, jobPassed, logged)
	default:
		q.leaves(history, JobDiedAgain, logged)
	}
}

// lostBy is the outcome of an entry that died and was sent nowhere.
func lostBy(reason deadletter.Reason) JobOutcome {
	if reason == deadletter.Expired {
		return JobExpired
	}
	return JobDropped
}

// leftWithQueue counts everything that a deleted queue still had. REQUIRES: q is held.
func (q *Queue) leftWithQueue(h *hold) {
	for job, c := range q.sent {
		for _, logged := range []bool{false, true} {
			if n := *c.of(logged); n > 0 {
				h.change(jobChange{queue: q.Incarnation, job: job, n: n, outcome: JobRemoved, logged: logged})
			}
		}
	}
	q.sent = nil
}

// JobTallies returns what is known of the entries that jobs have sent, by job.
func (n *Node) JobTallies() map[uint64]JobTally {
	sum := map[uint64]JobTally{}
	n.eachTallies(func(t *tallies) {
		for _, of := range []map[uint64]*JobTally{t.logged, t.passing} {
			for job, j := range of {
				s := sum[job]
				s.add(j)
				sum[job] = s
			}
		}
	})
	return sum
}

// JobTally returns what is known of the entries that a job has sent.
func (n *Node) JobTally(job uint64) (sum JobTally) {
	n.eachTallies(func(t *tallies) {
		for _, of := range []map[uint64]*JobTally{t.logged, t.passing} {
			if j := of[job]; j != nil {
				sum.add(j)
			}
		}
	})
	return sum
}

// eachTallies calls f for the tallies of each log, locked.
func (n *Node) eachTallies(f func(*tallies)) {
	each := func(t *tallies) {
		t.mu.Lock()
		defer t.mu.Unlock()
		f(t)
	}
	each(n.tallies)
	for _, p := range n.groups {
		each(p.tallies)
	}
}

// ForgetJobs drops the tallies of jobs that nobody asks for any more. What their entries do is not counted from then on.
// In a group its leader does that, by a command. For the local partitions the next checkpoint has it: after a crash the
// caller says it again. An error means that a group has no leader here or that the node stops.
func (n *Node) ForgetJobs(known func(job uint64) bool) error {
	t := n.tallies
	t.mu.Lock()
	for _, of := range []map[uint64]*JobTally{t.logged, t.passing} {
		for job := range of {
			if !known(job) {
				delete(of, job)
			}
		}
	}
	t.mu.Unlock()
	for _, p := range n.groups {
		p.mu.Lock()
		leads := p.group.leads
		p.mu.Unlock()
		if jobs := p.tallies.unknown(known); leads && len(jobs) > 0 {
			if err := p.group.tell(func(w *commandWriter) { w.forget(jobs) }); err != nil {
				return err
			}
		}
	}
	return nil
}
