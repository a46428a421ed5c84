package queue

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// A checkpoint is the state of all queues of a node at one moment, the cut. It
// is written while the queues go on: what has changed since the last one is
// saved page by page, and of a page that changes again before its turn is known what
// it was (before.go). So what is written is exactly what was there at the cut.
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
func (m *Machine) touch(p *page) {
	if p.dirty != m.pages.version {
		m.soil(p)
	}
}

func (m *Machine) soil(p *page) {
	m.touchMeta()
	if m.pages.saving && p.dirty != 0 && m.config.Durable {
		m.save(p)
	}
	p.dirty = m.pages.version
}

// touchMeta is called before something changes that SaveMeta is about.
func (m *Machine) touchMeta() {
	if m.dirty == m.pages.version {
		return
	}
	if m.pages.saving && m.dirty != 0 {
		m.saveMeta()
	}
	m.dirty = m.pages.version
}

// savingAs is the version that a page or the rest is saved as whose last change
// belongs to the version given.
func (m *Machine) savingAs(dirty uint32) uint32 {
	if m.pages.saving && dirty != 0 && dirty < m.pages.version {
		return m.pages.version - 1
	}
	return m.pages.version
}

// save writes what is needed of the page beside its copy, or another copy.
func (m *Machine) save(p *page) {
	if m.cold == nil {
		return
	}
	d := m.flatten(p)
	switch {
	case p.lessened() && d.live != (bitmap{}):
		rest := d.live
		m.pages.sum = m.pages.summarize(d, rest).append(m.pages.sum[:0])
		d.live = bitmap{}
		m.saveDelta(p, &rest, m.pages.sum, d)
	case p.rest == nil:
		m.saveCopy(p, d)
	case d.inDelta():
		m.saveDelta(p, p.rest, p.summary, d)
	default:
		m.join(p)
		m.saveCopy(p, m.flatten(p))
		m.part(p)
	}
}

// saveCopy writes a copy of the page, which is in memory; d are its entries.
func (m *Machine) saveCopy(p *page, d *plain) {
	m.pages.saves += saveWeight
	version := m.savingAs(p.dirty)
	empty := d.live == (bitmap{}) // nothing of it would outlive this process
	if p.saved != 0 && (p.saved != version || empty) {
		m.cold.Discard(p.id(p.saved), version)
	}
	m.discardDelta(p, version)
	p.saved, p.part, p.same = version, d.live.and(p.live) != p.live, true
	for k := range p.before {
		p.same = p.same && !p.live.has(uint(p.before[k].slot))
	}
	if empty {
		p.saved = 0
		m.isSaved(p)
		return
	}
	m.encode(p, d)
	m.isSaved(p)
	sum := m.pages.summarize(d, d.live)
	m.pages.sum = sum.append(m.pages.sum[:0])
	m.cold.Write(p.id(version), m.pages.blob, m.pages.sum)
}

// isSaved notes that the copy in the store is true, or was before the last changes.
func (m *Machine) isSaved(p *page) {
	if p.dirty = 0; len(p.before) > 0 {
		p.dirty = m.pages.version
		m.pages.forgetBefore(p)
	}
}

// SaveCursor is how far SaveSome has come with a queue.
type SaveCursor struct {
	level  int
	number uint64
}

// SaveSome saves pages that belong to the checkpoint being written, from the
// cursor on: at most limit of them, looking at no more than 64 times as many.
// It says whether that was the last. REQUIRES: Cut.
func (m *Machine) SaveSome(from SaveCursor, limit int) (next SaveCursor, done bool) {
	if m.cold == nil {
		return from, true
	}
	// Copies of pages that went before the cut must not be found with it.
	if m.BuryRest(limit * pageSize) {
		return from, false
	}
	if m.dirty != 0 && m.dirty < m.pages.version {
		m.saveMeta()
	}
	looks := 64 * limit
	for ; from.level < len(m.lanes); from.level, from.number = from.level+1, 0 {
		l := m.lanes[from.level]
		if l == nil {
			continue
		}
		k, _ := l.search(from.number)
		for ; k < len(l.slots); k++ {
			if limit == 0 || looks == 0 {
				from.number = l.slots[k].number
				return from, false
			}
			looks--
			if p := l.slots[k].page; p != nil && p.dirty != 0 && p.dirty < m.pages.version {
				m.save(p)
				limit--
			}
		}
	}
	return from, true
}

// metaVersion is the first byte of what saveMeta writes: for each lane the number
// the next entry gets, the entries of the returns list in their order, and the
// hash of the queue's state, 0 if none is kept.
const metaVersion = 1

func (m *Machine) saveMeta() {
	if m.cold == nil {
		return
	}
	version := m.savingAs(m.dirty)
	b := m.encodeMeta()
	m.dirty = 0
	m.cold.WriteMeta(version, b)
}

