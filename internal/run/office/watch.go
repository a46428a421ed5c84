package office

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
)

// The watch over arriving letters learns which queues have got something, reads what is new in them behind a cursor, and hands it on: to
// the events about groups, and to the rules. It works only while somebody needs it, and is asleep while nothing comes and nothing is due.
//
// Of a letter that a rule is to move, it remembers when it is due, and nothing else: then the letter is read and the rules are asked again.
// When rules change, and when it begins, it walks once over what is there.

// How often arrivals are taken at most, and how long it takes until a letter that could not go is tried again: one that a consumer has, and one
// that has nowhere to go.
const (
	takeEvery   = 500 * time.Millisecond
	tryOutAgain = 5 * time.Second
	tryAgain    = 30 * time.Second
	lookAgain   = 10 * time.Second // for letters among messages that may be none, and for queues that dead letters lead to
	walkAgain   = 10 * time.Second // over a queue of which not all letters that wait are remembered
	alarmAgain  = time.Second
	moveTime    = 30 * time.Second // for the moves of a slice
)

// maxPending is how many letters that are not due are remembered, of all queues. Of those beyond, only the first moment is.
const maxPending = 1 << 20

// stepSlices is how many slices are read before what is due is looked at again; actAtOnce how many letters are moved at a time.
const stepSlices, actAtOnce = 32, 256

// vhostTime is how long the watch looks at letters of one virtual host in a part of a step, which are to read what is new, to tell webhooks
// what they have missed, and to move what is due: before those of the others have their turn.
const vhostTime = 4 * lookTime

// watch is the state of the watch. Its goroutine owns it, except for what says otherwise.
type watch struct {
	r      *Rules
	strays atomic.Bool // jobs of rules may have no rule any more; any goroutine sets it

	needed  bool
	books   map[message.VHost]*book // under which letters were met
	queues  map[uint64]*watched     // by incarnation
	reading []*watched              // those in which something new is to be read, in turn
	pending int                     // entries of all heaps
	groups  groupNews
	targets map[*topology.Queue]bool        // queues that dead letters lead to, as of targetsAt
	at      int64                           // when targets were looked for
	looked  map[uint64]int64                // when a queue without letters was last looked into
	most    int                             // maxPending, except in tests
	spent   map[message.VHost]time.Duration // in this part of a step, on looking at letters
	share   time.Duration                   // vhostTime, except in tests
	reader  *letter.Reader
}

// watched is a queue with letters.
type watched struct {
	info    broker.QueueInfo
	book    *book         // of which meant is
	meant   []*activeRule // rules that are for queues of its name
	rules   []*activeRule // those of them whose users may read it: see heed
	behind  map[*activeRule]*late
	asked   map[queue.ID]asked // letters whose look ended before all of rules were asked
	read    []uint64           // by level: letters with a lower number were met
	quiet   []uint64           // by level: no event tells of those with a lower number
	queued  bool               // it is in watch.reading
	heap    []pending          // what is not due, the first on top
	horizon int64              // what is due from here on is not in heap; moment.Never: all of it is
	walked  int64              // when the last walk over it began
	blocked int64              // it is not read before this: it cannot be read now
	height  int                // of what it holds above the threshold: 0 below it, then one for each doubling
	told    int64              // when an event last told of that
}

// late is a rule whose webhook could not be told. Others go on; it tells of the letters behind its place when the webhook can be told again.
type late struct {
	place toldPlace
	next  int64 // when it is tried again
}

// pending is a letter that is not due.
type pending struct {
	due  int64
	id   queue.ID
	rule *activeRule // that it waits for
}

func newWatch(r *Rules) *watch {
	w := &watch{r: r, most: maxPending, share: vhostTime, spent: map[message.VHost]time.Duration{}, reader: letter.NewReader(r.f.Names)}
	w.reset()
	return w
}

