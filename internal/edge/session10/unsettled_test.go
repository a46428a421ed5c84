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
				if got := takeAll(&l, k); len(got) != all-len(want) || !slices.IsSortedFunc(got, func(a, b unsettled) int { return cmp.Compare(a.number, b.number) }) {
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

// takeAll takes all deliveries of a consumer, slice by slice.
func takeAll(l *unsettledList, k *consumer) (taken []unsettled) {
	for from, more := uint64(0), true; more; {
		taken, from, more = l.takeOf(k, from, taken)
	}
	return taken
}

// findAll looks slice by slice, and counts the slices.
func findAll(l *unsettledList, k *consumer, from uint64, ids map[queue.ID]bool) (found []uint64, next uint64, n int) {
	for more := true; more; n++ {
		found, from, more = l.find(k, from, ids, found)
	}
	return found, from, n
}

// TestTakenBackDeliveriesAreFound among those of another consumer, whatever the client has settled meanwhile, and each search looks only at
// what those before it have not looked at, and at one slice more.
func TestTakenBackDeliveriesAreFound(t *testing.T) {
	const all, batch = 200_000, 100
	var l unsettledList
	k, other := &consumer{}, &consumer{}
	for n := range uint64(all) {
		u := unsettled{number: n, consumer: other, id: queue.ID(n)}
		if n%100 == 99 {
			u.consumer = k
		}
		l.push(u)
	}
	l.take(50_099, 50_099, 1, nil) // the client has settled it when it is taken back
	from, looked := uint64(0), 0
	for first := uint64(99); first < all; first += 100 * batch {
		ids := map[queue.ID]bool{}
		var want []uint64
		for n := first; n < first+100*batch; n += 100 {
			ids[queue.ID(n)] = true
			if n != 50_099 {
				want = append(want, n)
			}
		}
		found, next, n := findAll(&l, k, from, ids)
		if !slices.Equal(found, want) {
			t.Fatalf("from %d: %d were found, want %d", first, len(found), len(want))
		}
		looked += n
		from = next
	}
	if chunks := len(l.chunks); looked > chunks/sliceChunks+all/100/batch+1 {
		t.Errorf("%d slices for %d chunks", looked, chunks)
	}
	if found, _, n := findAll(&l, other, 0, map[queue.ID]bool{150_000: true}); len(found) > 0 || n != 1 {
		t.Errorf("it looks at %d slices behind a delivery that is older", n)
	}
	if found, _, n := findAll(&l, other, 0, map[queue.ID]bool{5_000: true}); !slices.Equal(found, []uint64{5_000}) || n != 1 {
		t.Errorf("%v in %d slices", found, n)
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

// BenchmarkTakeOf is the end of a link that has a million deliveries unsettled, all or half of those of its session. session.mu is
// held for a slice at a time.
func BenchmarkTakeOf(b *testing.B) {
	const million = 1_000_000
	for name, others := range map[string]uint64{"alone": 0, "beside another": 1} {
		b.Run(name, func(b *testing.B) {
			slices := 0
			for b.Loop() {
				b.StopTimer()
				k, other := &consumer{}, &consumer{}
				var l unsettledList
				for n := range uint64(million) {
					l.push(unsettled{number: (1 + others) * n, consumer: k})
					if others > 0 {
						l.push(unsettled{number: 2*n + 1, consumer: other})
					}
				}
				b.StartTimer()
				var list []unsettled
				taken := 0
				for from, more := uint64(0), true; more; {
					list, from, more = l.takeOf(k, from, list[:0])
					taken += len(list)
					slices++
				}
				if taken != million {
					b.Fatal(taken)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(slices), "µs/slice")
		})
	}
}
