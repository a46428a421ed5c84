package partition

import (
	"encoding/binary"
	"math"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/run/deathstore"
)

// An operation on a queue is a value. apply is the only place where it happens. The driver of the queue's partition
// decides when that is and what is logged (driver.go).
type operation interface {
	// write adds the operation to a command.
	write(w *commandWriter, queue uint64)
	// apply carries the operation out. REQUIRES: the queue is held and not gone. If x.g is set, a log has decided the
	// operation; then the change of the queue must depend only on the operation and on the state of the queue.
	apply(x *execution, q *Queue)
}

// execution is the context in which operations are applied.
type execution struct {
	n    *Node
	h    *hold
	g    *group // the group whose log has decided them; nil: a local partition
	from uint64 // in a group, the process that asked
	ask  *ask   // the caller in this process that waits for the result; may be nil
	due  int    // entries handled by ticks so far
}

// show answers with the queue's counters.
func (x *execution) show(q *Queue) {
	if x.ask != nil {
		x.ask.ok, x.ask.counts = true, q.counts(x.h.now)
	}
}

// consumer returns the consumer that this process asked with, or a stand-in if another process asked.
func (x *execution) consumer() *queue.Consumer {
	if x.ask != nil && x.ask.consumer != nil {
		return x.ask.consumer
	}
	return &queue.Consumer{}
}

// operation reads an operation on one queue, after its code and queue. It returns nil if the code is another one or
// the operands make no sense.
func (r *commandReader) operation(code byte) (o operation) {
	switch code {
	case cmdDelete:
		o = remove{}
	case cmdConfigure:
		settings, dead := r.settings()
		o = configure{settings, dead}
	case cmdAttach:
		o = r.attach()
	case cmdDetach:
		o = detach{r.uint()}
	case cmdCredit:
		o = credit{r.uint(), r.int()}
	case cmdFlow:
		o = flow{r.uint(), r.wide(), r.byte() != 0}
	case cmdGet:
		o = get{r.uint(), r.byte() != 0}
	case cmdPurge:
		o = &purge{}
	case cmdTick:
		o = tick{}
	case cmdTouch:
		o = touch{}
	case cmdCloseBreaker:
		o = closeBreaker{}
	default:
		r.tear()
	}
	if r.bad {
		return nil
	}
	return o
}

// touch notes a use of the queue (DL-8.12) and returns its counters.
type touch struct{}

func (touch) write(w *commandWriter, queue uint64) { w.op(cmdTouch, queue) }

func (touch) apply(x *execution, q *Queue) {
	q.m.Touch(x.h.now)
	q.m.Expire(x.h.now)
	x.show(q)
}

// tick does what is due, unless earlier ticks of its command have used up the slice: other operations of the group
// wait meanwhile. A queue that is skipped stays due.
type tick struct{}

func (tick) write(w *commandWriter, queue uint64) { w.op(cmdTick, queue) }

func (tick) apply(x *execution, q *Queue) {
	if x.due >= sliceLimit {
		return
	}
	before, timeouts := q.m.Totals(), q.m.TimeoutCount()
	if q.m.Tick(x.h.now, sliceLimit) {
		x.due += sliceLimit // it stopped at its limit
	} else {
		after := q.m.Totals()
		x.due += max(0, before.Ready-after.Ready) + max(0, before.Delayed-after.Delayed) + int(q.m.TimeoutCount()-timeouts)
	}
	x.show(q)
}

// attach adds a consumer. Number and credit are for groups.
type attach struct {
	number           uint64
	noAck, exclusive bool
	credited         bool // by its client: see flow
	priority         int64
	prefetch         int
	timeout          int64 // milliseconds
	credit           int
	tag              string
}

func (o attach) write(w *commandWriter, queue uint64) {
	w.op(cmdAttach, queue)
	w.uint(o.number)
	var flags byte
	if o.noAck {
		flags |= attachNoAck
	}
	if o.exclusive {
		flags |= attachExclusive
	}
	if o.credited {
		flags |= attachCredited
	}
	w.b = append(w.b, flags)
	w.b = binary.AppendVarint(w.b, o.priority)
	w.small(o.prefetch)
	w.span(o.timeout)
	w.small(o.credit)
	w.text(o.tag)
}

