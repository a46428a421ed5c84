package partition

import (
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
)

// hold is one time of holding partitions. It collects what happens meanwhile and what is to be done when the
// partitions are unlocked.
type hold struct {
	now   int64        // milliseconds since 1970, the same for everything in the hold
	parts []*Partition // local partitions, or one group; all of them at the cut of a checkpoint
	frame *frame       // for the journal; nil for a group, whose log has the commands that caused everything
	paper frame        // the memory of frame

	touched   []*Queue
	wake      []Subscriber
	timeouts  []timeout
	activity  []activity
	takenBack []takenBack
	broken    []broken
	dropped   []message.Ref // references to release
	route     []*Queue      // queues whose deaths this caller is to route
	withdrawn []*Queue      // queues that have taken back entries that they had offered
	hashed    []*Queue      // queues of touched whose state hash goes into the frame
	entered   []newEntry    // what the present publish or death has let in
	entries   int
	pos       journal.Pos // of the frame, 0 if nothing was logged
	step      steps       // failpoints on the way out
	owed      bool        // a caller may wait until the frame is durable
	outboxes  *outboxes   // the outboxes of the local partitions, if they are locked
	sends     bool        // an outbox has something new
	tally     []jobChange // changes of jobs' tallies, for the frame
	redoes    bool        // recovery repeats frames: these say which tallies change
}

// steps are the failpoints that a hold passes when it ends; "" is none.
type steps struct{ append, appended, unlocked string }

type timeout struct {
	q *Queue
	c *queue.Consumer
	n int
}

// activity says that a consumer has become active, or is it no longer.
type activity struct {
	of     Watcher
	active bool
	ready  int
}

// takenBack are deliveries that the consumer timeout has taken back.
type takenBack struct {
	from Watcher
	ids  []queue.ID
}

// lock locks the partitions in order and begins a hold.
func (n *Node) lock(parts ...*Partition) *hold {
	h := n.holds.Get().(*hold)
	h.parts = append(h.parts[:0], parts...)
	if len(parts) > 1 {
		slices.SortFunc(h.parts, func(a, b *Partition) int { return a.index - b.index })
		h.parts = slices.Compact(h.parts)
	}
	for _, p := range h.parts {
		p.mu.Lock()
		p.hold, p.store.reads = h, 0
	}
	if h.frame = nil; h.parts[0].group == nil {
		h.frame = &h.paper
	}
	h.frame.reset()
	h.now, h.pos, h.entries, h.step = n.Now(), 0, 0, steps{}
	h.outboxes, h.sends, h.owed, h.redoes = nil, false, false, false
	return h
}

// lockInTurn is lock for p's worker and for the goroutine that routes p's deaths. They take turns: a mutex favours
// the goroutine that runs already, so one of them would keep the other waiting for many slices.
func (n *Node) lockInTurn(p *Partition, parts ...*Partition) *hold {
	p.turn.Lock()
	defer p.turn.Unlock()
	return n.lock(parts...)
}

func (h *hold) touch(q *Queue) {
	if !q.touched {
		q.touched = true
		h.touched = append(h.touched, q)
	}
}

func (h *hold) drop(body, history message.Ref) {
	h.dropped = append(h.dropped, body)
	if history != 0 {
		h.dropped = append(h.dropped, history)
	}
}

// unlock ends the hold, in this order: the journal gets what happened, as one frame unless it is too large (split);
// the partitions are unlocked; effects leave. Confirms are not among the effects: a caller that owes one waits until
// the journal has committed the returned position.
func (n *Node) unlock(h *hold) journal.Pos {
	pos := n.release(h)
	if work := n.finish(h); len(work) > 0 {
		n.moveDead(work)
	}
	return pos
}

// finishHold is unlock, except that the caller moves the dead of the queues that it returns.
func (n *Node) finishHold(h *hold) []*Queue {
	n.release(h)
	return n.finish(h)
}

// maxBuffered is how many bytes may wait in the journal's buffer.
const maxBuffered = 1 << 20

// relieve flushes the journal's buffer if it has grown too large, and relieves memory.
func (n *Node) relieve() {
	if n.Journal.Buffered() > maxBuffered {
		_ = n.Journal.Flush() // a failure stops the node
	}
	n.memory.relieve()
}

