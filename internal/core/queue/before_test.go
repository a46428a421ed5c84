package queue

import (
	"slices"
	"testing"

	"bartleby.mq/internal/core/queue/index"
)

// After the cut of a checkpoint a page is saved when its turn comes, as it was at the cut, whatever has happened to
// its entries.
func TestPagesAreSavedAsTheyWereAtTheCut(t *testing.T) {
	const n = 2*index.PageSize + 1
	a := newAway(Unlimited(), 0)
	a.fill(n, func() int64 { return 60_000 })
	writes := 0
	a.cold.onWrite = func() { writes++ }
	a.pages.Cut()
	for range 3 {
		d, ok := a.Get(a.now, false)
		if !ok || !a.Ack(0, d.ID, nil) {
			t.Fatal("nothing to be got")
		}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if p := a.Survey(0)[0]; writes != 0 || p.Before != 3 || p.Used != index.PageSize-1-3 {
		t.Fatalf("%d pages were saved, the first is %+v", writes, p)
	}
	a.saveAll()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	was := a.copyOf(t, index.PageID{Version: 1})
	if want := (View{ID: 1, Content: Content{Body: 1000, Size: 10, Logged: true}, Due: a.now + 60_001}); len(was) != index.PageSize-1 || was[0] != want {
		t.Errorf("the copy has %d entries, the first of which is %+v", len(was), was[0])
	}
	if p := a.Survey(0)[0]; !p.Late || p.Before != 0 {
		t.Errorf("the page is %+v", p)
	}
}

// A page is saved as it was at the cut even if its last entry goes before its turn, if too many go, or if one enters.
func TestPagesThatGoAreSaved(t *testing.T) {
	for name, change := range map[string]func(*away){
		"many go":    func(a *away) { a.getMany(33) },
		"one comes":  func(a *away) { a.fill(1, func() int64 { return -1 }) },
		"all go":     func(a *away) { a.getMany(107) },
		"some go":    func(a *away) { a.Reserve(2*index.PageSize + 13); a.now += 2; a.Tick(a.now, sliceLimit) },
		"all purged": func(a *away) { a.getMany(1); a.Purge(nil) },
		"closed":     func(a *away) { a.getMany(1); a.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAway(Unlimited(), 0)
			a.fill(100, func() int64 { return -1 })
			a.Reserve(index.PageSize - 1) // so that the page is no longer being filled
			a.fill(7, func() int64 { return 1 })
			a.pages.Cut()
			change(a)
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			for a.BuryRest(1000) {
			}
			a.saveAll()
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			for number, want := range []int{100, 7} {
				if got := len(a.copyOf(t, index.PageID{Number: uint64(number), Version: 1})); got != want {
					t.Errorf("the copy of page %d has %d entries, want %d", number, got, want)
				}
			}
		})
	}
}

// copyOf is what a copy of a page contains.
func (a *away) copyOf(t *testing.T, id index.PageID) []View {
	t.Helper()
	m := New(a.Config(), Unlimited(), &Pages{}, &nobody{}, a.now)
	m.SetCold(&attic{pages: map[index.PageID][]byte{id: a.cold.ever[id]}})
	m.Reserve(index.MakeID(id.Lane, (id.Number+1)*index.PageSize))
	if err := m.RestorePage(id, a.cold.summaries[id], func(uint64, int64) {}); err != nil {
		t.Fatalf("page %+v: %v", id, err)
	}
	return browse(m, 100)
}

func (a *away) getMany(n int) {
	for range n {
		a.Get(a.now, true)
	}
}

// Pages that become empty in the middle of a lane are removed many at a time.
func TestEmptyPagesGoTogether(t *testing.T) {
	const pages = 1000
	a := newAway(Unlimited(), 0)
	a.fill(pages*index.PageSize, func() int64 { return -1 })
	first := a.Survey(0)[0].Number
	for number := first + pages - 1; number > first; number-- {
		for seq := number * index.PageSize; seq < (number+1)*index.PageSize; seq++ {
			a.Take(index.MakeID(0, seq))
		}
		if has, most := len(a.Survey(0)), int(number-first)+1+max(16, pages/16)+1; has > most {
			t.Fatalf("%d pages are kept, %d of which have entries", has, number-first)
		}
		if number%100 == 0 {
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for {
		if _, ok := a.Get(a.now, true); !ok {
			break
		}
	}
	if n := len(a.Survey(0)); n > 1 {
		t.Errorf("%d pages are left", n)
	}
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
}

// A page that was put away and has lost all its entries since is in no checkpoint. That holds even if it was put away
// after the last one and its place is kept for a while.
func TestWhatIsEmptyAtTheCutIsNotInTheCheckpoint(t *testing.T) {
	const pages = 8
	a := newAway(Unlimited(), 1)
	a.fill(pages*index.PageSize, func() int64 { return -1 })
	a.putAllAway()
	const gone = 3
	if _, ok := a.cold.pages[index.PageID{Number: gone, Version: 1}]; !ok {
		t.Fatal("the page was not put away")
	}
	for i := range uint64(index.PageSize) {
		a.Take(index.MakeID(0, gone*index.PageSize+i))
	}
	if !slices.ContainsFunc(a.Survey(0), func(p index.PageView) bool { return p.Number == gone }) {
		t.Fatal("the page's place was not kept")
	}
	a.pages.Cut()
	a.saveAll()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.cold.pages[index.PageID{Number: gone, Version: 1}]; ok {
		t.Error("a checkpoint has what was gone at its cut")
	}
}
