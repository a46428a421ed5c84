// Package queue is one queue as a deterministic machine: commands with the
// present moment as an argument go in, effects come out. It knows order,
// credit, deadlines, limits and counts; it does not know connections, exchanges,
// disks or clocks, and starts no goroutines. Whoever runs a machine guards it.
//
// A message in a queue is an entry. An entry is ready, returned, out, delayed,
// dying or held (page.go) until it is gone: acknowledged, purged, or moved by
// its death.
package queue

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
)

// Sink takes the effects of a machine, in order. Its methods must not call the machine.
type Sink interface {
	// Deliver hands a message to a consumer. The delivery's references to the
	// message and its history pass to the sink if d.NoAck; else they are the
	// machine's, and the sink takes its own if it keeps the message beyond the
	// call. d itself is valid during the call only. It returns false if the consumer can take no more for now: the
	// machine pauses it until Resume.
	Deliver(c *Consumer, d *Delivery) (more bool)
	// Removed is called for each entry that has left the queue other than by
	// its death. The references pass to the sink.
	Removed(id ID, body, history message.Ref, logged bool)
	// Died is called for each death: routed says whether the entry now waits to be
	// routed (Deaths) or is gone because there is no dead-letter exchange; in
	// that case Removed follows.
	Died(reason deadletter.Reason, routed bool)
	// Ended is called for each entry that had died and goes with its queue, held or not, before Removed.
	Ended(id ID, reason deadletter.Reason, held bool)
	// Returned is called for each logged entry that came back; notBefore is when
	// its wait ends, 0 if it is ready.
	Returned(id ID, r Counts, notBefore int64)
	// TimedOut is called for a consumer that left n deliveries unsettled for too
	// long; they are back in the queue (DL-12.7). Where that took several calls of
	// Tick, it is called once, in the last of them. n is 0 where it need not be told, and
	// is nobody any more (Consumer.Idle).
	TimedOut(c *Consumer, n int)
}

// Counts are what a quorum queue counts about a message (DL-11.2).
type Counts struct {
	Deliveries uint32 // failed ones
	Acquired   uint32 // times it came back for any reason
}

// Delivery is a message on its way to a consumer, or to basic.get.
type Delivery struct {
	ID          ID // 0 if the message never was an entry
	Body        message.Ref
	History     message.Ref
	Counts      Counts
	Size        uint32 // bytes, as length limits count them (DL-10.2)
	Redelivered bool
	Logged      bool
	NoAck       bool
	By          *Consumer // who got it by GetFor and did not acknowledge at once
}

// Entry is a message that enters a queue.
type Entry struct {
	Body     message.Ref
	History  message.Ref
	Counts   Counts
	Size     uint32 // bytes, as length limits count them (DL-10.2)
	Priority int    // the message's property; -1 if it has none
	TTL      int64  // the message's own, in milliseconds; -1 = none
	Delay    int64  // milliseconds before it may be delivered, and its TTL begins (DL-22.12)
	Rests    bool   // it has no TTL here, its own or the queue's (DL-22.8)
	Logged   bool

	Redelivered bool

	// For recovery only: what was decided when the message first entered.
	Due int64
}

// Result is what became of a message that was to enter.
type Result uint8

// The results. For Refused the references stay with the caller; otherwise they
// are the machine's, or have passed to the sink.
const (
	Stored      Result = iota
	Delivered          // handed to a consumer without becoming an entry
	Refused            // the queue is full (DL-10.7)
	RefusedDead        // the queue is full, and the message died of it (DL-10.9)
)

// Machine is one queue. The zero value is not ready; use New.
type Machine struct {
	config   Config
	settings Settings
	sink     Sink
	pages    *Pages
	cold     Cold   // nil: pages stay in memory
	dirty    uint32 // the version that the last change of what saveMeta writes belongs to, 0 = saved
	owed     []byte // what Close has left to be saved of it

	known   int     // levels that a checkpoint was told of, see Levels
	lanes   []*lane // by priority level; nil until used
	filled  [4]uint64
	returns []ID          // entries in stateReturned, and some that were
	strays  map[ID]uint32 // of returns, those that were, and when: before which Rest
	rests   uint32        // how often KeepRest was called
	ghosts  bool          // returns may have entries that never were, as what is not logged ends with its process (RestoreMeta)
	sides   sides
	cs      consumers

	dying     []dying       // entries in stateDying, in the order of their deaths; some may be gone
	unread    map[ID]unread // of the entries in stateDying, those that are not to be routed
	died      uint64        // how many have ever been among these, in this process
	timeouts  uint64        // deliveries taken back by the consumer timeout, in this process
	refusing  bool          // quorum: over the limit, until 80 % (DL-10.8)
	born      int64         // when it was made, or its node started
	lastUse   int64
	graveyard []grave
	late      []*page // empty, and out of their lanes, but for what they were at the cut of the checkpoint being written

	nextDue  int64  // not later than the first of any lane's dues
	nextWake int64  // likewise of its wakes
	clock    int64  // the latest moment that a command was given
	watch    int64  // not later than the first consumer timeout
	busy     bool   // the last Pump stopped at its limit, or something that waited has become ready since
	instant  bool   // the entry just stored has a TTL of 0
	hash     uint64 // see statehash.go

	n Totals

	warmth warmth                           // what it has in memory of bodies, and the list that it is in by it
	beside struct{ before, after *Machine } // in that list
	ends   endsCursor
	sweeps bool // PutBodiesAway is about it
	grew   bool // there is more in the middle of a lane than that began with

	handing Delivery // the one the sink is being handed, here so that none is allocated
}

