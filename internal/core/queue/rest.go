package queue

import (
	"cmp"
	"encoding/binary"
	"slices"

	"bartleby.mq/internal/core/queue/index"
)

// Rest is the state of a queue at one moment, without its entries: it holds what AppendRest writes.
//
// A checkpoint needs the Rests of all queues as of its cut, and there may be very many consumers with millions of
// deliveries. So KeepRest only notes sizes and counters, and Collect copies consumers and returned entries in slices
// while the queue goes on.
//
// Invariant: what Collect has not reached yet is unchanged since the cut. A consumer that is about to change is
// copied first (touch).
//
// The deliveries of a consumer are not copied: Rest and queue share a slice. The queue only appends to it and cuts
// from its front. Code that writes into it makes a new one (Machine.compactOuts).
type Rest struct {
	m             *Machine
	version       uint32 // number of the KeepRest call; by it a consumer knows whether this Rest has it
	refusing      bool
	born, lastUse int64
	next          []uint64
	dying         []ID
	count, active uint64
	breaker       *breaker // nil if there is none

	slots     int          // how many there were at the cut
	looked    int          // how many of them Collect has passed
	consumers [][]standing // in pieces, so that adding one never copies them all

	kept     *index.KeptReturns // being collected
	returned []ID               // the returns list
}

// standing is a consumer as it was at the cut.
type standing struct {
	*Consumer          // only fields that never change may be read
	slot               uint32
	turn               uint64
	out, stale, credit int
	attached, gone     bool
	outs               []outstanding
}

// piece is how many consumers are in one of the pieces.
const piece = 512

// KeepRest begins to keep the present state, without entries. The caller calls Collect until there is no more. If the
// next KeepRest begins before that, this Rest is never completed.
func (m *Machine) KeepRest() *Rest {
	m.rests++
	r := m.newRest()
	r.version, r.kept = m.rests, m.KeepReturned()
	m.cs.rest = r
	return r
}

// newRest notes everything except consumers and returned entries.
func (m *Machine) newRest() *Rest {
	r := &Rest{m: m, refusing: m.refusing, born: m.born, lastUse: m.lastUse, next: m.Next(), count: m.cs.count, slots: len(m.cs.slots)}
	for _, id := range m.dyingIDs() {
		if m.Find(id).In(index.Dying) {
			r.dying = append(r.dying, id)
		}
	}
	if m.cs.active != nil {
		r.active = m.cs.active.Number
	}
	if m.breaker != nil {
		b := *m.breaker
		r.breaker = &b
	}
	return r
}

// Collect goes on where KeepRest or the last Collect stopped. It looks at about limit consumers and returned entries,
// and says whether there is more. The queue may have been closed meanwhile.
func (r *Rest) Collect(limit int) (looked int, more bool) {
	m := r.m
	for ; r.looked < min(r.slots, len(m.cs.slots)); r.looked++ {
		if looked == limit {
			return looked, true
		}
		looked++
		if c := m.cs.slots[r.looked]; c != nil {
			m.cs.touch(c)
		}
	}
	n, more := r.kept.Collect(limit - looked)
	if looked += n; more {
		return looked, true
	}
	r.returned = r.kept.List
	if m.cs.rest == r {
		m.cs.rest = nil
	}
	return looked, false
}

// touch copies c for the Rest that is being collected, if there is one that does not have c yet. It is called before
// a field of c changes that a Rest keeps.
func (cs *consumers) touch(c *Consumer) {
	if r := cs.rest; r != nil && c.kept != r.version && c.slot != 0 {
		c.kept = r.version
		r.add(c)
	}
}

func (r *Rest) add(c *Consumer) {
	last := len(r.consumers) - 1
	if last < 0 || len(r.consumers[last]) == piece {
		r.consumers = append(r.consumers, make([]standing, 0, piece))
		last++
	}
	c.shared = len(c.outs) > 0
	r.consumers[last] = append(r.consumers[last], standing{c, c.slot, c.turn, c.out, c.stale, c.credit, c.place != 0, c.gone, c.outs})
}

