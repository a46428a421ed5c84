package queue

import (
	"testing"
)

// After the cut of a checkpoint a page is saved when its turn comes, and as it was
// at the cut, whatever has become of its entries.
func TestPagesAreSavedAsTheyWereAtTheCut(t *testing.T) {
	const n = 2*pageSize + 1
	a := newAway(Unlimited(), 0)
	a.fill(n, func() int64 { return 60_000 })
	writes := 0
	a.cold.onWrite = func() { writes++ }
	a.pages.Cut()
	for range 3 {
		d, ok := a.Get(a.now, false)
		if !ok || !a.Ack(d.ID, nil) {
			t.Fatal("nothing to be got")
		}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := a.find(makeID(0, 10))
	if writes != 0 || len(p.before) != 3 {
		t.Fatalf("%d pages were saved, %d entries have a before-image", writes, len(p.before))
	}
	if s := a.lanes[0].slots[0]; s.page != p || p.used != pageSize-1-3 {
		t.Fatalf("%d entries are left in the first page", p.used)
	}
	a.saveAll()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	d, err := a.pages.parse(a.cold.pages[PageID{0, 0, 1}])
	if err != nil {
		t.Fatal(err)
	}
	if d.live.count() != pageSize-1 || d.marks[1] != stateReady|flagLogged || d.dues[1] != a.now+60_001 || d.sizes[1] != 10 || d.at[1] != 1000 {
		t.Errorf("the copy has %d entries, the first of which is %x, due at %d, %d bytes, at %d", d.live.count(), d.marks[1], d.dues[1], d.sizes[1], d.at[1])
	}
	if p.dirty != a.pages.version || p.before != nil {
		t.Errorf("the page's last change belongs to version %d, it still has %d before-images", p.dirty, len(p.before))
	}
}

// What a page was at the cut is saved too if its last entry goes before its turn, if
// too many go, or if one comes.
func TestPagesThatGoAreSaved(t *testing.T) {
	for name, change := range map[string]func(*away){
		"many go":    func(a *away) { a.getMany(mostBefore + 1) },
		"one comes":  func(a *away) { a.fill(1, func() int64 { return -1 }) },
		"all go":     func(a *away) { a.getMany(107) },
		"some go":    func(a *away) { a.lanes[0].next *= 2; a.now += 2; a.Tick(a.now, sliceLimit) },
		"all purged": func(a *away) { a.getMany(1); a.Purge(nil) },
		"closed":     func(a *away) { a.getMany(1); a.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAway(Unlimited(), 0)
			a.fill(100, func() int64 { return -1 })
			a.lanes[0].next = pageSize // that page is not being filled any more
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
				d, err := a.pages.parse(a.cold.ever[PageID{0, uint64(number), 1}])
				if err != nil {
					t.Fatalf("page %d: %v", number, err)
				}
				if got := d.live.count(); got != want {
					t.Errorf("the copy of page %d has %d entries, want %d", number, got, want)
				}
			}
		})
	}
}

func (a *away) getMany(n int) {
	for range n {
		a.Get(a.now, true)
	}
}

// Pages that become empty in the middle of a lane go many at a time.
func TestEmptyPagesGoTogether(t *testing.T) {
	const pages = 1000
	a := newAway(Unlimited(), 0)
	a.fill(pages*pageSize, func() int64 { return -1 })
	first := a.lanes[0].slots[0].number
	for number := first + pages - 1; number > first; number-- {
		for seq := number * pageSize; seq < (number+1)*pageSize; seq++ {
			a.Take(makeID(0, seq))
		}
		l := a.lanes[0]
		if has, most := len(l.slots), int(number-first)+1+max(keepEmpty, pages/emptyShare)+1; has > most {
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
	if l := a.lanes[0]; len(l.slots) > 1 || l.empty != 0 {
		t.Errorf("%d pages are left, %d of them empty", len(l.slots), l.empty)
	}
}

// A purge that is redone leaves what was kept and nothing else, however many pages go.
func TestRestorePurgeOfManyPages(t *testing.T) {
	const pages = 100
	a := newAway(Unlimited(), 0)
	a.fill(pages*pageSize, func() int64 { return -1 })
	kept := map[ID]bool{makeID(0, 5): true, makeID(0, 50*pageSize): true}
	a.RestorePurge(func(id ID) bool { return kept[id] })
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	if n := a.Totals().Ready; n != len(kept) {
		t.Errorf("%d messages are left, want %d", n, len(kept))
	}
}

// A page that was put away and has lost everything since is in no checkpoint, also if
// it was put away after the last one and its place is kept for a while.
func TestWhatIsEmptyAtTheCutIsNotInTheCheckpoint(t *testing.T) {
	const pages = 8
	a := newAway(Unlimited(), 1)
	a.fill(pages*pageSize, func() int64 { return -1 })
	a.putAllAway()
	const gone = 3
	if _, ok := a.cold.pages[PageID{0, gone, 1}]; !ok {
		t.Fatal("the page was not put away")
	}
	for i := range uint64(pageSize) {
		a.Take(makeID(0, gone*pageSize+i))
	}
	if _, ok := a.lanes[0].search(gone); !ok {
		t.Fatal("the page's place was not kept")
	}
	a.pages.Cut()
	a.saveAll()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.cold.pages[PageID{0, gone, 1}]; ok {
		t.Error("a checkpoint has what was gone at its cut")
	}
}