func (w *watch) reset() {
	for _, q := range w.queues {
		w.drop(q)
	}
	w.books, w.queues, w.reading, w.looked = map[message.VHost]*book{}, map[uint64]*watched{}, nil, map[uint64]int64{}
	w.groups = groupNews{known: map[groupKey]*seenGroup{}}
	w.targets, w.at = nil, 0
}

// run is the goroutine.
func (w *watch) run() {
	for {
		began := time.Now()
		wait := w.step()
		var alarm <-chan time.Time
		var t *time.Timer
		if wait < math.MaxInt64 {
			t = time.NewTimer(wait)
			alarm = t.C
		}
		select {
		case <-w.r.life.Done():
		case <-w.r.wake:
			pause(w.r.life, takeEvery-time.Since(began))
		case <-alarm:
		}
		if t != nil {
			t.Stop()
		}
		if w.r.life.Err() != nil {
			return
		}
	}
}

// step does what there is to do, in bounded slices, and returns after how long there is more; math.MaxInt64: when it is woken.
func (w *watch) step() time.Duration {
	if w.strays.Swap(false) {
		w.r.cancelStrays()
	}
	if !w.need() {
		return math.MaxInt64
	}
	now := w.r.now()
	w.look(now)
	for _, a := range w.r.b.TakeArrivals() {
		w.arrived(&a, now)
	}
	w.follow()
	if w.r.rights.Swap(false) {
		for _, q := range w.queues {
			if q.book == w.books[q.info.Decl.VHost] { // others are to be read, which heeds them
				w.heed(q)
			}
		}
	}
	hooks := w.r.hooked.Swap(false)
	clear(w.spent)
	for slices, passed := 0, 0; slices < stepSlices && passed < len(w.reading) && w.r.life.Err() == nil; {
		q := w.reading[0]
		w.reading = w.reading[1:]
		if q.blocked > now || w.outOfTime(q) || w.outdated(q) {
			w.reading = append(w.reading, q)
			passed++
			continue
		}
		slices, passed = slices+1, 0
		if q.queued = w.readSome(q); q.queued {
			w.reading = append(w.reading, q)
		}
	}
	clear(w.spent) // or nothing would be moved as long as there is much to read
	for _, q := range slices.Collect(maps.Values(w.queues)) {
		if len(q.behind) > 0 && !w.outOfTime(q) {
			w.heed(q)
		}
		for a, l := range q.behind {
			if hooks {
				l.next = 0
			}
			w.catchUp(q, a, l)
		}
	}
	clear(w.spent)
	w.due(w.r.now())
	return w.next(w.r.now())
}

// outOfTime says whether the letters of the queue's virtual host have had their share of this step.
func (w *watch) outOfTime(q *watched) bool { return w.spent[q.info.Decl.VHost] > w.share }

// looking begins a look at letters of a queue. within says whether there is time for another letter; done ends it.
func (w *watch) looking(q *watched) (within func() bool, done func()) {
	began := time.Now()
	return w.r.f.within(), func() { w.spent[q.info.Decl.VHost] += time.Since(began) }
}

// need says whether anybody needs the watch, and begins or ends it.
func (w *watch) need() bool {
	r := w.r
	needed := r.b.Eventful() || r.hooks.wants(groupEvent) || r.hooks.wants(thresholdEvent)
	r.mu.Lock()
	for _, b := range r.books {
		needed = needed || len(b.active) > 0
	}
	r.mu.Unlock()
	if needed == w.needed {
		return needed
	}
	w.needed = needed
	w.reset()
	r.b.WantArrivals(needed)
	r.b.TakeArrivals()
	if needed {
		w.discover(nil, true)
	}
	return needed
}

// discover finds the queues with letters of a virtual host, nil being all, and walks over them.
func (w *watch) discover(vhost *message.VHost, quiet bool) {
	for _, info := range w.r.f.queues(&Scope{VHost: vhost}) {
		q := w.queues[info.Incarnation()]
		if q == nil {
			if q = w.meet(info); q == nil {
				continue
			}
			if e, err := letters.Extent(w.r.b, info); err == nil && quiet {
				q.quiet = slices.Clone(e.There.Ends())
				q.height = w.height(q, e.Entries)
			}
		}
		w.walk(q)
	}
}

