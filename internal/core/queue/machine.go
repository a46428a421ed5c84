// Package queue is one queue as a deterministic machine. Commands go in, each with the present moment as an argument.
// Effects come out, through a Sink.
//
// It owns the rules: admission, limits, delivery, credit, settlement, retries, expiry, deaths, consumers. Package
// index keeps the entries in their order and their pages; a Machine embeds one index.
//
// Package partition calls it. A partition guards its machines with a lock, gives them the time, writes to the log
// what has happened, and routes the dead.
//
// The machine never starts a goroutine, reads a clock or writes to a disk. It knows no connections and no exchanges.
//
// A message in a queue is an entry. An entry is in one of these states (index.Ready and so on): ready, returned, out,
// delayed, dying, held, offered. It ends when it is acknowledged, purged, moved by its death, dropped because there
// is no dead-letter exchange, replayed elsewhere, or set aside.
package queue

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue/index"
)

// Sink receives the effects of a machine, in order. Its methods must not call the machine.
type Sink interface {
	index.Sink
	// Deliver hands a message to a consumer. If d.NoAck is set, the references to the message and its history now
	// belong to the sink. Otherwise they stay the machine's, and a sink that keeps the message beyond the call takes
	// references of its own. d is valid only during the call. Deliver returns false if the consumer can take no more
	// for now; the machine then pauses the consumer until Resume.
	Deliver(c *Consumer, d *Delivery) (more bool)
	// Died is called for each death. If routed is true, the entry waits to be routed (Deaths). If it is false, there
	// is no dead-letter exchange; the entry is gone, and Removed follows.
	Died(reason deadletter.Reason, routed bool)
	// Returned is called for each logged entry that came back. notBefore is the moment at which its wait ends, 0 if
	// it is ready.
	Returned(id ID, r Counts, notBefore int64)
	// TimedOut is called for a consumer that left n deliveries unsettled for too long. They are back in the queue
	// (DL-12.7). If taking them back needs several calls of Tick, TimedOut is called once, in the last one. n is 0
	// for a consumer that needs no notice, but that holds nothing any longer and can be forgotten (Consumer.Idle).
	TimedOut(c *Consumer, n int)
	// TookBack is called for each delivery that the consumer timeout has taken back from c, before TimedOut.
	TookBack(c *Consumer, id ID)
	// Active is called when a consumer of a quorum queue with a single active consumer has become the active one, or is it no
	// longer though it is still attached (BR-9.5). The new one is told first. It may be told again what it knows. ready is how many messages there are for it.
	Active(c *Consumer, active bool, ready int)
	// Broke is called when the breaker has opened or closed; b shows it as it is now.
	Broke(change BreakerChange, b Broken)
}

// ID names an entry.
type ID = index.ID

// Content is what every entry has, in whatever state it is.
type Content = index.Content

// Cursor is a place between two entries.
type Cursor = index.Cursor

// ParseCursor reads what Cursor.Append wrote.
func ParseCursor(b []byte) (Cursor, error) { return index.ParseCursor(b) }

// Counts are the counters of one entry.
type Counts = index.Counts

// Totals are the counters of all entries of a queue.
type Totals = index.Totals

// Pages is what the queues of one partition share: the memory of their pages.
type Pages = index.Pages

// Machine is one queue. The zero value is not ready; use New.
type Machine struct {
	index.Index
	config   Config
	settings Settings
	sink     Sink
	pages    *Pages

	rests uint32 // number of calls of KeepRest
	cs    consumers

	dying    []dying       // entries in index.Dying, in the order of their deaths; some may be gone
	unread   map[ID]unread // entries in index.Dying that cannot be routed for now (Spoil)
	died     uint64        // number of entries that ever entered dying, in this process
	timeouts uint64        // deliveries taken back by the consumer timeout, in this process
	refusing bool          // quorum: over the limit, until 80 % (DL-10.8)
	born     int64         // when the queue was made, or its node started
	lastUse  int64

	breaker *breaker // nil if the settings have none

	watch   int64 // no later than the first consumer timeout
	busy    bool  // Pump stopped at its limit, or a delayed entry has become ready since
	instant bool  // the entry just stored has a TTL of 0

	handing Delivery // the delivery that the sink is being given; here so that none is allocated
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
	m.Index = index.New(pages, sink, index.Terms{Levels: levels, Durable: config.Durable, Strict: config.Strict})
	m.set(settings)
	m.cs.of, m.cs.single, m.cs.quorum = m, config.SingleActive, config.Type == Quorum
	return m
}

// set puts settings in force.
func (m *Machine) set(s Settings) {
	m.settings = s
	m.Terms.Routes, m.Terms.Marked = s.DeadLetter, s.Rules.Limited()
	m.setBreaker(s.Breaker)
}

// Config returns what the queue was made with.
func (m *Machine) Config() Config { return m.config }

// Settings returns the settings in force.
func (m *Machine) Settings() Settings { return m.settings }

// Rules returns the rules in force. The caller must not change them.
func (m *Machine) Rules() *deadletter.Rules { return &m.settings.Rules }

// Totals returns the counters. While a trim of many messages is under way, they already count the ready messages
// beyond the limit as dying.
func (m *Machine) Totals() Totals {
	t := m.Count
	if over := m.overLength(); over > 0 && m.drops() {
		over = min(over, t.Ready)
		t.Ready -= over
		t.Dying += over
	}
	return t
}
