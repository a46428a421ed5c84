package queue

import (
	"encoding/binary"
	"errors"
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
)

// A snapshot is all that decides what a queue does next, in one form: two machines
// that have come the same way have the same, and one that is restored from it goes
// on as the other would. It has two parts, since a checkpoint saves entries page by
// page: the rest, and the entries. What a leader only remembers is not in it: who
// the sessions of consumers are, and who rejected what is dying.
//
// Integers are uvarints, those with a sign zigzag, "bytes" a length and so many bytes.
//
//	rest      version byte | refusing | born | last use
//	          lanes: n | n × the number the next entry gets, 0 = no lane
//	          returns: n | n × id        dying: n | n × id, in order
//	          consumers: slots: n | n × (number, 0 = free)
//	          n | n × consumer, those attached in the order they are served, then those that only hold deliveries
//	          attached: n of them | of all ever attached | the active one's number
//	consumer  number | tag bytes | flags | priority | prefetch | timeout | order | out | stale | credit | n | n × (id | returned | at)
//	entries   n | n × (id | flags byte | size | due | owner | side | record bytes)
//	side      what byte, as in a page | history bytes | deliveries | acquired | TTL's moment | reason | moment of death
const snapshotVersion = 1

// The flags of a consumer in a snapshot.
const (
	consumerNoAck = 1 << iota
	consumerExclusive
	consumerMetered
	consumerGone
)

var errSnapshot = errors.New("queue: malformed snapshot")

// AppendRest appends the queue's state but for its entries.
func (m *Machine) AppendRest(b []byte) []byte { return m.NowRest().Append(b) }

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// AppendEntries appends the entries; record and history find the bytes of either,
// valid until the next call.
func (m *Machine) AppendEntries(b []byte, record, history func(message.Ref) []byte) []byte {
	n := m.n.Ready + m.n.Out + m.n.Delayed + m.n.Dying + m.n.Held + m.n.Offered
	b = binary.AppendUvarint(b, uint64(n))
	m.each(false, func(id ID, p *page, i uint) {
		b = binary.AppendUvarint(b, uint64(id))
		b = append(b, p.mark(i))
		b = binary.AppendUvarint(b, uint64(p.size(i)))
		b = binary.AppendUvarint(b, uint64(m.due(p, i)))
		owner := uint32(0)
		if p.state(i) == stateOut {
			owner = p.owner(i)
		}
		b = binary.AppendUvarint(b, uint64(owner))
		b = m.appendSide(b, p, i, history)
		body := record(p.ref(i))
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	})
	return b
}

func (m *Machine) appendSide(b []byte, p *page, i uint, bytes func(message.Ref) []byte) []byte {
	var s side
	if row := m.peekSide(p, i); row != nil {
		s = *row
	}
	history, counts, state := p.history(i), p.countsOf(i), p.state(i)
	dead := state == stateDying || state == stateHeld
	b = append(b, bit(history != 0)*sideHistory|bit(counts != Counts{})*sideCounts|bit(s.ttl != 0)*sideTTL|bit(dead)*sideDeath)
	if history != 0 {
		h := bytes(history)
		b = binary.AppendUvarint(b, uint64(len(h)))
		b = append(b, h...)
	}
	if counts != (Counts{}) {
		b = binary.AppendUvarint(b, uint64(counts.Deliveries))
		b = binary.AppendUvarint(b, uint64(counts.Acquired))
	}
	if s.ttl != 0 {
		b = binary.AppendUvarint(b, uint64(s.ttl))
	}
	if dead {
		b = append(b, byte(s.reason))
		b = binary.AppendUvarint(b, uint64(s.diedAt))
	}
	return b
}

// RestoreRest takes what AppendRest wrote into a new machine; the entries must have
// been restored before. made is called for each consumer; it is whose it was only by
// its number. It returns what follows in b.
func (m *Machine) RestoreRest(b []byte, made func(*Consumer)) (rest []byte, err error) {
	r := reader{b: b}
	if r.byte() != snapshotVersion {
		return nil, errSnapshot
	}
	m.refusing = r.byte() != 0
	m.born, m.lastUse = r.moment(), r.moment()
	if r.count(1) != len(m.lanes) {
		return nil, errSnapshot
	}
	for level := range m.lanes {
		if next := r.uint(); next != 0 {
			l := m.lane(level)
			l.next = max(l.next, next)
			r.bad = r.bad || next >= 1<<seqBits
		}
	}
	m.returns, m.strays, m.ghosts, m.dying, m.unread = m.readIDs(&r, stateReturned), nil, false, nil, nil
	for _, id := range m.readIDs(&r, stateDying) {
		m.dying = append(m.dying, dying{id: id})
		m.died++
	}
	m.readConsumers(&r, made)
	if r.bad {
		return nil, errSnapshot
	}
	// Whatever is due is found by looking.
	m.nextDue, m.watch, m.busy = 0, 0, m.n.Ready > 0
	return r.b, nil
}

