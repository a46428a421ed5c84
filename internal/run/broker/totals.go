package broker

import "sync/atomic"

// Totals are counters of the node that no queue has.
type Totals struct {
	ConnectionsOpened, ConnectionsClosed      atomic.Uint64
	ChannelsOpened, ChannelsClosed            atomic.Uint64
	QueuesDeclared, QueuesCreated, QueuesGone atomic.Uint64
	DelayedDropped                            atomic.Uint64 // with their exchange, or by a purge of it
	// Settled are the notes to the SettleExchange, SettleUnknown those of them that name no delivery of their channel that is
	// out, or nothing that makes sense.
	Settled, SettleUnknown atomic.Uint64

	Logins [LoginProtocols]Logins
	// Traffic is what clients have published, by protocol. What comes by no client of AMQP counts as AMQP 0-9-1.
	Traffic [LoginHTTP]Traffic
}

// Traffic counts what clients have published.
type Traffic struct {
	// Published are messages from clients, Routed their copies in queues.
	Published, Routed atomic.Uint64
	// Confirmed are the answers to publishers who asked for confirms, Refused those of them that were nacks, or are no acceptance.
	Confirmed, Refused                    atomic.Uint64
	UnroutableDropped, UnroutableReturned atomic.Uint64
	Sizes                                 Sizes
}

// Sum adds up a counter of all protocols.
func (t *Totals) Sum(of func(*Traffic) *atomic.Uint64) (n uint64) {
	for i := range t.Traffic {
		n += of(&t.Traffic[i]).Load()
	}
	return n
}

// dropped is how many messages reached no queue, and were dropped.
func (t *Totals) dropped() uint64 {
	return t.Sum(func(t *Traffic) *atomic.Uint64 { return &t.UnroutableDropped })
}

// Logins count attempts to log in.
type Logins struct{ Succeeded, Failed atomic.Uint64 }

// Note counts one attempt.
func (l *Logins) Note(ok bool) {
	if ok {
		l.Succeeded.Add(1)
	} else {
		l.Failed.Add(1)
	}
}

// Reset sets the counters to 0.
func (l *Logins) Reset() {
	l.Succeeded.Store(0)
	l.Failed.Store(0)
}

// LoginProtocol is a protocol to log in with.
type LoginProtocol int

// The protocols, and how many there are.
const (
	LoginAMQP091 LoginProtocol = iota
	LoginAMQP10
	LoginHTTP
	LoginProtocols
)

// String returns RabbitMQ's name of the protocol.
func (p LoginProtocol) String() string {
	return [...]string{LoginAMQP091: "amqp091", LoginAMQP10: "amqp10", LoginHTTP: "http"}[p]
}

// SizeBounds are the upper bounds of the classes of message sizes, in bytes. They are RabbitMQ's.
var SizeBounds = [...]int{100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000}

// Sizes count published messages by size.
type Sizes struct {
	Counts [len(SizeBounds) + 1]atomic.Uint64 // by class; the last is above all bounds
	Bytes  atomic.Uint64
}

// sizeClass is the class of a size.
func sizeClass(size int) int {
	for i, bound := range SizeBounds {
		if size <= bound {
			return i
		}
	}
	return len(SizeBounds)
}