// grave is a page taken out of the queue whose references are still to be given up.
type grave struct {
	level   int
	slot    slot
	version uint32 // when that was
	owed    bool   // the checkpoint being written has it, and its copy is older
	closed  bool   // it went with its queue
}

// Totals are the counts of a queue, in messages and in bytes.
type Totals struct {
	Ready, Out, Delayed, Dying, Held, Offered                               int
	ReadyBytes, OutBytes, DelayedBytes, DyingBytes, HeldBytes, OfferedBytes int64
	Returned                                                                int // of Ready, those in the returns list
	Persistent                                                              int // logged entries
}

// New returns an empty queue. now is in milliseconds since 1970, as everywhere.
func New(config Config, settings Settings, pages *Pages, sink Sink, now int64) *Machine {
	m := &Machine{config: config, settings: settings, sink: sink, pages: pages, born: now, lastUse: now, nextDue: never, nextWake: never, watch: never}
	m.sides.pages = pages
	levels := 1
	switch {
	case config.Type == Quorum:
		levels = quorumLevels
	case config.MaxPriority >= 0:
		levels = max(1, config.MaxPriority) + 1
	}
	m.lanes = make([]*lane, levels)
	m.cs.pages, m.cs.single, m.cs.quorum = pages, config.SingleActive, config.Type == Quorum
	return m
}

// Config returns what the queue was made with.
func (m *Machine) Config() Config { return m.config }

// Settings returns the settings in force.
func (m *Machine) Settings() Settings { return m.settings }

// Rules returns the rules in force, which are not to be changed.
func (m *Machine) Rules() *deadletter.Rules { return &m.settings.Rules }

// Totals returns the counts. While a trim of many messages is under way the
// ready messages beyond the limit are counted as dying already.
func (m *Machine) Totals() Totals {
	t := m.n
	if over := m.overLength(); over > 0 && m.drops() {
		over = min(over, t.Ready)
		t.Ready -= over
		t.Dying += over
	}
	return t
}

// Consumers is the number of consumers attached.
func (m *Machine) Consumers() int { return len(m.cs.list) }

// Attached is a consumer of a queue. Of the Consumer only what never changes may be read
// where the queue is not locked.
type Attached struct {
	*Consumer
	Active bool // it gets messages now
	order  uint64
}

// Attached are the consumers, in no order: see SortAttached.
func (m *Machine) Attached() []Attached {
	list := make([]Attached, 0, len(m.cs.list))
	for _, c := range m.cs.list {
		list = append(list, Attached{c, !m.cs.single || m.cs.active == c, c.order})
	}
	return list
}

// SortAttached puts consumers in the order of priority and age, which needs no lock.
func SortAttached(list []Attached) {
	slices.SortFunc(list, func(a, b Attached) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.order, b.order))
	})
}

// Distinguished are the tags of the consumer that has the queue to itself, and of the one that gets
// messages for all (BR-9.5); "" where there is none.
func (m *Machine) Distinguished() (exclusive, active string) {
	if len(m.cs.list) == 1 && m.cs.list[0].Exclusive {
		exclusive = m.cs.list[0].Tag
	}
	if m.cs.single && m.cs.active != nil {
		active = m.cs.active.Tag
	}
	return exclusive, active
}

// RangeLevels calls f for each priority level with messages ready that have not
// been delivered before, lowest first.
func (m *Machine) RangeLevels(f func(level, ready int)) {
	for level, l := range m.lanes {
		if l != nil && l.ready > 0 {
			f(level, l.ready)
		}
	}
}

func (m *Machine) level(priority int) int {
	switch {
	case m.config.Type == Quorum:
		if priority < 0 {
			return quorumDefault
		}
		return min(priority, quorumLevels-1)
	case len(m.lanes) == 1 || priority < 0:
		return 0
	}
	return min(priority, len(m.lanes)-1)
}

func (m *Machine) lane(level int) *lane {
	l := m.lanes[level]
	if l == nil {
		l = &lane{}
		m.lanes[level] = l
	}
	return l
}

