package index

// While a checkpoint is being written, a page that belongs to it must be saved as
// it was at the cut. When an entry changes or goes before the page's turn has
// come, what the entry was is noted, its before-image, and the page is saved when
// its turn comes, or when this is not enough: an entry that comes, or one that has
// more than most have. So the first death in a page after a cut costs hardly more
// than the next, where it would cost the saving of the page.
//
// Invariant: a page has before-images only while it belongs to the checkpoint
// being written and has not been saved for it.
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
	if !ix.pages.saving || p.dirty == 0 || !ix.Terms.Durable || ix.cold == nil {
		return false
	}
	for k := len(p.before) - 1; k >= 0; k-- {
		if uint(p.before[k].slot) == i {
			return true
		}
	}
	if !ix.saves(p, i) {
		return true
	}
	j := p.at(i)
	state := p.marks[j] & stateMask
	simple := state == Ready || state == Returned || state == Out && !ix.pages.Exact
	if !simple || len(p.before) == mostBefore ||
		p.rows != nil && p.rows[j] != 0 || p.histories != nil && p.histories[j] != 0 || p.counts != nil && p.counts[j] != (Counts{}) {
		return false
	}
	room := cap(p.before)
	p.before = append(p.before, before{at: ix.cold.Locate(p.refs[j]), due: p.dueAt(i), size: p.sizes[j], slot: uint8(i), mark: p.marks[j]})
	ix.pages.bytes += beforeBytes * (cap(p.before) - room)
	return true
}

// forgetBefore gives up the before-images of a page that was saved.
func (ps *Pages) forgetBefore(p *page) {
	ps.bytes -= beforeBytes * cap(p.before)
	p.before = nil
}