// release ends the locked part of a hold: the frame is written, the partitions are unlocked.
func (n *Node) release(h *hold) journal.Pos {
	h.tellWatchers()
	for _, q := range h.touched {
		q.touched = false
		if q.gone {
			continue
		}
		checkQueue(q)
		if n.StateHash && q.Durable {
			h.hashed = append(h.hashed, q)
		}
		p := q.part
		if g := p.group; g != nil && !g.leads {
			continue // the leader schedules and routes
		}
		if q.m.HasDeaths() && !q.routing {
			q.routing = true
			h.route = append(h.route, q)
		}
		q.calmBy()
		p.remind(q)
	}
	n.at(h.step.append)
	if n.StateHash {
		h.hashes()
	}
	n.writeFrame(h)
	n.at(h.step.appended)
	if o := h.outboxes; o != nil {
		o.pos = max(o.pos, h.pos)
		o.mu.Unlock()
	}
	if h.sends {
		h.parts[0].outboxes.wake()
	}
	for i := len(h.parts) - 1; i >= 0; i-- {
		p := h.parts[i]
		p.longest, p.store.mostReads = max(p.longest, h.entries), max(p.store.mostReads, p.store.reads)
		p.hold = nil
		p.relief.count()
		if len(p.timers) > 0 && p.timers[0].due < p.alarm {
			p.alarm = p.timers[0].due
			p.wake()
		}
		p.mu.Unlock()
	}
	return h.pos
}

// tellWatchers tells watchers what has become of their consumers and deliveries. REQUIRES: the partitions are locked.
func (h *hold) tellWatchers() {
	for _, a := range h.activity {
		a.of.Active(a.active, a.ready)
		h.wake = append(h.wake, a.of)
	}
	clear(h.activity)
	h.activity = h.activity[:0]
	for i := range h.takenBack {
		t := &h.takenBack[i]
		t.from.TookBack(t.ids)
		h.wake = append(h.wake, t.from)
	}
	clear(h.takenBack)
	h.takenBack = h.takenBack[:0]
}

// hashes writes into the frame the state hashes of the queues that it changed.
func (h *hold) hashes() {
	if h.frame.bytes() != nil {
		for _, q := range h.hashed {
			h.frame.hash(q.Incarnation, q.m.StateHash())
		}
	}
	clear(h.hashed)
	h.hashed = h.hashed[:0]
}

// noteClock is by how many milliseconds the clock may go on before a frame says what it shows. The deadlines in frames go
// by it: a start that did not know it, after a clock that was ahead for a while, would put them off by as much.
const noteClock = 1000

// writeFrame appends the hold's frame to the journal.
func (n *Node) writeFrame(h *hold) {
	h.tallied()
	b := h.frame.bytes()
	if b == nil {
		return
	}
	late := h.now-n.noted.Load() > noteClock
	if late {
		h.frame.clock(h.now)
		b = h.frame.bytes()
	}
	h.pos = n.Journal.Append(b)
	if late {
		n.noted.Store(h.now) // not before: a frame that is written meanwhile may be the one that a crash leaves
	}
	n.checkpoints.logged.Add(int64(h.frame.operations))
	at := n.Journal.PayloadPos(h.pos)
	for i, r := range h.frame.records {
		if i == 0 || r != h.frame.records[i-1] { // the frame has each record once
			n.bodies.SetLocation(r.body, message.Location(at)+message.Location(r.at))
		}
		n.bodies.Release(r.body)
	}
}

// frameBytes is the size from which nothing is added to a frame.
const frameBytes = 4 << 20

// split begins a new frame if the hold's frame has grown large: a few hundred of the largest messages would exceed
// what the journal takes at once. It may be called wherever the operations before and after need not be atomic
// together.
func (n *Node) split(h *hold) {
	if h.frame != nil && len(h.frame.b) >= frameBytes {
		n.writeFrame(h)
		h.frame.reset()
	}
}

// finish carries out the effects of a hold and gives it back to the pool. It returns the queues whose deaths the
// caller is to route.
func (n *Node) finish(h *hold) (work []*Queue) {
	n.at(h.step.unlocked)
	for _, s := range h.wake {
		s.Flush()
	}
	for i := range h.timeouts {
		t := &h.timeouts[i]
		n.logTimeout(t)
		t.c.Target.(Subscriber).TimedOut(t.q, t.c, t.n)
	}
	if len(h.broken) > 0 {
		n.tellBroken(h)
	}
	for _, ref := range h.dropped {
		n.bodies.Release(ref)
	}
	if len(h.route) > 0 {
		work = slices.Clone(h.route)
	}
	clear(h.touched)
	clear(h.wake)
	clear(h.timeouts)
	clear(h.route)
	h.touched, h.wake, h.timeouts, h.dropped, h.route =
		h.touched[:0], h.wake[:0], h.timeouts[:0], h.dropped[:0], h.route[:0]
	n.holds.Put(h)
	return work
}
