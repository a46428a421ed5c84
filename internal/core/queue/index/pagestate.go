package index

import "fmt"

// A pageState says where the entries of a page stand, what its copy in the store is worth, whether the page is to be
// saved, and what it has in memory of bodies. Its methods alone change it, and each is named after what has happened to
// the page. They write nothing: checkpoint.go and delta.go save pages, cold.go and split.go move entries, warm.go moves bodies.
//
// Entries. A page is whole if rest is nil, else split: the entries in rest are in the copy only. Of a cold page all are. It
// has no pageState: its slot knows the version of the copy.
//
//	         leave                  joined    loaded    loaded, leave
//	whole    split, cold if of all
//	split    split                  whole
//	cold                                      whole     split
//
// Copy. It is of the version saved.
//
//	copied                                           the copy becomes
//	  of all entries                                 copyExact
//	  of all, and some have changed since the cut    copyDiffers
//	  of less than there is                          copyLacks
//	  of nothing                                     copyNone
//	altered, from copyExact                          copyDiffers
//	altered, from another                            the same
//	an entry goes                                    the same
//
// If delta is not 0, the copy counts only as far as the delta of that version says (delta.go). copied makes it 0, lessened sets it.
//
// Changes. dirty is the version that the last change belongs to. A page is clean if it is 0, and changed if it is the version
// that changes belong to now. If it is an earlier one, the page is owed to the checkpoint being written, which has it and has not saved it.
//
//	                    clean      changed    owed
//	Pages.Cut           clean      owed       (the checkpoint before must be done)
//	touched             changed    changed    changed (it is saved before)
//	noted                                     owed, with what was in before
//	copied, lessened    clean      clean      clean; changed if something was in before
//
// Bodies. chilled and cooled tell what a look has left in memory, warmed that a body has come.
//
// Invariant: with copyNone, saved and delta are 0 and the page is whole. No version is later than the one that changes
// belong to now, and delta is not earlier than saved. before is empty unless the page is owed.
type pageState struct {
	dirty  uint32 // the version that its last change belongs to, 0 = clean
	saved  uint32 // the version of the copy in the store, 0 = none
	delta  uint32 // the version of what the copy is to be read with, 0 = nothing
	copy   copyState
	bodies bodyState
	rest   *bitmap // entries that are in the copy only, nil = none
	before []before
}

// copyState is what the copy of a page is worth.
type copyState uint8

const (
	copyNone    copyState = iota // there is none
	copyLacks                    // it was made without entries that are neither logged nor on disk
	copyDiffers                  // entries have come or changed since it was made
	copyExact                    // it has all entries as they are, and maybe others that have gone since
)

// bodyState is what there may be in memory of a page's bodies.
type bodyState uint8

const (
	bodiesGone  bodyState = iota // none
	bodiesStay                   // some that are nowhere on disk, so that a look has left them
	bodiesCame                   // some that came since the last look
	bodiesLarge                  // the same, and of large messages among them
)

func (c copyState) String() string { return [...]string{"none", "lacks", "differs", "exact"}[c] }

func (b bodyState) String() string { return [...]string{"gone", "stay", "came", "large"}[b] }

// Questions

// exact says whether the copy has all that the page has, which is in memory: since it was made, entries have
// gone and no other has changed.
func (s *pageState) exact() bool { return s.rest == nil && s.copy == copyExact }

// stored says whether the page may leave memory as it is: the copy alone tells what is to be saved. It may differ in a
// moment that has passed, which the page tells as another one that has (tell).
func (s *pageState) stored() bool { return s.dirty == 0 && s.delta == 0 && s.copy >= copyDiffers }

// isAway says whether the entry of slot i, if it is there, is in the copy only.
func (s *pageState) isAway(i uint) bool { return s.rest != nil && s.rest.has(i) }

// had says whether there is a before-image of slot i.
func (s *pageState) had(i uint) bool {
	for k := len(s.before) - 1; k >= 0; k-- {
		if uint(s.before[k].slot) == i {
			return true
		}
	}
	return false
}

// Changes of entries

