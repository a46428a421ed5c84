package queue

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"bartleby.mq/internal/core/moment"
)

// sliceLimit is how many entries one command handles of its own accord before
// it leaves the rest to the next Tick, so that no caller holds its lock for long.
const sliceLimit = 512

// Tick does what is due at now: messages expire, delayed ones become ready,
// deliveries time out. It handles at most limit entries and says whether there
// is more to do at once.
func (m *Machine) Tick(now int64, limit int) (more bool) {
	if m.timeOut(now, limit) {
		return true // what has come back may be what is due, so that this comes first, however much it is
	}
	if !m.pages.Exact { // else expire reads all that is due, and what follows must not depend on it
		more = m.readAhead(now, readSlice)
	}
	if m.expire(now, limit) || more || m.Trim(now, limit) {
		return true
	}
	return m.Pump(now, limit)
}

// NextDue is the moment at which Tick should be called next, in milliseconds
// since 1970; math.MaxInt64 if there is nothing to wait for. It may be early,
// never late.
func (m *Machine) NextDue() int64 {
	if m.busy || m.overflowing() {
		return 0
	}
	wake := m.nextWake
	if m.pages.Exact && wake != never {
		wake = max(0, wake-readLead) // for ReadAhead
	}
	due := min(m.nextDue, wake, m.watch)
	if m.config.Strict {
		due = min(due, m.headsDue())
	}
	if m.settings.Expires >= 0 && len(m.cs.list) == 0 {
		due = min(due, m.expiry())
	}
	return due
}

// ExpiresBy says whether entries may expire with a Tick at the moment given, or were to have
// expired before it. It may say so without reason, but not again after that Tick, unless that was
// at its limit.
func (m *Machine) ExpiresBy(at int64) bool {
	due := min(m.nextDue, m.nextWake)
	if m.config.Strict {
		due = min(due, m.headsDue())
	}
	return due <= at
}

// strictTick is how often RabbitMQ's quorum queues look whether they are used, in milliseconds.
const strictTick = 5000

// expiry is when the queue goes if nobody uses it (DL-8.12). REQUIRES: x-expires is in force.
func (m *Machine) expiry() int64 {
	at := moment.After(m.lastUse, m.settings.Expires)
	if m.config.Strict && m.config.Type == Quorum {
		looks := (at - m.born - 1) / strictTick // before the one that finds it unused
		at = moment.After(m.born, moment.Times(strictTick, looks+1))
	}
	return at
}

// Unused says whether the queue is to be deleted because nobody used it for as
// long as x-expires allows (DL-8.12).
func (m *Machine) Unused(now int64) bool {
	return m.settings.Expires >= 0 && len(m.cs.list) == 0 && now >= m.expiry()
}

// Touch notes a use of the queue (DL-8.12).
func (m *Machine) Touch(now int64) { m.lastUse = now }

// Expire lets die what is due. Callers do so before they show the queue's counts.
func (m *Machine) Expire(now int64) (more bool) { return m.expire(now, sliceLimit) }

// expire finds the entries in memory that are due, wherever they stand (in strict
// mode, at the heads only, DL-8.4), and handles at most limit of them: by levels,
// moments and numbers.
func (m *Machine) expire(now int64, limit int) (more bool) {
	m.clock = max(m.clock, now)
	more = m.expireDue(now, limit)
	if m.config.Strict {
		m.expireHeads(now)
	}
	return more
}

func (m *Machine) expireDue(now int64, limit int) (more bool) {
	if m.pages.Exact {
		// What dies now must not depend on what is in memory: another replica, or
		// this one after a restart, has other pages there.
		m.readAhead(now, math.MaxInt)
	}
	if now < m.nextDue {
		return false
	}
	next := never
	for level, l := range m.lanes {
		if l == nil {
			continue
		}
		for n := 0; l.dues.first() <= now && limit > 0; n++ {
			if n%(glances/2) == 0 {
				m.glance(l, now)
			}
			a := l.dues.pop()
			if p := l.loaded(a.number); p != nil && p.min == a.at {
				m.expirePage(now, level, l, p, &limit)
			}
		}
		next = min(next, l.dues.first())
	}
	m.nextDue = next
	return next <= now
}

// saveWeight is as how many entries the saving of a page counts in a slice: while a
// checkpoint is being written, what dies may be what a page is saved before.
const saveWeight = 24

// deltaWeight is the same for the saving of a delta.
const deltaWeight = 2

// ripeEntry is an entry that is due.
type ripeEntry struct {
	at   int64
	slot uint
}