// meet begins to watch a queue. The archive is nobody's business.
func (w *watch) meet(info broker.QueueInfo) *watched {
	if info.Decl.Name == broker.Archive {
		return nil
	}
	q := &watched{info: info, horizon: moment.Never}
	w.queues[info.Incarnation()] = q
	return q
}

// match finds out which rules are for queues of this name, if the rules have changed. It counts as a look: it may take 20 ms.
func (w *watch) match(q *watched) {
	b := w.books[q.info.Decl.VHost]
	if b == q.book {
		return
	}
	q.book, q.meant = b, nil
	if b == nil {
		return
	}
	_, done := w.looking(q)
	for _, a := range b.active {
		if a.isFor(q.info.Decl.Name) {
			q.meant = append(q.meant, a)
		}
	}
	done()
}

// heed finds out which rules are for the queue: those whose users may read it now, as they may search it. So nothing that a rule does or counts tells its user
// of letters that the user may not read, and it keeps none of them from the rules that follow. A rule whose user could read the queue, and cannot any
// more, stops: letters that it took stay where they are.
func (w *watch) heed(q *watched) {
	w.match(q)
	name := q.info.Decl.Name
	var rules []*activeRule
	for _, a := range q.meant {
		may := a.conn.MayRead(name)
		had := a.stopped.Load() && slices.Contains(a.Keeps, string(name)) || slices.ContainsFunc(q.rules, func(o *activeRule) bool { return o.Name == a.Name && o.conn == a.conn })
		if had && !may {
			w.lose(a, fmt.Sprintf("user '%s' may not read queue '%s' any more", a.By, name))
		}
		if may || had {
			rules = append(rules, a)
		}
	}
	if !slices.Equal(rules, q.rules) {
		if q.rules, q.behind, q.asked = rules, nil, nil; len(q.read) > 0 {
			w.walk(q)
		}
	}
}

// lose stops a rule whose user cannot read a queue any more.
func (w *watch) lose(a *activeRule, why string) {
	var keeps []string
	for _, q := range w.queues {
		if slices.ContainsFunc(q.rules, func(o *activeRule) bool { return o.Name == a.Name && o.conn == a.conn }) {
			keeps = append(keeps, string(q.info.Decl.Name))
		}
	}
	w.r.halt(a, why, keeps)
}

// walk begins a walk over all that is in the queue.
func (w *watch) walk(q *watched) {
	for i := range q.read { // who was met makes no event
		for len(q.quiet) <= i {
			q.quiet = append(q.quiet, 0)
		}
		q.quiet[i] = max(q.quiet[i], q.read[i])
	}
	w.forget(q)
	q.read, q.behind, q.walked = nil, nil, w.r.now()
	w.toRead(q)
}

func (w *watch) toRead(q *watched) {
	if !q.queued {
		q.queued = true
		w.reading = append(w.reading, q)
	}
}

// forget forgets what waits in the queue.
func (w *watch) forget(q *watched) {
	for i := range q.heap {
		q.heap[i].rule.waiting.Add(-1)
	}
	w.pending -= len(q.heap)
	q.heap, q.horizon = nil, moment.Never
}

// drop ends watching a queue.
func (w *watch) drop(q *watched) {
	w.forget(q)
	delete(w.queues, q.info.Incarnation())
	delete(w.looked, q.info.Incarnation())
	if q.queued {
		w.reading = slices.DeleteFunc(w.reading, func(o *watched) bool { return o == q })
		q.queued = false
	}
}

// look finds out where dead letters lead and which queues are gone, now and then.
func (w *watch) look(now int64) {
	if w.targets == nil || now-w.at >= lookAgain.Milliseconds() || now < w.at {
		w.targets, w.at = w.r.b.DeadLetterTargets(), now
		for _, n := range slices.Collect(maps.Keys(w.looked)) {
			if now-w.looked[n] >= lookAgain.Milliseconds() {
				delete(w.looked, n)
			}
		}
		w.dropDeleted()
	}
}

