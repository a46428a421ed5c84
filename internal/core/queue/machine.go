// Package queue is one queue as a deterministic machine: commands with the
// present moment as an argument go in, effects come out.
//
// It owns the rules: admission, order, credit, limits, expiry, retries, deaths, consumers. Where the entries stand is
// the index's (package index), which a Machine has as a part: what concerns pages alone is called there through it.
//
// Package partition calls it: it guards a machine, tells it the time, writes what has happened to the log and routes
// the dead.
//
// It never starts a goroutine, looks at a clock or writes to a disk, and knows no connections and exchanges.
//
// A message in a queue is an entry. An entry is ready, returned, out, delayed,
// dying, held or offered (index.Ready and so on) until it is gone: acknowledged, purged, or moved by
// its death.
package queue

import (
	"cmp"
	"math"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue/index"
)

// Sink takes the effects of a machine, in order. Its methods must not call the machine.
type Sink interface {
	index.Sink
	// Deliver hands a message to a consumer. The delivery's references to the
	// message and its history pass to the sink if d.NoAck; else they are the
	// machine's, and the sink takes its own if it keeps the message beyond the
	// call. d itself is valid during the call only. It returns false if the consumer can take no more for now: the
	// machine pauses it until Resume.
	Deliver(c *Consumer, d *Delivery) (more bool)
	// Died is called for each death: routed says whether the entry now waits to be
	// routed (Deaths) or is gone because there is no dead-letter exchange; in
	// that case Removed follows.
	Died(reason deadletter.Reason, routed bool)
	// Returned is called for each logged entry that came back; notBefore is when
	// its wait ends, 0 if it is ready.
	Returned(id ID, r Counts, notBefore int64)
	// TimedOut is called for a consumer that left n deliveries unsettled for too
	// long; they are back in the queue (DL-12.7). Where that took several calls of
	// Tick, it is called once, in the last of them. n is 0 where it need not be told, and
	// is nobody any more (Consumer.Idle).
	TimedOut(c *Consumer, n int)
}

// ID names an entry.
type ID = index.ID

// Content is what an entry is, whatever state it is in.
type Content = index.Content

// Cursor is a place between two entries.
type Cursor = index.Cursor

// Counts are what is counted about an entry.
type Counts = index.Counts

// Totals are what is counted about all entries.
type Totals = index.Totals

// Pages is what the queues of one partition share: the pages, and which rules of earlier releases hold.
type Pages struct {
	index.Pages
	// AllHeads has all expired heads of a strict quorum queue die at once, and for a get all that is due, as earlier
	// releases had it: what they have decided is decided again in the same way.
	AllHeads bool
	// AllTimeouts has Tick take back all deliveries at once that consumers left unsettled for too long, likewise.
	AllTimeouts bool
	// StaleActive has a single active consumer stay active that has let deliveries time out, likewise.
	StaleActive bool
}

// Delivery is a message on its way to a consumer, or to basic.get.
type Delivery struct {
	ID ID // 0 if the message never was an entry
	Content
	NoAck bool
	By    *Consumer // who got it by GetFor and did not acknowledge at once
}

// Entry is a message that enters a queue.
type Entry struct {
	Content
	Priority int   // the message's property; -1 if it has none
	TTL      int64 // the message's own, in milliseconds; -1 = none
	Delay    int64 // milliseconds before it may be delivered, and its TTL begins (DL-22.12)
	Rests    bool  // it has no TTL here, its own or the queue's (DL-22.8)

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
	index.Index
	config   Config
	settings Settings
	sink     Sink
	pages    *Pages

	rests uint32 // how often KeepRest was called
	cs    consumers

	dying    []dying       // entries in index.Dying, in the order of their deaths; some may be gone
	unread   map[ID]unread // of the entries in index.Dying, those that are not to be routed
	died     uint64        // how many have ever been among these, in this process
	timeouts uint64        // deliveries taken back by the consumer timeout, in this process
	refusing bool          // quorum: over the limit, until 80 % (DL-10.8)
	born     int64         // when it was made, or its node started
	lastUse  int64

	watch   int64 // not later than the first consumer timeout
	busy    bool  // the last Pump stopped at its limit, or something that waited has become ready since
	instant bool  // the entry just stored has a TTL of 0

	handing Delivery // the one the sink is being handed, here so that none is allocated
}

