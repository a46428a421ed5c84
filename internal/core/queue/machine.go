// Package queue is one queue as a deterministic machine: commands with the
// present moment as an argument go in, effects come out.
//
// It owns the rules: admission, limits, delivery, credit, settlement, retries, expiry, deaths, consumers. Where the entries
// stand is the index's (package index), which a Machine has as a part: callers reach what concerns pages through the Machine.
//
// Package partition calls it: it guards a machine, tells it the time, writes what has happened to the log and routes
// the dead.
//
// It never starts a goroutine, looks at a clock or writes to a disk, and knows no connections and exchanges.
//
// A message in a queue is an entry. An entry is ready, returned, out, delayed,
// dying, held or offered (index.Ready and so on) until it is gone: acknowledged, purged, moved by
// its death, dropped where no dead-letter exchange is, replayed elsewhere, or set aside.
package queue

import (
	"bartleby.mq/internal/core/deadletter"
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
