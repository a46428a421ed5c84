package broker

import (
	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/bug"
)

// After says what becomes of messages after they were shown (BR-15.8).
type After uint8

// The ways.
const (
	AckRemoves     After = iota // they are removed
	AckRequeues                 // they go back: nothing failed, whatever a nack counts as (DL-11.5)
	NackRequeues                // they go back as by basic.nack (DL-11.5)
	RejectRequeues              // they go back as by basic.reject: a failed delivery (DL-11.3)
	RejectRemoves               // they die (DL-1.2)
)

// Shown is a message that Take shows. Its bytes are valid only during the call.
type Shown struct {
	Exchange, Key string // its present exchange and key (DL-6.2)
	Properties    []byte // as a consumer would get them
	Body          []byte
	Redelivered   bool
	Left          int // number of ready messages behind it

	record message.Record
}

// Take gets messages from a queue, at most limit (0: all ready ones), and shows each to f. At the end it does with
// all of them what after says, so that none is shown twice. It ends early if f returns more = false. After an error,
// of f or of the queue, all messages go back as if nobody had had them.
func (c *Connection) Take(name message.QueueName, limit int, after After, f func(*Shown) (more bool, err error)) (err error) {
	var taken []partition.Op
	defer func() {
		for i := range taken {
			if err != nil {
				taken[i].Kind, taken[i].How = partition.Return, queue.ReturnReleased
			}
		}
		c.Run(taken)
	}()
	defer bug.End(c.b.Logger, "getting messages") // runs before the other deferred function: partitions may be locked
	var window bodies.Window
	defer window.Free()
	for n := 0; limit == 0 || n < limit; n++ {
		g, ok, err := c.Get(name, false)
		if err != nil || !ok {
			return err
		}
		s, err := c.b.shown(&g, &window)
		if err != nil {
			aside := c.b.node.SetAside(g.Queue, &g.Delivery, g.By, err)
			c.b.release(&g.Delivery)
			if aside {
				n--
				continue
			}
			taken = append(taken, after.op(&g))
			return err
		}
		taken = append(taken, after.op(&g))
		c.traceShown(&g, s)
		more, err := f(s)
		c.b.release(&g.Delivery)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// op is the operation that settles the message.
func (a After) op(g *Got) partition.Op {
	op := partition.Op{Queue: g.Queue, ID: g.ID, Consumer: g.By}
	switch a {
	case AckRemoves:
		op.Kind = partition.Ack
	case AckRequeues:
		op.Kind, op.How = partition.Return, queue.ReturnReleased
	case NackRequeues:
		op.Kind, op.How = partition.Return, queue.ReturnNack
	case RejectRequeues:
		op.Kind, op.How = partition.Return, queue.ReturnReject
	case RejectRemoves:
		op.Kind, op.Failed = partition.Reject, true
	}
	return op
}

// shown is a message in the form that Take shows. Its record may be on disk.
func (b *Broker) shown(g *Got, w *bodies.Window) (*Shown, error) {
	r, err := b.bodies.Read(g.Body, w)
	if err != nil {
		return nil, err
	}
	rec := message.Record(r)
	s := &Shown{record: rec, Body: convert.Body(rec), Redelivered: g.Redelivered, Left: g.Left}
	s.Properties, s.Exchange, s.Key = Rendered(rec, deathstore.Brief(b.bodies, g.History), g.Counts, g.Queue.Type() == queue.Quorum)
	return s, nil
}
