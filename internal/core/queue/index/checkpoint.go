package index

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// A checkpoint is the state of all queues of a node at one moment, the cut. It
// is written while the queues go on: what has changed since the last one is
// saved page by page, and of a page that changes again before its turn is known what
// it was (beforeimage.go). So what is written is exactly what was there at the cut.
//
// Every change belongs to a version: that of the next checkpoint to be cut. A
// page remembers the version of its last change, and that of its copy on disk.

// Begin sets the version that changes belong to from now on; before it, nothing
// is ever saved. It is called once.
func (ps *Pages) Begin(version uint32) { ps.version = version }

// Version is what changes belong to now.
func (ps *Pages) Version() uint32 { return ps.version }

// Cut begins a checkpoint of all queues that share the pages and returns its
// version. What the queues are now is to be saved by SaveSome for each of them.
func (ps *Pages) Cut() (version uint32) {
	ps.saving = true
	ps.version++
	return ps.version - 1
}

// CutDone is called when SaveSome has come to the end of every queue, and BuryRest of
// those that were deleted meanwhile.
func (ps *Pages) CutDone() { ps.saving = false }

// touch is called before a page changes.
func (ix *Index) touch(p *page) {
	if p.dirty != ix.pages.version {
		ix.soil(p)
	}
}

func (ix *Index) soil(p *page) {
	ix.touchMeta()
	if ix.pages.owes(p.dirty) && ix.Terms.Durable {
		ix.save(p)
	}
	p.touched(ix.pages.version)
}

// touchMeta is called before something changes that saveMeta is about.
func (ix *Index) touchMeta() {
	if ix.dirty == ix.pages.version {
		return
	}
	if ix.pages.owes(ix.dirty) {
		ix.saveMeta()
	}
	ix.dirty = ix.pages.version
}

// owes says whether the checkpoint being written has what last changed in a version, 0 being none, and it has not been
// saved for it.
func (ps *Pages) owes(dirty uint32) bool { return ps.saving && dirty != 0 && dirty < ps.version }

// savingAs is the version that is saved of what last changed in a version.
func (ps *Pages) savingAs(dirty uint32) uint32 {
	if ps.owes(dirty) {
		return ps.version - 1
	}
	return ps.version
}

// save writes what is needed of the page beside its copy, or another copy.
func (ix *Index) save(p *page) {
	if ix.cold == nil {
		return
	}
	d := ix.flatten(p)
	switch {
	case p.exact() && d.live != (bitmap{}):
		rest := d.live
		ix.pages.sum = ix.pages.summarize(d, rest).append(ix.pages.sum[:0])
		d.live = bitmap{}
		ix.saveDelta(p, &rest, ix.pages.sum, d)
	case p.rest == nil:
		ix.saveCopy(p, d)
	case d.inDelta():
		ix.saveDelta(p, p.rest, p.summary, d)
	default:
		ix.join(p)
		ix.saveCopy(p, ix.flatten(p))
		ix.part(p)
	}
}

// saveWeight is as how many entries the saving of a page counts in a slice: while a
// checkpoint is being written, what dies may be what a page is saved before.
const saveWeight = 24

// deltaWeight is the same for the saving of a delta.
const deltaWeight = 2

// longCopy is how many bytes of a copy weigh as an entry more, or, where pages are counted, as a page more. A page of dead letters
// may have 64 KiB for each: what a consumer said of its failure.
const longCopy = 64 << 10

// mostSpare is the capacity above which the buffer of a copy is not kept for the next.
const mostSpare = 1 << 20

// wroteCopy notes that a copy was written, or a delta.
func (ps *Pages) wroteCopy(b []byte) {
	ps.wrote += int64(len(b))
	ps.saves += len(b) / longCopy
	if cap(ps.blob) > mostSpare {
		ps.blob = nil
	}
	if cap(ps.delta) > mostSpare {
		ps.delta = nil
	}
}

// Saves is what has been saved so far, by weight.
func (ps *Pages) Saves() int { return ps.saves }

