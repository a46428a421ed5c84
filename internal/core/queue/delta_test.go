package queue

import (
	"testing"

	"bartleby.mq/internal/core/queue/index"
)

func (a *away) saveAll() {
	for c, done := (index.SaveCursor{}), false; !done; {
		c, done = a.SaveSome(c, 1)
	}
	a.pages.CutDone()
}

// If entries have only left a page in memory since it was saved, a checkpoint needs a delta. If it changed in another
// way, a copy.
func TestPagesThatLessenAreSavedAsDeltas(t *testing.T) {
	const pages = 4
	for name, c := range map[string]struct {
		change         func(t *testing.T, a *away)
		afterCut       bool
		copies, deltas int
	}{
		"one goes":               {func(_ *testing.T, a *away) { a.Take(index.MakeID(0, 10)) }, false, 0, 1},
		"one goes after the cut": {func(_ *testing.T, a *away) { a.Take(index.MakeID(0, 10)) }, true, 0, 0},
		"some die":               {func(t *testing.T, a *away) { a.run(t, a.now+20_000) }, false, 0, pages - 1}, // of one page, none
		"one is out":             {func(_ *testing.T, a *away) { a.Get(a.now, false) }, false, 1, 0},
		"one has come back":      {func(_ *testing.T, a *away) { d, _ := a.Get(a.now, false); a.Return(a.now, d.ID, nil, ReturnNack) }, false, 1, 0},
		"one comes":              {func(_ *testing.T, a *away) { a.fill(1, func() int64 { return -1 }) }, false, 1, 0},
		"one's body lies elsewhere": {func(_ *testing.T, a *away) {
			a.Relocate(index.MakeID(0, 10), a.Find(index.MakeID(0, 10)).Body(), 77|diskBit)
		}, false, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAway(Unlimited(), 0)
			ttl := int64(0)
			a.fill(pages*index.PageSize-1, func() int64 { ttl += 97; return ttl % 60_000 })
			a.pages.Cut()
			a.saveAll()
			copies := len(a.cold.ever)
			if !c.afterCut {
				c.change(t, a)
			}
			a.pages.Cut()
			if c.afterCut {
				c.change(t, a)
			}
			a.saveAll()
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			if n := len(a.cold.ever) - copies; n != c.copies {
				t.Errorf("%d copies were written, want %d", n, c.copies)
			}
			if a.cold.deltas != c.deltas {
				t.Errorf("%d deltas were written, want %d", a.cold.deltas, c.deltas)
			}
		})
	}
}