func (r *commandReader) attach() (o attach) {
	o.number = r.uint()
	flags := r.byte()
	o.noAck, o.exclusive, o.credited = flags&attachNoAck != 0, flags&attachExclusive != 0, flags&attachCredited != 0
	o.priority, o.prefetch, o.timeout, o.credit = r.wide(), r.int(), r.time(), r.int()
	o.tag = r.text()
	return o
}

func (o attach) apply(x *execution, q *Queue) {
	if x.g != nil && x.g.consumers[o.number] != nil {
		return
	}
	c := x.consumer()
	c.Number, c.Origin, c.Tag, c.Priority, c.Prefetch, c.Timeout = o.number, x.from, o.tag, o.priority, o.prefetch, o.timeout
	c.NoAck, c.Exclusive, c.Metered = o.noAck, o.exclusive, o.credit > 0 || o.credited
	if !q.m.Attach(x.h.now, c) {
		return
	}
	if x.g != nil {
		q.m.Credit(c, o.credit)
		x.g.consumers[o.number] = &seat{c: c, q: q}
	}
	if x.ask != nil {
		x.ask.ok = true
		if x.ask.attached != nil {
			x.ask.attached()
		}
	}
	q.m.Pump(x.h.now, sliceLimit)
}

// detach removes a consumer, which keeps its deliveries.
type detach struct{ consumer uint64 }

func (o detach) write(w *commandWriter, queue uint64) {
	w.op(cmdDetach, queue)
	w.uint(o.consumer)
}

func (o detach) apply(x *execution, q *Queue) {
	var s *seat
	var c *queue.Consumer
	if x.g == nil {
		c = x.ask.consumer
	} else if s = x.g.consumers[o.consumer]; s != nil && s.q == q {
		c = s.c
	} else {
		return
	}
	was := q.m.Detach(x.h.now, c)
	if x.ask != nil {
		if x.ask.ok = was; was && x.ask.attached != nil {
			x.ask.attached()
		}
	}
	q.m.Pump(x.h.now, sliceLimit) // there may be a new single active consumer
	if x.ask != nil {
		x.ask.left = q.m.Consumers()
	}
	if s != nil {
		x.g.forgetIdle(s)
	}
}

// credit lets a consumer of a replicated queue have more deliveries.
type credit struct {
	consumer uint64
	n        int
}

func (o credit) write(w *commandWriter, queue uint64) {
	w.op(cmdCredit, queue)
	w.uint(o.consumer)
	w.small(o.n)
}

func (o credit) apply(x *execution, q *Queue) {
	s := x.g.consumers[o.consumer]
	if s == nil || s.q != q {
		return
	}
	if x.from == x.n.Origin {
		s.asked = max(0, s.asked-o.n)
	}
	q.m.Credit(s.c, o.n)
	q.m.Pump(x.h.now, sliceLimit)
}

// flow changes the credit that a client has given its consumer. With drain what is left of the credit ends, once all
// there is for the consumer was delivered.
type flow struct {
	consumer uint64
	more     int64
	drain    bool
}

func (o flow) write(w *commandWriter, queue uint64) {
	w.op(cmdFlow, queue)
	w.uint(o.consumer)
	w.b = binary.AppendVarint(w.b, o.more)
	w.bool(o.drain)
}

func (o flow) apply(x *execution, q *Queue) {
	var c *queue.Consumer
	if x.g == nil {
		c = x.ask.consumer
	} else if s := x.g.consumers[o.consumer]; s != nil && s.q == q {
		c = s.c
	} else {
		return
	}
	q.m.Credit(c, int(o.more))
	again := q.m.Pump(x.h.now, sliceLimit)
	drained := 0
	if o.drain && !again {
		drained = q.m.Drain(c)
	}
	if x.ask != nil {
		x.ask.ok, x.ask.again, x.ask.n, x.ask.left = true, again && o.drain, drained, q.m.Available(c)
	}
}

// get takes a message for basic.get. In a group, consumer numbers a consumer that only holds the message.
type get struct {
	consumer uint64
	noAck    bool
}

func (o get) write(w *commandWriter, queue uint64) {
	w.op(cmdGet, queue)
	w.uint(o.consumer)
	w.bool(o.noAck)
}

