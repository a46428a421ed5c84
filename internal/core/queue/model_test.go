package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

// model is a queue written as plainly as the rules allow: one slice of entries, searched from the beginning for
// everything. It shares no code with Machine except the types of its arguments.
type model struct {
	config   Config
	settings Settings
	entries  []*modelEntry // by level, then number
	next     map[int]uint64
	list     []*modelConsumer // highest priority first, then oldest
	slots    []*modelConsumer // by slot; 0 is nobody's
	active   *modelConsumer
	attached int
	moves    int // numbers returns, deaths and deliveries in their order
	instant  *modelEntry
	refusing bool
	effects  []string
	breaker  modelBreaker
}

type modelEntry struct {
	id          ID
	e           Entry
	state       uint8
	due         int64 // of its TTL, 0 = none
	until       int64 // end of its wait
	lastly      bool  // due is the end of its retention
	owner       *modelConsumer
	order       int // of the return, the death or the delivery
	at          int64
	noted       bool // its history has a note of its death
	watched     bool
	reason      deadletter.Reason
	diedAt      int64
	redelivered bool
}

type modelConsumer struct {
	tag          string
	noAck        bool
	priority     int64
	prefetch     int
	timeout      int64
	order        int
	out, stale   int
	paused, gone bool
	room         int // deliveries until it reports that it is full
	gate         *gate
}

// gate is a prefetch limit that consumers share.
type gate struct{ room int }

func (g *gate) TryTake() bool {
	if g.room == 0 {
		return false
	}
	g.room--
	return true
}

func (q *model) note(format string, args ...any) {
	q.effects = append(q.effects, fmt.Sprintf(format, args...))
}

func (q *model) quorum() bool { return q.config.Type == Quorum }

// in counts the entries in any of the states, and their bytes.
func (q *model) in(states ...uint8) (n int, bytes int64) {
	for _, e := range q.entries {
		if slices.Contains(states, e.state) {
			n++
			bytes += int64(e.e.Size)
		}
	}
	return n, bytes
}

func (q *model) ready() int { n, _ := q.in(index.Ready, index.Returned); return n }

func (q *model) find(id ID) *modelEntry {
	for _, e := range q.entries {
		if e.id == id {
			return e
		}
	}
	return nil
}

func (q *model) remove(e *modelEntry) {
	q.entries = slices.DeleteFunc(q.entries, func(x *modelEntry) bool { return x == e })
}

func (q *model) level(priority int) int {
	switch {
	case q.quorum() && priority < 0:
		return 4 // BR-11.3
	case q.quorum():
		return min(priority, 31)
	case q.config.MaxPriority < 0 || priority < 0:
		return 0
	}
	return min(priority, max(1, q.config.MaxPriority)) // BR-11.1
}

// order returns the deliverable entries in order.
func (q *model) order() (list []*modelEntry) {
	for _, e := range q.entries {
		if e.state == index.Ready || e.state == index.Returned {
			list = append(list, e)
		}
	}
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i], list[j]
		switch {
		case a.state != b.state:
			return a.state == index.Returned
		case a.state == index.Returned:
			return a.order < b.order
		case a.id.Lane() != b.id.Lane():
			return a.id.Lane() > b.id.Lane()
		}
		return a.id < b.id
	})
	return list
}

func (q *model) removed(e *modelEntry) {
	q.remove(e)
	q.note("removed %d %d logged=%v", e.e.Body, e.e.History, e.e.Logged)
}

func (q *model) die(now int64, e *modelEntry, reason deadletter.Reason) {
	routes := q.settings.DeadLetter || q.settings.LostAndFound && reason == deadletter.DeliveryLimit
	q.note("died %v %v", reason, routes)
	if !routes {
		q.removed(e)
		return
	}
	q.moves++
	e.state, e.reason, e.diedAt, e.order = index.Dying, reason, now, q.moves
}

// apsara says whether the queue follows ApsaraMQ's profile.
func (q *model) apsara() bool { return q.settings.Rules.Profile == deadletter.ApsaraMQ }

// lapse happens at an entry's moment: it expires, or its retention ends (DL-22.14).
func (q *model) lapse(now int64, e *modelEntry) {
	if e.lastly {
		q.note("died %v %v", deadletter.Expired, false)
		q.removed(e)
		return
	}
	q.die(now, e, deadletter.Expired)
}

