// Package routing holds the exchange types: given an exchange's bindings and a message, which destinations match.
//
// A Table is the bindings of one exchange, built for matching. Tables are owned and changed by topology, under its
// lock; Route only reads, so any number of publishers may call it at once. The package does not know vhosts,
// names of exchanges, alternate exchanges or hops from exchange to exchange: a Destination is opaque to it, and
// who follows destinations and removes duplicates is topology.
package routing

import (
	"fmt"
	"slices"

	"bartleby.mq/internal/wire/amqp091"
)

// Kind is the name of an exchange type as it stands in exchange.declare.
type Kind string

// The exchange types (BR-5.2).
const (
	Direct         Kind = "direct"
	Fanout         Kind = "fanout"
	Topic          Kind = "topic"
	Headers        Kind = "headers"
	ConsistentHash Kind = "x-consistent-hash"
	ModulusHash    Kind = "x-modulus-hash"
	LocalRandom    Kind = "x-local-random"
	Random         Kind = "x-random"
)

// Kinds returns every exchange type, in the order of their names.
func Kinds() []Kind {
	return []Kind{Direct, Fanout, Headers, Topic, ConsistentHash, Delayed, LocalRandom, ModulusHash, Random}
}

// Destination is what a binding leads to. Topology puts pointers in it; the package only copies them.
type Destination any

// Binding is one rule of an exchange. It must not change while it is in a Table.
type Binding struct {
	Destination Destination
	// Name is the destination's kind and name. It places the destination in hashes, so that they come out the same
	// after a restart, whatever the addresses are.
	Name string
	// QueueType is RabbitMQ's module name of the destination's queue type; "" when the destination is an exchange.
	QueueType string
	Key       string
	Arguments amqp091.Table
}

// Message is what exchanges look at. All slices alias the caller's buffers and are only read. It belongs to one goroutine,
// and does not change once it has been routed: what was found out about it is kept in it.
type Message struct {
	Key     []byte   // the first routing key
	More    [][]byte // the keys of CC and BCC, as often as they were given: what hashes keys looks at all of them
	Headers []byte   // content of the header table; nil if the message has none
	// Extra are headers that stand before equally named ones in Headers: those a death has just written (DL-6.8).
	Extra         []amqp091.RawField
	MessageID     []byte
	CorrelationID []byte
	Timestamp     uint64 // seconds; meaningful if HasTimestamp
	HasTimestamp  bool
	// Waited says that an exchange has delayed the message already: none does again.
	Waited bool
	// Chance is a random number for the types that draw lots. The core has no random source of its own.
	Chance uint64
	// Pause, if it is not nil, is called when much has been looked at, so that whoever has locked the tables may let others
	// in. Of what they change meanwhile some holds for this message, and some does not; what they leave as it is all does.
	Pause func()

	looked int // since the last pause: see Rest

	kept  [][]byte  // see distinct; nil until it is asked for
	words *keyWords // of many keys, once a topic exchange has looked at them
	// many are the headers if they are more than fewHeaders and have been looked at, and first where the first of each
	// name stands among them.
	many  []rawHeader
	first map[string]int
	// forms are those of the headers that are arrays or tables and have been compared with one, by name; see comparableForm.
	forms map[string][]byte
}

// pauseAfter is how much is looked at before others are let in, some milliseconds: a message may have thousands of keys or
// headers, and an exchange tens of thousands of bindings that each of them nearly matches.
const pauseAfter = 1 << 14

// Rest notes that n bindings, or parts of them, have been looked at. REQUIRES: no place in a table is held that
// a change of it could move.
func (m *Message) Rest(n int) {
	if m.looked += n; m.looked >= pauseAfter && m.Pause != nil {
		m.looked = 0
		m.Pause()
	}
}

// Table is the bindings of one exchange.
type Table interface {
	// Check says whether the binding is allowed here; the error is RabbitMQ's text.
	Check(b *Binding) error
	// Add puts the binding in. REQUIRES: Check passed, and b is not in the table.
	Add(b *Binding)
	// Remove takes the binding out. REQUIRES: b, the same pointer, is in the table.
	Remove(b *Binding)
	// Route appends the destinations of the message to dst. A destination may come more than once.
	Route(dst []Destination, m *Message) []Destination
}

// New returns an empty table for an exchange of a type, declared with args. An error is RabbitMQ's text for arguments
// that the type refuses, or for a kind there is not (BR-5.5).
func New(kind Kind, args amqp091.Table) (Table, error) {
	kind, err := Acts(kind, args)
	if err != nil {
		return nil, err
	}
	switch kind {
	case Direct:
		return newDirect(), nil
	case Fanout:
		return &fanout{}, nil
	case Topic:
		return &topic{}, nil
	case Headers:
		return &headers{}, nil
	case ConsistentHash:
		return newConsistentHash(args)
	case ModulusHash:
		return &modulusHash{}, nil
	case LocalRandom:
		return &localRandom{}, nil
	case Random:
		return &random{}, nil
	}
	return nil, noKind(kind)
}

// Check says whether there is an exchange type of that name, whatever arguments it needs. A strict broker has none that RabbitMQ
// has by a plugin of its own only.
func Check(kind Kind, strict bool) error {
	if slices.Contains(Kinds(), kind) && (kind != Delayed || !strict) {
		return nil
	}
	return noKind(kind)
}

func noKind(kind Kind) error {
	if knownWord(kind) {
		return fmt.Errorf("invalid exchange type '%s'", kind)
	}
	return fmt.Errorf("unknown exchange type '%s'", kind)
}

// knownWord tells words that RabbitMQ knows from elsewhere, and so calls invalid: names in its registry, and words that occur in the
// code of a node that has just started.
func knownWord(kind Kind) bool {
	switch kind {
	case "classic", "quorum", "stream", "policy", "operator_policy", "vhost-limits",
		"", "any", "bad", "badtype", "bar", "default", "delayed", "dummy", "exchange", "federation", "foo", "hash", "illegal", "invalid", "invalid_type",
		"missing", "mqtt", "none", "nothing", "null", "other", "queue", "random", "test", "true", "undefined", "unknown", "unsupported", "x",
		"x-jms-topic":
		return true
	}
	return false
}
