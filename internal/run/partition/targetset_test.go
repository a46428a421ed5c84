package partition

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// union gives the same set as with for each element.
func TestTargetSetUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOf(rapid.Uint64Range(1, 20))
		var one, all targetSet
		for _, target := range some.Draw(t, "set") {
			one, all = one.with(target), all.with(target)
		}
		more := some.Draw(t, "more")
		for _, target := range more {
			one = one.with(target)
		}
		if all = all.union(more); !slices.Equal(one, all) {
			t.Fatalf("%v, want %v", all, one)
		}
	})
}