// keep limits how long the entry stays, from begin on. Moments are even for a TTL and odd for a retention.
func (q *model) keep(begin int64, e *modelEntry) {
	if !q.apsara() {
		return
	}
	e.due += e.due % 2
	keep := q.settings.Rules.Retention
	if keep == 0 {
		return
	}
	end := begin + keep + 1
	if end%2 == 0 {
		end++
	}
	if e.due == 0 || end < e.due {
		e.due, e.lastly = end, true
	}
}

// moment is when something happens to the entry.
func (e *modelEntry) moment() int64 {
	if e.state == index.Delayed {
		return e.until
	}
	return e.due
}

// expire is DL-8.4 and DL-8.8: everywhere in the order of moments, in strict mode at the heads.
func (q *model) expire(now int64) {
	list := slices.Clone(q.entries)
	slices.SortStableFunc(list, func(a, b *modelEntry) int {
		return cmp.Or(cmp.Compare(a.id.Lane(), b.id.Lane()), cmp.Compare(a.moment(), b.moment()))
	})
	for _, e := range list {
		switch {
		case e.state == index.Delayed && e.until <= now:
			e.until = 0
			q.comeBack(now, e)
		case (e.state == index.Ready || e.state == index.Returned) && e.due != 0 && e.due <= now && !q.config.Strict:
			q.lapse(now, e)
		}
	}
	q.expireHeads(now)
}

func (q *model) expireHeads(now int64) {
	if !q.config.Strict {
		return
	}
	due := func(e *modelEntry) bool { return e.due != 0 && e.due <= now }
	for list := q.order(); len(list) > 0 && due(list[0]); list = q.order() {
		q.lapse(now, list[0])
	}
	for level := 0; q.quorum() && level < 32; level++ {
		for _, e := range slices.Clone(q.entries) {
			if e.state != index.Ready || e.id.Lane() != level {
				continue
			}
			if !due(e) {
				break
			}
			q.lapse(now, e)
		}
	}
}

// comeBack returns false if the entry dies instead (DL-8.5).
func (q *model) comeBack(now int64, e *modelEntry) bool {
	if e.due != 0 && e.due <= now {
		q.lapse(now, e)
		return false
	}
	e.state = index.Ready
	if q.quorum() && e.redelivered {
		q.moves++
		e.state, e.order = index.Returned, q.moves
	}
	return true
}

func (q *model) drops() bool {
	return q.settings.Overflow == DropHead || q.quorum() && q.settings.Overflow == RejectPublishDLX
}

func (q *model) counted() (n, bytes int64) {
	k, bytes := q.in(index.Ready, index.Returned, index.Offered)
	if q.quorum() {
		k, bytes = q.in(index.Ready, index.Returned, index.Offered, index.Delayed, index.Held)
	}
	return int64(k), bytes
}

func (q *model) over(messages, bytes int64) bool {
	s := &q.settings
	return s.MaxLength >= 0 && messages > s.MaxLength || s.MaxBytes >= 0 && bytes > s.MaxBytes
}

func (q *model) full(size uint32) bool {
	if q.drops() {
		return false
	}
	n, bytes := q.counted()
	if !q.quorum() || !q.config.Strict {
		return q.over(n+1, bytes+int64(size))
	}
	s := &q.settings
	relieved := (s.MaxLength < 0 || n <= s.MaxLength*8/10) && (s.MaxBytes < 0 || bytes <= s.MaxBytes*8/10)
	q.refusing = q.over(n, bytes) || q.refusing && !relieved
	return q.refusing
}

func (q *model) enqueue(now int64, e Entry, force bool) (ID, Result) {
	q.expire(now)
	if !(force && q.quorum()) && q.full(e.Size) {
		if q.settings.Overflow == RejectPublishDLX && !q.quorum() && q.settings.DeadLetter {
			in := q.enter(&e)
			q.die(now, in, deadletter.MaxLen)
			return in.id, RefusedDead
		}
		return 0, Refused
	}
	allPlain := len(q.list) > 0
	for _, c := range q.list {
		allPlain = allPlain && c.noAck
	}
	if q.ready() == 0 && allPlain && e.Delay == 0 && !q.stopped(now) {
		if c := q.nextConsumer(); c != nil {
			q.deliver(c, &modelEntry{e: e, redelivered: e.Redelivered && q.quorum()}, true)
			q.passedOn(now, nil)
			return 0, Delivered
		}
	}
	ttl := e.TTL
	if q.settings.TTL >= 0 && (ttl < 0 || ttl > q.settings.TTL) {
		ttl = q.settings.TTL
	}
	if q.ready() == 0 && !q.quorum() && q.anyAble() && !q.stopped(now) {
		e.Redelivered = false
	}
	if e.Rests {
		ttl = -1 // DL-22.8
	}
	in := q.enter(&e)
	begin := now
	if e.Delay > 0 { // DL-22.12
		begin += e.Delay + 1
		in.state, in.until = index.Delayed, begin
	}
	switch {
	case ttl == 0 && !q.quorum() && e.Delay == 0:
		in.due, q.instant = now, in
	case ttl == 0:
		in.due = begin + 2
	case ttl > 0:
		in.due = begin + ttl + 1
	}
	q.keep(begin, in)
	return in.id, Stored
}