func (o get) apply(x *execution, q *Queue) {
	var c *queue.Consumer
	if x.g != nil {
		c = x.consumer()
		c.Number, c.Origin = o.consumer, x.from
	}
	before := q.m.Totals().Ready
	d, ok, again := q.m.GetFor(x.h.now, c, o.noAck)
	x.h.entries += max(0, before-q.m.Totals().Ready)
	if again {
		if x.ask != nil {
			x.ask.again = true
		}
		return
	}
	switch {
	case !ok:
		q.stats.GetNone++
	case o.noAck:
		q.stats.GotNoAck++
		q.leaves(d.History, JobAcknowledged, d.Logged)
		if d.Logged {
			x.h.frame.settle(q.Incarnation, d.ID)
		}
		if x.ask == nil {
			x.h.drop(d.Body, d.History)
		}
	default:
		q.stats.Got++
		if d.Logged {
			x.h.frame.deliver(q.Incarnation, d.ID)
		}
		if x.g != nil {
			x.g.consumers[o.consumer] = &seat{c: c, q: q}
		}
		if x.ask != nil {
			x.n.bodies.Retain(d.Body, 1)
			x.n.bodies.Retain(d.History, 1)
		}
	}
	if ok {
		q.stats.Active = x.h.now
		if d.Redelivered {
			q.stats.Redelivered++
		}
	}
	q.m.Expire(x.h.now) // the next head of a strict queue is looked at only now
	if x.ask != nil {
		x.ask.ok, x.ask.delivery, x.ask.left = ok, d, q.m.Totals().Ready
	}
}

// purge removes the ready messages (BR-7.10). In a group it is one operation. In a local partition it is applied
// again while there is more, with other work in between: later messages stay, and a consumer may get messages before
// the purge reaches them.
type purge struct {
	at    index.Purging
	begun bool
}

func (*purge) write(w *commandWriter, queue uint64) { w.op(cmdPurge, queue) }

func (o *purge) apply(x *execution, q *Queue) {
	if !o.begun {
		q.m.Expire(x.h.now)
		o.begun = true
	}
	limit := math.MaxInt
	var told func(queue.ID, int)
	if x.g == nil {
		if limit = sliceLimit; q.m.Totals().Persistent > 0 {
			told = func(first queue.ID, n int) { x.h.frame.settleRun(q.Incarnation, first, n) }
		}
	}
	if o.at.Gone = nil; len(q.sent) > 0 {
		o.at.Gone = func(history message.Ref, logged bool) { q.leaves(history, JobRemoved, logged) }
	}
	q.why = jobCounted
	purged, more := q.m.PurgeSome(&o.at, limit, told)
	q.why = 0
	x.h.entries += purged
	q.stats.Purged += uint64(purged)
	if x.ask != nil {
		x.ask.ok, x.ask.again = true, more
		x.ask.n += purged
	}
	if more {
		return
	}
	if q.m.Totals().Held == 0 {
		q.keepOffers()
	}
	q.part.dig(q)
	q.part.wake()
}

// remove deletes the queue with its messages. It kills no message: a message that is due is deleted and counted as a
// message.
type remove struct{}

func (remove) write(w *commandWriter, queue uint64) { w.op(cmdDelete, queue) }

func (remove) apply(x *execution, q *Queue) {
	p := q.part
	x.show(q)
	x.n.endDeaths(x.h, q)
	if x.ask != nil {
		x.ask.counts.Stats = q.stats
	}
	if x.g != nil {
		x.g.leaveQueue(q)
	}
	q.leftWithQueue(x.h)
	left := q.m.Close()
	q.gone, q.live, q.away.Transit = true, false, 0
	q.calm()
	delete(p.queues, q.Incarnation)
	p.unschedule(q)
	shelf{q}.discardMeta(p.pages.Version())
	p.dig(q)
	p.wake()
	if x.g == nil {
		q.left = left
		return
	}
	for _, c := range left {
		if c.Target != nil {
			x.g.effects.gone = append(x.g.effects.gone, goneConsumer{q, c})
		}
	}
}

