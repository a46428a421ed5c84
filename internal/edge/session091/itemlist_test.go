package session091

import "testing"

// A list of millions is never copied: a partition is locked while one is added.
func TestTheOutboxGrowsWithoutCopying(t *testing.T) {
	var l itemList
	places := map[int]*item{} // of the first of each chunk, when it was full
	const n = 10*chunkItems + 1
	for k := range n {
		l.push(&item{left: uint32(k)})
		if l.newest().left != uint32(k) || l.len() != k+1 {
			t.Fatalf("%d of %d is the newest, want %d", l.newest().left, l.len(), k)
		}
		if (k+1)%chunkItems == 0 {
			places[k/chunkItems] = &l.last[0]
		}
	}
	at := uint32(0)
	for k := range len(l.full) + 1 {
		if p := places[k]; p != nil && p != &l.chunk(k)[0] {
			t.Errorf("chunk %d was copied", k)
		}
		for _, it := range l.chunk(k) {
			if it.left != at {
				t.Fatalf("%d stands in the place of %d", it.left, at)
			}
			at++
		}
	}
	l.clear()
	if l.len() != 0 || l.newest() != nil || len(l.spare) != 10 {
		t.Errorf("emptied, it has %d items and %d spare chunks", l.len(), len(l.spare))
	}
	for range 100 * chunkItems {
		l.push(&item{})
	}
	if l.clear(); len(l.spare) != keptItems/chunkItems {
		t.Errorf("it keeps %d chunks, want %d", len(l.spare), keptItems/chunkItems)
	}
}
