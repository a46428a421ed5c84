package session10

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"bartleby.mq/internal/core/queue"
)

// TestUnsettledIsAsASlice: whatever is settled in whatever order, the list has what a slice would have.
func TestUnsettledIsAsASlice(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var l unsettledList
		var want []unsettled
		consumers := []*consumer{{}, {}, {}}
		next := uint64(1)<<32 - 5000 // the delivery-ids wrap
		for range 400 {
			switch r.IntN(5) {
			case 0, 1:
				for range r.IntN(2000) {
					u := unsettled{number: next, consumer: consumers[r.IntN(3)]}
					u.id = queue.ID(next)
					next += 1 + r.Uint64N(2)
					l.push(u)
					want = append(want, u)
				}
			case 2, 3:
				first := next - r.Uint64N(10000)
				last, most := first+r.Uint64N(3000), 1+r.IntN(600)
				if r.IntN(3) == 0 {
					last, most = first, 1
				}
				var taken []unsettled
				want = slices.DeleteFunc(want, func(u unsettled) bool {
					if u.number < first || u.number > last || len(taken) == most {
						return false
					}
					taken = append(taken, u)
					return true
				})
				if got := l.take(first, last, most, nil); !slices.Equal(got, taken) {
					t.Fatalf("seed %d: %d were taken, want %d", seed, len(got), len(taken))
				}
			case 4:
				if r.IntN(10) > 0 {
					continue
				}
				k := consumers[r.IntN(3)]
				all := len(want)
				want = slices.DeleteFunc(want, func(u unsettled) bool { return u.consumer == k })
				if got := l.takeOf(k, nil); len(got) != all-len(want) || !slices.IsSortedFunc(got, func(a, b unsettled) int { return cmp.Compare(a.number, b.number) }) {
					t.Fatalf("seed %d: %d were taken of a consumer, want %d", seed, len(got), all-len(want))
				}
			}
			entries := 0
			for _, c := range l.chunks {
				entries += len(c.list)
			}
			if l.n != len(want) || entries > 2*l.n+2*len(l.chunks) {
				t.Fatalf("seed %d: %d, %d with holes in %d chunks, want %d", seed, l.n, entries, len(l.chunks), len(want))
			}
		}
	}
}

// BenchmarkEmptyRanges is a client that settles all over again what it has settled, and has a million deliveries more.
func BenchmarkEmptyRanges(b *testing.B) {
	var l unsettledList
	k := &consumer{}
	const million = 1_000_000
	for n := range uint64(2 * million) {
		l.push(unsettled{number: n, consumer: k})
	}
	var dst []unsettled
	for from := uint64(1); l.n > million; from += 2 {
		dst = l.take(from, from, 1, dst[:0])
	}
	for from, to := uint64(500_000), uint64(999_999); len(l.take(from, to, maxOps, dst[:0])) > 0; {
	}
	for b.Loop() {
		if dst = l.take(500_000, 999_999, maxOps, dst[:0]); len(dst) > 0 {
			b.Fatal(len(dst))
		}
	}
}

// TestNothingWaitsForTheWindowOfAnEndedSession: a delivery that a partition was making when the session ended comes after all that wakes
// what is parked, and would be kept with its message as long as the connection lives.
func TestNothingWaitsForTheWindowOfAnEndedSession(t *testing.T) {
	s := &session{c: &conn{}}
	it := &item{kind: itemDelivery, s: s, consumer: &consumer{s: s}}
	if !it.waits() {
		t.Error("it does not wait for a closed window")
	}
	s.closed = true
	if it.waits() {
		t.Error("it waits for the window of a session that has ended")
	}
}
