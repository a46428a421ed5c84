package serving

import (
	"testing"

	"pgregory.net/rapid"
)

// A list of millions is never copied: a partition is locked while one is added.
func TestAListGrowsWithoutCopying(t *testing.T) {
	type item struct{ left uint32 }
	var l List[item]
	places := map[int]*item{} // of the first of each chunk, when it was full
	const n = 10*chunkItems + 1
	for k := range n {
		l.Push(&item{left: uint32(k)})
		if l.Newest().left != uint32(k) || l.Len() != k+1 {
			t.Fatalf("%d of %d is the newest, want %d", l.Newest().left, l.Len(), k)
		}
		if (k+1)%chunkItems == 0 {
			places[k/chunkItems] = &l.last[0]
		}
	}
	at := uint32(0)
	for k := range l.Chunks() {
		if p := places[k]; p != nil && p != &l.Chunk(k)[0] {
			t.Errorf("chunk %d was copied", k)
		}
		for _, it := range l.Chunk(k) {
			if it.left != at {
				t.Fatalf("%d stands in the place of %d", it.left, at)
			}
			at++
		}
	}
	l.Clear()
	if l.Len() != 0 || l.Newest() != nil || len(l.spare) != 10 {
		t.Errorf("emptied, it has %d items and %d spare chunks", l.Len(), len(l.spare))
	}
	for range 100 * chunkItems {
		l.Push(&item{})
	}
	if l.Clear(); len(l.spare) != keptItems/chunkItems {
		t.Errorf("it keeps %d chunks, want %d", len(l.spare), keptItems/chunkItems)
	}
}

// A list of which the oldest go while others come holds what it should, in order, and its memory is that of what waits.
func TestTheOldestLeaveAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l List[int]
		next, oldest := 1, 1
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			n := rapid.SampledFrom([]int{1, 2, 100, 1000, 3000}).Draw(t, "count")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				for range n {
					l.Push(&next)
					next++
				}
			case 2, 3:
				for range min(n, l.Len()) {
					if got := *l.Oldest(); got != oldest {
						t.Fatalf("%d is the oldest, want %d", got, oldest)
					}
					l.Shift()
					oldest++
				}
			case 4:
				l.Clear()
				oldest = next
			}
			if l.Len() != next-oldest {
				t.Fatalf("%d items, want %d", l.Len(), next-oldest)
			}
			at := oldest
			for k := range l.Chunks() {
				for _, got := range l.Chunk(k) {
					if got != at {
						t.Fatalf("%d in the place of %d", got, at)
					}
					at++
				}
			}
			if at != next {
				t.Fatalf("the chunks end before %d, want %d", at, next)
			}
			if (l.Oldest() == nil) != (at == oldest) || (l.Newest() == nil) != (at == oldest) {
				t.Fatalf("%d items; the oldest: %v, the newest: %v", l.Len(), l.Oldest(), l.Newest())
			}
			for k := range l.last[len(l.last):cap(l.last)] {
				if l.last[:cap(l.last)][len(l.last)+k] != 0 {
					t.Fatal("a free place keeps an item")
				}
			}
		}
	})
}

// To shift is as fast with millions behind as with few.
func BenchmarkShift(b *testing.B) {
	var l List[[20]int]
	var it [20]int
	for range 1_000_000 {
		l.Push(&it)
	}
	for b.Loop() {
		l.Push(&it)
		l.Shift()
	}
}
