package office

import (
	"maps"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/letters"
)

// A standing job is what a rule does: a job without a goroutine, of which the rule carries out the errands. So what becomes of
// letters that a rule has moved is counted as for any other job, and their history names it. It is running while the rule is on,
// paused while it is off, halted when the rule cannot go on, and cancelled when there is no such rule any more.

// standing makes the standing job of a rule, or brings the one that it has up to date, and returns its id. A rule that does
// something else than before, or in other queues, has another job: who may read these is shown what it has done.
func (m *Jobs) standing(id uint64, vhost message.VHost, r *storedRule) (uint64, error) {
	action, how := r.errand()
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[id]
	if j != nil && (j.r.State.over() || j.r.Rule != r.Name || j.r.RuleQueues != nil && *j.r.RuleQueues != r.Queues || j.r.Action != action || !sameWay(&j.r.Options, &how)) {
		if !j.r.State.over() {
			if err := m.set(j, Actor{}, Cancelled, "the rule does something else now"); err != nil {
				return 0, err
			}
		}
		j = nil
	}
	state := Paused
	if r.On {
		state = Running
	}
	fresh := j == nil
	if fresh {
		m.last++
		at := m.office.now()
		j = &job{r: record{Job: Job{ID: m.last, VHost: string(vhost), Rule: r.Name, Queues: []string{}, State: state, MadeMS: at, BeganMS: at}, Took: names{}}}
	}
	j.r.RuleQueues = new(r.Queues)
	j.r.Action, j.r.Options, j.r.Filter, j.r.By, j.r.Operator = action, how, maps.Clone(map[string][]string(r.Match)), r.By, r.Operator
	if !fresh && j.r.State != state {
		return j.r.ID, m.set(j, Actor{}, state, "")
	}
	if err := m.store(&j.r, true); err != nil {
		return 0, err
	}
	if fresh {
		m.jobs[j.r.ID] = j
		m.tell(j, "")
	}
	return j.r.ID, nil
}

func sameWay(a, b *How) bool {
	same := func(x, y *string) bool { return (x == nil) == (y == nil) && (x == nil || *x == *y) }
	return a.ToQueue == b.ToQueue && same(a.ToExchange, b.ToExchange) && same(a.RoutingKey, b.RoutingKey)
}

// halt halts a standing job.
func (m *Jobs) halt(id uint64, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j := m.jobs[id]; j != nil && j.r.State == Running {
		return m.set(j, Actor{}, Halted, why)
	}
	return nil
}

// cancelStanding cancels the standing jobs that none of the rules has, by their ids.
func (m *Jobs) cancelStanding(has func(id uint64) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		if j := m.jobs[id]; j != nil && j.r.Rule != "" && !j.r.State.over() && !has(id) {
			if err := m.set(j, Actor{}, Cancelled, "there is no such rule any more"); err != nil {
				return err
			}
		}
	}
	return nil
}

// takes notes, on disk, that a rule takes letters of a queue. It is called before anything that the rule does or counts tells of them.
func (m *Jobs) takes(id uint64, q message.QueueName) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[id]
	if j == nil || j.r.State.over() || !j.r.Took.whole() || slices.Contains(j.r.Took, string(q)) {
		return nil
	}
	j.r.Took = j.r.Took.with(string(q))
	return m.store(&j.r, true)
}

// did counts what a rule has done in a slice.
func (m *Jobs) did(id uint64, s *letters.ErrandSlice, at int64) error {
	m.fail(FailJobMoved)
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[id]
	if j == nil || j.r.State.over() {
		return nil
	}
	j.r.Stays.add(s)
	if s.Moved > 0 {
		j.r.LastMS = at
	}
	err := m.store(&j.r, false)
	m.fail(FailJobRecorded)
	return err
}
