package index

import (
	"encoding/binary"
	"errors"
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

var errPage = errors.New("queue: a saved page is malformed")

// Reader reads what encoder wrote. After a fault it returns zeros and bad is set.
type Reader struct {
	B   []byte
	Bad bool
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if len(r.B) == 0 {
		r.Bad = true
		return 0
	}
	v := r.B[0]
	r.B = r.B[1:]
	return v
}

// Uint reads a uvarint.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.Bad = true
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Int reads a varint, which has a sign.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.B)
	if n <= 0 {
		r.Bad = true
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Moment reads a moment, which is never negative.
func (r *Reader) Moment() int64 {
	v := r.Uint()
	if v > math.MaxInt64 {
		r.Bad = true
		return 0
	}
	return int64(v)
}

// Small reads a uvarint of 32 bits.
func (r *Reader) Small() uint32 {
	v := r.Uint()
	if v > math.MaxUint32 {
		r.Bad = true
		return 0
	}
	return uint32(v)
}

// Count reads a number of things of at least size bytes each.
func (r *Reader) Count(size int) int {
	v := r.Uint()
	if v > uint64(len(r.B)/size) {
		r.Bad = true
		return 0
	}
	return int(v)
}

// version reads the byte that a page and its summary begin with.
func (r *Reader) version() { r.Bad = r.Byte() != encodingVersion || r.Bad }

// Bytes reads n bytes, which alias B.
func (r *Reader) Bytes(n uint64) []byte {
	if n > uint64(len(r.B)) {
		r.Bad = true
		return nil
	}
	v := r.B[:n]
	r.B = r.B[n:]
	return v
}

func (r *Reader) bitmap() (set bitmap) {
	words := r.Bytes(8 * uint64(len(set)))
	if !r.Bad {
		for w := range set {
			set[w] = binary.LittleEndian.Uint64(words[8*w:])
		}
	}
	return set
}

// runs reads a column of runs.
func (r *Reader) runs(live *bitmap, set func(i uint, v uint64)) {
	var run, v uint64
	for i := live.next(0); i < PageSize && !r.Bad; i = live.next(i + 1) {
		if run == 0 {
			v, run = r.Uint(), r.Uint()
			if run == 0 {
				r.Bad = true
				return
			}
		}
		set(i, v)
		run--
	}
	r.Bad = r.Bad || run != 0
}

// plain is what every entry of a page has in its copy, by slot.
type plain struct {
	live  bitmap
	marks [PageSize]uint8
	at    [PageSize]uint64 // where the body is
	sizes [PageSize]uint32
	dues  [PageSize]int64 // 0 = none
}

// decoded is what the copy of a page tells.
type decoded struct {
	plain
	rest Reader // stands before the owners
}

// parse reads a copy into Pages.copy, all but what few entries have.
func (ps *Pages) parse(b []byte) (*decoded, error) {
	if ps.copy == nil {
		ps.copy = new(decoded)
	}
	d, r := ps.copy, Reader{B: b}
	r.version()
	if r.Byte() == 1 {
		d.live = bitmap{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}
	} else {
		d.live = r.bitmap()
	}
	if r.Bad {
		return nil, errPage
	}
	r.runs(&d.live, func(i uint, v uint64) {
		r.Bad = r.Bad || v > math.MaxUint8 || v&stateMask > Offered
		d.marks[i] = uint8(v)
	})
	var at uint64
	for i := d.live.next(0); i < PageSize; i = d.live.next(i + 1) {
		at += uint64(r.Int())
		r.Bad = r.Bad || !message.Location(at).InSpace()
		d.at[i] = at
	}
	r.runs(&d.live, func(i uint, v uint64) {
		r.Bad = r.Bad || v > math.MaxUint32
		d.sizes[i] = uint32(v)
	})
	clear(d.dues[:])
	if r.Byte() == 1 {
		least := r.Moment()
		for i := d.live.next(0); i < PageSize && !r.Bad; i = d.live.next(i + 1) {
			if off := r.Uint(); off > math.MaxInt64-uint64(least) {
				r.Bad = true
			} else if off > 0 {
				d.dues[i] = least + int64(off-1)
			}
		}
	}
	if r.Bad {
		return nil, errPage
	}
	d.rest = r
	return d, nil
}

// decode adds the entries of a copy to p that stand in the slots named by only,
// none of which is live.
func (ix *Index) decode(p *page, d *decoded, only bitmap) error {
	p.seen = 0
	live := p.live.or(only)
	ix.pages.reform(p, live, classFor(live.count()))
	for i := only.next(0); i < PageSize; i = only.next(i + 1) {
		j := p.at(i)
		p.refs[j], p.sizes[j], p.marks[j] = ix.cold.At(d.at[i]), d.sizes[i], d.marks[i]
		if d.marks[i]&stateMask == Ready {
			p.ready.set(i)
		}
	}
	ix.decodeDues(p, d, only)
	r := &d.rest
	for i := d.live.next(0); i < PageSize && !r.Bad; i = d.live.next(i + 1) {
		if d.marks[i]&stateMask != Out {
			continue
		}
		if owner := r.Small(); only.has(i) {
			ix.setOwner(p, i, owner)
		}
	}
	ix.decodeSides(p, d, only)
	if r.Bad || len(r.B) > 0 {
		return errPage
	}
	return nil
}

func (ix *Index) decodeDues(p *page, d *decoded, only bitmap) {
	least := never
	for i := only.next(0); i < PageSize; i = only.next(i + 1) {
		if due := d.dues[i]; due != 0 {
			least = min(least, due)
		}
	}
	switch {
	case least == never:
		return
	case p.dues == nil:
		ix.pages.need(p, &p.dues)
		p.base = max(0, least-dueRoom)
	case least <= p.base:
		ix.rebase(p, max(0, least-dueRoom))
	}
	for i := only.next(0); i < PageSize; i = only.next(i + 1) {
		if due := d.dues[i]; due != 0 {
			ix.tell(p, i, due)
		}
	}
}

func (ix *Index) decodeSides(p *page, d *decoded, only bitmap) {
	r := &d.rest
	head := r.Bytes(2)
	if r.Bad {
		return
	}
	list, commons := ix.pages.kept[:0], ix.pages.keptCommons[:0]
	for range binary.LittleEndian.Uint16(head) {
		i, what := uint(r.Byte()), r.Byte()
		if r.Bad || !d.live.has(i) {
			r.Bad = true
			break
		}
		wanted := only.has(i)
		if what&sideHistory != 0 {
			k := r.Uint()
			switch n := uint64(len(list)); {
			case k == n+1:
				var h keptHistory
				h, commons = readHistory(r, commons)
				list = append(list, h)
			case k == 0 || k > n:
				r.Bad = true
			}
			if wanted && !r.Bad {
				ix.pages.needHistories(p)
				p.histories[p.at(i)] = list[k-1].ref(ix.cold)
			}
		}
		if what&sideCounts != 0 {
			if n := (Counts{Deliveries: r.Small(), Acquired: r.Small()}); wanted {
				ix.pages.needCounts(p)
				p.counts[p.at(i)] = n
			}
		}
		if what&sideTTL != 0 {
			if ttl := r.Moment(); wanted {
				ix.rowOf(p, i).TTL = ttl
			}
		}
		if what&sideDeath != 0 {
			reason, at := deadletter.Reason(r.Byte()), r.Moment()
			if wanted {
				s := ix.rowOf(p, i)
				s.Reason, s.DiedAt = reason, at
			}
		}
	}
	clear(list)
	clear(commons)
	ix.pages.kept, ix.pages.keptCommons = list, commons
}

// keptHistory is a history of the page being decoded.
type keptHistory struct {
	common, own []byte
	made        message.Ref
}

// readHistory reads one that is new in its page, whose common parts so far are given.
func readHistory(r *Reader, commons [][]byte) (h keptHistory, all [][]byte) {
	k := r.Uint()
	switch n := uint64(len(commons)); {
	case k > n+1:
		r.Bad = true
	case k == n+1:
		commons = append(commons, r.Bytes(r.Uint()))
		fallthrough
	case k > 0:
		h.common = commons[k-1]
	}
	h.own = r.Bytes(r.Uint())
	return h, commons
}

// ref returns the history, with a reference more.
func (h *keptHistory) ref(c Cold) message.Ref {
	if h.made == 0 {
		h.made = c.Keep(h.common, h.own)
	} else {
		c.Retain(h.made)
	}
	return h.made
}
