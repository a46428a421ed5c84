package session10

import (
	"sync"

	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp10"
)

// confirms are the messages of a publisher that wait for their outcomes. These leave in the order of the messages; neighbours
// with the same outcome leave as one disposition (2.7.6).
type confirms struct {
	listed bool // in conn.confirming; owned by the reader

	mu            held.Mutex // guards what follows: answers come from goroutines that apply commands
	ended         bool       // its link is detached: nobody wants to know
	count, credit uint32     // delivery-count and link-credit of the publisher (2.6.7)
	grants        int        // how often it has got new credit, up to busyGrants
	list          []pending
	start         int        // index of the first pending one
	first         uint64     // its token
	lent          *[]pending // of idleLists, which has the memory of list; nil: list has its own
}

// keptPending is how large a list a publisher keeps that waits for no outcome: a connection may have thousands that send nothing any more.
const keptPending = 64

// idleLists are larger ones, for whoever sends next.
var idleLists = sync.Pool{New: func() any {
	list := make([]pending, 0, busyCredit)
	return &list
}}

// borrow gives a publisher that has sent much already a large list. REQUIRES: mu is held, and the list is empty.
func (w *confirms) borrow() {
	w.lent = idleLists.Get().(*[]pending)
	w.list, w.start = *w.lent, 0
}

// giveBack ends that. REQUIRES: mu is held, and nothing is pending.
func (w *confirms) giveBack() {
	w.list, w.start = w.list[:0], 0
	if cap(w.list) <= keptPending {
		return
	}
	if w.lent == nil {
		w.lent = new([]pending)
	}
	*w.lent = w.list
	idleLists.Put(w.lent)
	w.list, w.lent = nil, nil
}

// pending is a message that waits for its outcome.
type pending struct {
	partition.Pending
	id       uint32 // its delivery-id
	released bool   // it has no route
	failure  *failure
	queue    *partition.Queue // the one that refused it; before that where it went, if there is only one
}

// add notes a message that is about to run, and returns its token.
func (w *confirms) add(id uint32, targets []*partition.Queue) (token uint64) {
	p := pending{id: id}
	if len(targets) == 1 {
		p.queue = targets[0]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.push(&p)
}

// push adds a message. REQUIRES: mu is held.
func (w *confirms) push(p *pending) (token uint64) {
	if w.start > 1024 && w.start > len(w.list)/2 {
		n := copy(w.list, w.list[w.start:])
		clear(w.list[n:])
		w.list, w.start = w.list[:n], 0
	}
	if w.list == nil && w.grants > 0 {
		w.borrow()
	}
	w.list = append(w.list, *p)
	return w.first + uint64(len(w.list)-w.start) - 1
}

// decided adds a message whose outcome is known. It waits for the messages before it, so it becomes durable with them.
func (w *confirms) decided(p *pending) {
	p.Ran(&partition.Op{})
	w.mu.Lock()
	w.push(p)
	w.mu.Unlock()
}

// release adds a message without a route.
func (w *confirms) release(id uint32) { w.decided(&pending{id: id, released: true}) }

// reject adds a message that is refused.
func (w *confirms) reject(id uint32, f *failure) { w.decided(&pending{id: id, failure: f}) }

// replenish gives the client new credit when half of it is used, unless too many messages wait for their queues. REQUIRES:
// confirms.mu is held.
func (p *publisher) replenish() {
	w, full := &p.confirms, p.fullCredit()
	if !w.ended && w.credit <= full/2 && len(w.list)-w.start < int(full) {
		w.credit = full
		w.grants = min(w.grants+1, busyGrants)
		p.grant()
	}
}

// grant tells the client its credit. REQUIRES: confirms.mu is held.
func (p *publisher) grant() {
	w := &p.confirms
	p.s.c.putItem(item{kind: itemFlow, s: p.s, flow: &flow{linked: true, handle: p.handle, count: w.count, credit: w.credit}})
}

// waiting is the number of messages without an outcome.
func (w *confirms) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list) - w.start
}

// ran notes that the message was run.
func (w *confirms) ran(token uint64, op *partition.Op) {
	w.mu.Lock()
	p := w.at(token)
	if p.Ran(op); op.RefusedBy != nil {
		p.queue = op.RefusedBy
	}
	w.mu.Unlock()
}

// at returns the message with a token. REQUIRES: it has no outcome yet.
func (w *confirms) at(token uint64) *pending { return &w.list[w.start+int(token-w.first)] }

// durable notes that all messages that were run are durable.
func (w *confirms) durable() {
	w.mu.Lock()
	for i := len(w.list) - 1; i >= w.start && !w.list[i].Durable(); i-- {
	}
	w.mu.Unlock()
}

// shut forgets everything: the link is detached.
func (w *confirms) shut() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
}

// outcome is how a message ended.
type outcome uint8

const (
	accepted outcome = iota
	released
	rejected
)

// outcome of a message that is done.
func (p *pending) outcome(refused bool) outcome {
	switch {
	case p.released:
		return released
	case refused, p.failure != nil:
		return rejected
	}
	return accepted
}

