package index

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// A page on disk: a version byte, then columns, each as short as it can be, for
// the entries in the order of their slots. Integers are uvarints; a run is a
// value and for how many entries it holds.
//
//	live      1 byte: 1 = all slots; else 0 and the bitmap, 32 bytes
//	flags     runs
//	location  of the body: the first, then differences, zigzag
//	size      runs
//	due       1 byte: 0 = none has one; else 1, the least moment, and for each 0 = none, or one more than its distance
//	owner     for each that is out, the consumer's slot
//	side      count | for each: slot byte, what byte, then what there is of: history, deliveries and acquired, TTL's moment, reason and moment of death
//	          history is k = as the k-th new one of this page, or one more than there are so far: common, length and own bytes
//	          common is 0 = nothing, k = as the k-th of this page, or one more than there are so far: length and bytes
//
// A page of dead letters has a history for each, and these differ in a few bytes: hence what is common.
const encodingVersion = 1

const (
	sideHistory = 1 << iota
	sideCounts
	sideTTL
	sideDeath
)

// kept is the state in which an entry is saved. The journal does not tell that
// an entry died before it was routed: to a queue that recovers from outcomes, it
// has not happened yet. What a consumer had then is out: it comes back as one more
// attempt, and one that was too many dies of that again before anybody gets it. What
// has expired or is too much is ready, and so it is found again. Where the journal does tell, as of what was
// refused, it is held: somebody knows that it is not in the queue.
func (ix *Index) kept(p *page, i uint) uint8 {
	state := p.state(i)
	if state == Dying && !ix.pages.Log.SavesDying() {
		if s := ix.peekSide(p, i); s != nil && s.Told {
			return Held
		}
		if reason, _, _ := ix.DiedOf(Place{p, i}); reason.Counted() == deadletter.Rejected || reason == deadletter.DeliveryLimit {
			return Out
		}
		return Ready
	}
	return state
}

// DiedOf is why an entry died that is in Dying or Held, and by whom, and when if its side row
// tells; else 0. A row may have come later, for a moment that its column cannot tell.
func (ix *Index) DiedOf(at Place) (reason deadletter.Reason, when int64, by any) {
	if s := ix.Side(at); s != nil && s.Reason != 0 {
		return s.Reason, s.DiedAt, s.By
	}
	return deadletter.Expired, 0, nil
}

// keptCounts is what an entry is saved with as its counts: of an attempt that is not
// over when it is saved, nothing is counted yet.
func (ix *Index) keptCounts(p *page, i uint) Counts {
	n := p.countsOf(i)
	if s := ix.peekSide(p, i); s != nil && s.Failed && !s.Told && p.state(i) == Dying && !ix.pages.Log.SavesDying() {
		n.Deliveries--
	}
	return n
}

// saves says whether the entry is there in the page's copy: one that is not
// logged only if its body is on disk.
func (ix *Index) saves(p *page, i uint) bool { return saved(p.mark(i), p.ref(i)) }

func saved(mark uint8, body message.Ref) bool { return mark&flagLogged != 0 || body.OnDisk() }

// flatten returns what the page's entries in memory are, as they are to be saved;
// of those that have a before-image, that. It is valid until the next call.
func (ix *Index) flatten(p *page) *plain {
	if ix.pages.flat == nil {
		ix.pages.flat = new(plain)
	}
	d := ix.pages.flat
	d.live = p.live
	n := uint(0)
	for w, v := range p.live {
		for ; v != 0; v &= v - 1 {
			i := uint(w)<<6 + uint(bits.TrailingZeros64(v))
			j := i & uint(p.mask)
			if p.ranked {
				j = n
				n++
			}
			mark, ref := p.marks[j], p.refs[j]
			if !saved(mark, ref) {
				d.live.clear(i)
				continue
			}
			if mark&stateMask == Dying {
				mark = mark&^stateMask | ix.kept(p, i)
			}
			d.marks[i], d.sizes[i], d.at[i], d.dues[i] = mark, p.sizes[j], ix.cold.Locate(ref), 0
			if p.dues != nil && p.dues[j] != 0 {
				if d.dues[i] = p.base + int64(p.dues[j]); p.dues[j] == maxOffset {
					d.dues[i] = ix.due(p, i)
				}
			}
		}
	}
	for k := range p.before {
		b := &p.before[k]
		i := uint(b.slot)
		d.live.set(i)
		d.marks[i], d.sizes[i], d.at[i], d.dues[i] = b.mark, b.size, b.at, b.due
	}
	return d
}

// encode writes the page to Pages.blob; d is what flatten has returned for it.
func (ix *Index) encode(p *page, d *plain) {
	own := d.live // those that are as they stand in the page
	for k := range p.before {
		own.clear(uint(p.before[k].slot))
	}
	e := encoder{ix: ix, p: p, d: d, own: own, b: ix.pages.blob[:0]}
	e.head()
	e.runs(func(i uint) uint64 { return uint64(d.marks[i]) })
	e.locations()
	e.runs(func(i uint) uint64 { return uint64(d.sizes[i]) })
	e.dues()
	e.owners()
	e.sides()
	ix.pages.blob = e.b
}

