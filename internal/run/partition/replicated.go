package partition

import (
	"errors"
	"sync"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/safety/held"
)

// The operations of a Node on replicated queues. They propose commands, and wait for the results if their callers do.

// group is the group of a replicated queue, nil for a classic one. It never changes.
func (q *Queue) group() *group { return q.part.group }

// Replicated says whether the queue is replicated.
func (q *Queue) Replicated() bool { return q.part.group != nil }

// originTimeBits is the width of the time in a process's Origin. The node's id is above it.
const originTimeBits = 48

// originTick is by how much two origins of a node differ at least if the clock does not tell: processes that are further apart
// begin to number their consumers elsewhere, see firstNumber.
const originTick = 1000

// firstNumber is where a process begins to number its consumers. The upper 16 bits are the node. The rest leaves
// 16,384 numbers for each second until the next process starts.
func firstNumber(origin uint64) uint64 {
	const nodeBits, perSecond = 64 - originTimeBits, 1 << 14
	node, moment := origin>>originTimeBits, origin<<nodeBits>>nodeBits
	return node<<originTimeBits + moment/1000*perSecond%(1<<originTimeBits)
}

func (g *group) create(q *Queue, settings queue.Settings, dead DeadLetter) {
	p := g.p
	q.wanted = wanted{settings, dead}
	p.mu.Lock()
	q.m = queue.New(q.config, settings, &p.pages, q, g.node.Now()) // until the log makes the real one
	g.declared[q.Incarnation] = q
	leads := g.leads
	p.mu.Unlock()
	if leads {
		_ = g.tell(q.creation)
	}
}

// creation writes the command that creates the queue.
func (q *Queue) creation(w *commandWriter) {
	(&create{q.VHost, q.Name, q.config, q.wanted.settings, q.wanted.dead}).write(w, q.Incarnation)
}

// configuration writes the command with the settings that the queue should have.
func (q *Queue) configuration(w *commandWriter) {
	configure{q.wanted.settings, q.wanted.dead}.write(w, q.Incarnation)
}

func (g *group) do(q *Queue, o operation, a *ask) error {
	return g.node.askQueue(q, a, func(w *commandWriter) { o.write(w, q.Incarnation) })
}

// askQueue proposes operations on a replicated queue and waits until they are applied.
func (n *Node) askQueue(q *Queue, a *ask, build func(w *commandWriter)) error {
	err := q.group().question(a, build)
	if err == nil && !a.ok && n.HasDeleted(q) {
		return errGone
	}
	return err
}

func (g *group) counts(q *Queue) (c Counts) {
	if g.settle() != nil {
		return c
	}
	p := g.p
	p.mu.Lock()
	now := g.node.Now()
	due := q.live && g.leads && q.m.NextDue() <= now && !q.m.Unused(now)
	c = q.counts(now)
	p.mu.Unlock()
	if !due {
		return c
	}
	if a := new(ask); g.do(q, tick{}, a) == nil {
		c = a.counts
	}
	return c
}

func (g *group) numbered(c *queue.Consumer) attach {
	c.Number = g.node.numbers.Add(1)
	o := attachmentOf(c)
	if !c.Credited && (c.NoAck || c.Prefetch == 0 || c.Prefetch > window) {
		o.credit = window
	}
	return o
}

func (g *group) getting(noAck bool) get { return get{g.node.numbers.Add(1), noAck} }

// open does nothing: replicated queues have no consumers with a gate.
func (*group) open(*Queue, queue.Gate) {}

// resume lets a consumer whose session was full have more credit.
func (g *group) resume(_ *Queue, c *queue.Consumer) {
	g.p.mu.Lock()
	s := g.consumers[c.Number]
	if s != nil {
		s.full = false
	}
	g.p.mu.Unlock()
	if s != nil && c.Metered && !c.Credited {
		g.grant(s)
	}
}

// accept removes the queue from the declared ones unless check returns an error. It waits for nothing and proposes
// nothing: see finish.
func (g *group) accept(q *Queue, check func(Counts) error) (c Counts, err error) {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	c = q.counts(g.node.Now())
	if q.gone || q.accepted {
		return c, errGone
	}
	if check != nil {
		if err := check(c); err != nil {
			return c, err
		}
	}
	q.accepted = true
	delete(g.declared, q.Incarnation)
	return c, nil
}

