package partition

import "testing"

// Applied proposals are forgotten even if something is always pending.
func TestProposalsThatAreAppliedAreForgotten(t *testing.T) {
	var ps proposals
	const under = 3
	for number := uint64(1); number < 10_000; number++ {
		ps.list = append(ps.list, &proposal{number: number})
		if number <= under {
			continue
		}
		if p := ps.take(number - under); p == nil || p.number != number-under {
			t.Fatalf("proposal %d: %+v", number-under, p)
		}
	}
	if len(ps.list)-ps.start != under || cap(ps.list) > 16*under {
		t.Errorf("%d are under way, and the list has room for %d", len(ps.list)-ps.start, cap(ps.list))
	}
	if ps.take(10_000) != nil || len(ps.list) != 0 || ps.start != 0 {
		t.Errorf("what went nowhere is not forgotten: %d of %d", ps.start, len(ps.list))
	}
}
