package partition

import (
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
)

// A death is routed if any target has it or it was sent to one. Otherwise a refusal decides, and else the plan. A
// plan whose targets are gone leads nowhere.
func TestTheOutcomeOfADeath(t *testing.T) {
	for _, tt := range []struct {
		name          string
		planned       deadletter.Outcome
		taken         bool // by targets of an earlier try
		entered       int
		refused, sent int
		want          deadletter.Outcome
	}{
		{"a target has it", deadletter.Routed, false, 1, 0, 0, deadletter.Routed},
		{"one has it, one refuses it", deadletter.Routed, false, 1, 1, 0, deadletter.Routed},
		{"it is sent to another log", deadletter.Routed, false, 0, 1, 1, deadletter.Routed},
		{"one had it before", deadletter.NoRoute, true, 0, 0, 0, deadletter.Routed},
		{"all refuse it", deadletter.Routed, false, 0, 2, 0, deadletter.TargetRefused},
		{"its targets are gone", deadletter.Routed, false, 0, 0, 0, deadletter.NoRoute},
		{"there is no exchange", deadletter.NoExchange, false, 0, 0, 0, deadletter.NoExchange},
		{"its exchange does not exist", deadletter.MissingExchange, false, 0, 0, 0, deadletter.MissingExchange},
		{"one had it before the exchange was deleted", deadletter.MissingExchange, true, 0, 0, 0, deadletter.Routed},
		{"nothing is bound", deadletter.NoRoute, false, 0, 0, 0, deadletter.NoRoute},
		{"it would go in a circle", deadletter.Cycle, false, 0, 0, 0, deadletter.Cycle},
	} {
		c := carry{h: &hold{entered: make([]newEntry, tt.entered)}, plan: &plan{outcome: tt.planned}}
		if got := c.outcome(tt.taken, tt.refused, tt.sent); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A held death waits for each target that was asked once, in any order of answers, and remembers which targets have
// it.
func TestAHeldDeathWaitsForEachTarget(t *testing.T) {
	const id = queue.ID(7)
	var w waiting
	w.tell(id, []uint64{3, 1, 3}, []uint64{2})
	if left := w.unask(id, 3); left != 1 {
		t.Errorf("%d targets have not answered, want 1", left)
	}
	w.note(id, true)
	if left := w.unask(id, 1); left != 0 || len(w.asked) > 0 {
		t.Errorf("%d targets have not answered, of %v; want none", left, w.asked)
	}
	w.take(id, 1)
	if !w.taken[id].has(1) || !w.taken[id].has(2) || w.taken[id].has(3) || !w.refused[id] {
		t.Errorf("taken by %v, refused: %v", w.taken[id], w.refused[id])
	}
	if got := w.outcome(id); got != deadletter.Routed {
		t.Errorf("it ends as %v, want routed", got)
	}
	w.note(id, false)
	w.forget(id)
	if got := w.outcome(id); got != deadletter.Deleted || len(w.taken)+len(w.refused) > 0 {
		t.Errorf("it ends as %v, and %v, %v are left", got, w.taken, w.refused)
	}
}