// find returns the live entry of id; the page is nil if there is none.
func (m *Machine) find(id ID) (*page, uint) {
	if id.Lane() >= len(m.lanes) || m.lanes[id.Lane()] == nil {
		return nil, 0
	}
	return m.at(m.lanes[id.Lane()], id.Lane(), id.Seq())
}

// sideOf returns the entry's side row to be changed, making one if need be.
func (m *Machine) sideOf(p *page, i uint) *side {
	m.touchEntry(p, i)
	return m.rowOf(p, i)
}

func (m *Machine) rowOf(p *page, i uint) *side {
	m.pages.need(p, &p.rows)
	row := &p.rows[p.at(i)]
	if *row == 0 {
		*row = m.sides.take()
	}
	return m.sides.at(*row)
}

// peekSide returns the entry's side row, nil if it has none.
func (m *Machine) peekSide(p *page, i uint) *side {
	if p.rows == nil {
		return nil
	}
	if row := p.rows[p.at(i)]; row != 0 {
		return m.sides.at(row)
	}
	return nil
}

// dropSide gives the entry's side row back.
func (m *Machine) dropSide(p *page, i uint) {
	if p.rows == nil {
		return
	}
	if row := &p.rows[p.at(i)]; *row != 0 {
		m.sides.give(*row)
		*row = 0
	}
}

// counts returns what is counted about the entry, to be changed.
func (m *Machine) counts(p *page, i uint) *Counts {
	m.touchEntry(p, i)
	p.altered()
	m.pages.needCounts(p)
	return &p.counts[p.at(i)]
}

// setOwner notes who has the entry, 0 being basic.get.
func (m *Machine) setOwner(p *page, i uint, slot uint32) {
	if p.owners == nil {
		m.pages.need(p, &p.owners)
	}
	p.owners[p.at(i)] = slot
}

// tally moves the entry's weight in the totals.
func (m *Machine) tally(state uint8, n int, bytes int64) {
	switch state {
	case stateReady:
		m.n.Ready += n
		m.n.ReadyBytes += bytes
	case stateReturned:
		m.n.Ready += n
		m.n.ReadyBytes += bytes
		m.n.Returned += n
	case stateOut:
		m.n.Out += n
		m.n.OutBytes += bytes
	case stateDelayed:
		m.n.Delayed += n
		m.n.DelayedBytes += bytes
	case stateDying:
		m.n.Dying += n
		m.n.DyingBytes += bytes
	case stateHeld:
		m.n.Held += n
		m.n.HeldBytes += bytes
	case stateOffered:
		m.n.Offered += n
		m.n.OfferedBytes += bytes
	}
}

// setState moves an entry from its state to another.
func (m *Machine) setState(id ID, p *page, i uint, to uint8) {
	m.touchEntry(p, i)
	j := p.at(i)
	from, size := p.marks[j]&stateMask, int64(p.sizes[j])
	if from != stateReady || to != stateDying || m.pages.Exact { // else it is saved as ready (kept)
		p.altered()
	}
	m.tally(from, -1, -size)
	m.tally(to, 1, size)
	p.marks[j] = p.marks[j]&^stateMask | to
	if from == stateReturned {
		m.unlist(id)
	}
	l := m.lanes[id.Lane()]
	if from == stateReady {
		p.ready.clear(i)
		if l.ready--; l.ready == 0 {
			m.filled[id.Lane()>>6] &^= 1 << (id.Lane() & 63)
		}
	}
	if to == stateReady {
		p.ready.set(i)
		l.ready++
		m.filled[id.Lane()>>6] |= 1 << (id.Lane() & 63)
		l.head = min(l.head, id.Seq())
	}
}

// enter makes an entry, in the state given, and returns its ID.
func (m *Machine) enter(level int, seq uint64, e *Entry, state uint8, due int64) (ID, *page, uint) {
	m.touchMeta()
	l := m.lane(level)
	if seq == 0 {
		if l.next == 0 {
			l.next = 1 // so that no ID is 0
		}
		seq = l.next
	}
	l.next = max(l.next, seq+1)
	p, i := m.slotFor(l, level, seq)
	m.touch(p)
	p.altered()
	j := m.pages.admit(p, i)
	if !e.Body.OnDisk() && (p.cool || !p.fresh || e.Size > largeBody) {
		m.warmed(l, p, e.Size)
	}
	mark := uint8(stateMask) // none, until setState
	if e.Logged {
		mark |= flagLogged
		m.n.Persistent++
	}
	if e.Redelivered {
		mark |= flagRedelivered
	}
	p.refs[j], p.sizes[j], p.marks[j] = e.Body, e.Size, mark
	if e.History != 0 {
		m.pages.needHistories(p)
		p.histories[j] = e.History
	}
	if e.Counts != (Counts{}) {
		m.pages.needCounts(p)
		p.counts[j] = e.Counts
	}
	id := makeID(level, seq)
	if m.pages.Hash != nil && e.Logged {
		m.mixIn(1, id, e.Size, e.History)
	}
	m.setDue(id, p, i, due)
	m.setState(id, p, i, state)
	return id, p, i
}

