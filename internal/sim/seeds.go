package sim

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"
)

// Seeds are the worlds that a test of a model simulates, as its flags say.
type Seeds struct {
	one, from *uint64
	n         *uint64
	length    *time.Duration
}

// SeedFlags defines the flags of a test binary; n worlds are simulated if they say
// nothing.
func SeedFlags(n uint64) Seeds {
	return Seeds{
		one:    flag.Uint64("seed", 0, "simulate this one world only"),
		n:      flag.Uint64("seeds", n, "how many worlds to simulate"),
		from:   flag.Uint64("from", 1, "the first of them"),
		length: flag.Duration("for", 0, "simulate one world after the other for so long"),
	}
}

// Run simulates the worlds with run, no more than short of them in a short test, and
// logs what happened in them. The first that fails ends the test with the command that
// simulates it again; pkg is the test's package as that command names it.
func (s Seeds) Run(t *testing.T, pkg string, short uint64, run func(t *testing.T, seed uint64) (Result, error)) {
	t.Helper()
	from, n := *s.from, *s.n
	if *s.one != 0 {
		from, n = *s.one, 1
	}
	if testing.Short() {
		n = min(n, short)
	}
	counts := map[string]int{}
	begin, ran := time.Now(), uint64(0)
	for seed := from; ran < n || time.Since(begin) < *s.length; seed++ {
		r := runOne(t, pkg, seed, run)
		ran++
		for what, times := range r.Counts {
			counts[what] += times
		}
	}
	t.Logf("%d worlds", ran)
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%8d %s", counts[what], what)
	}
}

// runOne simulates one world, and ends the test if it fails.
func runOne(t *testing.T, pkg string, seed uint64, run func(t *testing.T, seed uint64) (Result, error)) Result {
	t.Helper()
	defer func() {
		if t.Failed() { // by whatever way
			t.Logf("the same again: go test %s -run %s -seed=%d", pkg, t.Name(), seed)
		}
	}()
	r, err := run(t, seed)
	if err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	return r
}