type encoder struct {
	ix  *Index
	p   *page
	d   *plain
	own bitmap
	b   []byte
}

func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }

func (e *encoder) head() {
	e.b = append(e.b, encodingVersion)
	if e.d.live.count() == PageSize {
		e.b = append(e.b, 1)
		return
	}
	e.b = e.d.live.append(append(e.b, 0))
}

// runs writes a column as runs of equal values.
func (e *encoder) runs(value func(i uint) uint64) {
	var run, last uint64
	for i := e.d.live.next(0); i < PageSize; i = e.d.live.next(i + 1) {
		v := value(i)
		if run > 0 && v == last {
			run++
			continue
		}
		if run > 0 {
			e.uint(last)
			e.uint(run)
		}
		last, run = v, 1
	}
	if run > 0 {
		e.uint(last)
		e.uint(run)
	}
}

func (e *encoder) locations() {
	var last uint64
	for i := e.d.live.next(0); i < PageSize; i = e.d.live.next(i + 1) {
		at := e.d.at[i]
		e.b = binary.AppendVarint(e.b, int64(at-last))
		last = at
	}
}

func (e *encoder) dues() {
	least := never
	for i := e.d.live.next(0); i < PageSize; i = e.d.live.next(i + 1) {
		if due := e.d.dues[i]; due != 0 {
			least = min(least, due)
		}
	}
	if least == never {
		e.b = append(e.b, 0)
		return
	}
	e.b = append(e.b, 1)
	e.uint(uint64(least))
	for i := e.d.live.next(0); i < PageSize; i = e.d.live.next(i + 1) {
		if due := e.d.dues[i]; due != 0 {
			e.uint(uint64(due-least) + 1)
		} else {
			e.uint(0)
		}
	}
}

func (e *encoder) owners() {
	for i := e.d.live.next(0); i < PageSize; i = e.d.live.next(i + 1) {
		if e.d.marks[i]&stateMask != Out {
			continue
		}
		var owner uint32
		if e.ix.pages.Log.SavesOwners() && e.own.has(i) {
			owner = e.p.owner(i)
		}
		e.uint(uint64(owner))
	}
}

func (e *encoder) sides() {
	at, n := len(e.b), 0
	e.b = append(e.b, 0, 0)
	e.ix.pages.refs, e.ix.pages.commons = e.ix.pages.refs[:0], e.ix.pages.commons[:0]
	if e.p.rows == nil && e.p.histories == nil && e.p.counts == nil {
		return
	}
	for i := e.own.next(0); i < PageSize; i = e.own.next(i + 1) {
		var what byte
		history, counts, s := e.p.history(i), e.ix.keptCounts(e.p, i), e.ix.peekSide(e.p, i)
		if history != 0 {
			what |= sideHistory
		}
		if counts != (Counts{}) {
			what |= sideCounts
		}
		if s != nil && s.TTL != 0 {
			what |= sideTTL
		}
		if state := e.d.marks[i] & stateMask; state == Dying || state == Held {
			what |= sideDeath
		}
		if what == 0 {
			continue
		}
		n++
		e.b = append(e.b, byte(i), what)
		if what&sideHistory != 0 {
			e.history(history)
		}
		if what&sideCounts != 0 {
			e.uint(uint64(counts.Deliveries))
			e.uint(uint64(counts.Acquired))
		}
		if what&sideTTL != 0 {
			e.uint(uint64(s.TTL))
		}
		if what&sideDeath != 0 {
			e.b = append(e.b, byte(s.Reason))
			e.uint(uint64(s.DiedAt))
		}
	}
	binary.LittleEndian.PutUint16(e.b[at:], uint16(n))
}

func (e *encoder) history(h message.Ref) {
	if !e.known(&e.ix.pages.refs, h) {
		common, own := e.ix.cold.Parts(h)
		switch {
		case common == 0:
			e.uint(0)
		case !e.known(&e.ix.pages.commons, common):
			e.bytes(e.ix.cold.Bytes(common))
		}
		e.bytes(own)
	}
}

func (e *encoder) bytes(b []byte) {
	e.uint(uint64(len(b)))
	e.b = append(e.b, b...)
}

// knownWithin is how far back it is looked for what was written already: entries that
// have it in common stand close together, as they came.
const knownWithin = 16

// known writes which one of those of the list ref is, and says whether it was there: if
// not it is now, and what it is has to follow.
func (e *encoder) known(list *[]message.Ref, ref message.Ref) bool {
	from := max(0, len(*list)-knownWithin)
	if k := slices.Index((*list)[from:], ref); k >= 0 {
		e.uint(uint64(from+k) + 1)
		return true
	}
	*list = append(*list, ref)
	e.uint(uint64(len(*list)))
	return false
}