// dueBy appends the entries whose column tells a moment up to the one given, and
// returns the first moment of the others. A look at a whole column notes which come
// next, so that the next calls need none: as long as no entry gets another moment.
func (p *page) dueBy(until int64, list []ripeEntry) (ripe []ripeEntry, least int64) {
	if p.dues == nil {
		return list, never
	}
	begin := len(list)
	for ; p.comes > 0; p.come() {
		i := uint(p.coming[0])
		at := int64(0)
		if p.live.has(i) {
			at = p.dueAt(i)
		}
		if at > until {
			return list, at
		}
		if at != 0 {
			list = append(list, ripeEntry{at, i})
		}
	}
	list = list[:begin]
	most := min(until-p.base, maxOffset)
	if p.room() == pageSize && !p.ranked && most > 0 {
		return p.dueInFull(uint32(most), list)
	}
	next := never
	n := uint(0)
	for w, v := range p.live {
		for ; v != 0; v &= v - 1 {
			i := uint(w)<<6 + uint(bits.TrailingZeros64(v))
			j := i & uint(p.mask)
			if p.ranked {
				j = n
				n++
			}
			switch off := int64(p.dues[j]); {
			case off == 0:
			case off <= most:
				list = append(list, ripeEntry{p.base + off, i})
			default:
				next = min(next, off)
			}
		}
	}
	if next == never {
		return list, never
	}
	return list, p.base + next
}

// come takes the first slot of coming away.
func (p *page) come() {
	copy(p.coming[:], p.coming[1:])
	p.comes--
}

// dueInFull is dueBy for a page whose columns have a position for each slot: no moment
// stands there of a slot that is not live.
func (p *page) dueInFull(most uint32, list []ripeEntry) (ripe []ripeEntry, least int64) {
	var next [mostComing]uint32 // the first moments of the others, in their order
	for k := range next {
		next[k] = math.MaxUint32
	}
	n := 0
	for i, off := range p.dues {
		if off--; off >= next[mostComing-1] { // those without a moment, too
			continue
		}
		if off < most {
			list = append(list, ripeEntry{p.base + int64(off) + 1, uint(i)})
			continue
		}
		k := min(n, mostComing-1)
		for ; k > 0 && off < next[k-1]; k-- {
			next[k], p.coming[k] = next[k-1], p.coming[k-1]
		}
		next[k], p.coming[k] = off, uint8(i)
		n = min(n+1, mostComing)
	}
	p.comes = uint8(n)
	if n == 0 {
		return list, never
	}
	return list, p.base + int64(next[0]) + 1
}

// expirePage handles what is due in a page, whose alarm was the first, until the
// next alarm.
func (m *Machine) expirePage(now int64, level int, l *lane, p *page, limit *int) {
	until := max(p.min, min(now, l.dues.first()-1))
	ripe, least := p.dueBy(until, m.pages.ripe[:0])
	far := false
	for j := 0; j < len(ripe); {
		r := &ripe[j]
		if r.at = m.due(p, r.slot); r.at <= until {
			j++
			continue
		}
		far = true // its column could not tell
		*r = ripe[len(ripe)-1]
		ripe = ripe[:len(ripe)-1]
	}
	m.pages.ripe = ripe
	slices.SortFunc(ripe, func(a, b ripeEntry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.slot, b.slot))
	})
	l.remind(p, least)
	first := p.number * pageSize
	if far {
		m.approach(now, p)
	}
	for _, r := range ripe {
		seq := first + uint64(r.slot)
		if *limit <= 0 {
			p.comes = 0
			m.noteDue(p, r.at)
			return
		}
		before := m.pages.saves
		if m.ripe(now, makeID(level, seq), p, r.slot) {
			*limit--
		}
		if !m.pages.Exact { // likewise, whether a checkpoint is being written
			*limit -= m.pages.saves - before
		}
	}
}

// ripe handles an entry that is due, and says whether anything came of it.
func (m *Machine) ripe(now int64, id ID, p *page, i uint) bool {
	switch p.state(i) {
	case stateDelayed:
		m.unhide(id, p, i)
		if m.comeBack(now, id, p, i) && len(m.cs.list) > 0 {
			m.busy = true // whoever has asked may pump or not: a look, or a publish that is refused
		}
		return true
	case stateReady, stateReturned:
		if m.config.Strict {
			return false // it waits until it is at the head: expireHeads
		}
		m.lapse(now, id, p, i)
		return true
	}
	return false // out, dying or held: comeBack looks at its moment again
}

// approach looks again at a page with moments that were too far away for its
// column: it counts from now on, or from the first moment that has passed and
// that something is still to come of.
func (m *Machine) approach(now int64, p *page) {
	first := now
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		if due := m.due(p, i); due != 0 && m.watches(p.state(i)) {
			first = min(first, due)
		}
	}
	m.rebase(p, first-2) // so that what has passed still has when it is told with its last bit
	m.noteAll(p)
}

// noteAll sees to it that no moment of a page is missed whose base has changed:
// those too far away are told otherwise now.
func (m *Machine) noteAll(p *page) {
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		if at := p.dueAt(i); at != 0 {
			m.noteDue(p, at)
		}
	}
}

