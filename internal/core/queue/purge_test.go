package queue

import (
	"slices"
	"testing"

	"bartleby.mq/internal/core/queue/index"
)

// A purge costs what it removes: it reads no pages of held entries, however many there are.
func TestAPurgeReadsNothingOfWhatStays(t *testing.T) {
	const held = 100 * index.PageSize
	settings := Unlimited()
	settings.DeadLetter = true
	a := newAway(settings, 0)
	a.fill(held, func() int64 { return -1 })
	first, _ := a.Get(a.now, false)
	for range held - 1 {
		d, _ := a.Get(a.now, false)
		a.Reject(a.now, d.ID, nil, false)
		a.Hold(d.ID)
	}
	a.Return(a.now, first.ID, nil, ReturnNack) // so that the pages of the others may be put away
	a.putAllAway()
	if !a.Survey(0)[50].Cold {
		t.Fatal("what is held stays in memory")
	}
	a.fill(2*index.PageSize, func() int64 { return -1 })
	a.cold.reads = 0
	var gone []ID
	if n := a.Purge(func(first ID, n int) {
		for k := range n {
			gone = append(gone, first+ID(k))
		}
	}); n != 2*index.PageSize+1 {
		t.Errorf("%d are purged, want %d", n, 2*index.PageSize+1)
	}
	slices.Sort(gone)
	if len(gone) != 2*index.PageSize+1 || gone[0] != first.ID || gone[1] != index.MakeID(0, held+1) {
		t.Errorf("it tells of %d entries, the first is %x", len(gone), gone[0])
	}
	if a.cold.reads > 1 { // the page that has both
		t.Errorf("%d pages are read", a.cold.reads)
	}
	if n := a.Totals(); n.Held != held-1 || n.Ready != 0 {
		t.Errorf("%+v", n)
	}
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
}

// A page that was empty before is kept no longer than others when a slice of a purge makes it the lane's first.
func TestAPurgeLeavesNoEmptyPageInFront(t *testing.T) {
	a := newAway(Unlimited(), 0)
	a.fill(3*index.PageSize, func() int64 { return -1 })
	var got []ID
	for d, ok := a.Get(a.now, false); ok; d, ok = a.Get(a.now, false) {
		got = append(got, d.ID)
	}
	ready := 0
	for _, id := range got {
		switch id.Seq() / index.PageSize {
		case 0:
			a.Return(a.now, id, nil, ReturnNack)
			ready++
		case 1:
			a.Ack(0, id, nil)
		}
	}
	var to index.Purging
	purged := 0
	for more := true; more; {
		var n int
		n, more = a.PurgeSome(&to, 1, nil)
		purged += n
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if purged != ready {
		t.Errorf("%d are purged, want %d", purged, ready)
	}
}
