package session10

import (
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp10"
)

// unsettled is a delivery that the client has not settled.
type unsettled struct {
	consumer *consumer
	id       queue.ID
}

// disposition handles what a receiver says of deliveries (2.7.6). A sender has nothing to say: we have settled whatever we said
// something of.
func (s *session) disposition(d *amqp10.Disposition) error {
	if d.Role == amqp10.RoleSender {
		return failSession(amqp10.ConditionInternalError, "Unexpected frame %s of a sender", amqp10.DescriptorDisposition)
	}
	c := s.c
	first, last := d.First, d.First
	if d.Last.Set {
		last = d.Last.Value
	}
	s.mu.Lock()
	none := len(s.unsettled) == 0
	s.mu.Unlock()
	if none {
		return nil
	}
	if int32(last-first) < 0 {
		return failSession(amqp10.ConditionInternalError, "disposition: last (%d) is before first (%d)", last, first)
	}
	op, err := c.outcome(d.State)
	if err != nil {
		return err
	}
	for {
		c.settling = s.take(first, last, c.settling[:0])
		for i := range c.settling {
			u := &c.settling[i]
			op.Queue, op.ID, op.Consumer = u.consumer.q, u.id, &u.consumer.Consumer
			own := op
			if op.Note != nil {
				note := *op.Note
				note.ConsumerTag = u.consumer.name
				own.Note = &note
				c.opBytes += note.Size()
			}
			c.addOp(own, opOwner{})
		}
		done := len(c.settling) < maxOps
		clear(c.settling)
		if done {
			break
		}
	}
	if !d.Settled {
		c.putFrame(s.number, &amqp10.Disposition{Role: amqp10.RoleSender, First: d.First, Last: d.Last, Settled: true, State: d.State})
	}
	return nil
}

// take removes unsettled deliveries of a range of delivery-ids and appends at most maxOps of them to dst, in order. It looks at
// each number in the range, or at each unsettled delivery if those are fewer. REQUIRES: last is not before first.
func (s *session) take(first, last uint32, dst []unsettled) []unsettled {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(last-first) < len(s.unsettled) {
		for id := first; ; id++ {
			if u, ok := s.unsettled[id]; ok {
				dst = append(dst, u)
				delete(s.unsettled, id)
			}
			if id == last || len(dst) == maxOps {
				return dst
			}
		}
	}
	var ids []uint32
	for id := range s.unsettled {
		if id-first <= last-first {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uint32) int { return int(int32(a - b)) })
	for _, id := range ids[:min(len(ids), maxOps)] {
		dst = append(dst, s.unsettled[id])
		delete(s.unsettled, id)
	}
	return dst
}

// outcome is the operation for an outcome (DL-14.6).
func (c *conn) outcome(v amqp10.Value) (op partition.Op, err error) {
	switch v.Descriptor() {
	case amqp10.DescriptorAccepted:
		return partition.Op{Kind: partition.Ack}, nil
	case amqp10.DescriptorReleased:
		return partition.Op{Kind: partition.Return, How: queue.ReturnReleased}, nil
	case amqp10.DescriptorRejected:
		var r amqp10.Rejected
		if err := r.Decode(v); err != nil {
			return op, undecodable(err)
		}
		return partition.Op{Kind: partition.Reject, Failed: true, Note: c.noteOf(r.Error)}, nil
	case amqp10.DescriptorModified:
		var m amqp10.Modified
		if err := m.Decode(v); err != nil {
			return op, undecodable(err)
		}
		switch {
		case m.UndeliverableHere:
			return partition.Op{Kind: partition.Reject, Failed: m.DeliveryFailed}, nil
		case m.DeliveryFailed:
			return partition.Op{Kind: partition.Return, How: queue.ReturnFailed}, nil
		}
		return partition.Op{Kind: partition.Return, How: queue.ReturnReleased}, nil
	}
	return op, failSession(amqp10.ConditionInvalidField, "Unrecognised state: %s in DISPOSITION", stateName(v))
}

func stateName(v amqp10.Value) string {
	if v.IsNull() {
		return "undefined"
	}
	return v.Descriptor().String()
}

// noteOf keeps the error of a rejection for the history of the message, as a note of AMQP 0-9-1 does (session091/note.go): the
// condition is its class. RabbitMQ forgets it.
func (c *conn) noteOf(e *amqp10.Error) *deadletter.Note {
	if e == nil || c.Strict {
		return nil
	}
	n := &deadletter.Note{Cause: c.cause}
	n.Class, n.Error = cleaned(e.Condition, letter.MaxClass), cleaned(e.Description, letter.MaxError)
	if c.broker.Alarmed() { // settlements end alarms, but must not fill the memory that is short
		n.Error = letter.Clean(n.Error, letter.MaxClass)
	}
	return n
}

func cleaned(b []byte, most int) string { return letter.Clean(string(b[:min(len(b), most+1)]), most) }