// setDue sets the moment at which something happens to the entry; 0 = none.
func (m *Machine) setDue(id ID, p *page, i uint, due int64) {
	m.touch(p)
	p.altered()
	if due == 0 {
		if p.dues != nil {
			p.dues[p.at(i)] = 0
		}
		return
	}
	if p.dues == nil {
		m.pages.need(p, &p.dues)
		p.base = max(0, due-dueRoom)
	}
	if due <= p.base {
		m.rebase(p, max(0, due-dueRoom))
		m.noteAll(p)
	}
	m.tell(p, i, due)
	m.noteDue(p, p.dueAt(i))
}

// tell writes a moment after the page's base into the column; one too far for
// it stands in the side row and is looked at again when the column is due.
func (m *Machine) tell(p *page, i uint, due int64) {
	p.comes = 0
	off := due - p.base
	if off >= maxOffset {
		m.rowOf(p, i).far = due
		off = maxOffset
	}
	if off < 1 { // it has passed
		p.altered()
		off = 1
		if m.retains() && (p.base+off)&1 != due&1 {
			off = 2
		}
	}
	p.dues[p.at(i)] = uint32(off)
}

// rebase makes the page's column count from another moment.
func (m *Machine) rebase(p *page, base int64) {
	var dues [pageSize]int64
	for i := p.live.next(0); i < pageSize; i = p.live.next(i + 1) {
		dues[i] = m.due(p, i)
	}
	p.base = base
	for i, due := range dues {
		if due != 0 {
			m.tell(p, uint(i), due)
		}
	}
}

// noteDue sees to it that the moment, of an entry of p, is not missed.
func (m *Machine) noteDue(p *page, due int64) {
	if due < p.min {
		p.comes = 0
		m.lanes[p.level].remind(p, due)
		m.nextDue = min(m.nextDue, due)
	}
}

// due is the entry's moment; 0 = none.
func (m *Machine) due(p *page, i uint) int64 {
	told := p.dueAt(i)
	if told != 0 && told-p.base == maxOffset {
		if s := m.peekSide(p, i); s != nil {
			return s.far
		}
	}
	return told
}

// forget removes an entry and returns what it held; the references are the caller's.
func (m *Machine) forget(id ID, p *page, i uint) (body, history message.Ref, logged bool) {
	m.touchEntry(p, i)
	j := p.at(i)
	from := p.marks[j] & stateMask
	m.tally(from, -1, -int64(p.sizes[j]))
	l := m.lanes[id.Lane()]
	if from == stateReady {
		if l.ready--; l.ready == 0 {
			m.filled[id.Lane()>>6] &^= 1 << (id.Lane() & 63)
		}
	}
	switch from {
	case stateDying:
		delete(m.unread, id)
	case stateReturned:
		m.unlist(id)
	}
	body, logged = p.refs[j], p.marks[j]&flagLogged != 0
	if p.histories != nil {
		history = p.histories[j]
	}
	if logged {
		m.n.Persistent--
	}
	if p.rows != nil {
		m.dropSide(p, i)
	}
	if m.pages.Hash != nil && logged {
		m.mixIn(minus, id, p.sizes[j], history)
	}
	p.expel(i)
	m.freed(l, p)
	return body, history, logged
}

// remove is forget for an entry that leaves other than by its death.
func (m *Machine) remove(id ID, p *page, i uint) {
	body, history, logged := m.forget(id, p, i)
	m.sink.Removed(id, body, history, logged)
}

// ending is when what begins now and lasts ttl is over. now is a millisecond
// that has begun, so one more makes sure that it is never early.
func ending(now, ttl int64) int64 {
	return moment.After(now+1, ttl)
}

// Enqueue lets a message in: it may be refused, handed to a consumer that does
// not acknowledge, or stored. What follows from a stored one, deliveries and
// deaths, waits for Flow, so that the caller can log the entry first.
func (m *Machine) Enqueue(now int64, e *Entry) (ID, Result) {
	m.expire(now, sliceLimit)
	if m.full(e.Size) {
		if m.settings.Overflow == RejectPublishDLX && m.config.Type == Classic && m.settings.DeadLetter {
			id, p, i := m.enter(m.level(e.Priority), 0, e, stateReady, 0)
			m.die(now, id, p, i, deadletter.MaxLen, nil)
			m.sideOf(p, i).told = true // it was never in the queue but to die (DL-10.9)
			return id, RefusedDead
		}
		return 0, Refused
	}
	return m.admit(now, e)
}

// Force lets a dead letter in that a quorum queue must take even beyond its
// limit (DL-6.12); classic queues refuse it like any message.
func (m *Machine) Force(now int64, e *Entry) (ID, Result) {
	if m.config.Type == Classic {
		return m.Enqueue(now, e)
	}
	return m.Impose(now, e)
}