// append removes the messages at the front that are done, writes dispositions for them, and returns how many were accepted and
// how many rejected. REQUIRES: mu is held.
func (w *confirms) append(b []byte, channel uint16) (_ []byte, yes, no int) {
	for w.start < len(w.list) {
		p := &w.list[w.start]
		done, refused := p.Done()
		if !done {
			break
		}
		how, count := p.outcome(refused), 1
		for ; w.start+count < len(w.list); count++ {
			next := &w.list[w.start+count]
			done, refused := next.Done()
			if !done || next.id != p.id+uint32(count) || next.outcome(refused) != how || next.queue != p.queue && how == rejected || next.failure != nil {
				break
			}
		}
		b = amqp10.AppendFrame(b, channel, p.disposition(how, count))
		switch how {
		case accepted:
			yes += count
		case rejected:
			no += count
		case released:
		}
		clear(w.list[w.start : w.start+count])
		w.start += count
		w.first += uint64(count)
	}
	if w.start == len(w.list) {
		w.giveBack()
	}
	return b, yes, no
}

// disposition is the outcome of a message and of the next ones, count in all.
func (p *pending) disposition(how outcome, count int) *amqp10.Disposition {
	var state amqp10.Composite
	switch how {
	case accepted:
		state = &amqp10.Accepted{}
	case released:
		state = &amqp10.Released{}
	case rejected:
		r := &amqp10.Rejected{Error: refusal(p.queue)}
		if p.failure != nil {
			r.Error = p.failure.wire()
		}
		state = r
	}
	d := &amqp10.Disposition{Role: amqp10.RoleReceiver, First: p.id, Settled: true}
	d.State, _, _ = amqp10.ReadValue(state.Append(nil))
	if count > 1 {
		d.Last = amqp10.Some(p.id + uint32(count) - 1)
	}
	return d
}

// send puts the possible outcomes into the output, in order.
func (p *publisher) send() {
	w := &p.confirms
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.start == len(w.list) {
		return
	}
	if done, _ := w.list[w.start].Done(); !done {
		return
	}
	totals := p.s.c.link.Traffic()
	p.s.c.out.Put(func(b []byte) []byte {
		b, yes, no := w.append(b, p.s.number)
		totals.Confirmed.Add(uint64(yes + no))
		totals.Refused.Add(uint64(no))
		return b
	})
	p.replenish()
}

var _ partition.Owner = (*publisher)(nil)

// Answered implements partition.Owner.
func (p *publisher) Answered(answers []partition.Answer) {
	w := &p.confirms
	w.mu.Lock()
	for _, a := range answers {
		m := w.at(a.Token)
		if m.Answer(a.Refused); a.RefusedBy != nil {
			m.queue = a.RefusedBy
		}
	}
	w.mu.Unlock()
	p.send()
	p.s.c.out.Flush(true)
}

// opOwner gets the outcome of an operation.
type opOwner struct {
	p     *publisher // nil: none
	token uint64     // of the message
}

const (
	// maxOps is the number of collected operations at which they are run.
	maxOps = 512
	// maxOpBytes is the same for the bytes that they publish or note: one read may complete a large message on each of many
	// links.
	maxOpBytes = 4 << 20
	// entrySize is the approximate memory of a queue's entry: a message in a thousand queues takes more than its publisher has
	// sent.
	entrySize = 32
)

// addOp adds an operation to the batch of this read.
func (c *conn) addOp(op partition.Op, owner opOwner) {
	c.ops = append(c.ops, op)
	c.opOwner = append(c.opOwner, owner)
	if len(c.ops) >= maxOps || c.opBytes >= maxOpBytes {
		c.flushOps()
	}
}

// addPublish is addOp for a publish whose record has size bytes.
func (c *conn) addPublish(op partition.Op, owner opOwner, size int) {
	c.opBytes += size
	c.targets += len(op.Targets)
	c.addOp(op, owner)
}

// owesConfirms notes a publisher with messages whose outcome is due.
func (c *conn) owesConfirms(p *publisher) {
	if !p.confirms.listed {
		p.confirms.listed = true
		c.confirming = append(c.confirming, p)
	}
}

// flushOps runs the collected operations, and notes the messages to answer.
func (c *conn) flushOps() {
	if len(c.ops) == 0 {
		return
	}
	if targets := c.targets; targets > len(c.ops) {
		c.broker.Received((targets - len(c.ops)) * entrySize)
	}
	c.targets = 0
	c.receipt.Add(c.link.Run(c.ops))
	for i := range c.ops {
		if p := c.opOwner[i].p; p != nil {
			c.owesConfirms(p)
			p.confirms.ran(c.opOwner[i].token, &c.ops[i])
		}
	}
	clear(c.ops)
	clear(c.opOwner)
	c.ops, c.opOwner, c.opBytes = c.ops[:0], c.opOwner[:0], 0
}

// confirm answers the messages that were run, as far as possible. Those in the journal are answered after a sync: the reader
// makes the sync, or waits for the goroutine that does, and messages that arrive meanwhile make the next batch. The sync may
// also commit proposals of replicated queues; their answers come through Answered.
func (c *conn) confirm() {
	c.flushOps() // no message may wait for its outcome without being run
	if len(c.confirming) == 0 {
		return
	}
	if err := c.link.Await(c.receipt); err != nil {
		c.sock.Break() // the node stops and answers nothing more
		return
	}
	c.receipt = partition.Receipt{}
	for _, p := range c.confirming {
		p.confirms.listed = false
		p.confirms.durable()
		p.send()
	}
	clear(c.confirming)
	c.confirming = c.confirming[:0]
}