// saveCopy writes a copy of the page, which is in memory; d are its entries.
func (ix *Index) saveCopy(p *page, d *plain) {
	ix.pages.saves += saveWeight
	version := ix.pages.savingAs(p.dirty)
	empty := d.live == (bitmap{}) // nothing of it would outlive this process
	if p.saved != 0 && (p.saved != version || empty) {
		ix.cold.Discard(p.id(p.saved), version)
	}
	ix.discardDelta(p, version)
	if !empty {
		ix.encode(p, d)
		ix.pages.sum = ix.pages.summarize(d, d.live).append(ix.pages.sum[:0])
		ix.cold.Write(p.id(version), ix.pages.blob, ix.pages.sum)
		ix.pages.wroteCopy(ix.pages.blob)
	}
	ix.pages.bytes -= beforeBytes * cap(p.before)
	p.copied(version, ix.pages.version, p.live, d.live)
}

// SaveSome saves pages that belong to the checkpoint being written, from the
// cursor on: at most limit of them, fewer if they are long, looking at no more than 64 times as many.
// It says whether that was the last. REQUIRES: Cut.
func (ix *Index) SaveSome(from SaveCursor, limit int) (next SaveCursor, done bool) {
	if ix.cold == nil {
		return from, true
	}
	// Copies of pages that went before the cut must not be found with it.
	if ix.BuryRest(limit * PageSize) {
		return from, false
	}
	if ix.pages.owes(ix.dirty) {
		ix.saveMeta()
	}
	looks := 64 * limit
	for ; from.level < len(ix.lanes); from.level, from.number = from.level+1, 0 {
		l := ix.lanes[from.level]
		if l == nil {
			continue
		}
		k, _ := l.search(from.number)
		for ; k < len(l.slots); k++ {
			if limit <= 0 || looks == 0 {
				from.number = l.slots[k].number
				return from, false
			}
			looks--
			if p := l.slots[k].page; p != nil && ix.pages.owes(p.dirty) {
				before := ix.pages.wrote
				ix.save(p)
				limit -= 1 + int((ix.pages.wrote-before)/longCopy)
			}
		}
	}
	return from, true
}

// metaVersion is the first byte of what saveMeta writes: for each lane the number
// the next entry gets, the entries of the returns list in their order, and the
// hash of the queue's state, 0 if none is kept.
const metaVersion = 1

func (ix *Index) saveMeta() {
	if ix.cold == nil {
		return
	}
	version := ix.pages.savingAs(ix.dirty)
	b := ix.encodeMeta()
	ix.dirty = 0
	ix.cold.WriteMeta(version, b)
}

// oweMeta leaves what touchMeta would write to BuryRest: who closes a queue waits for no disk.
func (ix *Index) oweMeta() {
	if ix.cold != nil && ix.pages.owes(ix.dirty) {
		ix.owed = bytes.Clone(ix.encodeMeta())
	}
	ix.dirty = ix.pages.version
}

// payMeta writes what oweMeta has left to be written.
func (ix *Index) payMeta() {
	if ix.owed != nil && ix.pages.saving {
		ix.cold.WriteMeta(ix.pages.version-1, ix.owed)
	}
	ix.owed = nil
}

// encodeMeta is what saveMeta writes. It is valid until a page is encoded.
func (ix *Index) encodeMeta() []byte {
	b := append(ix.pages.blob[:0], metaVersion)
	b = binary.AppendUvarint(b, uint64(len(ix.lanes)))
	for _, l := range ix.lanes {
		var next uint64
		if l != nil {
			next = l.next
		}
		b = binary.AppendUvarint(b, next)
	}
	b = binary.AppendUvarint(b, uint64(len(ix.returns.list)-len(ix.returns.strays)))
	for _, id := range ix.returns.list {
		if _, left := ix.returns.strays[id]; !left {
			b = binary.AppendUvarint(b, uint64(id))
		}
	}
	b = binary.AppendUvarint(b, ix.hash)
	ix.pages.blob = b
	return b
}

