package partition

import (
	"math/rand/v2"
	"testing"
	"testing/cryptotest"

	"bartleby.mq/internal/sim"
)

var seeds = sim.SeedFlags(4)

// simulate runs one seed.
func simulate(t *testing.T, seed uint64) (sim.Result, error) {
	cryptotest.SetGlobalRandom(t, seed) // Raft's election times, the journals' epochs
	return sim.Run(sim.Options{Seed: seed, Model: newLetters(seed), Groups: Groups, SegmentBytes: 128 << 10, TailBytes: 64 << 10})
}

// Nodes with quorum queues live through everything that package sim can do to them. Confirmed messages are never
// lost, each message is in one place, replicas agree, counters never go back, and only one consumer at a time is the
// active one.
func TestSimulation(t *testing.T) {
	seeds.Run(t, "./internal/run/partition", 1, simulate)
}

// The same seed gives the same history on every machine.
func TestSameSeedSameHistory(t *testing.T) {
	seed := uint64(1 + rand.IntN(1000))
	a, err := simulate(t, seed)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	b, err := simulate(t, seed)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if a.Trace != b.Trace {
		t.Errorf("two runs of seed %d differ: %x, %x", seed, a.Trace, b.Trace)
	}
}