func (m *Machine) admit(now int64, e *Entry) (ID, Result) {
	ttl := e.TTL
	if m.settings.TTL >= 0 && (ttl < 0 || m.settings.TTL < ttl) {
		ttl = m.settings.TTL
	}
	if e.Rests {
		ttl = -1
	}
	if m.n.Ready == 0 && len(m.cs.list) > 0 && e.Delay <= 0 {
		if c := m.cs.nextNoAck(); c != nil {
			m.cs.touch(c)
			m.handing = Delivery{Body: e.Body, History: e.History, Counts: e.Counts, Size: e.Size, Redelivered: e.Redelivered && m.config.Type == Quorum, NoAck: true}
			c.credit--
			if !m.sink.Deliver(c, &m.handing) {
				c.paused = true
			}
			return 0, Delivered
		}
	}
	begin, due := now, int64(0)
	if e.Delay > 0 {
		begin = ending(now, e.Delay)
	}
	switch {
	case ttl == 0 && m.config.Type == Classic && e.Delay <= 0:
		m.instant = true // DL-8.7: now or never, and never after a crash
		due = now
	case ttl >= 0:
		due = ending(begin, max(ttl, 1)) // quorum queues take 0 for 1
	}
	due = m.limited(begin, due)
	if e.Redelivered && m.config.Type == Classic && m.n.Ready == 0 && m.cs.anyAble() {
		// RabbitMQ's classic queues hand it on before they look whether it had
		// been delivered elsewhere.
		fresh := *e
		fresh.Redelivered = false
		e = &fresh
	}
	id, p, i := m.enter(m.level(e.Priority), 0, e, stateReady, due)
	if e.Delay > 0 {
		m.hide(id, p, i, begin)
	}
	return id, Stored
}

// Flow does what follows from entries that Enqueue, Force or a Return made
// ready: deliveries, and deaths by the length limit. id is the entry last
// stored, 0 if none was.
func (m *Machine) Flow(now int64, id ID) {
	if m.instant {
		m.instant = false
		m.nowOrNever(now, id)
		return
	}
	if id == 0 && m.config.Type == Classic {
		m.Trim(now, sliceLimit) // what came back may be too much, whoever could take it (DL-10.6)
	}
	if len(m.cs.list) > 0 && m.n.Ready > 0 {
		m.Pump(now, sliceLimit)
	}
	m.Trim(now, sliceLimit)
	if m.config.Strict {
		m.expireHeads(now)
	}
}

// nowOrNever delivers an entry with a TTL of 0 if it is the next and somebody
// can take it; else it dies (DL-8.7).
func (m *Machine) nowOrNever(now int64, id ID) {
	p, i := m.find(id)
	if p == nil || p.state(i) != stateReady {
		return
	}
	if first, _, _, ok := m.first(); ok && first == id {
		c := m.cs.next()
		if c == nil && !m.cs.single {
			c = m.cs.turn() // it cannot wait for what is coming back meanwhile (Hush): it came before
		}
		if c != nil {
			m.give(now, id, p, i, c)
			return
		}
	}
	m.die(now, id, p, i, deadletter.Expired, nil)
}

// full says whether the message must be refused.
func (m *Machine) full(size uint32) bool {
	refuses, soft := m.refuses(0, 0, size)
	if soft {
		m.refusing = refuses
	}
	return refuses
}

// refuses says whether a message of that size must be refused if others are in the queue
// besides, and whether that is soft, so that it depends on what was refused before.
func (m *Machine) refuses(others, otherBytes int64, size uint32) (refuses, soft bool) {
	if m.drops() {
		return false, false
	}
	ready, bytes := m.counted()
	ready, bytes = ready+others, bytes+otherBytes
	if m.config.Type == Quorum && m.config.Strict {
		// Soft, as in DL-10.8: refusal begins once the queue is over its limit.
		over := m.settings.MaxLength >= 0 && ready > m.settings.MaxLength || m.settings.MaxBytes >= 0 && bytes > m.settings.MaxBytes
		under := (m.settings.MaxLength < 0 || ready <= most80(m.settings.MaxLength)) && (m.settings.MaxBytes < 0 || bytes <= most80(m.settings.MaxBytes))
		return over || m.refusing && !under, true
	}
	return m.settings.MaxLength >= 0 && ready+1 > m.settings.MaxLength ||
		m.settings.MaxBytes >= 0 && bytes+int64(size) > m.settings.MaxBytes, false
}

// most80 is 80 % of a limit, rounded down. Ten times a large one is more than an int64 holds.
func most80(limit int64) int64 { return limit/10*8 + limit%10*8/10 }

// Accepts says whether the queue has room for the message.
func (m *Machine) Accepts(size uint32) bool { return !m.full(size) }

