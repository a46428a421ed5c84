package queue

import (
	"cmp"
	"encoding/binary"
	"slices"

	"bartleby.mq/internal/core/queue/index"
)

// Rest is what a queue was at one moment, but for its entries: what AppendRest writes. A checkpoint wants it of the
// cut, of all queues at once, and there may be very many consumers, with millions of deliveries. So KeepRest only
// notes what there is, and Collect goes through it in slices, while the queue goes on: a consumer that changes
// before its turn has come is collected first.
//
// Lists of deliveries are kept as slices of what the queue goes on with. That only appends
// to them and takes from their fronts; what writes into one makes another (Machine.compactOuts).
type Rest struct {
	m             *Machine
	version       uint32 // of KeepRest, by which consumers know whether they belong to it
	refusing      bool
	born, lastUse int64
	next          []uint64
	dying         []ID
	count, active uint64

	slots     int          // those there were
	looked    int          // at so many of them
	consumers [][]standing // in pieces, so that no addition copies them all

	kept     *index.KeptReturns // being collected
	returned []ID               // the returns list
}

// standing is what a consumer was.
type standing struct {
	*Consumer          // of which only what never changes is read
	slot               uint32
	turn               uint64
	out, stale, credit int
	attached, gone     bool
	outs               []outstanding
}

// piece is how many consumers are in one of the pieces.
const piece = 512

// KeepRest begins to keep what the queue is now, but for its entries. The caller has Collect called until there is
// no more; a Rest that is not complete when the next one begins never will be.
func (m *Machine) KeepRest() *Rest {
	m.rests++
	r := m.newRest()
	r.version, r.kept = m.rests, m.KeepReturned()
	m.cs.rest = r
	return r
}

// newRest notes what is there, but for consumers and returned entries.
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
	return r
}

// Collect goes on with what KeepRest has begun: it looks at about limit consumers and returned entries, and says
// whether there is more. The queue may have been closed meanwhile.
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

// touch is called before something of c changes that a Rest has.
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

// Range calls f for each consumer that was attached or held a delivery, in no order. Of the consumer only what
// never changes may be read. REQUIRES: Collect is done, as for Append; the queue need not be locked for either.
func (r *Rest) Range(f func(c *Consumer)) {
	for _, some := range r.consumers {
		for i := range some {
			f(some[i].Consumer)
		}
	}
}

// Append appends the whole in the form of AppendRest.
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
	return r.appendConsumers(b)
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
	// Those attached come first, in the order they are served, the others by their slots.
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

// NowRest is a Rest of now that is complete, for who uses it before the queue changes. Of deliveries on the watch it has those alone that are not settled, so
// that queues that are equal have the same.
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
