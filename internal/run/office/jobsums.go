package office

import (
	"cmp"
	"slices"

	"bartleby.mq/internal/run/letters"
)

// JobSum is what became of letters of one job, or of several with one action.
type JobSum struct {
	ID       uint64 // 0: of several
	VHost    string
	Action   letters.Action
	Moved    uint64
	Outcomes Outcomes
	Planned  int
}

func (s *JobSum) add(o *JobSum) {
	s.Moved += o.Moved
	s.Planned += o.Planned
	s.Outcomes.Waiting += o.Outcomes.Waiting
	s.Outcomes.Acknowledged += o.Outcomes.Acknowledged
	s.Outcomes.DiedAgain += o.Outcomes.DiedAgain
	s.Outcomes.Expired += o.Outcomes.Expired
	s.Outcomes.Dropped += o.Outcomes.Dropped
	s.Outcomes.Removed += o.Outcomes.Removed
}

// Sums adds up all jobs that are kept, by action, lists those that are not over, by number, and counts them by state. It asks each log for
// its tallies once, however many jobs there are.
func (m *Jobs) Sums() (byAction, active []JobSum, states map[State]int) {
	tallies := m.b.Node().JobTallies()
	sums := map[letters.Action]*JobSum{}
	states = map[State]int{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, j := range m.jobs {
		states[j.r.State]++
		t := tallies[id]
		one := JobSum{ID: id, VHost: j.r.VHost, Action: j.r.Action, Planned: j.r.Planned, Moved: t.Moved, Outcomes: outcomesOf(&t)}
		if sums[j.r.Action] == nil {
			sums[j.r.Action] = &JobSum{Action: j.r.Action}
		}
		sums[j.r.Action].add(&one)
		if !j.r.State.over() {
			active = append(active, one)
		}
	}
	for _, s := range sums {
		byAction = append(byAction, *s)
	}
	slices.SortFunc(byAction, func(a, b JobSum) int { return cmp.Compare(a.Action, b.Action) })
	slices.SortFunc(active, func(a, b JobSum) int { return cmp.Compare(a.ID, b.ID) })
	return byAction, active, states
}