// apply settles deliveries of c; nil means basic.get on a local queue. REQUIRES: q is held and not gone.
func (s *settlement) apply(h *hold, q *Queue, c *queue.Consumer) {
	q.stats.Active = h.now
	switch s.kind {
	case Ack:
		for k := range queue.ID(s.count) {
			if q.m.Ack(h.now, s.first+k, c) {
				q.stats.Acked++
				if c != nil && c.Credited {
					q.stats.Credited.Acked++
				}
			}
		}
	case Reject:
		q.annotate(h, s.first, c, s.note)
		if q.m.Reject(h.now, s.first, c, s.failed) {
			q.note(h, s.first, s.note)
		}
	case Return:
		q.annotate(h, s.first, c, s.note)
		if q.m.ReturnFor(h.now, s.first, c, s.how, s.wait) {
			q.stats.Returned++
			q.note(h, s.first, s.note)
		}
	}
	q.m.Flow(h.now, 0)
}

// note puts what a consumer has said of a delivery into the history of the entry, if it has just died of that. The note is
// in the log before the death is: after a crash the death is routed as it would have been. n may be nil.
func (q *Queue) note(h *hold, id queue.ID, n *deadletter.Note) {
	if n == nil || !n.HasWords() {
		return
	}
	d, ok := q.m.Notable(id)
	if !ok {
		return
	}
	node := q.part.node
	stored := deadletter.Noted(node.historyBytes(d.History), n)
	h.drop(0, q.m.PutNote(id, deathstore.Keep(node.bodies, stored)))
	if d.Logged {
		h.frame.note(q.Incarnation, id, stored)
	}
}

// annotate merges what a note says of annotations into the message (DL-14.6), before the delivery ends: so they are there whatever
// becomes of it. Only quorum queues do so, and their log has the note. n may be nil.
func (q *Queue) annotate(h *hold, id queue.ID, c *queue.Consumer, n *deadletter.Note) {
	if n == nil || n.Annotations == "" {
		return
	}
	before, ok := q.m.Annotatable(id, c)
	if !ok {
		return
	}
	node := q.part.node
	var story deadletter.History
	if before != 0 {
		story, _ = deadletter.Parse(node.historyBytes(before)) // as in planDeath
	}
	if story.Annotations, ok = convert.MergeAnnotations(story.Annotations, n.Annotations); !ok {
		q.stats.Unmerged++
		return
	}
	h.drop(0, q.m.Annotate(id, deathstore.Keep(node.bodies, story.Append(nil))))
}

// configure puts settings in force that a policy has changed.
type configure struct {
	settings queue.Settings
	dead     DeadLetter
}

func (o configure) write(w *commandWriter, queue uint64) {
	w.op(cmdConfigure, queue)
	w.settings(&o.settings, &o.dead)
}

func (o configure) apply(x *execution, q *Queue) {
	before := q.m.Settings()
	held := q.m.Totals().Held > 0
	retry := held && (q.dead != o.dead || before.AtLeastOnce != o.settings.AtLeastOnce)
	forget := q.m.Config().Strict && before.AtLeastOnce && !o.settings.AtLeastOnce // DL-13.10
	if forget && x.g != nil {
		q.dropHeld(x.h)
	}
	q.dead = o.dead
	q.m.Configure(x.h.now, o.settings)
	if q.m.Trim(x.h.now, sliceLimit) {
		q.part.wake()
	}
	switch {
	case forget && x.g == nil: // the caller drops them in slices: see local.configure
		q.waiting.dropping, x.ask.again = held, true
	case forget:
	case retry && x.g == nil: // the caller retries before it returns: see local.configure
		x.ask.retry = true
	case retry:
		q.part.retryHeld(q)
	}
}

// create makes a queue of a group.
type create struct {
	vhost    message.VHost
	name     string
	config   queue.Config
	settings queue.Settings
	dead     DeadLetter
}

func (o *create) write(w *commandWriter, queue uint64) {
	w.op(cmdCreate, queue)
	w.text(string(o.vhost))
	w.text(o.name)
	w.config(o.config)
	w.settings(&o.settings, &o.dead)
}

func (r *commandReader) create() (o create) {
	o.vhost, o.name, o.config = message.VHost(r.text()), r.text(), r.config()
	o.settings, o.dead = r.settings()
	return o
}
