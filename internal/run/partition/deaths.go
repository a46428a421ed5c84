package partition

import (
	"bytes"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// A death is a move in three steps: under the lock of its queue the dead entry
// is marked, and the bytes that routing needs are pinned; outside it the targets
// and the new history are found; with the queue and all targets locked the entry
// leaves the one and enters the others, as one operation of one frame. Until
// then the entry is in its queue, not deliverable, and counted.
//
// One goroutine at a time routes the deaths of a queue (Queue.routing), so that
// they keep their order (DL-1.9).

// inlineSlices is how many slices of deaths whoever caused them routes before it
// leaves the rest to the partition's router.
const inlineSlices = 4

// routeAll routes the deaths of the queues, and of those that become full by it.
func (n *Node) routeAll(work []*Queue) {
	for budget := inlineSlices; len(work) > 0; budget-- {
		q := work[0]
		if budget <= 0 {
			n.leave(work)
			return
		}
		more, caused := n.routeSlice(q)
		if !more {
			work = work[1:]
		}
		work = append(work, caused...)
	}
}

// leave hands queues whose deaths are to be routed to the routers of their partitions (Partition.route).
func (n *Node) leave(work []*Queue) {
	for _, q := range work {
		p := q.part
		p.leaving.Lock()
		p.later = append(p.later, q)
		p.leaving.Unlock()
		p.wakeRouter()
	}
}

// plan is what is to happen to a dead entry.
type plan struct {
	// What it was made of: entries that agree in this share it.
	prev       message.Ref
	reason     deadletter.Reason
	at         int64
	by         *queue.Consumer
	exchange   []byte
	key        []byte
	expiration int64
	shareable  bool

	history message.Ref        // the new one; one reference is the plan's
	stored  []byte             // its bytes
	said    deadletter.History // what they say, if read is set: see story
	read    bool
	targets []*Queue // in the log of the queue it died in
	remote  []target // in others
	outcome deadletter.Outcome
}

// steps is what a death by the plan costs a hold (see sliceSteps).
func (p *plan) steps() int { return 1 + len(p.targets) + len(p.remote) }

// rests says whether the message has no TTL in the target from now on (DL-22.8). The target's queue is held.
func (p *plan) rests(t *Queue) bool {
	rules := t.m.Rules()
	if rules.Profile != deadletter.ApsaraMQ {
		return false
	}
	return rules.Rests(p.story(), t.Name)
}

// story is what the new history says.
func (p *plan) story() *deadletter.History {
	if !p.read {
		// Our own bytes: one that cannot be read tells of no death.
		p.said, _ = deadletter.Parse(p.stored)
		p.read = true
	}
	return &p.said
}

// split keeps the targets that are in the log of the partition given, and makes
// the others remote.
func (p *plan) split(from *Partition) {
	log := from.logID()
	kept := p.targets[:0:0]
	for _, t := range p.targets {
		if to := t.part.logID(); to == log {
			kept = append(kept, t)
		} else {
			p.remote = append(p.remote, target{to, t.Incarnation})
		}
	}
	if len(p.remote) > 0 {
		p.targets = kept
	}
}

// router is one slice of deaths and what is to happen to them.
type router struct {
	deaths   []queue.Death
	dead     DeadLetter // of their queue, when they were picked
	settings queue.Settings

	plans  []*plan // for each death
	last   *plan
	parts  []*Partition
	unread []error // of each death, why its record could not be read
	alike  []plan  // made by planAlike; never longer than it was made
	stored []byte  // their histories

	// Where the death before went, if that depends on nothing but this.
	routed   bool
	exchange string
	keys     []string
	targets  []*Queue
}

// route finds where a death goes, which is mostly where the one before went. The
// targets are the caller's.
func (r *router) route(n *Node, q *Queue, exchange string, keys []string, rec message.Record, h *deadletter.History) (targets []*Queue, exists, byKeys bool) {
	if r.routed && r.exchange == exchange && slices.Equal(r.keys, keys) {
		return slices.Clone(r.targets), true, true
	}
	targets, exists, byKeys = n.Router.RouteDead(q, exchange, keys, rec, h, nil)
	if r.routed = exists && byKeys; r.routed {
		r.exchange, r.keys, r.targets = exchange, keys, slices.Clone(targets)
	}
	return targets, exists, byKeys
}

// routeSlice routes up to a slice of the deaths of q. REQUIRES: q.routing is
// set and the caller's. more is false when there are none left, and then
// q.routing is clear again. caused are other queues that have deaths now.
func (n *Node) routeSlice(q *Queue) (more bool, caused []*Queue) {
	r := q.next
	if r != nil {
		q.next = nil
	} else {
		h := n.lockInTurn(q.part, q.part)
		r = n.pick(q)
		if r == nil {
			q.routing, q.part.lateDeaths = false, 0
			q.calm()
			if !q.gone && (q.part.group == nil || q.part.group.leads) {
				q.part.remind(q)
			}
		}
		caused = n.finishHold(h)
		if r == nil {
			return false, caused
		}
	}
	defer n.putRouter(r)
	n.at(FailDeathMarked)
	q.spoil(n.warmDeaths(r, q))
	if len(r.deaths) == 0 {
		return true, caused
	}
	n.planDeaths(r, q)
	n.at(FailDeathPlanned)
	if q.part.group != nil {
		n.proposeDeaths(r, q, r.settings.AtLeastOnce, true)
		return false, caused // it goes on when that is applied
	}
	more = n.moveDeaths(r, q, true, &caused)
	return more, caused
}

// spoil notes deaths that are not routed any more: they cannot be read.
func (q *Queue) spoil(ids []queue.ID) {
	if len(ids) == 0 {
		return
	}
	q.part.mu.Lock()
	defer q.part.mu.Unlock()
	for _, id := range ids {
		q.m.Spoil(id)
	}
}

// pick pins a slice of the deaths of q; nil if none waits. REQUIRES: q is held.
func (n *Node) pick(q *Queue) *router {
	if q.gone {
		return nil
	}
	r, _ := n.routers.Get().(*router)
	if r == nil {
		r = new(router)
	}
	limit := sliceLimit / 2
	if q.m.Waiting() > sliceLimit {
		limit = sliceLimit
	}
	r.deaths = q.m.Deaths(limit, r.deaths)
	if len(r.deaths) == 0 {
		n.putRouter(r)
		return nil
	}
	few := n.fewer(r.deaths)
	clear(r.deaths[len(few):])
	r.deaths = few
	for i := range r.deaths {
		n.bodies.Retain(r.deaths[i].Body, 1)
		n.bodies.Retain(r.deaths[i].History, 1)
	}
	r.dead, r.settings = q.dead, q.m.Settings()
	return r
}

func (n *Node) putRouter(r *router) {
	clear(r.plans)
	clear(r.deaths)
	clear(r.alike)
	r.deaths, r.plans, r.last, r.alike, r.stored = r.deaths[:0], r.plans[:0], nil, r.alike[:0], r.stored[:0]
	r.dead, r.settings = DeadLetter{}, queue.Settings{}
	n.routers.Put(r)
}

func (n *Node) finishHold(h *hold) []*Queue {
	n.release(h)
	return n.finish(h)
}

// warmDeaths brings into memory what was pinned on disk: routing reads it, and so
// do the targets. A death whose record is lost is set aside. One that cannot be read for
// another reason stays in its queue, dead and counted, until the node starts again. Both
// are returned, and left out: in a group the first is still there for a moment. No
// partition is locked.
func (n *Node) warmDeaths(r *router, q *Queue) (stay []queue.ID) {
	n.readDeaths(r)
	kept := r.deaths[:0]
	for i, d := range r.deaths {
		if err := r.unread[i]; err != nil {
			if !n.setAside(&spoilt{q: q, id: d.ID, body: d.Body, size: d.Size, err: err}) || q.part.group != nil {
				stay = append(stay, d.ID)
			}
			n.bodies.Release(d.Body)
			n.bodies.Release(d.History)
			continue
		}
		kept = append(kept, d)
	}
	clear(r.deaths[len(kept):])
	r.deaths = kept
	return stay
}

const (
	// warmReaders read a slice of deaths where the disk is waited for.
	warmReaders = 8
	// cachedReaders do so where the system has in memory what is read.
	cachedReaders = 2
	// fromDisk is how long a read of what it has not takes at least, on the average.
	fromDisk = 30 * time.Microsecond
	// readerSlice is for how many deaths a reader is worth its start, and how many it takes at a time.
	readerSlice = 32
)

// reading is the reading of a slice of deaths by several, each of whom takes the next few
// when it comes to it: whoever comes late, since others have the processors, is not waited for.
type reading struct {
	deaths []queue.Death
	unread []error      // of each, what went wrong
	take   int          // how many at a time
	next   atomic.Int64 // the first that nobody has taken
	left   atomic.Int64 // how many are not read yet
	done   chan struct{}
}

// warmBytes is how much a slice brings into memory of what lies on disk only, unless a single
// message has more: by number, a slice of the largest would be gigabytes.
const warmBytes = 4 << 20

// warming is how much that is so far, in bytes.
type warming int64

// takes says whether a slice may have the message too, and counts it.
func (w *warming) takes(body message.Ref, size uint32) bool {
	return !body.OnDisk() || w.add(int(size))
}

// add says whether so many bytes more may be in memory, and counts them.
func (w *warming) add(size int) bool {
	if *w > 0 && *w+warming(size) > warmBytes {
		return false
	}
	*w += warming(size)
	return true
}

// portion is what a slice of deaths brings into memory: records, and histories, of which each
// death gets a new one.
type portion struct{ records, histories warming }

// takes says whether a slice may have the death too, and counts it. REQUIRES: its queue is held.
func (n *Node) takes(p *portion, d *queue.Death) bool {
	return p.records.takes(d.Body, d.Size) && p.histories.add(deathstore.Size(n.bodies, d.History))
}

// fewer are the first deaths of a slice that may be in memory at once. REQUIRES: their queue is held.
func (n *Node) fewer(deaths []queue.Death) []queue.Death {
	var p portion
	for i := range deaths {
		if !n.takes(&p, &deaths[i]) {
			return deaths[:i]
		}
	}
	return deaths
}

// readDeaths is the part of warmDeaths that waits: r.unread says what went wrong.
// What has long been put away may be on disk only. Then many are read at once.
func (n *Node) readDeaths(r *router) {
	r.unread = slices.Grow(r.unread[:0], len(r.deaths))[:len(r.deaths)]
	// The first few tell where the others are.
	few, cold := min(len(r.deaths), warmReaders), 0
	for i := range few {
		began := time.Now()
		n.readDeath(&r.deaths[i], &r.unread[i])
		if time.Since(began) > n.diskTakes {
			cold++
		}
	}
	left, many := len(r.deaths)-few, cachedReaders
	if cold > few/4 { // else somebody else had the processor for a moment
		many = warmReaders
	} else if left < cachedReaders*readerSlice {
		many = 1
	}
	if left == 0 {
		return
	}
	x := &reading{
		deaths: r.deaths[few:], unread: r.unread[few:],
		take: min(readerSlice, (left+many-1)/many), done: make(chan struct{}),
	}
	x.left.Store(int64(left))
	for range many - 1 {
		go bug.Guarded(n.Logger, "reading dead letters", func() { n.readSome(x) })() // ends with the last of them
	}
	n.readSome(x)
	held.Nothing("bodies on disk")
	<-x.done
}

// readSome reads what nobody else has taken.
func (n *Node) readSome(x *reading) {
	for {
		from := int(x.next.Add(int64(x.take))) - x.take
		to := min(from+x.take, len(x.deaths))
		if from >= to {
			return
		}
		for i := from; i < to; i++ {
			n.readDeath(&x.deaths[i], &x.unread[i])
		}
		if x.left.Add(int64(from-to)) == 0 {
			close(x.done)
		}
	}
}

func (n *Node) readDeath(d *queue.Death, unread *error) {
	d.Stays = stays(d.Body)
	d.Body, *unread = n.bodies.Warm(d.Body)
}

// stays says whether a body is on disk only, and for good: else a target may log it elsewhere.
func stays(body message.Ref) bool {
	return body.OnDisk() && body.Location().Space() != message.InScratch
}

// planDeaths finds what is to happen to each death, by the settings of the queue when they were
// picked: the dead-letter exchange may have been taken away since they died. No partition is locked.
func (n *Node) planDeaths(r *router, q *Queue) {
	r.routed = false // the topology may have changed since
	for i := range r.deaths {
		d := &r.deaths[i]
		rec := message.Record(n.bodies.Bytes(d.Body))
		expiration := int64(-1)
		if d.History == 0 && rec.HasExpiration() {
			expiration = expirationOf(rec)
		}
		var p *plan
		if last := r.last; last != nil && last.shareable && last.prev == d.History && last.reason == d.Reason && last.by == d.By &&
			!rec.HasCC() && len(rec.BCC()) == 0 && (d.History != 0 || !n.TrustClientDeath || !rec.HasHeaders()) &&
			(d.History != 0 || bytes.Equal(last.exchange, rec.Exchange()) && bytes.Equal(last.key, rec.Key())) {
			if last.at == d.At && last.expiration == expiration {
				r.plans = append(r.plans, last)
				continue
			}
			p = n.planAlike(r, d, expiration)
		}
		if p == nil {
			p = n.planDeath(r, q, d, rec, expiration)
		}
		r.plans, r.last = append(r.plans, p), p
	}
}

// planAlike is planDeath for a first death that differs from the last one by its moment
// and its message's own TTL only; nil if that is not so. REQUIRES: r.last is shareable,
// and of an entry that agrees in all else.
func (n *Node) planAlike(r *router, d *queue.Death, expiration int64) *plan {
	last := r.last
	if d.History != 0 {
		return nil
	}
	if r.alike == nil {
		r.alike = make([]plan, 0, sliceLimit)
	}
	if len(r.alike) == cap(r.alike) {
		return nil // the others are pointed to
	}
	begin := len(r.stored)
	var own int
	var ok bool
	if r.stored, own, ok = deadletter.DiedAlike(r.stored, last.stored, d.At, expiration); !ok {
		return nil
	}
	r.alike = append(r.alike, *last)
	p := &r.alike[len(r.alike)-1]
	p.at, p.expiration, p.said, p.read = d.At, expiration, deadletter.History{}, false
	p.stored = r.stored[begin:len(r.stored):len(r.stored)]
	p.history = deathstore.KeepLike(n.bodies, last.history, p.stored, own)
	return p
}

func (n *Node) planDeath(r *router, q *Queue, d *queue.Death, rec message.Record, expiration int64) *plan {
	dead, settings := r.dead, &r.settings
	p := &plan{
		prev: d.History, reason: d.Reason, at: d.At, by: d.By,
		exchange: rec.Exchange(), key: rec.Key(), expiration: expiration,
	}
	var h deadletter.History
	if d.History != 0 {
		// Our own bytes: if they cannot be read, the history begins anew rather than the message being lost.
		h, _ = deadletter.Parse(n.historyBytes(d.History))
	} else if n.TrustClientDeath && rec.HasHeaders() {
		if props, err := amqp091.ParseProps(rec.Properties()); err == nil {
			h, _ = deadletter.Carried(props.Headers) // DL-7.10
		}
	}
	e := deadletter.Event{
		Queue: q.Name, Reason: d.Reason, Time: d.At, Expiration: expiration,
		NextExchange: dead.Exchange, KeysReplaced: h.KeysReplaced || dead.HasKey, Rules: &settings.Rules,
	}
	if d.History == 0 || len(h.Keys) == 0 {
		e.Exchange, e.Keys = string(rec.Exchange()), keysOf(rec)
	} else {
		e.Exchange, e.Keys = h.Exchange, h.Keys // where a death or a replay brought it
	}
	e.NextKeys = e.Keys
	if dead.HasKey {
		e.NextKeys = []string{dead.Key}
	}
	if d.By != nil {
		if c, ok := d.By.Target.(Culprit); ok {
			e.Cause = c.Cause()
		}
	}
	h.Record(&e)
	h.StripCC = h.StripCC || n.StripCC && dead.HasKey
	routes := e.NextKeys
	if !e.KeysReplaced {
		routes = appendShortStrings(routes[:len(routes):len(routes)], rec.BCC())
	}
	var exists, byKeys bool
	if settings.DeadLetter {
		p.targets, exists, byKeys = r.route(n, q, dead.Exchange, routes, rec, &h)
	}
	switch {
	case !exists:
		p.outcome = deadletter.NoExchange
	case len(p.targets) == 0:
		p.outcome = deadletter.NoRoute
	case d.Reason.Counted() != deadletter.Rejected && settings.Rules.CutCycles():
		kept := p.targets[:0]
		for _, t := range p.targets {
			if !h.ClosesCycle(t.Name) {
				kept = append(kept, t)
			}
		}
		if p.targets = kept; len(kept) == 0 {
			p.outcome = deadletter.Cycle
		}
	}
	stored := h.Append(nil)
	p.history, p.stored, p.said, p.read = deathstore.Keep(n.bodies, stored), stored, h, true
	p.split(q.part)
	p.shareable = byKeys && !rec.HasCC() && len(rec.BCC()) == 0 && !(n.TrustClientDeath && rec.HasHeaders())
	return p
}

// Culprit is a subscriber that can say who it is, for the history of what it rejects.
type Culprit interface {
	Cause() deadletter.Cause
}

// moveDeaths carries the plans out and lets go of what was pinned. If last is
// set and no more deaths wait, routing ends with it, and it returns false; if more wait,
// it picks the next slice, so that whoever routes need not wait for the queue again.
func (n *Node) moveDeaths(r *router, q *Queue, last bool, caused *[]*Queue) (more bool) {
	atLeastOnce := r.settings.AtLeastOnce
	r.parts = append(r.parts[:0], q.part)
	n.eachPlan(r, func(p *plan) {
		for _, t := range p.targets {
			r.parts = append(r.parts, t.part)
		}
	})
	begin := func() *hold {
		h := n.lockInTurn(q.part, r.parts...)
		h.step = steps{FailDeathBeforeAppend, FailDeathAppended, FailDeathUnlocked}
		h.touch(q)
		return h
	}
	h := begin()
	if last && len(r.deaths) > 0 {
		q.part.lateDeaths = max(0, h.now-r.deaths[0].At)
	}
	glanced := 0
	for i := range r.deaths {
		if h.entries > 0 && h.entries+r.plans[i].steps() > sliceSteps {
			*caused = append(*caused, n.finishHold(h)...)
			h = begin()
		}
		if q.gone {
			break
		}
		h.entries += r.plans[i].steps()
		if i == glanced {
			glanced += q.m.Glance(r.deaths[i:])
		}
		if n.moveDeath(h, q, &r.deaths[i], r.plans[i], atLeastOnce) {
			d, p := &r.deaths[i], r.plans[i]
			n.Router.Dropped(q, d.Reason, p.outcome, message.Record(n.bodies.Bytes(d.Body)), p.story())
		}
		n.split(h)
	}
	more = true
	switch {
	case !last:
	case q.gone || !q.m.HasDeaths():
		q.routing, more, q.part.lateDeaths = false, false, 0
	default:
		q.next = n.pick(q)
	}
	n.eachPlan(r, func(p *plan) { h.dropped = append(h.dropped, p.history) })
	for i := range r.deaths {
		h.drop(r.deaths[i].Body, r.deaths[i].History)
	}
	*caused = append(*caused, n.finishHold(h)...)
	return more
}

// eachPlan calls f once for each plan; deaths with the same plan are neighbours.
func (n *Node) eachPlan(r *router, f func(*plan)) {
	var last *plan
	for _, p := range r.plans {
		if p != last {
			f(p)
			last = p
		}
	}
}

// moveDeath moves one dead entry into its targets, and says whether it was dropped
// because p has none. REQUIRES: q and the targets in its log are held.
func (n *Node) moveDeath(h *hold, q *Queue, d *queue.Death, p *plan, atLeastOnce bool) (dropped bool) {
	if !q.m.Dead(d.ID) {
		return false // purged while its targets were looked up
	}
	if !atLeastOnce && q.awaits(d.ID, p) {
		return false
	}
	if q.part.group == nil && slices.ContainsFunc(p.targets, func(t *Queue) bool { return t.gone }) {
		// One was deleted meanwhile, and its deletion may not be stored yet: after a crash it would be there again,
		// without the message. Whoever routes the death anew waits until it is stored. A group deletes what is stored as deleted.
		return false
	}
	h.entered = h.entered[:0]
	counts := queue.Counts{Deliveries: d.Counts.Deliveries}
	if n.ResetOnDeadLetter || q.m.Rules().ResetCounts {
		counts.Deliveries = 0
	}
	rec, priority := n.recordOf(q, d)
	in := arrival{
		entry: queue.Entry{
			Body: d.Body, History: p.history, Counts: counts, Size: d.Size, Priority: priority, TTL: -1,
			Logged: true, Redelivered: counts.Deliveries > 0,
		},
		rec: rec, how: forced, stays: d.Stays,
	}
	if atLeastOnce {
		in.how = enqueued
	}
	refused := 0
	for _, t := range p.targets {
		if t.gone || q.waiting.taken[d.ID].has(t.Incarnation) { // gone: in a group
			continue
		}
		in.entry.Rests = p.rests(t)
		if n.enter(h, t, &in) == queue.Refused {
			refused++
		}
	}
	sent := n.sendDeath(h, q, d, p, counts, atLeastOnce)
	dropped = n.settleDeath(h, q, d, p, counts, atLeastOnce, refused, sent)
	h.flow()
	return dropped
}

// recordOf is the record of a dead entry and its priority. In a group it is not
// looked at, since it may be on disk: all queues there count alike, and the level
// tells the priority.
func (n *Node) recordOf(q *Queue, d *queue.Death) (rec message.Record, priority int) {
	if q.part.group != nil {
		return nil, d.ID.Lane()
	}
	rec = message.Record(n.bodies.Bytes(d.Body))
	return rec, priorityOf(rec)
}

// priorityOf is the message's priority, -1 if it has none.
func priorityOf(rec message.Record) int {
	if v, ok := rec.Priority(); ok {
		return int(v)
	}
	return -1
}

// awaits says whether an entry was held and targets in other logs were asked, until
// at-least-once was switched off: then their answers come first, since what they take
// cannot be sent to them again, and what they refuse would be lost. Targets that nobody has
// asked keep it from being buried with the last answer; it is tried again then.
func (q *Queue) awaits(id queue.ID, p *plan) bool {
	asked := q.waiting.asked[id]
	if len(asked) == 0 {
		return false
	}
	known := func(target uint64) bool {
		return asked.has(target) || q.waiting.taken[id].has(target)
	}
	q.waiting.note(id, slices.ContainsFunc(p.remote, func(t target) bool { return !known(t.queue) }) ||
		slices.ContainsFunc(p.targets, func(t *Queue) bool { return !known(t.Incarnation) }))
	return true
}

// strandsAll says whether the command that is applied is of a version before mailShared.
func (p *Partition) strandsAll() bool { return p.group != nil && p.group.version < sharedVersion }

// sendDeath puts a dead entry into the outboxes for its targets in other logs, and
// returns for how many of them it waits from now on.
func (n *Node) sendDeath(h *hold, q *Queue, d *queue.Death, p *plan, counts queue.Counts, atLeastOnce bool) (sent int) {
	flags := uint8(0)
	if !atLeastOnce {
		flags = mailForce
		if len(h.entered) == 0 && len(q.waiting.taken[d.ID]) == 0 {
			flags |= mailCounts // of the first; there is nothing else that tells the outcome
		}
		if len(h.entered)+len(q.waiting.taken[d.ID])+len(p.remote) > 1 && !q.part.strandsAll() {
			flags |= mailShared
		}
	}
	var asked []uint64
	for _, t := range p.remote {
		if q.waiting.taken[d.ID].has(t.queue) {
			continue
		}
		sent++
		switch {
		case !atLeastOnce:
			n.send(h, q, d, p, t, counts.Deliveries, flags, false)
			flags &^= mailCounts
		case !q.waiting.asked[d.ID].has(t.queue):
			asked = append(asked, t.queue)
			n.send(h, q, d, p, t, counts.Deliveries, flags, true)
		}
	}
	q.waiting.tell(d.ID, asked, nil)
	return sent
}

// settleDeath ends the entry in its source, writes the frame's operation and
// counts. It says whether the entry was dropped because there was nowhere to go.
func (n *Node) settleDeath(h *hold, q *Queue, d *queue.Death, p *plan, counts queue.Counts, atLeastOnce bool, refused, sent int) (dropped bool) {
	outcome := p.outcome
	switch {
	case len(h.entered) > 0 || sent > 0:
		outcome = deadletter.Routed
	case refused > 0:
		outcome = deadletter.TargetRefused
	case outcome == deadletter.Routed: // its targets are gone
		outcome = deadletter.NoRoute
	}
	if atLeastOnce && (refused > 0 || sent > 0 || len(h.entered) == 0 && len(q.waiting.taken[d.ID]) == 0) {
		n.holdDeath(h, q, d, p, counts)
		q.waiting.note(d.ID, refused > 0)
		return false
	}
	body, history, ok := q.m.Bury(d.ID)
	if !ok {
		return false
	}
	h.drop(body, history)
	answered := len(q.waiting.taken[d.ID]) > 0
	if answered {
		delete(q.waiting.taken, d.ID)
		outcome = deadletter.Routed
	}
	delete(q.waiting.refused, d.ID)
	n.logMove(h, q, d, p, counts, false)
	if sent == 0 || len(h.entered) > 0 || answered {
		q.count(d.Reason, outcome) // else the answer tells
	}
	if atLeastOnce {
		n.confirmed.Add(1)
	}
	return outcome != deadletter.Routed
}

// logMove writes the operation of a death: the entry leaves q, unless keep is
// set, and enters the logged ones of h.entered.
func (n *Node) logMove(h *hold, q *Queue, d *queue.Death, p *plan, counts queue.Counts, keep bool) {
	told := 0
	for _, in := range h.entered {
		if in.told(keep) {
			told++
		}
	}
	switch {
	case q.part.group != nil:
		return // the command has it
	case told == 0:
		if d.Logged && !keep {
			h.frame.settle(q.Incarnation, d.ID)
		}
		return
	case d.Logged:
		history := carried{ref: p.history, bytes: p.stored}
		history.common, history.own = deathstore.Parts(n.bodies, p.history)
		h.frame.move(q.Incarnation, d.ID, &history, keep, told)
		for _, in := range h.entered {
			switch {
			case in.logged:
				h.frame.moveTarget(in.q.Incarnation, in.id, in.q.m.Due(in.id), counts.Deliveries, in.q.m.Size(in.id))
			case in.told(keep):
				h.frame.moveTarget(in.q.Incarnation, 0, 0, counts.Deliveries, 0)
			}
		}
		h.logRefused()
		return
	}
	// The journal does not have the entry.
	for _, in := range h.entered {
		if !in.logged {
			continue
		}
		e := entered{queue: in.q.Incarnation, id: in.id, history: p.stored, historyRef: p.history}
		e.record, e.recordRef = n.bodies.Bytes(d.Body), d.Body
		n.bodies.Retain(d.Body, 1)
		e.r.Due = in.q.m.Due(in.id)
		e.r.Counts = counts
		e.r.Redelivered = counts.Deliveries > 0
		h.frame.enter(&e)
	}
	h.logRefused()
}

// holdDeath keeps an at-least-once death in its queue until every target has
// taken it; those that have are not asked again (DL-13.5).
func (n *Node) holdDeath(h *hold, q *Queue, d *queue.Death, p *plan, counts queue.Counts) {
	if q.m.Hold(d.ID) && d.Logged && q.part.group == nil {
		h.frame.hold(q.Incarnation, d.ID, uint8(d.Reason), d.At)
	}
	if len(h.entered) == 0 {
		return
	}
	took := make([]uint64, len(h.entered))
	for i, in := range h.entered {
		took[i] = in.q.Incarnation
	}
	q.waiting.tell(d.ID, nil, took)
	n.logMove(h, q, d, p, counts, true)
}

// expirationOf is the message's own TTL in milliseconds, -1 if it has none.
// Properties were checked when the message was published.
func expirationOf(rec message.Record) int64 {
	p, err := amqp091.ParseProps(rec.Properties())
	if err != nil || len(p.Expiration) == 0 {
		return -1
	}
	v, err := strconv.ParseInt(string(p.Expiration), 10, 64)
	if err != nil {
		return -1
	}
	return min(max(v, -1), moment.Last)
}

// keysOf are the keys the message was published with: its routing key and those
// of its CC header.
func keysOf(rec message.Record) []string {
	keys := []string{string(rec.Key())}
	if !rec.HasCC() {
		return keys
	}
	p, err := amqp091.ParseProps(rec.Properties())
	if err != nil {
		return keys
	}
	return AppendCC(keys, p.Headers)
}

// AppendCC appends the keys of the CC header to keys (BR-8.5); elements that are
// no strings are skipped.
func AppendCC(keys []string, headers []byte) []string {
	kind, value, ok := amqp091.HeaderField(headers, "CC")
	if !ok || kind != 'A' {
		return keys
	}
	list, err := amqp091.DecodeValue(kind, value)
	if err != nil {
		return keys
	}
	for _, v := range list.(amqp091.Array) {
		if s, ok := v.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys
}

func appendShortStrings(keys []string, b []byte) []string {
	for len(b) > 0 {
		n := int(b[0])
		if 1+n > len(b) {
			break
		}
		keys = append(keys, string(b[1:1+n]))
		b = b[1+n:]
	}
	return keys
}