// counted is what length limits look at (DL-10.1).
func (m *Machine) counted() (messages, bytes int64) {
	messages, bytes = int64(m.n.Ready+m.n.Offered), m.n.ReadyBytes+m.n.OfferedBytes
	if m.config.Type == Quorum {
		messages += int64(m.n.Delayed + m.n.Held)
		bytes += m.n.DelayedBytes + m.n.HeldBytes
	}
	return messages, bytes
}

func (m *Machine) over() bool {
	messages, bytes := m.counted()
	return m.settings.MaxLength >= 0 && messages > m.settings.MaxLength ||
		m.settings.MaxBytes >= 0 && bytes > m.settings.MaxBytes
}

// overLength is by how many messages the queue exceeds max-length.
func (m *Machine) overLength() int {
	if m.settings.MaxLength < 0 {
		return 0
	}
	messages, _ := m.counted()
	return int(max(0, messages-m.settings.MaxLength))
}

// Trim lets ready messages die until the queue is within its limits (DL-10.3),
// at most limit of them, and says whether there is more to do.
func (m *Machine) Trim(now int64, limit int) (more bool) {
	for n := 0; m.overflowing(); n++ {
		if n == limit {
			return true
		}
		id, p, i, ok := m.first()
		if !ok {
			return false
		}
		m.die(now, id, p, i, deadletter.MaxLen, nil)
	}
	return false
}

// overflowing says whether Trim has something to do.
func (m *Machine) overflowing() bool { return m.n.Ready > 0 && m.drops() && m.over() }

// drops says whether the queue drops its head when it is full (DL-3.7).
func (m *Machine) drops() bool {
	return m.settings.Overflow == DropHead || m.config.Type == Quorum && m.settings.Overflow == RejectPublishDLX
}

// first finds the entry that is delivered next: the oldest of the returns list,
// else the head of the highest level (BR-9.13, BR-11.1).
func (m *Machine) first() (ID, *page, uint, bool) {
	for len(m.returns) > 0 {
		if len(m.strays) == len(m.returns) && !m.ghosts {
			m.dropReturns() // very many may be left
			break
		}
		id := m.returns[0]
		if m.unstray(id) {
			m.returns = m.returns[1:]
			continue
		}
		if p, i := m.find(id); p != nil && p.state(i) == stateReturned {
			return id, p, i, true
		}
		m.returns = m.returns[1:] // a ghost
	}
	if level := m.highest(); level >= 0 {
		seq, p, i := m.firstReady(level)
		return makeID(level, seq), p, i, true
	}
	return 0, nil, 0, false
}

func (m *Machine) highest() int {
	for w := len(m.filled) - 1; w >= 0; w-- {
		if m.filled[w] != 0 {
			return w<<6 + 63 - bits.LeadingZeros64(m.filled[w])
		}
	}
	return -1
}

// handOut delivers the entry, which is in stateOut, to c, which wants to acknowledge it.
func (m *Machine) handOut(now int64, id ID, p *page, i uint, c *Consumer) {
	m.setOwner(p, i, c.slot)
	m.cs.touch(c)
	c.out++
	c.credit--
	if t := m.timeout(c); t > 0 {
		if len(c.outs) > 2*c.out+64 {
			m.compactOuts(c)
		}
		c.outs = append(c.outs, outstanding{id, m.returned(p, i), now})
		m.watch = min(m.watch, moment.After(now, t))
	}
	m.handing.fill(id, p, i)
	p.marks[p.at(i)] |= flagRedelivered
	if !m.sink.Deliver(c, &m.handing) {
		c.paused = true
	}
}

// fill makes d the delivery of the entry.
func (d *Delivery) fill(id ID, p *page, i uint) {
	j := p.at(i)
	mark := p.marks[j]
	d.ID, d.Body, d.Size, d.NoAck = id, p.refs[j], p.sizes[j], false
	d.Redelivered, d.Logged = mark&flagRedelivered != 0, mark&flagLogged != 0
	d.History, d.Counts = 0, Counts{}
	if p.histories != nil {
		d.History = p.histories[j]
	}
	if p.counts != nil {
		d.Counts = p.counts[j]
	}
}

// Pump delivers ready messages to consumers that can take them, at most limit,
// and says whether there may be more to do.
func (m *Machine) Pump(now int64, limit int) (more bool) {
	m.busy = false
	for n := 0; m.n.Ready > 0 && len(m.cs.list) > 0; n++ {
		if n == limit {
			m.busy = true
			return true
		}
		id, p, i, ok := m.first()
		if !ok {
			return false
		}
		if due := m.due(p, i); due != 0 && due <= now {
			m.lapse(now, id, p, i) // DL-8.8
			continue
		}
		c := m.cs.next()
		if c == nil {
			return false
		}
		m.give(now, id, p, i, c)
	}
	return false
}