// dropDeleted ends watching queues that were deleted. Nothing comes to them any more, so no read of them fails.
func (w *watch) dropDeleted() {
	for _, q := range slices.Collect(maps.Values(w.queues)) {
		if w.r.b.HasDeleted(q.info) {
			w.drop(q)
		}
	}
	_ = w.r.endTold() // a failure has ended the node
}

// follow walks over the queues of virtual hosts whose rules have changed.
func (w *watch) follow() {
	w.r.mu.Lock()
	changed := map[message.VHost]*book{}
	for name, b := range w.r.books {
		if w.books[name] != b {
			changed[name] = b
		}
	}
	for name := range w.books {
		if w.r.books[name] == nil {
			changed[name] = nil
		}
	}
	w.r.mu.Unlock()
	for name, b := range changed {
		if w.books[name] = b; b == nil {
			delete(w.books, name)
			b = &book{}
		}
		for _, q := range w.queues {
			if q.info.Decl.VHost == name {
				w.forget(q) // the counts of the rules that are on now begin at 0
				w.toRead(q) // which heeds it, in a slice
			}
		}
		if len(b.active) > 0 {
			w.discover(&name, true)
		}
	}
}

// arrived notes that something came to a queue.
func (w *watch) arrived(a *broker.Arrival, now int64) {
	n := a.Queue.Incarnation()
	q := w.queues[n]
	if !a.Died && !w.targets[a.Queue.Decl] { // only headers may say that it died
		if last, ok := w.looked[n]; ok && now-last < lookAgain.Milliseconds() && now >= last {
			return
		}
		if !w.r.f.hasLetters(a.Queue) {
			w.looked[n] = now
			return
		}
	}
	if q == nil {
		if q = w.meet(a.Queue); q == nil {
			return
		}
	}
	w.toRead(q)
}

// readSome reads a slice of what is new in a queue, and says whether there is more.
func (w *watch) readSome(q *watched) (more bool) {
	w.heed(q)
	e, err := letters.Extent(w.r.b, q.info)
	if err != nil {
		w.failed(q, err)
		return false
	}
	ends := e.There.Ends()
	for len(q.read) < len(ends) {
		q.read = append(q.read, 0)
	}
	for level := range ends {
		if q.read[level] < ends[level] {
			return w.readLevel(q, &e, level) || true
		}
	}
	w.threshold(q, e.Entries)
	return false
}

// outdated says whether the rules for a queue have changed since they were followed.
func (w *watch) outdated(q *watched) bool {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	name := q.info.Decl.VHost
	return w.books[name] != w.r.books[name]
}

// maxAsked is of how many letters of a queue it is remembered how far the rules were asked. They may be gone.
const maxAsked = 1000

// judge asks the rules of the queue about a letter. whole is false if there is no time within the look to ask all of them: the next look at the letter
// goes on there. behind is the letter as the masks of its virtual host show it.
func (q *watched) judge(l, behind *letter.Letter, stored []byte, id queue.ID, within func() bool) (r ruling, whole bool) {
	at := q.asked[id]
	if whole = at.ask(q.rules, l, behind, stored, q.info.Incarnation(), id, within); whole {
		delete(q.asked, id)
		return at.ruling, true
	}
	if q.asked == nil || len(q.asked) >= maxAsked {
		q.asked = map[queue.ID]asked{}
	}
	q.asked[id] = at
	return r, false
}

// found is what a slice has of letters.
type found struct {
	wait []pending
	due  []pending
	news []groupEventOf
	seen map[groupKey]bool // those of news
	rows map[*activeRule][]Row
	took map[*activeRule]bool // rules that move some of them
}

