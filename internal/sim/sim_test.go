package sim

import (
	"fmt"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var seeds = SeedFlags(12)

// world runs one seed in a bubble whose clock follows the virtual one.
func world(t *testing.T, seed uint64) (Result, error) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed) // Raft's election times, the journals' epochs
	var r Result
	var err error
	synctest.Test(t, func(*testing.T) {
		r, err = Run(Options{Seed: seed, Model: NewSets(), Advance: time.Sleep})
	})
	return r, err
}

// TestSimulation lets everything go wrong that the issue names, once for each seed,
// and looks after each step: what was decided is never lost, replicas agree, a
// thing is in exactly one place, a term has one leader; and once the faults end, the
// cluster recovers.
func TestSimulation(t *testing.T) {
	seeds.Run(t, "./internal/sim", 3, world)
}

// The same seed is the same history, whoever runs it.
func TestSameSeedSameHistory(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			a, err := world(t, seed)
			if err != nil {
				t.Fatal(err)
			}
			b, err := world(t, seed)
			if err != nil {
				t.Fatal(err)
			}
			if a.Trace != b.Trace {
				t.Errorf("two runs of seed %d differ: %x, %x", seed, a.Trace, b.Trace)
			}
		})
	}
}