// oweMeta leaves what touchMeta would write to BuryRest: who closes a queue waits for no disk.
func (m *Machine) oweMeta() {
	if m.cold != nil && m.pages.saving && m.dirty != 0 && m.dirty < m.pages.version {
		m.owed = bytes.Clone(m.encodeMeta())
	}
	m.dirty = m.pages.version
}

// payMeta writes what oweMeta has left to be written.
func (m *Machine) payMeta() {
	if m.owed != nil && m.pages.saving {
		m.cold.WriteMeta(m.pages.version-1, m.owed)
	}
	m.owed = nil
}

// encodeMeta is what saveMeta writes. It is valid until a page is encoded.
func (m *Machine) encodeMeta() []byte {
	b := append(m.pages.blob[:0], metaVersion)
	b = binary.AppendUvarint(b, uint64(len(m.lanes)))
	for _, l := range m.lanes {
		var next uint64
		if l != nil {
			next = l.next
		}
		b = binary.AppendUvarint(b, next)
	}
	b = binary.AppendUvarint(b, uint64(len(m.returns)-len(m.strays)))
	for _, id := range m.returns {
		if _, left := m.strays[id]; !left {
			b = binary.AppendUvarint(b, uint64(id))
		}
	}
	b = binary.AppendUvarint(b, m.hash)
	m.pages.blob = b
	return b
}

var errMeta = errors.New("queue: the saved state of a queue is malformed")

// RestoreMeta takes what WriteMeta was given.
func (m *Machine) RestoreMeta(b []byte) error {
	r := reader{b: b}
	if r.byte() != metaVersion {
		return errMeta
	}
	levels := r.count(1)
	m.known = levels
	for level := range levels {
		next := r.uint()
		if level >= len(m.lanes) || next >= 1<<seqBits {
			return errMeta
		}
		if next > 0 {
			l := m.lane(level)
			l.next = max(l.next, next)
		}
	}
	for range r.count(1) {
		m.returns, m.ghosts = append(m.returns, ID(r.uint())), true
	}
	if hash := r.uint(); m.pages.Hash != nil {
		m.hash = hash
	}
	if r.bad || len(r.b) > 0 {
		return errMeta
	}
	return nil
}

// Levels is how many levels the queue that was restored must have had: as many as its checkpoint says, and as
// many as had an entry.
func (m *Machine) Levels() int {
	n := max(1, m.known)
	for level, l := range m.lanes {
		if l != nil && l.next > 0 {
			n = max(n, level+1)
		}
	}
	return n
}

// RestorePage notes that a page with this summary is in the store, as of the
// last checkpoint, and calls placed for the segments its bodies lie in.
func (m *Machine) RestorePage(id PageID, summary []byte, placed func(segment uint64, n int64)) error {
	r := reader{b: summary}
	sum := readSummary(&r)
	if r.bad || len(r.b) > 0 || sum.used() == 0 || id.Lane >= len(m.lanes) {
		return errPage
	}
	l := m.lane(id.Lane)
	k, ok := l.restore(id)
	if !ok {
		return errPage
	}
	l.slots[k].saved = id.Version
	m.restoreCold(id.Lane, k, &sum, placed)
	if int(l.slots[k].logged) < int(l.slots[k].used) {
		m.dropUnlogged(l, id.Lane, k)
	}
	return nil
}

// restore makes a slot for the page, behind all others, and says where.
func (l *lane) restore(id PageID) (k int, ok bool) {
	k = len(l.slots)
	if l.next <= id.Number*pageSize || k > 0 && l.slots[k-1].number >= id.Number {
		return 0, false
	}
	l.slots = append(l.slots, slot{number: id.Number, wake: never})
	return k, true
}

// restoreCold notes what is in the copy only of the page at k.
func (m *Machine) restoreCold(level, k int, sum *summary, placed func(segment uint64, n int64)) {
	l := m.lanes[level]
	s := &l.slots[k]
	s.remember(sum)
	for state, n := range sum.n {
		m.tally(uint8(state), int(n), int64(sum.bytes[state]))
	}
	for _, seg := range sum.segs {
		placed(seg.segment, int64(seg.n))
	}
	l.ready += int(s.ready)
	m.n.Persistent += int(s.logged)
	if sum.least != 0 {
		m.setWake(l, k, max(0, sum.least-m.pages.horizon()/4))
	}
	if l.ready > 0 {
		m.filled[level>>6] |= 1 << (level & 63)
	}
}

// dropUnlogged forgets the entries of a page that were not logged: they do not outlive
// their process, wherever their bodies lie.
func (m *Machine) dropUnlogged(l *lane, level, k int) {
	p := m.resident(l, level, k)
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		if !p.logged(i) {
			body, history, _ := m.forget(makeID(level, p.number*pageSize+uint64(i)), p, i)
			m.cold.Release(body)
			m.cold.Release(history)
		}
	}
}