var errMeta = errors.New("queue: the saved state of a queue is malformed")

// RestoreMeta takes what WriteMeta was given.
func (ix *Index) RestoreMeta(b []byte) error {
	r := Reader{B: b}
	if r.Byte() != metaVersion {
		return errMeta
	}
	levels := r.Count(1)
	ix.known = levels
	for level := range levels {
		next := r.Uint()
		if level >= len(ix.lanes) || next >= 1<<seqBits {
			return errMeta
		}
		if next > 0 {
			l := ix.lane(level)
			l.next = max(l.next, next)
		}
	}
	for range r.Count(1) {
		ix.returns.list, ix.returns.ghosts = append(ix.returns.list, ID(r.Uint())), true
	}
	if hash := r.Uint(); ix.pages.Hash != nil {
		ix.hash = hash
	}
	if r.Bad || len(r.B) > 0 {
		return errMeta
	}
	return nil
}

// Levels is how many levels the queue that was restored must have had: as many as its checkpoint says, and as
// many as had an entry.
func (ix *Index) Levels() int {
	n := max(1, ix.known)
	for level, l := range ix.lanes {
		if l != nil && l.next > 0 {
			n = max(n, level+1)
		}
	}
	return n
}

// RestorePage notes that a page with this summary is in the store, as of the
// last checkpoint, and calls placed for the segments its bodies lie in.
func (ix *Index) RestorePage(id PageID, summary []byte, placed func(segment uint64, n int64)) error {
	r := Reader{B: summary}
	sum := readSummary(&r)
	if r.Bad || len(r.B) > 0 || sum.used() == 0 || id.Lane >= len(ix.lanes) {
		return errPage
	}
	l := ix.lane(id.Lane)
	k, ok := l.restore(id)
	if !ok {
		return errPage
	}
	l.slots[k].saved = id.Version
	ix.restoreCold(id.Lane, k, &sum, placed)
	if int(l.slots[k].logged) < int(l.slots[k].used) {
		ix.dropUnlogged(l, id.Lane, k)
	}
	return nil
}

// restore makes a slot for the page, behind all others, and says where.
func (l *lane) restore(id PageID) (k int, ok bool) {
	k = len(l.slots)
	if l.next <= id.Number*PageSize || k > 0 && l.slots[k-1].number >= id.Number {
		return 0, false
	}
	l.slots = append(l.slots, slot{number: id.Number, wake: never})
	return k, true
}

// restoreCold notes what is in the copy only of the page at k.
func (ix *Index) restoreCold(level, k int, sum *summary, placed func(segment uint64, n int64)) {
	l := ix.lanes[level]
	s := &l.slots[k]
	s.remember(sum)
	for state, n := range sum.n {
		ix.tally(uint8(state), int(n), int64(sum.bytes[state]))
	}
	for _, seg := range sum.segs {
		placed(seg.segment, int64(seg.n))
	}
	l.ready += int(s.ready)
	ix.Count.Persistent += int(s.logged)
	if sum.least != 0 {
		ix.setWake(l, k, max(0, sum.least-ix.pages.horizon()/4))
	}
	if l.ready > 0 {
		ix.filled[level>>6] |= 1 << (level & 63)
	}
}

// dropUnlogged forgets the entries of a page that were not logged: they do not outlive
// their process, wherever their bodies lie.
func (ix *Index) dropUnlogged(l *lane, level, k int) {
	p := ix.resident(l, level, k)
	for i := p.live.next(0); i < PageSize; i = p.live.next(i + 1) {
		if !p.logged(i) {
			id := MakeID(level, p.number*PageSize+uint64(i))
			body, history, _ := ix.Forget(id, Place{p, i})
			// It may have come back after the cut, and not be in the returns list as that was then: copies have what is not
			// logged as it is when they are made. If it is in the list it is a ghost.
			delete(ix.returns.strays, id)
			ix.cold.Release(body)
			ix.cold.Release(history)
		}
	}
}
