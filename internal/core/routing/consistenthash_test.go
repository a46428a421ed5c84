package routing

import (
	"math"
	"testing"
)

// BR-6.11: every message has a destination, whatever its hash. Of the 2^64 results of mixing, a
// few thousand are so large that the number they stand for is rounded to 1, and its score is the
// lowest there is. Whoever chooses keys and names of queues can look for one: the hash is no secret.
func TestBR_6_11_TheLargestHashHasADestination(t *testing.T) {
	m := &Message{Key: []byte("k")}
	for name, mixed := range map[string]uint64{"largest": math.MaxUint64, "least that is rounded": math.MaxUint64 &^ (1<<11 - 1), "smallest": 0} {
		table, err := newConsistentHash(nil)
		if err != nil {
			t.Fatal(err)
		}
		table.Add(&Binding{Name: "q/only", Key: "1", Destination: "only"})
		table.list[0].seed = table.hash(m) ^ unmix(mixed)
		if got := table.Route(nil, m); len(got) != 1 || got[0] != "only" {
			t.Errorf("%s: routed to %v", name, got)
		}
	}
}

// unmix undoes mix.
func unmix(h uint64) uint64 {
	h ^= h >> 33
	h *= inverse(0xc4ceb9fe1a85ec53)
	h ^= h >> 33
	h *= inverse(0xff51afd7ed558ccd)
	return h ^ h>>33
}

// inverse is what an odd number is multiplied with to give 1.
func inverse(n uint64) uint64 {
	x := n
	for range 6 {
		x *= 2 - n*x
	}
	return x
}
