package session091

import (
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
)

var someQueue = new(partition.Queue)

// TestUnackedAgainstModel compares the list with a map, whatever a client settles in
// whatever order (BR-9.7).
func TestUnackedAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l unackedList
		model := map[uint64]bool{} // by tag, whether it is settled in a transaction
		last := uint64(0)
		tags := func() []uint64 {
			var list []uint64
			for tag := range model {
				list = append(list, tag)
			}
			slices.Sort(list)
			return list
		}
		any := func(t *rapid.T) uint64 { return rapid.Uint64Range(0, last+2).Draw(t, "tag") }
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 30, 300, 3000}).Draw(t, "count") {
					last += rapid.SampledFrom([]uint64{1, 1, 1, 2, 50}).Draw(t, "step")
					l.push(unacked{tag: last, q: someQueue, id: queue.ID(last)})
					model[last] = false
				}
			},
			"settle": func(t *rapid.T) {
				tag := any(t)
				u := l.get(tag)
				pending, there := model[tag]
				if (u != nil) != (there && !pending) {
					t.Fatalf("get of tag %d: %v, the model has it: %v, pending: %v", tag, u, there, pending)
				}
				if u != nil {
					l.settled(u)
					delete(model, tag)
				}
			},
			"settle from the front, or all but the first": func(t *rapid.T) {
				from := rapid.IntRange(0, 1).Draw(t, "from")
				for _, tag := range tags()[min(from, len(model)):] {
					if u := l.get(tag); u != nil {
						l.settled(u)
						delete(model, tag)
					}
				}
			},
			"settle in a transaction": func(t *rapid.T) {
				if tag := any(t); l.get(tag) != nil {
					l.pend(l.get(tag))
					model[tag] = true
				}
			},
			"settle many in a transaction": func(t *rapid.T) {
				upTo := any(t)
				l.upTo(upTo, l.n, func(u *unacked) {
					if pending, there := model[u.tag]; !there || pending {
						t.Fatalf("upTo has found tag %d, which the model has not", u.tag)
					}
					l.pend(u)
					model[u.tag] = true
				})
				for tag, pending := range model {
					if tag <= upTo && !pending {
						t.Fatalf("upTo %d has passed over %d", upTo, tag)
					}
				}
			},
			"end the transaction": func(t *rapid.T) {
				commit := rapid.Bool().Draw(t, "commit")
				for _, tag := range tags() {
					u := l.inTx(tag)
					if (u != nil) != model[tag] {
						t.Fatalf("tag %d in a transaction: %v, in the model %v", tag, u != nil, model[tag])
					}
					switch {
					case u == nil:
					case commit:
						l.settled(u)
						delete(model, tag)
					default:
						l.unpend(u)
						model[tag] = false
					}
				}
			},
			"take many": func(t *rapid.T) {
				upTo, most := any(t), rapid.SampledFrom([]int{1, 100, 1e6}).Draw(t, "most")
				var want []uint64
				for _, tag := range tags() {
					if tag <= upTo && !model[tag] && len(want) < most {
						want = append(want, tag)
						delete(model, tag)
					}
				}
				var got []uint64
				for _, u := range l.takeUpTo(upTo, most, nil) {
					got = append(got, u.tag)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("took %v, want %v", got, want)
				}
			},
			"": func(t *rapid.T) {
				pending := 0
				for _, p := range model {
					if p {
						pending++
					}
				}
				if l.n != len(model) || l.pending != pending {
					t.Fatalf("%d entries, %d pending; want %d, %d", l.n, l.pending, len(model), pending)
				}
				if l.len() > 2*l.n+keptUnacked {
					t.Fatalf("a list of %d for %d entries", l.len(), l.n)
				}
				var got []uint64
				for u := range l.all() {
					got = append(got, u.tag)
				}
				if !slices.Equal(got, tags()) {
					t.Fatalf("entries %v, want %v", got, tags())
				}
			},
		})
	})
}

// TestUnackedBehindOneThatIsNeverSettled: a client keeps its first delivery and settles
// millions behind it.
func TestUnackedBehindOneThatIsNeverSettled(t *testing.T) {
	var l unackedList
	l.push(unacked{tag: 1, q: someQueue})
	tag := uint64(1)
	turn := func() {
		for range 100 {
			tag++
			l.push(unacked{tag: tag, q: someQueue})
		}
		for k := range uint64(100) {
			l.settled(l.get(tag - k))
		}
	}
	for range 10000 {
		turn()
	}
	if l.n != 1 || cap(l.list) > 4*keptUnacked {
		t.Fatalf("%d unsettled take room for %d", l.n, cap(l.list))
	}
	if allocs := testing.AllocsPerRun(100, turn); allocs > 0 {
		t.Errorf("%v allocations for each hundred deliveries", allocs)
	}
	if l.get(1) == nil {
		t.Error("the first delivery is lost")
	}
}

// TestUnackedGivesBackWhatManyTook: after a client has had a million at once.
func TestUnackedGivesBackWhatManyTook(t *testing.T) {
	var l unackedList
	for tag := uint64(1); tag <= 1e6; tag++ {
		l.push(unacked{tag: tag, q: someQueue})
	}
	l.takeUpTo(1e6-10, l.n, nil)
	if l.n != 10 || len(l.full) > 0 || cap(l.list) > 4*keptUnacked {
		t.Fatalf("%d unsettled take room for %d", l.n, cap(l.list))
	}
}

func BenchmarkUnacked(b *testing.B) {
	var l unackedList
	for tag := uint64(1); tag <= 100; tag++ {
		l.push(unacked{tag: tag, q: someQueue})
	}
	b.ReportAllocs()
	for tag := uint64(101); b.Loop(); tag++ {
		l.push(unacked{tag: tag, q: someQueue})
		l.settled(l.get(tag - 100))
	}
}

// TestUnackedGrowsWithoutCopying: a list of millions takes its room once.
func TestUnackedGrowsWithoutCopying(t *testing.T) {
	const entries = 1e6
	size := allocated(func() {
		var l unackedList
		for tag := uint64(1); tag <= entries; tag++ {
			l.push(unacked{tag: tag, q: someQueue})
		}
	})
	if most := uint64(1.2 * entries * float64(unsafe.Sizeof(unacked{}))); size > most {
		t.Errorf("%d deliveries took %d bytes, want %d at most", int(entries), size, most)
	}
}

// allocated is how many bytes are allocated while f runs.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
