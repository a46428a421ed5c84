package index

import (
	"testing"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/moment"
)

func TestTheFirstMomentWithAMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Int64Range(0, moment.Last).Draw(t, "at")
		for m := range Mark(marks) {
			from := m.From(at)
			if MarkOf(from) != m {
				t.Errorf("%d bears %d, want %d", from, MarkOf(from), m)
			}
			if from != at && (from != at+1 || MarkOf(at) == m) {
				t.Errorf("the first from %d on with %d is %d", at, m, from)
			}
		}
	})
}

// A moment that a column cannot tell, since it is too early or too far away, keeps its mark and is not later than
// it was, or has passed already.
func TestAMomentKeepsItsMark(t *testing.T) {
	ix, _ := fill(0, nil)
	ix.Terms.Marked = true
	var ids []ID
	for k := range 4 {
		id, _ := ix.Enter(4, 0, &Content{Body: 1, Logged: true}, start+int64(k))
		ids = append(ids, id)
	}
	far, _ := ix.Enter(4, 0, &Content{Body: 1, Logged: true}, start+1<<40)
	p := ix.Find(far).page
	for _, base := range []int64{start - 1, start, start + 1, start + 100, start + 1<<40 - 1} {
		ix.rebase(p, base)
		for k, id := range ids {
			if at := ix.Moment(ix.Find(id)); MarkOf(at) != MarkOf(start+int64(k)) || at > max(start+int64(k), base+marks) {
				t.Errorf("base %d: the moment %d has become %d", base, start+int64(k), at)
			}
		}
		if at := ix.Moment(ix.Find(far)); at != start+1<<40 {
			t.Errorf("base %d: the far moment has become %d", base, at)
		}
	}
}