// readLevel reads a slice of a level. What it has read is done with, or read again later.
func (w *watch) readLevel(q *watched, e *partition.Extent, level int) (more bool) {
	now, end := w.r.now(), e.There.Ends()[level]
	f := found{took: map[*activeRule]bool{}}
	places := map[*activeRule]*toldPlace{}
	for _, a := range q.rules {
		if a.Action == RuleWebhook && q.behind[a] == nil && !a.stopped.Load() {
			p := w.r.place(toldKey{q.info.Decl.VHost, a.Name, q.info.Incarnation()}, q.info.Decl.Name)
			places[a] = &p
		}
	}
	groups, beyond := w.wantsGroups(), false
	cut, isCut := uint64(0), false // the number of a letter about which not all rules were asked
	show := w.behind(q)
	within, looked := w.looking(q)
	next, done, err := letters.Browse(w.r.life, w.r.b, q.info, e.There.At(level, q.read[level]), readSlice, func(v queue.View, rec message.Record, history []byte) bool {
		if beyond = v.ID.Lane() != level; beyond {
			return false
		}
		l, ok := w.reader.Read(rec, history)
		if !ok || v.Dead {
			return within()
		}
		behind := show(l, rec, history)
		ruling, whole := q.judge(l, behind, history, v.ID, within)
		if !whole {
			cut, isCut = v.ID.Seq(), true
			return false
		}
		if groups {
			w.groups.note(w, q, &v, behind, now, &f)
		}
		for _, a := range ruling.tells {
			if p := places[a]; p != nil && !p.knows(v.ID) {
				if f.rows == nil {
					f.rows = map[*activeRule][]Row{}
				}
				f.rows[a] = append(f.rows[a], tellRow(q, &v, behind))
			}
		}
		if ruling.rule != nil {
			f.took[ruling.rule] = true
		}
		switch {
		case ruling.rule == nil || ruling.rule.stopped.Load():
		case ruling.due <= now && q.catchesUp(&ruling, v.ID, now):
			f.wait = append(f.wait, pending{moment.After(now, alarmAgain.Milliseconds()), v.ID, ruling.rule})
		case ruling.due <= now:
			f.due = append(f.due, pending{now, v.ID, ruling.rule})
		default:
			f.wait = append(f.wait, pending{ruling.due, v.ID, ruling.rule})
		}
		return within() && !w.outdated(q)
	})
	looked()
	if w.outdated(q) {
		return true // a rule that is deleted or changed does nothing more: the slice is read again under the new rules
	}
	if err != nil {
		w.failed(q, err)
		return true
	}
	if !w.takes(q, f.took) {
		return false
	}
	reached := reachedBy(next, level, end, done || beyond)
	if isCut {
		reached = cut
	}
	for a, p := range places {
		rows := f.rows[a]
		p.reach(level, reached)
		if len(rows) == 0 && reached < end {
			continue // it is written with the next ones, or at the end
		}
		wait, err := w.r.tellRule(a, toldKey{q.info.Decl.VHost, a.Name, q.info.Incarnation()}, p, rows)
		if err != nil {
			w.failed(q, err)
			return true
		}
		if wait > 0 {
			if q.behind == nil {
				q.behind = map[*activeRule]*late{}
			}
			q.behind[a] = &late{w.r.place(p.name(q.info.Decl.VHost), q.info.Decl.Name), moment.After(now, wait.Milliseconds())}
		}
	}
	q.read[level] = reached
	for _, p := range f.wait {
		w.push(q, p)
	}
	w.groups.tell(w, q, f.news)
	w.act(q, f.due)
	return true
}

// takes notes which rules take letters of a queue. If it cannot, which has ended the node, it says no.
func (w *watch) takes(q *watched, rules map[*activeRule]bool) bool {
	for a := range rules {
		if w.r.jobs.takes(a.Job, q.info.Decl.Name) != nil {
			return false
		}
	}
	return true
}

// tellRow is what a webhook is told of a letter: what is in letters leaves the node only with them.
func tellRow(q *watched, v *queue.View, l *letter.Letter) Row {
	row := makeRow(q.info, v, l)
	row.Preview = ""
	return row
}