// finish deletes the queue from the group. After a crash between accept and finish, reconcile does it, because the
// topology no longer has the queue. In the reverse order, the topology would make the queue again, without its
// messages.
func (g *group) finish(q *Queue, before Counts) Counts {
	if a := new(ask); g.do(q, remove{}, a) == nil && a.ok {
		return a.counts
	}
	return before
}

func (g *group) configure(q *Queue, s queue.Settings, dead DeadLetter) {
	g.p.mu.Lock()
	q.wanted = wanted{s, dead}
	g.p.mu.Unlock()
	_ = g.tell(q.configuration)
}

// Settle waits until everything asked of the queue's group here was applied, so that counters show it.
func (n *Node) Settle(q *Queue) {
	_ = q.part.driver.settle()
}

// SettleAll is Settle for all groups.
func (n *Node) SettleAll() {
	for _, p := range n.groups {
		_ = p.group.settle()
	}
}

// bundle is the part of a batch for one group.
type bundle struct {
	g       *group
	w       *commandWriter
	p       *proposal
	commits bool // a caller waits for it
	noted   bool // an operation has a note
}

// propose hands the operations on replicated queues to their groups. It returns a receipt for the ones that have an
// Owner. If asks is not nil, it gets an ask for each group, even for a group that takes nothing.
func (n *Node) propose(ops []Op, asks *[]*ask) (r Receipt) {
	var few [Groups]bundle
	bundles := few[:0]
	of := func(q *Queue) *bundle {
		g := q.part.group
		for i := range bundles {
			if bundles[i].g == g {
				return &bundles[i]
			}
		}
		bundles = append(bundles, bundle{g: g, w: n.writer(), p: g.proposals.fresh()})
		return &bundles[len(bundles)-1]
	}
	for i := range ops {
		op := &ops[i]
		if op.Kind != Publish {
			if op.Queue.part.group != nil {
				b := of(op.Queue)
				b.noted = b.noted || op.Note != nil
				n.proposeSettle(b.w, op)
			}
			continue
		}
		var seen [Groups + 1]bool // by the groups' ids: there may be very many targets
		for k, q := range op.Targets {
			if g := q.part.group; g != nil && !seen[g.id] {
				seen[g.id] = true
				n.proposePublish(of(q), op, op.Targets[k:])
			}
		}
	}
	for i := range bundles {
		b := &bundles[i]
		if len(b.p.publishes) > 0 || b.noted { // what only ends deliveries makes room
			b.g.waitForRoom()
		}
		if asks != nil {
			b.p.ask, b.commits = newAsk(), true
		}
		publishes, wait := b.p.publishes, b.p.ask
		pos, err := b.g.propose(b.w, b.p, b.commits)
		n.writers.Put(b.w)
		if wait != nil {
			*asks = append(*asks, wait)
		}
		if err != nil {
			n.unproposed(publishes)
			if wait != nil {
				wait.err = err
				close(wait.done)
			}
			continue
		}
		r.decided = max(r.decided, pos)
	}
	return r
}

// unproposed answers publishes that no group has taken.
func (n *Node) unproposed(publishes []published) {
	for _, p := range publishes {
		n.bodies.Release(p.body)
		if p.owner != nil {
			p.owner.Answered([]Answer{{Token: p.token, Refused: true}})
		}
	}
}

// proposePublish writes a publish to all of targets that are in b's group.
func (n *Node) proposePublish(b *bundle, op *Op, targets []*Queue) {
	count := 0
	for _, q := range targets {
		if q.part.group == b.g {
			count++
		}
	}
	b.p.steps += count - 1
	b.w.publish(op.TTL, op.Priority, op.Delay, n.bodies.Bytes(op.Body))
	b.w.uint(uint64(count))
	for _, q := range targets {
		if q.part.group == b.g {
			b.w.uint(q.Incarnation)
		}
	}
	p := published{owner: op.Owner, token: op.Token}
	if count == len(op.Targets) {
		// If it goes to several logs, each keeps a copy of its own: a body has one place on disk, and each log saves
		// its pages at its own time.
		p.body = op.Body
		n.bodies.Retain(p.body, 1)
	}
	b.p.publishes = append(b.p.publishes, p)
	if op.Owner != nil {
		op.Waits++
		b.commits = true
	}
}