// headsDue is the first moment of the entries that expireHeads looks at, one of
// which may have come to the head after its moment.
func (m *Machine) headsDue() int64 {
	due := never
	note := func(p *page, i uint) {
		if at := m.due(p, i); at != 0 {
			due = min(due, at)
		}
	}
	if _, p, i, ok := m.first(); ok {
		note(p, i)
	}
	if m.config.Type == Quorum {
		for level, l := range m.lanes {
			if l != nil && l.ready > 0 {
				_, p, i := m.firstReady(level)
				note(p, i)
			}
		}
	}
	return due
}

// expireHeads lets expired heads die, as RabbitMQ does: of the highest level
// that has messages on classic queues (DL-8.9), of each level on quorum queues.
// At most sliceLimit die at once: nobody gets what has expired, and NextDue tells of the rest.
func (m *Machine) expireHeads(now int64) {
	limit := sliceLimit
	for ; limit > 0; limit-- {
		id, p, i, ok := m.first()
		if !ok {
			return
		}
		if due := m.due(p, i); due == 0 || due > now {
			break
		}
		m.lapse(now, id, p, i)
	}
	if m.config.Type != Quorum {
		return
	}
	if m.pages.AllHeads {
		limit = math.MaxInt
	}
	for level, l := range m.lanes {
		for ; limit > 0 && l != nil && l.ready > 0; limit-- {
			seq, p, i := m.firstReady(level)
			if due := m.due(p, i); due == 0 || due > now {
				break
			}
			m.lapse(now, makeID(level, seq), p, i)
		}
	}
}

// timeout is how long c may leave a delivery unsettled, 0 = for ever (DL-12.7). Where all queues have one, consumers
// have no say (DL-22.2).
func (m *Machine) timeout(c *Consumer) int64 {
	if !m.limits() {
		return 0
	}
	if c.Timeout > 0 && !m.settings.Rules.CountReturns() {
		return c.Timeout
	}
	return max(0, m.settings.ConsumerTimeout)
}

// timeOut takes back what consumers left unsettled for too long, at most limit deliveries, and says whether there are more.
// Where a return counts as a failed attempt that is all (DL-22.2); else the consumer gets nothing until it has settled
// what was taken back, and is told once that is all there is for now.
func (m *Machine) timeOut(now int64, limit int) (more bool) {
	if now < m.watch {
		return false
	}
	if m.pages.AllTimeouts {
		limit = math.MaxInt
	}
	m.watch = never
	for _, c := range m.cs.slots {
		if c == nil {
			continue
		}
		n, stopped := 0, false
		for t := m.timeout(c); t > 0 && len(c.outs) > 0; {
			m.cs.touch(c)
			o := c.outs[0]
			p, i := m.watched(c, o)
			if p == nil {
				c.outs = c.outs[1:]
				continue
			}
			end := moment.After(o.at, t)
			if stopped = end <= now && n == limit; stopped || end > now {
				m.watch = min(m.watch, end)
				break
			}
			c.outs = c.outs[1:]
			c.out--
			n++
			m.giveBack(now, o.id, p, i, c, ReturnTimeout)
		}
		limit -= n
		more = more || stopped
		m.timeouts += uint64(n)
		if m.settings.Rules.CountReturns() {
			c.late = 0
		} else {
			c.stale += n
			c.late += n
		}
		if c.late > 0 && !stopped {
			m.sink.TimedOut(c, c.late)
			c.late = 0
		}
		if n > 0 {
			m.cs.awake(c)
			m.cs.forget(c)
			if !stopped {
				m.cs.relieve() // all has come back: the next one gets it in its order
			}
			if c.Idle() && m.settings.Rules.CountReturns() {
				m.sink.TimedOut(c, 0)
			}
		}
	}
	return more
}

// TimeoutCount is how many deliveries have been taken back by the consumer timeout while the machine is in memory.
func (m *Machine) TimeoutCount() uint64 { return m.timeouts }

// watched returns the entry of a delivery on the watch; the page is nil if it
// was settled. The same entry may have come back and be out at c once more, as
// another delivery. It reads no page to find that out, but one that has entries that were out before a restart.
func (m *Machine) watched(c *Consumer, o outstanding) (*page, uint) {
	if o.id.Lane() >= len(m.lanes) || m.lanes[o.id.Lane()] == nil {
		return nil, 0
	}
	l := m.lanes[o.id.Lane()]
	k, ok := l.search(o.id.Seq() / pageSize)
	if !ok || l.slots[k].cold(uint(o.id.Seq()%pageSize)) && !l.slots[k].outs {
		return nil, 0 // what is out is in memory: quiet
	}
	p, i := m.at(l, o.id.Lane(), o.id.Seq())
	if p == nil || p.state(i) != stateOut || p.owner(i) != c.slot || m.returned(p, i) != o.returned {
		return nil, 0
	}
	return p, i
}

// compactOuts drops from the watch what was settled.
func (m *Machine) compactOuts(c *Consumer) {
	kept := c.outs[:0]
	if c.shared {
		kept, c.shared = make([]outstanding, 0, c.out), false
	}
	for _, o := range c.outs {
		if p, _ := m.watched(c, o); p != nil {
			kept = append(kept, o)
		}
	}
	c.outs = kept
}