// New returns an empty queue. now is in milliseconds since 1970, as everywhere.
func New(config Config, settings Settings, pages *Pages, sink Sink, now int64) *Machine {
	levels := 1
	switch {
	case config.Type == Quorum:
		levels = quorumLevels
	case config.MaxPriority >= 0:
		levels = max(1, config.MaxPriority) + 1
	}
	m := &Machine{config: config, sink: sink, pages: pages, born: now, lastUse: now, watch: never}
	m.Index = index.New(&pages.Pages, sink, index.Terms{Levels: levels, Durable: config.Durable, Strict: config.Strict})
	m.set(settings)
	m.cs.pages, m.cs.single, m.cs.quorum = pages, config.SingleActive, config.Type == Quorum
	return m
}

// set puts settings in force.
func (m *Machine) set(s Settings) {
	m.settings = s
	m.Terms.Routes, m.Terms.Parity = s.DeadLetter, s.Rules.Limited()
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
	t := m.Count
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

func (m *Machine) level(priority int) int {
	switch {
	case m.config.Type == Quorum:
		if priority < 0 {
			return quorumDefault
		}
		return min(priority, quorumLevels-1)
	case m.Terms.Levels == 1 || priority < 0:
		return 0
	}
	return min(priority, m.Terms.Levels-1)
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
			id, p := m.enter(0, e, 0)
			m.die(now, id, p, deadletter.MaxLen, nil)
			m.SideOf(p).Told = true // it was never in the queue but to die (DL-10.9)
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

// enter makes an entry of a message: with the ID given, or as the last of its level.
func (m *Machine) enter(id ID, e *Entry, due int64) (ID, index.Place) {
	level := id.Lane()
	if id == 0 {
		level = m.level(e.Priority)
	}
	return m.Enter(level, id.Seq(), &e.Content, due)
}

func (m *Machine) admit(now int64, e *Entry) (ID, Result) {
	ttl := e.TTL
	if m.settings.TTL >= 0 && (ttl < 0 || m.settings.TTL < ttl) {
		ttl = m.settings.TTL
	}
	if e.Rests {
		ttl = -1
	}
	if m.Count.Ready == 0 && len(m.cs.list) > 0 && e.Delay <= 0 {
		if c := m.cs.nextNoAck(); c != nil {
			m.cs.touch(c)
			m.handing = Delivery{Content: e.Content, NoAck: true}
			m.handing.Logged, m.handing.Redelivered = false, e.Redelivered && m.config.Type == Quorum
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
	if e.Redelivered && m.config.Type == Classic && m.Count.Ready == 0 && m.cs.anyAble() {
		// RabbitMQ's classic queues hand it on before they look whether it had
		// been delivered elsewhere.
		fresh := *e
		fresh.Redelivered = false
		e = &fresh
	}
	id, p := m.enter(0, e, due)
	if e.Delay > 0 {
		m.hide(id, p, begin)
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
	if len(m.cs.list) > 0 && m.Count.Ready > 0 {
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
	p := m.Find(id)
	if !p.In(index.Ready) {
		return
	}
	if first, _, ok := m.First(); ok && first == id {
		c := m.cs.next()
		if c == nil && !m.cs.single {
			c = m.cs.turn() // it cannot wait for what is coming back meanwhile (Hush): it came before
		}
		if c != nil {
			m.give(now, id, p, c)
			return
		}
	}
	m.die(now, id, p, deadletter.Expired, nil)
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
	messages, bytes = int64(m.Count.Ready+m.Count.Offered), m.Count.ReadyBytes+m.Count.OfferedBytes
	if m.config.Type == Quorum {
		messages += int64(m.Count.Delayed + m.Count.Held)
		bytes += m.Count.DelayedBytes + m.Count.HeldBytes
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
		id, p, ok := m.First()
		if !ok {
			return false
		}
		m.die(now, id, p, deadletter.MaxLen, nil)
	}
	return false
}

// overflowing says whether Trim has something to do.
func (m *Machine) overflowing() bool { return m.Count.Ready > 0 && m.drops() && m.over() }

// drops says whether the queue drops its head when it is full (DL-3.7).
func (m *Machine) drops() bool {
	return m.settings.Overflow == DropHead || m.config.Type == Quorum && m.settings.Overflow == RejectPublishDLX
}

// handOut delivers the entry, which is in index.Out, to c, which wants to acknowledge it.
func (m *Machine) handOut(now int64, id ID, p index.Place, c *Consumer) {
	m.GiveTo(p, c.slot)
	m.cs.touch(c)
	c.out++
	c.credit--
	if t := m.timeout(c); t > 0 {
		if len(c.outs) > 2*c.out+64 {
			m.compactOuts(c)
		}
		c.outs = append(c.outs, outstanding{id, m.returned(p), now})
		m.watch = min(m.watch, moment.After(now, t))
	}
	m.handing.fill(id, p)
	m.SetRedelivered(p)
	if !m.sink.Deliver(c, &m.handing) {
		c.paused = true
	}
}

// fill makes d the delivery of the entry.
func (d *Delivery) fill(id ID, p index.Place) {
	d.ID, d.NoAck = id, false
	p.Read(&d.Content)
}

// Pump delivers ready messages to consumers that can take them, at most limit,
// and says whether there may be more to do.
func (m *Machine) Pump(now int64, limit int) (more bool) {
	m.busy = false
	for n := 0; m.Count.Ready > 0 && len(m.cs.list) > 0; n++ {
		if n == limit {
			m.busy = true
			return true
		}
		id, p, ok := m.First()
		if !ok {
			return false
		}
		if due := m.Moment(p); due != 0 && due <= now {
			m.lapse(now, id, p) // DL-8.8
			continue
		}
		c := m.cs.next()
		if c == nil {
			return false
		}
		m.give(now, id, p, c)
	}
	return false
}

// give delivers an entry that is deliverable to c.
func (m *Machine) give(now int64, id ID, p index.Place, c *Consumer) {
	if c.NoAck {
		m.handing.fill(id, p)
		m.handing.NoAck = true
		m.Forget(id, p)
		m.cs.touch(c)
		c.credit--
		if !m.sink.Deliver(c, &m.handing) {
			c.paused = true
		}
		return
	}
	m.SetState(id, p, index.Out)
	m.handOut(now, id, p, c)
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
	id, p, ok := m.First()
	for ; ok && m.Moment(p) != 0 && m.Moment(p) <= now; id, p, ok = m.First() {
		if limit--; limit < 0 {
			return Delivery{}, false, true
		}
		m.lapse(now, id, p)
	}
	if !ok {
		return Delivery{}, false, more // what is due may be what has waited
	}
	d.fill(id, p)
	if d.NoAck = noAck; noAck {
		m.Forget(id, p)
		return d, true, false
	}
	m.SetState(id, p, index.Out)
	m.GiveTo(p, 0)
	if c != nil {
		m.cs.seat(c)
		c.gone, c.out, d.By = true, 1, c
		m.GiveTo(p, c.slot)
	}
	m.SetRedelivered(p)
	return d, true, false
}

// taken finds an entry that is out at c, nil meaning basic.get, and gives its
// credit back. If the timeout took it back meanwhile, it notes that the client
// has settled it.
func (m *Machine) taken(id ID, c *Consumer) index.Place {
	p := m.Find(id)
	var slot uint32
	if c != nil {
		slot = c.slot
	}
	if !p.There() || p.State() != index.Out || p.Owner() != slot || c != nil && slot == 0 {
		if c != nil && c.stale > 0 {
			m.cs.touch(c)
			c.stale--
			m.cs.awake(c)
		}
		return index.Place{}
	}
	if c != nil {
		m.cs.touch(c)
		c.out--
		m.cs.credited(c)
		m.cs.forget(c)
	}
	return p
}

// Ack settles a delivery: the message leaves the queue.
func (m *Machine) Ack(id ID, c *Consumer) bool {
	p := m.taken(id, c)
	if !p.There() {
		return false
	}
	m.Remove(id, p)
	return true
}

// Reject settles a delivery: the message dies (DL-1.2). failed says that it
// counts as a failed delivery, as basic.reject does and basic.nack does not (DL-11.3).
func (m *Machine) Reject(now int64, id ID, c *Consumer, failed bool) bool {
	p := m.taken(id, c)
	if !p.There() {
		return false
	}
	if failed {
		m.CountsOf(p).Deliveries++
	}
	m.dieOf(now, id, p, m.settings.Rules.Rejection(!failed), c, failed)
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
func (m *Machine) returned(p index.Place) uint32 {
	if m.config.Type == Quorum {
		return p.Counts().Acquired
	}
	return p.Counts().Deliveries
}

// Return gives a delivery back to the queue. It may become ready, wait (DL-12.2),
// or die because it was delivered too often (DL-11.4) or its time is over (DL-8.5).
func (m *Machine) Return(now int64, id ID, c *Consumer, kind ReturnKind) bool {
	p := m.taken(id, c)
	if !p.There() {
		return false
	}
	m.giveBack(now, id, p, c, kind)
	return true
}

func (m *Machine) giveBack(now int64, id ID, p index.Place, c *Consumer, kind ReturnKind) {
	failed := m.failed(c, kind)
	counted := m.config.Type == Quorum || m.retries(failed)
	var counts Counts
	if m.settings.Rules.CountReturns() {
		counts = p.Counts()
	}
	if counted || failed {
		n := m.CountsOf(p)
		if counted {
			n.Acquired++
		}
		if failed {
			n.Deliveries++ // classic queues only hand it on (DL-6.14)
		}
		counts = *n
	}
	if m.limits() && m.settings.DeliveryLimit >= 0 && int64(counts.Deliveries) > m.settings.DeliveryLimit {
		m.dieOf(now, id, p, deadletter.DeliveryLimit, c, failed)
		return
	}
	if m.retries(failed) {
		m.delay(id, p, ending(now, m.settings.Retry.wait(id, counts)), counts)
		return
	}
	if m.comeBack(now, id, p) && p.Logged() {
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
func (m *Machine) delay(id ID, p index.Place, until int64, counts Counts) {
	m.hide(id, p, until)
	if p.Logged() {
		m.sink.Returned(id, counts, until)
	}
}

// hide makes the entry wait until the moment given.
func (m *Machine) hide(id ID, p index.Place, until int64) {
	m.SideOf(p).TTL = m.Moment(p)
	m.SetState(id, p, index.Delayed)
	m.SetMoment(p, until)
}

// unhide ends an entry's wait: its column tells the TTL's moment again. The
// caller gives it another state.
func (m *Machine) unhide(id ID, p index.Place) {
	s := m.SideOf(p)
	ttl := s.TTL
	s.TTL = 0
	m.SetMoment(p, ttl)
}

// comeBack makes the entry deliverable again: classic queues return it to its
// place, quorum queues to the returns list (BR-9.13), unless it only waited for
// its first delivery. If its time is over it dies instead, and comeBack returns false.
func (m *Machine) comeBack(now int64, id ID, p index.Place) bool {
	if due := m.Moment(p); due != 0 {
		if due <= now {
			m.lapse(now, id, p)
			return false
		}
		m.Note(p)
	}
	if m.config.Type == Quorum && p.Redelivered() {
		m.SetState(id, p, index.Returned)
	} else {
		m.SetState(id, p, index.Ready)
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