// give delivers an entry that is deliverable to c.
func (m *Machine) give(now int64, id ID, p *page, i uint, c *Consumer) {
	if c.NoAck {
		m.handing.fill(id, p, i)
		m.handing.NoAck = true
		m.forget(id, p, i)
		m.cs.touch(c)
		c.credit--
		if !m.sink.Deliver(c, &m.handing) {
			c.paused = true
		}
		return
	}
	m.setState(id, p, i, stateOut)
	m.handOut(now, id, p, i, c)
}

// Get takes the next message for basic.get (BR-9.10). With noAck the references
// in the delivery pass to the caller; else they are the machine's.
func (m *Machine) Get(now int64, noAck bool) (d Delivery, ok bool) {
	for again := true; again; {
		d, ok, again = m.GetFor(now, nil, noAck)
	}
	return d, ok
}

// GetFor is Get by c, which is not attached: it only holds what it has got. c is
// nil if nobody needs to know who that is. It lets only about a slice of what is due die: again says that
// more comes before what there may be to get, and that the caller is to ask once more, with others in between.
func (m *Machine) GetFor(now int64, c *Consumer, noAck bool) (d Delivery, ok, again bool) {
	m.lastUse = now
	limit := sliceLimit
	if m.pages.AllHeads {
		limit = math.MaxInt
	}
	more := m.expire(now, limit)
	id, p, i, ok := m.first()
	for ; ok && m.due(p, i) != 0 && m.due(p, i) <= now; id, p, i, ok = m.first() {
		if limit--; limit < 0 {
			return Delivery{}, false, true
		}
		m.lapse(now, id, p, i)
	}
	if !ok {
		return Delivery{}, false, more // what is due may be what has waited
	}
	d.fill(id, p, i)
	if d.NoAck = noAck; noAck {
		m.forget(id, p, i)
		return d, true, false
	}
	m.setState(id, p, i, stateOut)
	m.setOwner(p, i, 0)
	if c != nil {
		m.cs.seat(c)
		c.gone, c.out, d.By = true, 1, c
		m.setOwner(p, i, c.slot)
	}
	p.marks[p.at(i)] |= flagRedelivered
	return d, true, false
}

// taken finds an entry that is out at c, nil meaning basic.get, and gives its
// credit back. If the timeout took it back meanwhile, it notes that the client
// has settled it.
func (m *Machine) taken(id ID, c *Consumer) (*page, uint) {
	p, i := m.find(id)
	var slot uint32
	if c != nil {
		slot = c.slot
	}
	if p == nil || p.state(i) != stateOut || p.owner(i) != slot || c != nil && slot == 0 {
		if c != nil && c.stale > 0 {
			m.cs.touch(c)
			c.stale--
			m.cs.awake(c)
		}
		return nil, 0
	}
	if c != nil {
		m.cs.touch(c)
		c.out--
		m.cs.credited(c)
		m.cs.forget(c)
	}
	return p, i
}

// Ack settles a delivery: the message leaves the queue.
func (m *Machine) Ack(id ID, c *Consumer) bool {
	p, i := m.taken(id, c)
	if p == nil {
		return false
	}
	m.remove(id, p, i)
	return true
}

// Reject settles a delivery: the message dies (DL-1.2). failed says that it
// counts as a failed delivery, as basic.reject does and basic.nack does not (DL-11.3).
func (m *Machine) Reject(now int64, id ID, c *Consumer, failed bool) bool {
	p, i := m.taken(id, c)
	if p == nil {
		return false
	}
	if failed {
		m.counts(p, i).Deliveries++
	}
	m.dieOf(now, id, p, i, m.settings.Rules.Rejection(!failed), c, failed)
	return true
}

// ReturnKind is how a delivery came back.
type ReturnKind uint8

// The kinds, with what they count as (DL-11.3).
const (
	ReturnNack     ReturnKind = iota // basic.nack with requeue
	ReturnReject                     // basic.reject with requeue
	ReturnRecover                    // basic.recover
	ReturnClosed                     // the channel or the connection ended
	ReturnTimeout                    // the consumer timeout
	ReturnReleased                   // AMQP 1.0 released, or modified without delivery-failed
	ReturnFailed                     // AMQP 1.0 modified with delivery-failed
	returnRestart                    // the node ended; nobody knows who had it
)

// failed says whether a delivery to c that comes back so counts as a failed one (DL-11.3); where every return does,
// those of basic.get do not (DL-22.1).
func (m *Machine) failed(c *Consumer, k ReturnKind) bool {
	if m.settings.Rules.CountReturns() {
		return k == returnRestart || c != nil && !c.got()
	}
	return k == ReturnReject || k == ReturnClosed || k == returnRestart || k == ReturnFailed || m.config.CountNack && k == ReturnNack
}

// limits says whether the queue has a delivery limit and a consumer timeout: quorum queues have, and all where the
// rules say so (DL-22.1).
func (m *Machine) limits() bool { return m.config.Type == Quorum || m.settings.Rules.CountReturns() }