// reachedBy is the first number of a level that a look has not passed, whose end is given.
func reachedBy(next queue.Cursor, level int, end uint64, done bool) uint64 {
	if id, ok := next.Last(); ok && id.Lane() == level && !done {
		return id.Seq() + 1
	}
	return end
}

// catchesUp says whether a webhook is going to be told of the letter soon: until then no rule that follows moves it. A webhook that cannot be told keeps nobody.
func (q *watched) catchesUp(r *ruling, id queue.ID, now int64) bool {
	return slices.ContainsFunc(r.tells, func(a *activeRule) bool {
		l := q.behind[a]
		return l != nil && l.next <= now && !l.place.knows(id)
	})
}

// catchUp tells a webhook of letters that others have met while it could not be told: some slices, if it is time.
func (w *watch) catchUp(q *watched, a *activeRule, l *late) {
	for range stepSlices {
		now := w.r.now()
		if l.next > now || w.r.life.Err() != nil || w.outOfTime(q) {
			return
		}
		level := 0
		for level < len(q.read) && l.place.reached(level) >= q.read[level] {
			level++
		}
		if level == len(q.read) || a.stopped.Load() {
			delete(q.behind, a)
			return
		}
		w.tellLate(q, a, l, level, now)
	}
}

// tellLate tells a webhook of a slice of a level.
func (w *watch) tellLate(q *watched, a *activeRule, l *late, level int, now int64) {
	if wait := w.r.hooks.ready(a.Webhook, q.info.Decl.VHost); wait > 0 {
		l.next = moment.After(now, wait.Milliseconds())
		return
	}
	e, err := letters.Extent(w.r.b, q.info)
	var rows []Row
	var next queue.Cursor
	done, beyond, end := false, false, q.read[level]
	cut, isCut := uint64(0), false // as in readLevel
	if err == nil {
		show := w.behind(q)
		within, looked := w.looking(q)
		next, done, err = letters.Browse(w.r.life, w.r.b, q.info, e.There.At(level, l.place.reached(level)), readSlice, func(v queue.View, rec message.Record, history []byte) bool {
			if beyond = v.ID.Lane() != level || v.ID.Seq() >= end; beyond {
				return false
			}
			if read, ok := w.reader.Read(rec, history); ok && !v.Dead {
				shown := show(read, rec, history)
				r, whole := q.judge(read, shown, history, v.ID, within)
				if !whole {
					cut, isCut = v.ID.Seq(), true
					return false
				}
				if slices.Contains(r.tells, a) {
					rows = append(rows, tellRow(q, &v, shown))
				}
			}
			return within()
		})
		looked()
	}
	if err != nil {
		l.next = moment.After(now, tryAgain.Milliseconds())
		return // the next look into the queue says why
	}
	p := l.place
	p.Ends = slices.Clone(p.Ends)
	reached := reachedBy(next, level, end, done || beyond)
	if isCut {
		reached = cut
	}
	p.reach(level, reached)
	switch wait, err := w.r.tellRule(a, p.name(q.info.Decl.VHost), &p, rows); {
	case err != nil:
		l.next = moment.Never // the node stops
	case wait > 0:
		l.next = moment.After(now, wait.Milliseconds())
	default:
		l.place = w.r.place(p.name(q.info.Decl.VHost), q.info.Decl.Name)
	}
}

// behind returns what shows letters of a queue as the masks of its virtual host show them. A shown one is valid until the next is shown.
func (w *watch) behind(q *watched) func(l *letter.Letter, rec message.Record, history []byte) *letter.Letter {
	mask := w.r.f.masks.Mask(string(q.info.Decl.VHost))
	if mask == nil {
		return func(l *letter.Letter, _ message.Record, _ []byte) *letter.Letter { return l }
	}
	reader := letter.NewReader(w.r.f.Names).Masked(mask)
	return func(l *letter.Letter, rec message.Record, history []byte) *letter.Letter {
		if shown, ok := reader.Read(rec, history); ok {
			return shown
		}
		return l // impossible: what is a letter does not depend on masks
	}
}