// touched is called before the page changes. now is the version that changes belong to. If the page is owed and
// durable, it has been saved.
func (s *pageState) touched(now uint32) { s.dirty = now }

// altered is called when an entry comes, or changes other than by going.
func (s *pageState) altered() { s.copy = min(s.copy, copyDiffers) }

// noted keeps what an entry is before it changes, and returns how many bytes of memory that takes. REQUIRES: the page is owed.
func (s *pageState) noted(b before) (bytes int) {
	room := cap(s.before)
	s.before = append(s.before, b)
	return beforeBytes * (cap(s.before) - room)
}

// Savings. as is the version of what is saved, now the one that changes belong to.

// copied is called when a copy of the page was made that has the entries in has; live are those in memory. A copy without
// entries is not written.
func (s *pageState) copied(as, now uint32, live, has bitmap) {
	s.saved, s.delta, s.copy = as, 0, copyExact
	for k := range s.before {
		if live.has(uint(s.before[k].slot)) {
			s.copy = copyDiffers
		}
	}
	switch {
	case has == bitmap{}:
		s.saved, s.copy = 0, copyNone
	case has.and(live) != live:
		s.copy = copyLacks
	}
	s.settled(now)
}

// lessened is called when a delta was made of the page. REQUIRES: it has a copy.
func (s *pageState) lessened(as, now uint32) {
	s.delta = as
	s.settled(now)
}

// settled notes that what was saved is true, or was at the cut.
func (s *pageState) settled(now uint32) {
	s.dirty = 0
	if len(s.before) > 0 {
		s.dirty, s.before = now, nil
	}
}

// Moves of entries between memory and copy

// loaded is called for a new page that is to be filled from its copy, or from the delta of it unless that is 0.
func (s *pageState) loaded(saved, delta uint32) {
	*s = pageState{saved: saved, delta: delta, copy: copyExact}
	if delta != 0 {
		s.copy = copyDiffers // in what the delta has
	}
}

// leave notes which entries are in the copy only. REQUIRES: the copy has them.
func (s *pageState) leave(rest bitmap) { s.rest = &rest }

// joined notes that all entries are in memory, or have gone.
func (s *pageState) joined() { s.rest = nil }

// Moves of bodies

// warmed is called when a body comes into memory.
func (s *pageState) warmed(large bool) {
	if s.bodies = max(s.bodies, bodiesCame); large {
		s.bodies = bodiesLarge
	}
}

// chilled is called when all bodies were to leave memory, and whether they have.
func (s *pageState) chilled(gone bool) {
	if gone {
		s.bodies = bodiesGone
	}
}

// cooled is called when bodies that are on disk already have left memory: those of large messages, or all of them. gone
// says whether none is left.
func (s *pageState) cooled(all, gone bool) {
	switch {
	case gone:
		s.bodies = bodiesGone
	case all:
		s.bodies = bodiesStay
	default:
		s.bodies = min(s.bodies, bodiesCame)
	}
}

// check returns what is wrong with the state, nil if nothing is. owed says whether the page is (Pages.owes).
func (s *pageState) check(now uint32, owed bool) error {
	switch {
	case (s.copy == copyNone) != (s.saved == 0):
		return fmt.Errorf("the copy is %v, of version %d", s.copy, s.saved)
	case s.copy == copyNone && (s.delta != 0 || s.rest != nil):
		return fmt.Errorf("there is no copy, but the delta %d, and %v in the copy only", s.delta, s.rest)
	case now != 0 && max(s.dirty, s.saved, s.delta) > now, s.delta != 0 && s.delta < s.saved:
		return fmt.Errorf("its versions are %d, %d and %d, now is %d", s.dirty, s.saved, s.delta, now)
	case len(s.before) > 0 && !owed:
		return fmt.Errorf("it has %d before-images, and version %d does not wait to be saved", len(s.before), s.dirty)
	}
	var of bitmap
	for _, b := range s.before {
		if of.has(uint(b.slot)) {
			return fmt.Errorf("entry %d has two before-images", b.slot)
		}
		of.set(uint(b.slot))
	}
	return nil
}