func (m *Machine) readIDs(r *reader, state uint8) (list []ID) {
	for range r.count(1) {
		id := ID(r.uint())
		if p, i := m.find(id); p == nil || p.state(i) != state {
			r.bad = true
			return nil
		}
		list = append(list, id)
	}
	return list
}

func (m *Machine) readConsumers(r *reader, made func(*Consumer)) {
	cs := &m.cs
	var slots []uint64
	for range r.count(1) {
		slots = append(slots, r.uint())
	}
	byNumber := map[uint64]*Consumer{}
	var all []*Consumer
	for range r.count(10) {
		c := readConsumer(r)
		if r.bad || byNumber[c.Number] != nil {
			r.bad = true
			return
		}
		byNumber[c.Number] = c
		all = append(all, c)
	}
	attached := r.uint()
	if attached > uint64(len(all)) {
		r.bad = true
		return
	}
	for _, c := range all[:attached] {
		cs.add(c)
	}
	cs.count, cs.active = r.uint(), byNumber[r.uint()]
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
			r.bad = true
			return
		}
		cs.slots[slot], c.slot = c, uint32(slot)
	}
	for _, c := range all {
		made(c)
	}
}

func readConsumer(r *reader) *Consumer {
	c := &Consumer{Number: r.uint()}
	c.Tag = string(r.bytes(r.uint()))
	flags := r.byte()
	c.NoAck, c.Exclusive = flags&consumerNoAck != 0, flags&consumerExclusive != 0
	c.Metered, c.gone = flags&consumerMetered != 0, flags&consumerGone != 0
	c.Priority, c.Prefetch, c.Timeout, c.order = r.int(), int(r.int()), r.int(), uint64(r.int())
	c.out, c.stale, c.credit = int(r.int()), int(r.int()), int(r.int())
	for range r.count(3) {
		c.outs = append(c.outs, outstanding{ID(r.uint()), r.small(), r.moment()})
	}
	return c
}

// RestoreEntries takes what AppendEntries wrote into a new machine. keep stores a
// record, or a history, and returns a reference for the machine: at is how far the
// bytes lie in front of the end of b. It returns what follows in b.
func (m *Machine) RestoreEntries(b []byte, keep func(bytes []byte, record bool, at int) (message.Ref, error)) (rest []byte, err error) {
	r := reader{b: b}
	for range r.count(6) {
		id, flags := ID(r.uint()), r.byte()
		e := Entry{Size: r.small(), Logged: flags&flagLogged != 0, Redelivered: flags&flagRedelivered != 0}
		due, owner := r.moment(), r.small()
		state := flags & stateMask
		if r.bad || id.Seq() == 0 || id.Lane() >= len(m.lanes) || state > stateOffered {
			return nil, errSnapshot
		}
		if p, _ := m.find(id); p != nil {
			return nil, errSnapshot
		}
		s, err := readSide(&r, &e, keep)
		if err != nil {
			return nil, err
		}
		record := r.bytes(r.uint())
		if r.bad {
			return nil, errSnapshot
		}
		if e.Body, err = keep(record, true, len(record)+len(r.b)); err != nil {
			return nil, err
		}
		_, p, i := m.enter(id.Lane(), id.Seq(), &e, stateReady, due)
		if s != (side{}) {
			row := m.sideOf(p, i)
			row.ttl, row.reason, row.diedAt = s.ttl, s.reason, s.diedAt
		}
		if state == stateOut {
			m.setOwner(p, i, owner)
		}
		m.setState(id, p, i, state)
	}
	if r.bad {
		return nil, errSnapshot
	}
	return r.b, nil
}

func readSide(r *reader, e *Entry, keep func([]byte, bool, int) (message.Ref, error)) (s side, err error) {
	what := r.byte()
	if what&sideHistory != 0 {
		h := r.bytes(r.uint())
		if r.bad {
			return s, errSnapshot
		}
		if e.History, err = keep(h, false, len(h)+len(r.b)); err != nil {
			return s, err
		}
	}
	if what&sideCounts != 0 {
		e.Counts = Counts{r.small(), r.small()}
	}
	if what&sideTTL != 0 {
		s.ttl = r.moment()
	}
	if what&sideDeath != 0 {
		reason := r.byte()
		if !deadletter.Reason(reason).Valid() {
			r.bad = true
		}
		s.reason, s.diedAt = deadletter.Reason(reason), r.moment()
	}
	if r.bad || s.diedAt > math.MaxInt64-1 {
		return s, errSnapshot
	}
	return s, nil
}
