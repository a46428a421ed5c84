package broker

import "sync/atomic"

// Totals are counters over the node's life that no queue keeps.
type Totals struct {
	ConnectionsOpened, ConnectionsClosed      atomic.Uint64
	ChannelsOpened, ChannelsClosed            atomic.Uint64
	QueuesDeclared, QueuesCreated, QueuesGone atomic.Uint64
	// Published are messages from clients, Routed the copies of them that queues got.
	Published, Routed atomic.Uint64
	// Confirmed are answers to publishers who wanted one, Refused those that were nacks.
	Confirmed, Refused                    atomic.Uint64
	UnroutableDropped, UnroutableReturned atomic.Uint64

	Logins [LoginProtocols]Logins
	Sizes  Sizes
}

// Logins count who tried to come in.
type Logins struct{ Succeeded, Failed atomic.Uint64 }

// Note counts one.
func (l *Logins) Note(ok bool) {
	if ok {
		l.Succeeded.Add(1)
	} else {
		l.Failed.Add(1)
	}
}

// Reset counts anew.
func (l *Logins) Reset() {
	l.Succeeded.Store(0)
	l.Failed.Store(0)
}

// LoginProtocol is a way in.
type LoginProtocol int

// The ways in, and how many there are.
const (
	LoginAMQP091 LoginProtocol = iota
	LoginHTTP
	LoginProtocols
)

// String returns RabbitMQ's name of the protocol.
func (p LoginProtocol) String() string {
	if p == LoginHTTP {
		return "http"
	}
	return "amqp091"
}

// SizeBounds are the upper bounds of the classes of message sizes, in bytes, which
// are RabbitMQ's.
var SizeBounds = [...]int{100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000}

// Sizes are how large the messages published were.
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