// anyAble says whether a consumer could take a message, shared limits aside.
func (q *model) anyAble() bool {
	return slices.ContainsFunc(q.list, func(c *modelConsumer) bool {
		return (!q.config.SingleActive || q.active == c) && !c.paused && c.stale == 0 && (c.noAck || c.prefetch == 0 || c.out < c.prefetch)
	})
}

func (q *model) enter(e *Entry) *modelEntry {
	level := q.level(e.Priority)
	in := &modelEntry{id: index.MakeID(level, q.next[level]), e: *e, redelivered: e.Redelivered}
	q.next[level]++
	q.entries = append(q.entries, in)
	slices.SortFunc(q.entries, func(a, b *modelEntry) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return in
}

func (q *model) flow(now int64, stored bool) {
	if e := q.instant; e != nil {
		q.instant = nil
		if list := q.order(); list[0] == e && !q.stopped(now) {
			if c := q.nextConsumer(); c != nil {
				q.deliver(c, e, c.noAck)
				q.handed(now, e, c)
				return
			}
		}
		q.die(now, e, deadletter.Expired)
		return
	}
	if !stored && !q.quorum() {
		q.trim(now) // DL-10.6
	}
	q.pump(now)
	q.trim(now)
	q.expireHeads(now)
}

func (q *model) trim(now int64) {
	for q.drops() {
		list := q.order()
		if n, bytes := q.counted(); len(list) == 0 || !q.over(n, bytes) {
			return
		}
		q.die(now, list[0], deadletter.MaxLen)
	}
}

func (q *model) pump(now int64) {
	for {
		list := q.order()
		if len(list) == 0 || len(q.list) == 0 {
			return
		}
		e := list[0]
		if e.due != 0 && e.due <= now {
			q.lapse(now, e)
			continue
		}
		if q.stopped(now) {
			return
		}
		c := q.nextConsumer()
		if c == nil {
			return
		}
		q.deliver(c, e, c.noAck)
		q.handed(now, e, c)
	}
}

func (q *model) handed(now int64, e *modelEntry, c *modelConsumer) {
	if c.noAck {
		q.remove(e)
		q.passedOn(now, e)
		return
	}
	q.tries(e)
	q.moves++
	e.state, e.owner, e.at, e.order, e.redelivered = index.Out, c, now, q.moves, true
	e.watched = q.timeout(c) > 0
	c.out++
}

func (q *model) deliver(c *modelConsumer, e *modelEntry, noAck bool) {
	q.note("deliver %s %d %d %v redelivered=%v logged=%v noack=%v", c.tag, e.e.Body, e.e.History, e.e.Counts, e.redelivered, e.e.Logged && e.id != 0, noAck)
	if c.room--; c.room <= 0 {
		c.paused = true
	}
}

func (c *modelConsumer) canTake() bool {
	if c.paused || c.stale > 0 {
		return false
	}
	return c.noAck || (c.prefetch == 0 || c.out < c.prefetch) && (c.gate == nil || c.gate.TryTake())
}

// nextConsumer is BR-9.4 and BR-9.5.
func (q *model) nextConsumer() *modelConsumer {
	if len(q.list) == 0 {
		return nil
	}
	if q.config.SingleActive {
		q.choose()
		best := q.best()
		if a := q.active; a != nil && !(q.quorum() && best != nil && best.priority > a.priority) && a.canTake() {
			return a
		}
		return nil
	}
	for _, c := range q.list {
		if c.canTake() {
			q.stepBack(c)
			return c
		}
	}
	return nil
}

// stepBack moves c behind all consumers of its priority.
func (q *model) stepBack(c *modelConsumer) {
	q.list = slices.DeleteFunc(q.list, func(x *modelConsumer) bool { return x == c })
	q.list = append(q.list, c)
	slices.SortStableFunc(q.list, func(a, b *modelConsumer) int { return cmp.Compare(b.priority, a.priority) })
}

func (q *model) choose() {
	if !q.config.SingleActive || len(q.list) == 0 {
		return
	}
	if q.quorum() {
		best := q.best()
		if a := q.active; best != nil && (a == nil || a.stale > 0 || best.priority > a.priority && a.out == 0) {
			q.active = best
		}
		return
	}
	if q.active == nil {
		q.active = slices.MinFunc(q.list, func(a, b *modelConsumer) int { return a.order - b.order })
	}
}

// best is the first consumer of which no delivery has timed out (DL-12.7).
func (q *model) best() *modelConsumer {
	for _, c := range q.list {
		if c.stale == 0 {
			return c
		}
	}
	return nil
}

func (q *model) relieve() {
	if q.active == nil || q.active.stale > 0 {
		q.choose()
	}
}

func (q *model) attach(c *modelConsumer) {
	q.attached++
	c.order = q.attached
	q.list = append(q.list, c)
	slices.SortStableFunc(q.list, func(a, b *modelConsumer) int { return cmp.Compare(b.priority, a.priority) })
	if i := slices.Index(q.slots[1:], nil); i >= 0 {
		q.slots[i+1] = c
	} else {
		q.slots = append(q.slots, c)
	}
	q.choose()
}

func (q *model) detach(c *modelConsumer) {
	q.list = slices.DeleteFunc(q.list, func(x *modelConsumer) bool { return x == c })
	c.gone = true
	if q.active == c {
		q.active = nil
	}
	q.forget(c)
	q.choose()
}

func (q *model) forget(c *modelConsumer) {
	if i := slices.Index(q.slots, c); c.gone && c.out == 0 && i > 0 {
		q.slots[i] = nil
	}
}

// settled finds the entry that is out at c and gives the credit back.
func (q *model) settled(id ID, c *modelConsumer) *modelEntry {
	e := q.find(id)
	if e == nil || e.state != index.Out || e.owner != c {
		if c != nil && c.stale > 0 {
			c.stale--
			q.relieve()
		}
		return nil
	}
	if c != nil {
		c.out--
		if c.prefetch > 0 && c.out+1 == c.prefetch && !c.gone && !q.config.SingleActive {
			q.stepBack(c)
		}
		q.forget(c)
		if c == q.active && c.out == 0 {
			q.choose()
		}
	}
	return e
}

func (q *model) giveBack(now int64, e *modelEntry, kind ReturnKind, wait int64) {
	r := &q.settings.Retry
	delays := r.Min > 0 && r.Type != RetryDisabled
	failed := kind == ReturnReject || kind == ReturnClosed || kind == ReturnFailed || kind == ReturnNack && q.settings.CountNack && (q.quorum() || delays)
	if q.apsara() {
		failed = e.owner != nil // DL-22.1
	}
	waits := delays && (r.Type == RetryAll || r.Type == RetryFailed && failed || r.Type == RetryReturned && (!failed || kind == ReturnNack))
	if q.quorum() || waits {
		e.e.Counts.Acquired++
	}
	if failed {
		e.e.Counts.Deliveries++
	}
	over := func(n uint32) bool { return q.settings.DeliveryLimit >= 0 && int64(n) > q.settings.DeliveryLimit }
	lenient := q.quorum() && q.settings.CountNack && !q.apsara() // DL-11.6
	switch {
	case (q.quorum() || q.apsara()) && over(e.e.Counts.Deliveries) && (!lenient || failed && over(e.e.Counts.Acquired) && (kind != ReturnNack || q.settings.DeadLetter)):
		q.die(now, e, deadletter.DeliveryLimit)
		q.ended(now, e, endDied)
		return
	case waits || wait > 0: // DL-12.2, or its consumer says how long
		if wait == 0 {
			wait = min(r.Min*max(1, int64(e.e.Counts.Deliveries)), max(r.Min, r.Max))
		}
		e.state, e.until = index.Delayed, now+wait+1
		q.returned(e, e.until)
	case q.comeBack(now, e):
		q.returned(e, 0)
	}
	q.ended(now, e, endReturned)
}

func (q *model) returned(e *modelEntry, until int64) {
	if !e.e.Logged {
		return
	}
	if q.quorum() || until != 0 || q.apsara() {
		q.note("returned %d %v until=%d", e.id, e.e.Counts, until)
	}
}

func (q *model) timeout(c *modelConsumer) int64 {
	switch {
	case !q.quorum() && !q.apsara():
		return 0
	case c.timeout > 0 && !q.apsara():
		return c.timeout
	}
	return max(0, q.settings.ConsumerTimeout)
}

// timeOut is DL-12.7.
func (q *model) timeOut(now int64) {
	for _, c := range slices.Clone(q.slots) {
		if c == nil || q.timeout(c) == 0 {
			continue
		}
		var late []*modelEntry
		for _, e := range q.entries {
			if e.state == index.Out && e.owner == c && e.watched && e.at+q.timeout(c) <= now {
				late = append(late, e)
			}
		}
		slices.SortFunc(late, func(a, b *modelEntry) int { return a.order - b.order })
		for _, e := range late {
			c.out--
			q.giveBack(now, e, ReturnTimeout, 0)
			if !q.apsara() {
				q.note("took back %d from %s", e.id, c.tag)
			}
		}
		if len(late) > 0 && !q.apsara() { // DL-22.2
			c.stale += len(late)
			q.note("timed out %s %d", c.tag, len(late))
		}
		if len(late) > 0 {
			q.forget(c)
			q.relieve()
		}
	}
}

func (q *model) tick(now int64) {
	q.breaker.state = q.breaker.at(now)
	q.timeOut(now)
	q.expire(now)
	q.trim(now)
	q.pump(now)
}

func (q *model) get(now int64, noAck bool) (d Delivery, ok bool) {
	q.expire(now)
	list := q.order()
	if len(list) == 0 || q.stopped(now) {
		return d, false
	}
	e := list[0]
	d = Delivery{ID: e.id, Content: e.e.Content, NoAck: noAck}
	d.Redelivered = e.redelivered
	if noAck {
		q.remove(e)
		q.passedOn(now, e)
		return d, true
	}
	q.tries(e)
	e.state, e.owner, e.redelivered = index.Out, nil, true
	return d, true
}

// purge is DL-2.1. It returns the references of what it removed.
func (q *model) purge() (refs []message.Ref) {
	for _, e := range slices.Clone(q.entries) {
		switch e.state {
		case index.Ready, index.Returned:
		case index.Delayed, index.Held:
			if !q.quorum() {
				continue
			}
		default:
			continue
		}
		q.remove(e)
		refs = append(refs, e.e.Body, e.e.History)
	}
	return refs
}

func (q *model) totals() (n Totals) {
	n.Ready, n.ReadyBytes = q.in(index.Ready, index.Returned)
	n.Out, n.OutBytes = q.in(index.Out)
	n.Delayed, n.DelayedBytes = q.in(index.Delayed)
	n.Dying, n.DyingBytes = q.in(index.Dying)
	n.Held, n.HeldBytes = q.in(index.Held)
	n.Offered, n.OfferedBytes = q.in(index.Offered)
	n.Returned, _ = q.in(index.Returned)
	for _, e := range q.entries {
		if e.e.Logged {
			n.Persistent++
		}
	}
	return n
}

// nextDue is the first moment at which a Tick would change anything.
func (q *model) nextDue() int64 {
	due := int64(math.MaxInt64)
	if q.breaker.state == BreakerOpen {
		due = q.breaker.until
	}
	for _, e := range q.entries {
		switch {
		case e.state == index.Delayed:
			due = min(due, e.until)
		case e.state == index.Ready && e.due != 0 && !q.config.Strict, e.state == index.Returned && e.due != 0 && !q.config.Strict:
			due = min(due, e.due)
		case e.state == index.Out && e.watched && e.owner != nil && q.timeout(e.owner) > 0:
			due = min(due, e.at+q.timeout(e.owner))
		}
	}
	if list := q.order(); q.config.Strict && len(list) > 0 && list[0].due != 0 {
		due = min(due, list[0].due)
	}
	return due
}

func (q *model) view(e *modelEntry) View {
	v := View{
		ID: e.id, Content: e.e.Content, Due: e.due, Out: e.state == index.Out, Returned: e.state == index.Returned, Offered: e.state == index.Offered, Dead: e.state == index.Dying || e.state == index.Held,
	}
	v.Redelivered = e.redelivered
	if e.state == index.Delayed {
		v.NotBefore = e.until
	}
	if e.state == index.Held {
		v.Held, v.DiedAt = e.reason, e.diedAt
	}
	return v
}
