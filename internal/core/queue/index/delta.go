package index

import "encoding/binary"

// A page that changes is not always saved anew: what a checkpoint needs of it is
// which entries of the copy still count, and the others. That is its delta, a small
// record beside the copy. Of a split page the others are what stands in memory; of a
// whole one whose entries have only gone since there are none. So a checkpoint costs
// by what has changed, and not by how long the queues are in which something dies, and
// the first death in a split page after the cut of a checkpoint reads nothing.
//
// A delta belongs to one copy, and the latest one counts. Who saves the whole page
// makes both needless. A page that is cold has none. One that is restored from a delta
// is split.
//
//	delta     version byte | version of the copy | rest, 32 bytes | n | summary of the rest, n bytes | the others, as a page
const deltaFormat = 1

// inDelta says whether a delta will do for these entries: with some that are out or
// on their way, the whole page is saved.
func (d *plain) inDelta() bool {
	for i := d.live.next(0); i < PageSize; i = d.live.next(i + 1) {
		if s := d.marks[i] & stateMask; s == Out || s == Dying {
			return false
		}
	}
	return true
}

// saveDelta writes what has changed of a page since its copy was made: these entries
// of the copy still count, which are summed up in sum, and beside them there are d.
func (ix *Index) saveDelta(p *page, rest *bitmap, sum []byte, d *plain) {
	ix.pages.saves += deltaWeight
	version := ix.pages.savingAs(p.dirty)
	ix.discardDelta(p, version)
	ix.encode(p, d)
	b := binary.AppendUvarint(append(ix.pages.delta[:0], deltaFormat), uint64(p.saved))
	b = rest.append(b)
	b = binary.AppendUvarint(b, uint64(len(sum)))
	b = append(b, sum...)
	b = append(b, ix.pages.blob...)
	ix.pages.delta = b
	ix.cold.WriteDelta(p.id(version), b)
	ix.pages.wroteCopy(b)
	ix.pages.bytes -= beforeBytes * cap(p.before)
	p.lessened(version, ix.pages.version)
}

// discardDelta is called when the delta is not needed any more once the
// checkpoint of version by is whole.
func (ix *Index) discardDelta(p *page, by uint32) {
	if p.delta != 0 && p.delta != by {
		ix.cold.DiscardDelta(p.id(p.delta), by)
	}
}

// DeltaOf is the version of the copy that a delta belongs to.
func DeltaOf(delta []byte) (version uint32, err error) {
	r := Reader{B: delta}
	if r.Byte() != deltaFormat {
		return 0, errPage
	}
	if version = r.Small(); r.Bad {
		return 0, errPage
	}
	return version, nil
}

// parsedDelta is what a delta tells.
type parsedDelta struct {
	of     uint32
	rest   bitmap
	sum    summary  // of these
	others *decoded // Pages.copy
}

func (ps *Pages) parseDelta(b []byte) (x parsedDelta, err error) {
	if x.of, err = DeltaOf(b); err != nil {
		return x, err
	}
	r := Reader{B: b}
	r.Byte()
	r.Small()
	x.rest = r.bitmap()
	told := Reader{B: r.Bytes(r.Uint())}
	x.sum = readSummary(&told)
	if r.Bad || told.Bad || len(told.B) > 0 || x.rest.count() != int(x.sum.used()) || x.sum.used() == 0 {
		return x, errPage
	}
	if x.others, err = ps.parse(r.B); err != nil {
		return x, err
	}
	if !x.others.inDelta() || x.others.live.and(x.rest) != (bitmap{}) {
		return x, errPage
	}
	return x, nil
}

// RestoreSplit is RestorePage for a page whose copy has a delta, of the version given.
func (ix *Index) RestoreSplit(id PageID, version uint32, delta []byte, placed func(segment uint64, n int64)) error {
	x, err := ix.pages.parseDelta(delta)
	if err != nil || x.of != id.Version || id.Lane >= len(ix.lanes) {
		return errPage
	}
	d := x.others
	l := ix.lane(id.Lane)
	k, ok := l.restore(id)
	if !ok {
		return errPage
	}
	near := ix.pages.summarize(&d.plain, d.live)
	for state, n := range near.n {
		ix.tally(uint8(state), int(n), int64(near.bytes[state]))
	}
	for _, seg := range near.segs {
		placed(seg.segment, int64(seg.n))
	}
	l.ready += int(near.n[Ready])
	ix.Count.Persistent += near.logged
	p := ix.pages.get(id.Lane, id.Number, 0)
	p.loaded(id.Version, version)
	if err := ix.decode(p, d, d.live); err != nil {
		return err
	}
	l.slots[k].page = p
	p.leave(x.rest)
	ix.pages.told(p, &x.sum)
	ix.restoreCold(id.Lane, k, &x.sum, placed)
	ix.noteLeast(l, k)
	if s := &l.slots[k]; s.logged < s.used || near.logged < int(near.used()) {
		ix.dropUnlogged(l, id.Lane, k)
	}
	return nil
}