// returned counts how often the entry has come back; the number tells its deliveries from each other. Classic queues
// count failures only, and have use for the number only where all returns are.
func (m *Machine) returned(p *page, i uint) uint32 {
	if m.config.Type == Quorum {
		return p.countsOf(i).Acquired
	}
	return p.countsOf(i).Deliveries
}

// Return gives a delivery back to the queue. It may become ready, wait (DL-12.2),
// or die because it was delivered too often (DL-11.4) or its time is over (DL-8.5).
func (m *Machine) Return(now int64, id ID, c *Consumer, kind ReturnKind) bool {
	p, i := m.taken(id, c)
	if p == nil {
		return false
	}
	m.giveBack(now, id, p, i, c, kind)
	return true
}

func (m *Machine) giveBack(now int64, id ID, p *page, i uint, c *Consumer, kind ReturnKind) {
	failed := m.failed(c, kind)
	counted := m.config.Type == Quorum || m.retries(failed)
	var counts Counts
	if m.settings.Rules.CountReturns() {
		counts = p.countsOf(i)
	}
	if counted || failed {
		n := m.counts(p, i)
		if counted {
			n.Acquired++
		}
		if failed {
			n.Deliveries++ // classic queues only hand it on (DL-6.14)
		}
		counts = *n
	}
	if m.limits() && m.settings.DeliveryLimit >= 0 && int64(counts.Deliveries) > m.settings.DeliveryLimit {
		m.dieOf(now, id, p, i, deadletter.DeliveryLimit, c, failed)
		return
	}
	if m.retries(failed) {
		m.delay(id, p, i, ending(now, m.settings.Retry.wait(id, counts)), counts)
		return
	}
	if m.comeBack(now, id, p, i) && p.logged(i) {
		m.sink.Returned(id, counts, 0)
	}
}

// retries says whether a delivery that comes back so is to wait (DL-12.3).
func (m *Machine) retries(failed bool) bool {
	r := &m.settings.Retry
	return r.Min > 0 && (r.Type == RetryAll || r.Type == RetryFailed && failed || r.Type == RetryReturned && !failed)
}

// delay hides the entry until the moment given. Its TTL's moment stands in the
// side row meanwhile (DL-12.4).
func (m *Machine) delay(id ID, p *page, i uint, until int64, counts Counts) {
	m.hide(id, p, i, until)
	if p.logged(i) {
		m.sink.Returned(id, counts, until)
	}
}

// hide makes the entry wait until the moment given.
func (m *Machine) hide(id ID, p *page, i uint, until int64) {
	m.sideOf(p, i).ttl = m.due(p, i)
	m.setState(id, p, i, stateDelayed)
	m.setDue(id, p, i, until)
}

// unhide ends an entry's wait: its column tells the TTL's moment again. The
// caller gives it another state.
func (m *Machine) unhide(id ID, p *page, i uint) {
	s := m.sideOf(p, i)
	ttl := s.ttl
	s.ttl = 0
	m.setDue(id, p, i, ttl)
}

// comeBack makes the entry deliverable again: classic queues return it to its
// place, quorum queues to the returns list (BR-9.13), unless it only waited for
// its first delivery. If its time is over it dies instead, and comeBack returns false.
func (m *Machine) comeBack(now int64, id ID, p *page, i uint) bool {
	if due := m.due(p, i); due != 0 {
		if due <= now {
			m.lapse(now, id, p, i)
			return false
		}
		m.noteDue(p, p.dueAt(i))
	}
	if m.config.Type == Quorum && p.redelivered(i) {
		m.touchMeta()
		m.returns = append(m.returns, id)
		m.setState(id, p, i, stateReturned)
	} else {
		m.setState(id, p, i, stateReady)
	}
	return true
}

// wait is how long a message with these counts waits, in milliseconds (DL-12.2).
func (r *Retry) wait(id ID, n Counts) int64 {
	times := max(1, int64(n.Deliveries))
	most := max(r.Max, r.Min)
	if r.Max == 0 && r.Multiplier > 1 {
		most = math.MaxInt32 // no limit was asked for; 24 days is one
	}
	var ms int64
	if r.Multiplier > 1 {
		ms = min(moment.Scale(r.Min, math.Pow(r.Multiplier, float64(times-1))), most)
	} else {
		ms = min(moment.Times(r.Min, times), most)
	}
	if r.Jitter > 0 {
		// Chance, but the same on every replica: a hash of the entry and its count.
		h := (uint64(id) + uint64(n.Acquired)<<40 + 1) * 0x9E3779B97F4A7C15
		h ^= h >> 29
		unit := float64(h>>11)/(1<<53)*2 - 1
		ms = max(1, moment.Scale(ms, 1+r.Jitter*unit))
	}
	return ms
}
