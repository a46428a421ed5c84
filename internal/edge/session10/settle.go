package session10

import (
	"errors"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp10"
)

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
	none := s.unsettled.n == 0
	from, to := s.numbers(first, last)
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
		if !c.affords(op.Note) { // looked at again for each part of a range: it may be long
			op.Note = nil
		}
		s.mu.Lock()
		c.settling = s.unsettled.take(from, to, maxOps, c.settling[:0])
		s.mu.Unlock()
		for i := range c.settling {
			u := &c.settling[i]
			op.Queue, op.ID, op.Consumer = u.consumer.q, u.id, &u.consumer.Consumer
			own := op
			if op.Note != nil {
				own.Note = u.noteOf(op.Note)
				c.opBytes += op.Note.Size()
			}
			if own.Kind != partition.Return || !u.consumer.quorum() { // annotations without effect say no time either
				own.Wait = 0
			}
			c.addOp(own, opOwner{})
		}
		done := len(c.settling) < maxOps
		if !done {
			from = c.settling[maxOps-1].number + 1
		}
		clear(c.settling)
		if done {
			break
		}
	}
	if !d.Settled {
		c.putFrame(s.number, &amqp10.Disposition{Role: amqp10.RoleSender, First: d.First, Last: d.Last, Settled: true, State: d.State, Batchable: d.Batchable})
	}
	return nil
}

// numbers are the numbers of the deliveries of a range of delivery-ids. Those are serial numbers, which are compared over half of their
// range (RFC 1982): an id means the delivery that is nearest to the next one. to is smaller than from if no delivery can be meant.
// They mean nothing if last is before first. REQUIRES: session.mu is held.
func (s *session) numbers(first, last uint32) (from, to uint64) {
	begin := int64(s.delivered) + int64(int32(first-uint32(s.delivered)))
	end := begin + int64(last-first)
	if end < 0 {
		return 1, 0
	}
	return uint64(max(begin, 0)), uint64(end)
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
			op = partition.Op{Kind: partition.Reject, Failed: m.DeliveryFailed}
		case m.DeliveryFailed:
			op = partition.Op{Kind: partition.Return, How: queue.ReturnFailed}
		default:
			op = partition.Op{Kind: partition.Return, How: queue.ReturnReleased}
		}
		return op, c.annotate(&op, m.MessageAnnotations)
	}
	return op, failSession(amqp10.ConditionInvalidField, "Unrecognised state: %s in DISPOSITION", stateName(v))
}

// annotate adds the annotations of an outcome to its operation, and the wait that they ask for (DL-12.5).
func (c *conn) annotate(op *partition.Op, section amqp10.Value) error {
	annotations, err := convert.OutcomeAnnotations(section)
	var tooMuch *convert.AnnotationsError
	switch {
	case errors.As(err, &tooMuch):
		return failSession(amqp10.ConditionResourceLimitExceeded, "%s", err)
	case err != nil: // RabbitMQ ends the session with a crash's report
		return failSession(amqp10.ConditionInvalidField, "%s", err).violation()
	case annotations == "":
		return nil
	}
	op.Note = &deadletter.Note{Annotations: annotations}
	if at, ok := convert.DeliveryTime(annotations); ok {
		if now := c.broker.Node().Now(); at > now { // others would underflow
			op.Wait = min(at-now, moment.Last)
		}
	}
	return nil
}

// affords says whether the annotations of a note may be merged. Settlements end alarms, but must not fill what is short: see conn.noteOf.
func (c *conn) affords(n *deadletter.Note) bool {
	if n == nil || len(n.Annotations) <= letter.MaxClass || !c.broker.Alarmed() {
		return true
	}
	if !c.unannotated {
		c.unannotated = true
		c.log.Warn("annotations of outcomes are dropped while memory or disk are short", "bytes", len(n.Annotations), "limit", letter.MaxClass, "user", c.login.User)
	}
	return false
}

// noteOf is the note of an outcome for one delivery, nil if it says nothing there: classic queues take no annotations (DL-14.6).
func (u *unsettled) noteOf(n *deadletter.Note) *deadletter.Note {
	switch {
	case n.HasWords():
		own := *n
		own.ConsumerTag = u.consumer.name
		return &own
	case u.consumer.quorum():
		return n
	}
	return nil
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
