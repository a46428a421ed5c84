package index

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// set is the slots named.
func set(slots ...uint) (b bitmap) {
	for _, i := range slots {
		b.set(i)
	}
	return b
}

// Each row is what becomes of a copy, whatever it was.
func TestWhatACopyIsWorth(t *testing.T) {
	const as, now = 5, 6
	live := set(1, 2)
	for _, c := range []struct {
		what   string
		before []before // the page is owed
		do     func(*pageState)
		to     [copyExact + 1]copyState // from copyNone, copyLacks, copyDiffers, copyExact
	}{
		{"an entry goes", nil, func(*pageState) {}, [...]copyState{copyNone, copyLacks, copyDiffers, copyExact}},
		{"an entry is altered", nil, (*pageState).altered, [...]copyState{copyNone, copyLacks, copyDiffers, copyDiffers}},
		{"all is copied", nil, func(s *pageState) { s.copied(as, now, live, live) }, [...]copyState{copyExact, copyExact, copyExact, copyExact}},
		{"all is copied, and one that has gone", []before{{slot: 3}}, func(s *pageState) { s.copied(as, now, live, set(1, 2, 3)) }, [...]copyState{copyExact, copyExact, copyExact, copyExact}},
		{"all is copied, one as it was", []before{{slot: 2}}, func(s *pageState) { s.copied(as, now, live, live) }, [...]copyState{copyDiffers, copyDiffers, copyDiffers, copyDiffers}},
		{"less is copied", nil, func(s *pageState) { s.copied(as, now, live, set(1)) }, [...]copyState{copyLacks, copyLacks, copyLacks, copyLacks}},
		{"less is copied, one as it was", []before{{slot: 2}}, func(s *pageState) { s.copied(as, now, live, set(2)) }, [...]copyState{copyLacks, copyLacks, copyLacks, copyLacks}},
		{"nothing is copied", nil, func(s *pageState) { s.copied(as, now, live, set()) }, [...]copyState{copyNone, copyNone, copyNone, copyNone}},
	} {
		for from, want := range c.to {
			s := pageState{copy: copyState(from), dirty: as, before: c.before}
			if from != 0 {
				s.saved, s.delta = 3, 4
			}
			if c.do(&s); s.copy != want {
				t.Errorf("%s: the copy was %v and is %v, want %v", c.what, copyState(from), s.copy, want)
			}
			if err := s.check(now, s.dirty == as); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
}

// Each row is which version is to be saved after something has happened: 0 is none, now the one that changes belong to.
func TestWhatIsToBeSaved(t *testing.T) {
	const earlier, now = 5, 6
	live := set(1, 2)
	for _, c := range []struct {
		what                             string
		do                               func(*pageState)
		clean, changed, owed, withBefore uint32
	}{
		{"it is touched", func(s *pageState) { s.touched(now) }, now, now, now, now},
		{"it is copied", func(s *pageState) { s.copied(earlier, now, live, live) }, 0, 0, 0, now},
		{"a delta is made", func(s *pageState) { s.lessened(earlier, now) }, 0, 0, 0, now},
		{"entries leave memory", func(s *pageState) { s.leave(set(1)) }, 0, now, earlier, earlier},
		{"they come back", func(s *pageState) { s.leave(set(1)); s.joined() }, 0, now, earlier, earlier},
	} {
		for k, x := range []struct {
			dirty, want uint32
			before      []before
		}{{0, c.clean, nil}, {now, c.changed, nil}, {earlier, c.owed, nil}, {earlier, c.withBefore, []before{{slot: 1}}}} {
			if k == 3 && c.what == "it is touched" {
				continue // it is saved before
			}
			s := pageState{dirty: x.dirty, saved: 3, copy: copyExact, before: x.before}
			if c.do(&s); s.dirty != x.want {
				t.Errorf("%s: version %d was to be saved and %d is, want %d", c.what, x.dirty, s.dirty, x.want)
			}
			if err := s.check(now, s.dirty == earlier); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
}

// Each row is what there is in memory of bodies after something has happened.
func TestWhatThereIsOfBodies(t *testing.T) {
	const gone, stay, came, large = bodiesGone, bodiesStay, bodiesCame, bodiesLarge
	for _, c := range []struct {
		what string
		do   func(*pageState)
		to   [bodiesLarge + 1]bodyState // from bodiesGone, bodiesStay, bodiesCame, bodiesLarge
	}{
		{"a small one comes", func(s *pageState) { s.warmed(false) }, [...]bodyState{came, came, came, large}},
		{"a large one comes", func(s *pageState) { s.warmed(true) }, [...]bodyState{large, large, large, large}},
		{"all have left", func(s *pageState) { s.chilled(true) }, [...]bodyState{gone, gone, gone, gone}},
		{"some could not leave", func(s *pageState) { s.chilled(false) }, [...]bodyState{gone, stay, came, large}},
		{"large ones on disk have left", func(s *pageState) { s.cooled(false, false) }, [...]bodyState{gone, stay, came, came}},
		{"those on disk have left", func(s *pageState) { s.cooled(true, false) }, [...]bodyState{stay, stay, stay, stay}},
		{"large ones have left, which are all", func(s *pageState) { s.cooled(false, true) }, [...]bodyState{gone, gone, gone, gone}},
		{"all on disk have left, which are all", func(s *pageState) { s.cooled(true, true) }, [...]bodyState{gone, gone, gone, gone}},
	} {
		for from, want := range c.to {
			s := pageState{bodies: bodyState(from)}
			if c.do(&s); s.bodies != want {
				t.Errorf("%s: they were %v and are %v, want %v", c.what, bodyState(from), s.bodies, want)
			}
		}
	}
}

// entry is an entry of a bookPage: its value, and whether it is saved at all.
type entry struct {
	value  uint32
	logged bool
}

// A bookPage is a page of a few entries with a state, and a store that keeps books of what it was given.
type bookPage struct {
	pageState
	ps     Pages
	t      *rapid.T
	memory map[uint]entry

	copyHas map[uint]uint32 // what the copy has
	counts  bitmap          // with a delta, what of it counts
	others  map[uint]uint32 // and what there is beside it
	cut     map[uint]uint32 // what was to be saved at the last cut, while the page is owed
}

const bookSlots = 6

// are is what is to be saved of the page: of its entries in memory, with those in rest.
func (b *bookPage) are() map[uint]uint32 {
	all := map[uint]uint32{}
	for i, e := range b.memory {
		if e.logged {
			all[i] = e.value
		}
	}
	for i := range uint(bookSlots) {
		if b.isAway(i) {
			all[i] = b.copyHas[i]
		}
	}
	return all
}

// found is what a recovery finds of the page.
func (b *bookPage) found() map[uint]uint32 {
	switch {
	case b.saved == 0:
		return map[uint]uint32{}
	case b.delta == 0:
		return b.copyHas
	}
	all := maps.Clone(b.others)
	for i, v := range b.copyHas {
		if b.counts.has(i) {
			all[i] = v
		}
	}
	return all
}

// flat is what is saved of the entries in memory, as Index.flatten tells it.
func (b *bookPage) flat() (map[uint]uint32, bitmap) {
	d, has := map[uint]uint32{}, bitmap{}
	for i, e := range b.memory {
		if e.logged {
			d[i] = e.value
		}
	}
	for _, x := range b.before {
		d[uint(x.slot)] = x.size
	}
	for i := range d {
		has.set(i)
	}
	return d, has
}

func (b *bookPage) live() (live bitmap) {
	for i := range b.memory {
		live.set(i)
	}
	return live
}

func (b *bookPage) saveCopy() {
	d, has := b.flat()
	b.copyHas = d
	b.pageState.copied(b.ps.savingAs(b.dirty), b.ps.version, b.live(), has)
}

func (b *bookPage) saveDelta(counts bitmap, others map[uint]uint32) {
	b.counts, b.others = counts, others
	b.lessened(b.ps.savingAs(b.dirty), b.ps.version)
}

// save saves the page as Index.save does, a split one as a copy if whole.
func (b *bookPage) save(whole bool) {
	owed := b.ps.owes(b.dirty)
	now := b.are()
	d, has := b.flat()
	switch rest := b.rest; {
	case b.exact() && len(d) > 0:
		b.saveDelta(has, map[uint]uint32{})
	case rest == nil:
		b.saveCopy()
	case !whole:
		b.saveDelta(*rest, d)
	default:
		b.join(rest)
		b.saveCopy()
		b.part(rest)
	}
	if owed {
		now = b.cut
	}
	if !maps.Equal(b.found(), now) {
		b.t.Fatalf("saved is %v, want %v", b.found(), now)
	}
}

func (b *bookPage) join(rest *bitmap) {
	for i := rest.next(0); i < PageSize; i = rest.next(i + 1) {
		b.memory[i] = entry{b.copyHas[i], true}
	}
}

func (b *bookPage) part(rest *bitmap) {
	for i := rest.next(0); i < PageSize; i = rest.next(i + 1) {
		delete(b.memory, i)
	}
}

// touch is Index.touch, and touchEntry with the slot of an entry.
func (b *bookPage) touch(entry ...uint) {
	if b.dirty == b.ps.version {
		return
	}
	if !b.ps.owes(b.dirty) {
		b.touched(b.ps.version)
		return
	}
	for _, i := range entry {
		if b.had(i) || !b.memory[i].logged {
			return
		}
		if rapid.Bool().Draw(b.t, "noted") {
			b.noted(before{slot: uint8(i), size: b.memory[i].value})
			return
		}
	}
	b.save(rapid.Bool().Draw(b.t, "whole"))
	b.touched(b.ps.version)
}

// whole brings all entries into memory, as Index.resident does.
func (b *bookPage) whole() {
	if b.rest != nil {
		b.join(b.rest)
		b.joined()
	}
}

// someSlot is the slot of an entry in memory.
func (b *bookPage) someSlot() (uint, bool) {
	i := rapid.UintRange(0, bookSlots-1).Draw(b.t, "slot")
	_, ok := b.memory[i]
	return i, ok
}

// Whatever happens to a page, its state keeps its invariant, and what it says of the copy is true: with that and the
// delta the store has what is to be saved, now or as it was at the cut.
func TestAPageStateTellsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &bookPage{t: t, memory: map[uint]entry{}}
		b.ps.Begin(1)
		value := uint32(0)
		change := func(f func(i uint)) func(*rapid.T) {
			return func(*rapid.T) {
				if i, ok := b.someSlot(); ok {
					b.touch(i)
					f(i)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(*rapid.T) {
				b.whole()
				if i, there := b.someSlot(); !there {
					b.touch()
					b.altered()
					value++
					b.memory[i] = entry{value, rapid.IntRange(0, 4).Draw(t, "logged") > 0}
				}
			},
			"go": change(func(i uint) { delete(b.memory, i) }),
			"change": change(func(i uint) {
				b.altered()
				value++
				b.memory[i] = entry{value, b.memory[i].logged}
			}),
			"tell otherwise": func(*rapid.T) { b.altered() },
			"want":           func(*rapid.T) { b.whole() },
			"cut": func(*rapid.T) {
				if !b.ps.saving {
					b.ps.Cut()
					b.cut = b.are()
				}
			},
			"checkpoint": func(*rapid.T) {
				if b.ps.owes(b.dirty) {
					b.save(rapid.Bool().Draw(t, "whole"))
				}
				b.ps.CutDone()
			},
			"put away": func(*rapid.T) {
				away := set()
				for i := range b.memory {
					if rapid.Bool().Draw(t, "goes") {
						away.set(i)
					}
				}
				if b.rest != nil || away == (bitmap{}) {
					return
				}
				if !b.stored() {
					b.saveCopy()
				}
				if b.dirty != 0 {
					b.saveCopy()
				}
				if !b.stored() {
					return
				}
				if away == b.live() {
					b.loaded(b.saved, 0)
				}
				b.leave(away)
				b.part(&away)
			},
			"restart": func(*rapid.T) {
				if b.dirty != 0 || b.saved == 0 || b.ps.saving {
					return
				}
				counts, others := b.counts, b.others
				if b.delta == 0 {
					counts, others = set(), nil
					for i := range b.copyHas {
						counts.set(i)
					}
				}
				b.loaded(b.saved, b.delta)
				b.leave(counts)
				clear(b.memory)
				for i, v := range others {
					b.memory[i] = entry{v, true}
				}
			},
			"": func(*rapid.T) { b.verify() },
		})
	})
}

func (b *bookPage) verify() {
	if err := b.check(b.ps.version, b.ps.owes(b.dirty)); err != nil {
		b.t.Fatal(err)
	}
	if b.dirty == 0 && !maps.Equal(b.found(), b.are()) {
		b.t.Fatalf("it is clean, and the store has %v of %v", b.found(), b.are())
	}
	for i, e := range b.memory {
		switch v, ok := b.copyHas[i]; {
		case b.stored() && !ok:
			b.t.Fatalf("it is stored, and the copy has no entry %d", i)
		case b.copy == copyExact && (!ok || v != e.value):
			b.t.Fatalf("the copy is exact, and entry %d is %d, there %s", i, e.value, fmt.Sprint(v, ok))
		}
	}
	for i := range uint(bookSlots) {
		if _, ok := b.copyHas[i]; b.isAway(i) && !ok {
			b.t.Fatalf("entry %d is in the copy only, which does not have it", i)
		}
	}
}
