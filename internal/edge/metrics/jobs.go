package metrics

import (
	"strconv"

	"bartleby.mq/internal/run/office"
)

var (
	jobStates  = gauge("bartleby_jobs", "Jobs of the Dead Letter Office that are kept, by state", "state").whole()
	jobLetters = gauge("bartleby_job_letters", "What became of the letters that jobs have sent, of all jobs that are kept: a letter that went to two queues counts twice", "action", "outcome").whole()
	jobMoved   = gauge("bartleby_job_letters_moved", "Letters that jobs have moved, of all jobs that are kept", "action").whole()
	jobOne     = gauge("bartleby_active_job_letters", "What became of the letters that a job has sent which is not over", "job", "vhost", "action", "outcome").whole()
	jobOneLeft = gauge("bartleby_active_job_letters_moved", "Letters that a job has moved which is not over", "job", "vhost", "action").whole()
	jobPlanned = gauge("bartleby_active_job_letters_planned", "Letters that a job was to move when it began which is not over", "job", "vhost", "action").whole()
)

// jobFamily is ours. There are few kinds of jobs, and at most 200 that are not over; those are no part of the totals.
var jobFamily = &family{name: "jobs", collect: func(s *scrape) {
	if s.Jobs == nil {
		return
	}
	byAction, active, states := s.Jobs.Sums()
	for _, state := range []office.State{office.Planned, office.Running, office.Paused, office.Halted, office.Cancelled, office.Done, office.Failed} {
		s.put(jobStates, float64(states[state]), string(state))
	}
	for i := range byAction {
		sum := &byAction[i]
		s.put(jobMoved, float64(sum.Moved), string(sum.Action))
		eachOutcome(&sum.Outcomes, func(outcome string, n uint64) { s.put(jobLetters, float64(n), string(sum.Action), outcome) })
	}
	if s.total {
		return
	}
	for i := range active {
		j := &active[i]
		id, action := strconv.FormatUint(j.ID, 10), string(j.Action)
		s.put(jobPlanned, float64(j.Planned), id, j.VHost, action)
		s.put(jobOneLeft, float64(j.Moved), id, j.VHost, action)
		eachOutcome(&j.Outcomes, func(outcome string, n uint64) { s.put(jobOne, float64(n), id, j.VHost, action, outcome) })
	}
}}

func eachOutcome(o *office.Outcomes, f func(outcome string, n uint64)) {
	f("waiting", o.Waiting)
	f("acknowledged", o.Acknowledged)
	f("died_again", o.DiedAgain)
	f("expired", o.Expired)
	f("dropped", o.Dropped)
	f("removed", o.Removed)
}
