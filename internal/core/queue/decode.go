package queue

import (
	"encoding/binary"
	"errors"
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

var errPage = errors.New("queue: a saved page is malformed")

// reader reads what encoder wrote. After a fault it returns zeros and bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// moment reads a moment, which is never negative.
func (r *reader) moment() int64 {
	v := r.uint()
	if v > math.MaxInt64 {
		r.bad = true
		return 0
	}
	return int64(v)
}

func (r *reader) small() uint32 {
	v := r.uint()
	if v > math.MaxUint32 {
		r.bad = true
		return 0
	}
	return uint32(v)
}

// count reads a number of things of at least size bytes each.
func (r *reader) count(size int) int {
	v := r.uint()
	if v > uint64(len(r.b)/size) {
		r.bad = true
		return 0
	}
	return int(v)
}

// version reads the byte that a page and its summary begin with.
func (r *reader) version() byte {
	v := r.byte()
	r.bad = r.bad || v == 0 || v > encodingVersion
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) bitmap() (set bitmap) {
	words := r.bytes(8 * uint64(len(set)))
	if !r.bad {
		for w := range set {
			set[w] = binary.LittleEndian.Uint64(words[8*w:])
		}
	}
	return set
}

// runs reads a column of runs.
func (r *reader) runs(live *bitmap, set func(i uint, v uint64)) {
	var run, v uint64
	for i := live.next(0); i < pageSize && !r.bad; i = live.next(i + 1) {
		if run == 0 {
			v, run = r.uint(), r.uint()
			if run == 0 {
				r.bad = true
				return
			}
		}
		set(i, v)
		run--
	}
	r.bad = r.bad || run != 0
}

// plain is what every entry of a page has in its copy, by slot.
type plain struct {
	live  bitmap
	marks [pageSize]uint8
	at    [pageSize]uint64 // where the body is
	sizes [pageSize]uint32
	dues  [pageSize]int64 // 0 = none
}

// decoded is what the copy of a page tells.
type decoded struct {
	plain
	version byte
	rest    reader // stands before the owners
}

// parse reads a copy into Pages.copy, all but what few entries have.
func (ps *Pages) parse(b []byte) (*decoded, error) {
	if ps.copy == nil {
		ps.copy = new(decoded)
	}
	d, r := ps.copy, reader{b: b}
	d.version = r.version()
	if r.byte() == 1 {
		d.live = bitmap{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}
	} else {
		d.live = r.bitmap()
	}
	if r.bad {
		return nil, errPage
	}
	r.runs(&d.live, func(i uint, v uint64) {
		r.bad = r.bad || v > math.MaxUint8 || v&stateMask > stateOffered
		d.marks[i] = uint8(v)
	})
	var at uint64
	for i := d.live.next(0); i < pageSize; i = d.live.next(i + 1) {
		at += uint64(r.int())
		r.bad = r.bad || !message.Location(at).InSpace()
		d.at[i] = at
	}
	r.runs(&d.live, func(i uint, v uint64) {
		r.bad = r.bad || v > math.MaxUint32
		d.sizes[i] = uint32(v)
	})
	clear(d.dues[:])
	if r.byte() == 1 {
		least := r.moment()
		for i := d.live.next(0); i < pageSize && !r.bad; i = d.live.next(i + 1) {
			if off := r.uint(); off > math.MaxInt64-uint64(least) {
				r.bad = true
			} else if off > 0 {
				d.dues[i] = least + int64(off-1)
			}
		}
	}
	if r.bad {
		return nil, errPage
	}
	d.rest = r
	return d, nil
}

// decode adds the entries of a copy to p that stand in the slots named by only,
// none of which is live.
func (m *Machine) decode(p *page, d *decoded, only bitmap) error {
	p.seen = 0
	live := p.live.or(only)
	m.pages.reform(p, live, classFor(live.count()))
	for i := only.next(0); i < pageSize; i = only.next(i + 1) {
		j := p.at(i)
		p.refs[j], p.sizes[j], p.marks[j] = m.cold.At(d.at[i]), d.sizes[i], d.marks[i]
		if d.marks[i]&stateMask == stateReady {
			p.ready.set(i)
		}
		p.cool = p.cool && p.refs[j].OnDisk()
	}
	m.decodeDues(p, d, only)
	r := &d.rest
	for i := d.live.next(0); i < pageSize && !r.bad; i = d.live.next(i + 1) {
		if d.marks[i]&stateMask != stateOut {
			continue
		}
		if owner := r.small(); only.has(i) {
			m.setOwner(p, i, owner)
		}
	}
	m.decodeSides(p, d, only)
	if r.bad || len(r.b) > 0 {
		return errPage
	}
	return nil
}

func (m *Machine) decodeDues(p *page, d *decoded, only bitmap) {
	least := never
	for i := only.next(0); i < pageSize; i = only.next(i + 1) {
		if due := d.dues[i]; due != 0 {
			least = min(least, due)
		}
	}
	switch {
	case least == never:
		return
	case p.dues == nil:
		m.pages.need(p, &p.dues)
		p.base = max(0, least-dueRoom)
	case least <= p.base:
		m.rebase(p, max(0, least-dueRoom))
	}
	for i := only.next(0); i < pageSize; i = only.next(i + 1) {
		if due := d.dues[i]; due != 0 {
			m.tell(p, i, due)
		}
	}
}

func (m *Machine) decodeSides(p *page, d *decoded, only bitmap) {
	r := &d.rest
	head := r.bytes(2)
	if r.bad {
		return
	}
	list, commons := m.pages.kept[:0], m.pages.keptCommons[:0]
	for range binary.LittleEndian.Uint16(head) {
		i, what := uint(r.byte()), r.byte()
		if r.bad || !d.live.has(i) {
			r.bad = true
			break
		}
		wanted := only.has(i)
		if what&sideHistory != 0 {
			k := r.uint()
			switch n := uint64(len(list)); {
			case k == n+1:
				var h keptHistory
				h, commons = readHistory(r, d.version, commons)
				list = append(list, h)
			case k == 0 || k > n:
				r.bad = true
			}
			if wanted && !r.bad {
				m.pages.needHistories(p)
				p.histories[p.at(i)] = list[k-1].ref(m.cold)
			}
		}
		if what&sideCounts != 0 {
			if n := (Counts{Deliveries: r.small(), Acquired: r.small()}); wanted {
				m.pages.needCounts(p)
				p.counts[p.at(i)] = n
			}
		}
		if what&sideTTL != 0 {
			if ttl := r.moment(); wanted {
				m.rowOf(p, i).ttl = ttl
			}
		}
		if what&sideDeath != 0 {
			reason, at := deadletter.Reason(r.byte()), r.moment()
			if wanted {
				s := m.rowOf(p, i)
				s.reason, s.diedAt = reason, at
			}
		}
	}
	clear(list)
	clear(commons)
	m.pages.kept, m.pages.keptCommons = list, commons
}

// keptHistory is a history of the page being decoded.
type keptHistory struct {
	common, own []byte
	made        message.Ref
}

// readHistory reads one that is new in its page, whose common parts so far are given.
func readHistory(r *reader, version byte, commons [][]byte) (h keptHistory, all [][]byte) {
	k := uint64(0)
	if version > 1 {
		k = r.uint()
	}
	switch n := uint64(len(commons)); {
	case k > n+1:
		r.bad = true
	case k == n+1:
		commons = append(commons, r.bytes(r.uint()))
		fallthrough
	case k > 0:
		h.common = commons[k-1]
	}
	h.own = r.bytes(r.uint())
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