func (n *Node) proposeSettle(w *commandWriter, op *Op) {
	var by uint64
	if op.Consumer != nil {
		by = op.Consumer.Number
	}
	q := op.Queue.Incarnation
	switch op.Kind {
	case Ack:
		w.ack(q, by, op.ID)
	case Reject:
		w.reject(q, by, op.ID, op.Failed, op.Note)
	case Return:
		w.giveBack(q, by, op.ID, op.How, op.Note, op.Wait)
	}
}

// proposeWhole is propose for a transaction. It returns when every group has applied its part, or one of them fails.
func (n *Node) proposeWhole(ops []Op) error {
	held.Nothing("a group")
	var asks []*ask
	gather := &gathering{ops: ops}
	for i := range ops {
		ops[i].Owner, ops[i].Token = gather, uint64(i)
	}
	r := n.propose(ops, &asks)
	for i := range ops {
		ops[i].Owner = nil
	}
	if len(asks) == 0 {
		return nil
	}
	if err := n.Await(r); err != nil {
		return errors.Join(errLost, err)
	}
	for _, a := range asks {
		<-a.done
		if a.err != nil {
			return a.err
		}
	}
	return nil
}

// gathering is the owner of the publishes of a transaction. Answers come before the group's ask is done; groups may
// answer at the same time.
type gathering struct {
	ops []Op
	mu  sync.Mutex
}

// Answered implements Owner.
func (t *gathering) Answered(answers []Answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range answers {
		if a.Refused {
			t.ops[a.Token].Refused = true
		}
	}
}

// proposeAgain makes the worker look at a queue again in a moment, if this replica leads: a proposal failed because
// too many are pending. REQUIRES: p.mu is held.
func (p *Partition) proposeAgain(now int64, q *Queue) {
	const wait = 100 // milliseconds
	if p.group.leads && !q.gone {
		p.schedule(q, now+wait)
	}
}

// tickReplicated proposes ticks for the queues of a group that have something due, if this replica leads. If that
// needs pages from disk, it reads them first, and releases the partition in between: a command would read them all in
// one hold.
func (p *Partition) tickReplicated() {
	n := p.node
	var unused, due, cold []*Queue
	p.mu.Lock()
	now := n.Now()
	for len(due) < sliceLimit && len(p.timers) > 0 && p.timers[0].due <= now {
		q := p.timers[0]
		p.unschedule(q)
		switch {
		case !p.group.leads || q.gone || p.group.declared[q.Incarnation] != q: // it is or will be deleted: what dies now would be deleted with it
		case q.m.Unused(now):
			unused = q.foundUnused(unused)
		case q.m.ReadsAhead(now):
			q.ticking = true
			cold = append(cold, q)
		default:
			q.ticking = true
			due = append(due, q)
		}
	}
	p.mu.Unlock()
	if len(due) > 0 {
		w := n.writer()
		for _, q := range due {
			w.op(cmdTick, q.Incarnation)
		}
		if _, err := p.group.propose(w, &proposal{ticking: due}, false); err != nil {
			p.mu.Lock()
			for _, q := range due {
				q.ticking = false // the next leader looks again
				p.proposeAgain(now, q)
			}
			p.mu.Unlock()
		}
		n.writers.Put(w)
	}
	p.leaveUnused(unused)
	p.readAhead(cold, now)
}

// readAhead reads pages that queues will need soon, and schedules the queues afterwards.
func (p *Partition) readAhead(cold []*Queue, now int64) {
	for _, q := range cold {
		for more := true; more; {
			more = false
			_ = p.node.with(q, func(*hold) {
				more = q.m.ReadAhead(now) && !p.node.stopped()
				q.ticking = more
			})
		}
	}
}
