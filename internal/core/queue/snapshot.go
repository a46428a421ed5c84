package queue

import (
	"errors"

	"bartleby.mq/internal/core/queue/index"
)

// A snapshot is everything that decides what a queue does next. Two machines that applied the same commands have the
// same snapshot, and a machine restored from it continues as the original would. It has two parts, because a
// checkpoint saves entries page by page: the rest (drawn here) and the entries (package index). It omits what only a
// leader remembers: the sessions of consumers, and who rejected a dying entry.
//
// Integers are uvarints, signed ones zigzag varints. "bytes" is a length and that many bytes.
//
//	rest      version byte | refusing | born | last use
//	          lanes: n | n × the number the next entry gets, 0 = no lane
//	          returns: n | n × id        dying: n | n × id, in order
//	          consumers: slots: n | n × (number, 0 = free)
//	          n | n × consumer, those attached in the order they are served, then those that only hold deliveries
//	          attached: n of them | of all ever attached | the active one's number
//	          breaker: state, 0 = none, else | again | until | trial's id | died and ended when it opened | at | 60 × (died | ended)
//	consumer  number | tag bytes | flags | priority | prefetch | timeout | order | out | stale | credit | n | n × (id | returned | at)
const snapshotVersion = 1

// The flags of a consumer in a snapshot.
const (
	consumerNoAck = 1 << iota
	consumerExclusive
	consumerMetered
	consumerGone
)

var errSnapshot = errors.New("queue: malformed snapshot")

// AppendRest appends the queue's state without its entries.
func (m *Machine) AppendRest(b []byte) []byte { return m.NowRest().Append(b) }

// RestoreRest reads what AppendRest wrote into a new machine, whose entries must have been restored before. It calls
// made for each consumer; the caller knows by the consumer's number whose it is. It returns the bytes of b that
// follow.
func (m *Machine) RestoreRest(b []byte, made func(*Consumer)) (rest []byte, err error) {
	r := index.Reader{B: b}
	if r.Byte() != snapshotVersion {
		return nil, errSnapshot
	}
	m.refusing = r.Byte() != 0
	m.born, m.lastUse = r.Moment(), r.Moment()
	next := make([]uint64, r.Count(1))
	for level := range next {
		next[level] = r.Uint()
	}
	if !m.RestoreNext(next) {
		return nil, errSnapshot
	}
	m.SetReturned(m.readIDs(&r, index.Returned))
	m.dying, m.unread = nil, nil
	for _, id := range m.readIDs(&r, index.Dying) {
		m.dying = append(m.dying, dying{id: id})
		m.died++
	}
	m.readConsumers(&r, made)
	m.readBreaker(&r)
	if r.Bad {
		return nil, errSnapshot
	}
	m.watch, m.busy = 0, m.Count.Ready > 0
	return r.B, nil
}

func (m *Machine) readIDs(r *index.Reader, state uint8) (list []ID) {
	for range r.Count(1) {
		id := ID(r.Uint())
		if !m.Find(id).In(state) {
			r.Bad = true
			return nil
		}
		list = append(list, id)
	}
	return list
}

func (m *Machine) readConsumers(r *index.Reader, made func(*Consumer)) {
	cs := &m.cs
	var slots []uint64
	for range r.Count(1) {
		slots = append(slots, r.Uint())
	}
	byNumber := map[uint64]*Consumer{}
	var all []*Consumer
	for range r.Count(10) {
		c := readConsumer(r)
		if r.Bad || byNumber[c.Number] != nil {
			r.Bad = true
			return
		}
		byNumber[c.Number] = c
		all = append(all, c)
	}
	attached := r.Uint()
	if attached > uint64(len(all)) {
		r.Bad = true
		return
	}
	for _, c := range all[:attached] {
		cs.add(c)
	}
	cs.count, cs.active = r.Uint(), byNumber[r.Uint()]
	cs.slots = make([]*Consumer, len(slots))
	for slot, number := range slots {
		if number == 0 && slot > 0 {
			cs.free.push(uint32(slot))
		}
		if number == 0 {
			continue
		}
		c := byNumber[number]
		if c == nil || slot == 0 {
			r.Bad = true
			return
		}
		cs.slots[slot], c.slot = c, uint32(slot)
	}
	for _, c := range all {
		made(c)
	}
}

func readConsumer(r *index.Reader) *Consumer {
	c := &Consumer{Number: r.Uint()}
	c.Tag = string(r.Bytes(r.Uint()))
	flags := r.Byte()
	c.NoAck, c.Exclusive = flags&consumerNoAck != 0, flags&consumerExclusive != 0
	c.Metered, c.gone = flags&consumerMetered != 0, flags&consumerGone != 0
	c.Priority, c.Prefetch, c.Timeout, c.order = r.Int(), int(r.Int()), r.Int(), uint64(r.Int())
	c.out, c.stale, c.credit = int(r.Int()), int(r.Int()), int(r.Int())
	for range r.Count(3) {
		c.outs = append(c.outs, outstanding{ID(r.Uint()), r.Small(), r.Moment()})
	}
	return c
}
