package partition

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
)

// incoming is an arriving entry.
type incoming struct {
	number  uint64
	target  uint64
	flags   outbox.Flags
	failed  uint32
	history []byte
	record  []byte

	sameHistory, sameRecord bool // as those of the entry before
}

// reception is what one hold lets in from another log, entry by entry. Neighbours with the same record or history
// share one copy: one death may go to hundreds of queues.
type reception struct {
	o             *outboxes
	h             *hold
	box           *outbox.Inbox
	body, history message.Ref // of the entry before; 0: not stored. The hold keeps them until it ends
}

// next says whether an entry is the next of its log; earlier ones are there already. It must be called for each
// entry, in order.
func (c *reception) next(in *incoming) bool {
	if !in.sameRecord {
		c.body = 0
	}
	if !in.sameHistory {
		c.history = 0
	}
	c.h.entries++
	return c.box.Accept(in.number)
}

// let lets an entry that next has accepted into its queue, or refuses it. keep stores its record, with one reference.
func (c *reception) let(in *incoming, keep func() message.Ref) outbox.Answer {
	answer := c.enter(in, keep)
	if answer != outbox.Taken {
		c.box.Refuse(in.number, answer)
	}
	return answer
}

func (c *reception) enter(in *incoming, keep func() message.Ref) outbox.Answer {
	if in.target == 0 {
		return outbox.Unread
	}
	n, h, q := c.o.n, c.h, c.o.queue(in.target)
	if q == nil || q.gone {
		return outbox.Gone
	}
	if c.body == 0 {
		c.body = keep()
		h.drop(c.body, 0)
	}
	if c.history == 0 {
		c.history = storeHistory(n.bodies, in.history)
		h.drop(0, c.history)
	}
	rec := message.Record(in.record)
	p := plan{stored: in.history}
	a := arrival{
		entry: queue.Entry{Priority: priorityOf(rec), TTL: p.ttl(rec), Content: queue.Content{
			Body: c.body, History: c.history, Counts: queue.Counts{Deliveries: in.failed}, Redelivered: in.failed > 0,
		}},
		rec: rec,
	}
	if in.flags&outbox.Move == 0 {
		a.entry.Rests = p.rests(q)
	}
	switch {
	case in.flags&outbox.Impose != 0:
		a.how = imposed
	case in.flags&outbox.Force != 0:
		a.how = forced
	case in.flags&outbox.Move != 0 && q.config.Type == queue.Classic && !q.roomNow(h, rec):
		return outbox.Full // an operator's move must not make a message die of a refusal (DL-10.9)
	}
	h.entered = h.entered[:0]
	if n.enter(h, q, &a) == queue.Refused {
		return outbox.Full
	}
	c.o.logReceived(h, &a.entry, in)
	h.flow()
	return outbox.Taken
}

// roomNow lets messages expire that are due, and says whether the queue then has room for the message.
func (q *Queue) roomNow(h *hold, rec message.Record) bool {
	h.touch(q)
	q.m.Expire(h.now)
	return q.m.Accepts(q.size(rec))
}

// receive lets entries from a group into local queues.
func (o *outboxes) receive(b *load) (upTo uint64, refused outbox.Refusals, err error) {
	n, h := o.n, o.hold()
	c := reception{o: o, h: h, box: o.From(b.from)}
	before := c.box.Last()
	c.box.Believe(b.Heard)
	for i := range b.Entries {
		in := o.incoming(b.Entries, i)
		if !c.next(&in) {
			continue
		}
		keep := func() message.Ref {
			body, mem := n.bodies.Alloc(len(in.record))
			copy(mem, in.record)
			return body
		}
		if answer := c.let(&in, keep); answer != outbox.Taken {
			h.frame.mailIn(b.from, in.number, answer, b.Heard)
		}
	}
	upTo, refused = c.box.Acknowledgement(b.Entries[len(b.Entries)-1].Number)
	if last := c.box.Last(); last > before {
		o.Took(b.from, last)
		h.frame.mailIn(b.from, last, outbox.Taken, b.Heard)
	}
	pos := n.unlock(h)
	if pos == 0 {
		return upTo, refused, nil // all were taken before
	}
	return upTo, refused, n.Journal.Commit(pos)
}

// outIn applies what another log sends to this group.
func (a *application) outIn() {
	from, heard, number, n := a.r.outIn()
	o := a.g.p.outboxes
	c := reception{o: o, h: a.h, box: o.From(from)}
	c.box.Heard(heard)
	for range n {
		in, at := a.r.sent()
		in.number = number
		if a.r.bad {
			return
		}
		number++
		if !c.next(&in) {
			continue
		}
		if message.CheckRecord(in.record) != nil { // otherwise it would be sent for ever
			c.box.Refuse(in.number, outbox.Gone)
			continue
		}
		c.let(&in, func() message.Ref { return a.g.keep(in.record, a.place(at)) })
	}
	if ask := a.ask; ask != nil {
		ask.ok = true
		ask.last, ask.refusals = c.box.Acknowledgement(number - 1)
	}
}