// Range calls f for each consumer that was attached or held a delivery, in no order. f may read only the fields of
// the consumer that never change. REQUIRES: Collect is done. The queue need not be locked.
func (r *Rest) Range(f func(c *Consumer)) {
	for _, some := range r.consumers {
		for i := range some {
			f(some[i].Consumer)
		}
	}
}

// Append appends the state in the form that AppendRest describes. REQUIRES: as for Range.
func (r *Rest) Append(b []byte) []byte {
	b = append(b, snapshotVersion, index.Bit(r.refusing))
	b = binary.AppendUvarint(b, uint64(r.born))
	b = binary.AppendUvarint(b, uint64(r.lastUse))
	b = binary.AppendUvarint(b, uint64(len(r.next)))
	for _, next := range r.next {
		b = binary.AppendUvarint(b, next)
	}
	b = appendIDs(b, r.returned)
	b = appendIDs(b, r.dying)
	return r.breaker.append(r.appendConsumers(b))
}

func appendIDs(b []byte, list []ID) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, id := range list {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

func (r *Rest) appendConsumers(b []byte) []byte {
	var all []*standing
	for _, some := range r.consumers {
		for i := range some {
			all = append(all, &some[i])
		}
	}
	slices.SortFunc(all, func(a, b *standing) int { return cmp.Compare(a.slot, b.slot) })
	slots := 0
	if len(all) > 0 {
		slots = int(all[len(all)-1].slot) + 1
	}
	b = binary.AppendUvarint(b, uint64(slots))
	for slot, k := 0, 0; slot < slots; slot++ {
		number := uint64(0)
		if int(all[k].slot) == slot {
			number = all[k].Number
			k++
		}
		b = binary.AppendUvarint(b, number)
	}
	attached := 0
	for _, c := range all {
		if c.attached {
			attached++
		}
	}
	// Attached consumers come first, in the order in which they are served, then the others by slot.
	slices.SortStableFunc(all, func(a, b *standing) int {
		switch {
		case a.attached != b.attached:
			return int(index.Bit(b.attached)) - int(index.Bit(a.attached))
		case !a.attached:
			return 0
		}
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.turn, b.turn))
	})
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, c := range all {
		b = c.append(b)
	}
	b = binary.AppendUvarint(b, uint64(attached))
	b = binary.AppendUvarint(b, r.count)
	return binary.AppendUvarint(b, r.active)
}

func (c *standing) append(b []byte) []byte {
	b = binary.AppendUvarint(b, c.Number)
	b = binary.AppendUvarint(b, uint64(len(c.Tag)))
	b = append(b, c.Tag...)
	b = append(b, index.Bit(c.NoAck)*consumerNoAck|index.Bit(c.Exclusive)*consumerExclusive|index.Bit(c.Metered)*consumerMetered|index.Bit(c.gone)*consumerGone)
	for _, v := range []int64{c.Priority, int64(c.Prefetch), c.Timeout, int64(c.order), int64(c.out), int64(c.stale), int64(c.credit)} {
		b = binary.AppendVarint(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(c.outs)))
	for _, o := range c.outs {
		b = binary.AppendUvarint(b, uint64(o.id))
		b = binary.AppendUvarint(b, uint64(o.returned))
		b = binary.AppendUvarint(b, uint64(o.at))
	}
	return b
}

// NowRest returns a complete Rest of the present state, to be used before the queue changes. It drops settled
// deliveries from the watch first, so that equal queues have equal Rests.
func (m *Machine) NowRest() *Rest {
	r := m.newRest()
	for _, c := range m.cs.slots {
		if c != nil {
			m.compactOuts(c)
			r.add(c)
			c.shared = false
		}
	}
	r.returned = m.Returned()
	return r
}