// failed decides what follows from an error of a look.
func (w *watch) failed(q *watched, err error) {
	if queueGone(err) {
		w.drop(q)
		return
	}
	q.blocked = moment.After(w.r.now(), leaderEvery.Milliseconds()) // its group has no leader for now
	if !partition.Lost(err) && w.r.life.Err() == nil {
		w.r.log.Warn("Arriving letters cannot be read for now", "vhost", string(q.info.Decl.VHost), "queue", string(q.info.Decl.Name), "error", err)
		q.blocked = moment.After(w.r.now(), tryAgain.Milliseconds())
	}
}

// push remembers that a letter waits.
func (w *watch) push(q *watched, p pending) {
	if p.due >= q.horizon {
		return
	}
	if w.pending >= w.most {
		q.horizon = p.due
		return
	}
	w.pending++
	p.rule.waiting.Add(1)
	q.heap = append(q.heap, p)
	h := q.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !earlier(&h[i], &h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func earlier(a, b *pending) bool {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id)) < 0
}

// pop takes the first that waits.
func (w *watch) pop(q *watched) pending {
	h := q.heap
	p, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		least := i
		for _, down := range [...]int{2*i + 1, 2*i + 2} {
			if down < last && earlier(&h[down], &h[least]) {
				least = down
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	if q.heap = h; last < cap(h)/4 {
		q.heap = slices.Clip(slices.Clone(h))
	}
	w.pending--
	p.rule.waiting.Add(-1)
	return p
}

// due moves letters that are due: a slice of each queue.
func (w *watch) due(now int64) {
	if w.r.b.Alarmed() { // what is moved needs room
		return
	}
	for _, q := range slices.Collect(maps.Values(w.queues)) {
		var list []pending
		for len(q.heap) > 0 && q.heap[0].due <= now && len(list) < actAtOnce && !w.outOfTime(q) {
			list = append(list, w.pop(q))
		}
		slices.SortFunc(list, func(a, b pending) int { return cmp.Compare(a.id, b.id) })
		w.act(q, list)
		if q.horizon <= now && now-q.walked >= walkAgain.Milliseconds() && !q.queued {
			w.walk(q)
		}
	}
}

// act asks the rules about letters that were due, in their order, and has those moved that are. Those that it has no time for are due again.
func (w *watch) act(q *watched, list []pending) {
	if len(list) == 0 || w.r.life.Err() != nil {
		return
	}
	w.heed(q)
	ids := make([]queue.ID, len(list))
	for i := range list {
		ids[i] = list[i].id
	}
	now := w.r.now()
	later := func(id queue.ID, a *activeRule, d time.Duration) {
		w.push(q, pending{moment.After(now, d.Milliseconds()), id, a})
	}
	by, took, show := map[*activeRule][]queue.ID{}, map[*activeRule]bool{}, w.behind(q)
	within, looked := w.looking(q)
	rest := len(list) // there was no time for those from here on
	decide := func(v *queue.View, r *ruling) {
		if r.rule != nil {
			took[r.rule] = true
		}
		switch {
		case r.rule == nil || r.rule.stopped.Load():
		case r.due > now:
			w.push(q, pending{r.due, v.ID, r.rule})
		case w.r.b.Alarmed() || q.catchesUp(r, v.ID, now):
			later(v.ID, r.rule, alarmAgain)
		case v.Out || v.Offered || v.NotBefore != 0: // it may come back
			later(v.ID, r.rule, tryOutAgain)
		default:
			by[r.rule] = append(by[r.rule], v.ID)
		}
	}
	err := letters.Look(w.r.life, w.r.b, q.info, ids, func(v queue.View, rec message.Record, history []byte) bool {
		l, ok := w.reader.Read(rec, history)
		at := slices.Index(ids, v.ID)
		if ok && !v.Dead {
			r, whole := q.judge(l, show(l, rec, history), history, v.ID, within)
			if !whole {
				rest = at
				return false
			}
			decide(&v, &r)
		}
		if within() {
			return true
		}
		rest = at + 1
		return false
	})
	looked()
	if err != nil {
		w.failed(q, err)
		if w.queues[q.info.Incarnation()] == q { // what was looked for is met again
			w.walk(q)
		}
		return
	}
	for _, p := range list[rest:] {
		w.push(q, p)
	}
	if !w.takes(q, took) { // masks have changed, if another rule than before takes it
		return
	}
	for _, a := range q.rules { // in their order
		if ids := by[a]; len(ids) > 0 && !a.stopped.Load() {
			w.move(q, a, ids, later)
		}
	}
}

// move has a rule move letters.
func (w *watch) move(q *watched, a *activeRule, ids []queue.ID, later func(queue.ID, *activeRule, time.Duration)) {
	ctx, cancel := context.WithTimeout(w.r.life, moveTime)
	defer cancel()
	action, how := a.errand()
	e := how.errand(action, a.Job)
	e.MaxReplays, e.Counts, e.Tolerant = 0, true, true // the rule was asked how often
	e.Choose = func(*queue.View, message.Record, []byte) bool { return true }
	left := map[queue.ID]time.Duration{}
	for _, id := range ids {
		left[id] = tryOutAgain // a consumer may have it now; if it is gone it is not met again
	}
	why := ""
	slice, err := letters.As(a.conn).RunErrandOn(ctx, q.info.Decl.Name, q.info.Incarnation(), &e, ids, func(p *letters.Place) {
		if p.Why == "" {
			delete(left, p.ID)
			return
		}
		why, left[p.ID] = p.Why, tryAgain
	})
	if slice.Moved > 0 {
		done := letters.ErrandSlice{Examined: slice.Moved} // what stays is tried again, and counts when it goes
		done.Moved = slice.Moved
		if w.r.jobs.did(a.Job, &done, w.r.now()) != nil {
			return // the node stops
		}
	}
	var refused *topology.Error
	switch {
	case err == nil:
	case w.r.life.Err() != nil:
		return
	case errors.As(err, &refused) && (refused.Kind == topology.AccessRefused || refused.Kind == topology.NotAllowed):
		w.r.halt(a, refused.Text, nil)
		return
	case queueGone(err) && w.r.b.HasDeleted(q.info):
		w.drop(q)
		return
	case partition.Lost(err) || errors.As(err, &refused) && refused.Kind == topology.Internal:
		why = err.Error()
		for id := range left {
			left[id] = leaderEvery
		}
	default:
		why = err.Error()
		for id := range left {
			left[id] = tryAgain
		}
	}
	a.why.Store(nil)
	if why != "" {
		a.why.Store(&why)
	}
	for id, d := range left {
		later(id, a, d)
	}
}

// next is after how long there is something to do.
func (w *watch) next(now int64) time.Duration {
	first := moment.Never
	for _, q := range w.reading {
		first = min(first, max(now, q.blocked))
	}
	for _, q := range w.queues {
		if len(q.heap) > 0 {
			first = min(first, q.heap[0].due)
		}
		for _, l := range q.behind {
			first = min(first, l.next)
		}
		if q.horizon < moment.Never {
			first = min(first, max(q.horizon, moment.After(q.walked, walkAgain.Milliseconds())))
		}
	}
	switch {
	case first == moment.Never:
		return math.MaxInt64
	case first <= now && w.r.b.Alarmed():
		return alarmAgain
	}
	return moment.Milliseconds(max(0, first-now))
}

// cancelStrays cancels the jobs of rules that are gone with their virtual hosts.
func (r *Rules) cancelStrays() {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := map[uint64]bool{}
	for _, b := range r.books {
		for i := range b.rules {
			known[b.rules[i].Job] = true
		}
	}
	_ = r.jobs.cancelStanding(func(id uint64) bool { return known[id] }) // a failure has ended the node
}
