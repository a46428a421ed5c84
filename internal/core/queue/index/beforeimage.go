package index

// While a checkpoint is being written, a page that belongs to it must be saved as
// it was at the cut. When an entry changes or goes before the page's turn has
// come, what the entry was is noted, its before-image, and the page is saved when
// its turn comes, or when this is not enough: an entry that comes, or one that has
// more than most have. So the first death in a page after a cut costs hardly more
// than the next, where it would cost the saving of the page.
//
// Invariant: a page has before-images only while it is owed (pageState).
type before struct {
	at   uint64 // where the body is
	due  int64
	size uint32
	slot uint8
	mark uint8
}

// beforeBytes is what one takes of memory, which TestSizes checks.
const beforeBytes = 24

// mostBefore is how many of them a page has at most: more would take more memory
// than the page.
const mostBefore = 32

// touchEntry is touch for a change of one entry, which it may lose by it.
func (ix *Index) touchEntry(p *page, i uint) {
	if p.dirty == ix.pages.version {
		return
	}
	ix.touchMeta()
	if !ix.noteBefore(p, i) {
		ix.touch(p)
	}
}

// noteBefore says whether the page need not be saved before the entry changes.
func (ix *Index) noteBefore(p *page, i uint) bool {
	if !ix.pages.owes(p.dirty) || !ix.Terms.Durable || ix.cold == nil {
		return false
	}
	if p.had(i) || !ix.saves(p, i) {
		return true
	}
	j := p.at(i)
	state := p.marks[j] & stateMask
	simple := state == Ready || state == Returned || state == Out && !ix.pages.Log.SavesOwners()
	if !simple || len(p.before) == mostBefore ||
		p.rows != nil && p.rows[j] != 0 || p.histories != nil && p.histories[j] != 0 || p.counts != nil && p.counts[j] != (Counts{}) {
		return false
	}
	ix.pages.bytes += p.noted(before{at: ix.cold.Locate(p.refs[j]), due: p.dueAt(i), size: p.sizes[j], slot: uint8(i), mark: p.marks[j]})
	return true
}
