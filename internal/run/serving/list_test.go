package serving

import "testing"

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
