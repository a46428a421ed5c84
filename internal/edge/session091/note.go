package session091

import (
	"container/list"
	"fmt"
	"math"
	"strings"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// A client that publishes to the broker.SettleExchange says something of a delivery of the same channel: why it is about to
// reject it, how long the retry waits, or where the dead letter goes. The channel keeps it until the delivery is settled. It
// is in the history of the message if that dies of the settlement; otherwise it is forgotten.

// Bounds of what is kept. Beyond them the oldest note of the channel is forgotten: a client that says something of each
// delivery just before it rejects it needs one, one that rejects many at once as many as those.
const (
	maxNotes         = 500       // of a channel
	maxNoted         = 256 << 10 // bytes of a channel, about
	maxNotedTogether = 4 << 20   // and of a connection
	noteBytes        = 200       // what each takes beside its texts
)

// note is what a client has said of the delivery with a tag.
type note struct {
	deadletter.Note
	tag  uint64
	wait int64 // milliseconds before the next delivery, if it comes back
	size int
}

// notes are those of a channel. Its reader owns them. A nil *notes is empty.
type notes struct {
	of   map[uint64]*list.Element // by tag
	list list.List                // of *note; the oldest in front
	size int
}

// put keeps a note, in place of an earlier one of the same delivery.
func (ns *notes) put(c *conn, n *note) {
	if e := ns.of[n.tag]; e != nil {
		ns.remove(c, e)
	}
	n.size = noteBytes + n.Size()
	for ns.list.Len() > 0 && (ns.list.Len() == maxNotes || ns.size+n.size > maxNoted || c.noted+n.size > maxNotedTogether) {
		ns.remove(c, ns.list.Front())
	}
	if c.noted+n.size > maxNotedTogether {
		return // other channels have it all
	}
	ns.of[n.tag] = ns.list.PushBack(n)
	ns.size += n.size
	c.noted += n.size
}

func (ns *notes) remove(c *conn, e *list.Element) *note {
	n := ns.list.Remove(e).(*note)
	delete(ns.of, n.tag)
	ns.size -= n.size
	c.noted -= n.size
	return n
}

// drop forgets all of them.
func (ns *notes) drop(c *conn) {
	if ns == nil {
		return
	}
	c.noted -= ns.size
	clear(ns.of)
	ns.list.Init()
	ns.size = 0
}

// said adds what the client has said of a delivery to its settlement.
func (ch *channel) said(op *partition.Op, tag uint64) {
	op.Note, op.Wait = nil, 0
	if ch.notes != nil {
		if e := ch.notes.of[tag]; e != nil {
			n := ch.notes.remove(ch.c, e)
			switch op.Kind {
			case partition.Return:
				op.Wait = n.wait
				fallthrough
			case partition.Reject:
				op.Note = &n.Note
				return
			}
		}
	}
	if op.Kind != partition.Ack && (op.Consumer == nil || op.Consumer.Target == nil) { // of a basic.get: the queue does not know whose
		op.Note = ch.c.gets()
	}
}

// gets is a note that only says who the client is.
func (c *conn) gets() *deadletter.Note {
	if c.getsBy == nil {
		c.getsBy = &deadletter.Note{Cause: c.cause}
	}
	return c.getsBy
}

// note handles a message to the SettleExchange. Where it cannot be kept it is returned if it is mandatory, and counted; the
// channel goes on. It is confirmed like any other.
func (ch *channel) note(p *broker.Publication, body []byte) error {
	c := ch.c
	c.broker.Totals.Settled.Add(1)
	n, problem := readNote(p.Props.Headers, body)
	if c.broker.Alarmed() { // it passes, since settlements end alarms, but it must not fill the memory that is short
		n.Error, n.Detail = letter.Clean(n.Error, letter.MaxClass), ""
	}
	var q *partition.Queue
	if problem == "" {
		ch.mu.Lock()
		u := ch.unacked.get(n.tag)
		if u == nil && ch.untagged.Load() > 0 {
			ch.mu.Unlock()
			if err := c.awaitTags(ch); err != nil || c.state != stateRunning {
				return err
			}
			ch.mu.Lock()
			u = ch.unacked.get(n.tag)
		}
		if u == nil {
			problem = fmt.Sprintf("unknown delivery tag %d", n.tag)
		} else {
			q = u.q
			n.identify(c, u.consumer)
		}
		ch.mu.Unlock()
	}
	if problem == "" && n.HasKey {
		if err := c.link.MayDeadLetterTo(q, n.Key); err != nil {
			c.flushOps()
			return ch.refusedPublish(err)
		}
	}
	switch {
	case problem == "":
		if ch.notes == nil {
			ch.notes = &notes{of: map[uint64]*list.Element{}}
		}
		ch.notes.put(c, n)
	case ch.content.publish.Mandatory:
		c.broker.Totals.SettleUnknown.Add(1)
		if err := ch.returned(p, body, amqp091.CodePreconditionFailed, "PRECONDITION_FAILED - "+problem); err != nil {
			return err
		}
	default:
		c.broker.Totals.SettleUnknown.Add(1)
	}
	ch.nothingToRun()
	return nil
}

// identify says in the note who its client is, and which of its consumers has the delivery.
func (n *note) identify(c *conn, consumer *queue.Consumer) {
	said := n.Cause
	n.Cause = c.cause
	if consumer != nil {
		n.ConsumerTag = consumer.Tag
	}
	n.Words(&said)
}

// readNote reads a note from the headers and the body of its message. Texts are cut to what is kept of them. problem says what
// is wrong with it.
func readNote(headers, body []byte) (n *note, problem string) {
	n = &note{}
	tagged := false
	amqp091.RangeHeaders(headers, func(key []byte, typ byte, value []byte) bool {
		switch string(key) {
		case "delivery-tag":
			var tag int64
			tag, tagged = wholeNumber(typ, value)
			if tagged = tagged && tag > 0; !tagged {
				problem = "header delivery-tag must be the tag of a delivery"
			}
			n.tag = uint64(tag)
		case "delay":
			var ok bool
			if n.wait, ok = wholeNumber(typ, value); !ok || n.wait < 0 || n.wait > math.MaxUint32 {
				problem = "header delay must be a number of milliseconds from 0 to 4294967295"
			}
		case "error-class":
			n.Class = textOf(typ, value, letter.MaxClass)
		case "error":
			n.Error = textOf(typ, value, letter.MaxError)
		case "dead-letter-to":
			if n.HasKey = typ == 'S' && len(value) <= message.MaxName; !n.HasKey {
				problem = "header dead-letter-to must be a routing key"
			}
			n.Key = string(value)
		}
		return problem == ""
	})
	if problem == "" && !tagged {
		problem = "header delivery-tag is missing"
	}
	n.Detail = letter.Clean(string(body[:min(len(body), letter.MaxDetail+1)]), letter.MaxDetail)
	if len(n.Error) > letter.MaxSaid {
		if n.Detail == "" {
			n.Detail = n.Error
		}
		n.Error = letter.Clean(n.Error, letter.MaxSaid)
	}
	return n, problem
}

// textOf is the text of a header, "" if it has none.
func textOf(typ byte, value []byte, most int) string {
	if typ != 'S' && typ != 'x' {
		return ""
	}
	return letter.Clean(strings.TrimSpace(string(value[:min(len(value), most+1)])), most)
}

// wholeNumber is the number of a header. Clients of languages without whole numbers send others.
func wholeNumber(typ byte, value []byte) (v int64, ok bool) {
	decoded, err := amqp091.DecodeValue(typ, value)
	if err != nil {
		return 0, false
	}
	switch v := decoded.(type) {
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return int64(v), v == math.Trunc(v) && math.Abs(v) < 1<<53
	}
	return 0, false
}
