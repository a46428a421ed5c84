package conserve

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A need is what explains that a copy is nowhere: a queue that was deleted or purged, deaths
// that were dropped. Each of them took so many messages and not more.
type need string

const (
	// dropped is a dead letter without a place to go to (DL-1.8, DL-6.1, DL-9.2).
	dropped need = "dead and dropped"
	// freely is any way out that nobody counts.
	freely need = "free"
)

func deletedWith(queue string) need { return need("deleted with " + queue) }
func heldIn(queue string) need      { return need("held in " + queue) }
func purgedFrom(queue string) need  { return need("purged from " + queue) }

// settleAll judges everything, after the drain.
func (l *ledger) settleAll(w *world) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, doubt := range l.doubts {
		if f := doubt(); f != "" {
			l.complain("%s", f)
		}
	}
	j := &judge{l: l, w: w}
	for _, m := range l.order {
		j.message(m)
	}
	j.match()
	return l.faults
}

// judge follows each message from the queues it was routed to.
type judge struct {
	l     *ledger
	w     *world
	loose []*missing
}

// missing is a copy that is nowhere, with all that may explain it.
type missing struct {
	m     *message
	queue string
	needs [][]need
}

func (j *judge) message(m *message) {
	if m.reply {
		return
	}
	j.doubled(m)
	if m.fate == refused || m.fate == returned || m.fate == rolledBack || m.act.done == 0 {
		j.mustNot(m)
		return
	}
	if j.l.killedBetween(m.act.sent, j.l.ticks+1) && m.fate != confirmed && m.fate != committed || len(j.l.kills) > 0 && m.mode() == plain {
		return // nothing was promised
	}
	for _, q := range j.routed(m) {
		needs := j.explain(m, q, nil, nil, m.act)
		switch {
		case len(needs) == 0:
			j.l.complain("%s: lost: it was routed to %s, and is nowhere; %s", m, q, j.story(m))
		case slices.ContainsFunc(needs, func(n []need) bool { return len(n) == 0 }):
		default:
			j.loose = append(j.loose, &missing{m, q, needs})
		}
	}
}

// story tells where the message was seen.
func (j *judge) story(m *message) string {
	if len(m.copies) == 0 {
		return "nobody has seen it"
	}
	var all []string
	for _, c := range m.copies {
		how := [...]string{"not settled", "acknowledged", "rejected", "requeued", "requeued by reject", "left by its channel"}[c.last.how]
		if c.last.drained {
			how = "drained"
		}
		all = append(all, fmt.Sprintf("%s [%s] seen %d times, %s", c.queue, c.sig, c.seen, how))
	}
	return "seen: " + strings.Join(all, "; ")
}

// mustNot checks what was refused by all queues: it is nowhere (BR-8.9, DL-10.7).
func (j *judge) mustNot(m *message) {
	if m.fate != refused {
		return
	}
	// The other queues keep their copies, and where it is refused it may die (DL-10.9, DL-10.10).
	possible := j.w.possibleRoutes(m.exchange, m.key)
	for _, c := range m.copies {
		if len(possible) == 1 && !j.l.any(c.root, func(s *queueSpec) bool { return s.overflow == "reject-publish-dlx" }) && len(j.l.kills) == 0 {
			j.l.complain("%s: refused, and there in %s (BR-8.9)", m, c.queue)
		}
	}
}

// doubled checks that no copy ended in two places, unless a dead letter exchange divides.
func (j *judge) doubled(m *message) {
	if j.l.moved() || j.w.divides || len(j.l.kills) > 0 {
		return
	}
	ends := map[string][]*copied{}
	possible := j.w.possibleRoutes(m.exchange, m.key)
	for _, c := range m.copies {
		if !slices.Contains(possible, c.root) {
			j.l.complain("%s: in %s [%s], where it was not routed to (BR-6.5)", m, c.queue, c.sig)
		}
		if c.final() && !c.last.unheard() {
			ends[c.root] = append(ends[c.root], c)
		}
	}
	for root, all := range ends {
		if len(all) > 1 {
			j.l.complain("%s: doubled: routed to %s once, it came to %d ends; %s", m, root, len(all), j.story(m))
		}
	}
}

// final says that the copy left the broker by its last delivery.
func (c *copied) final() bool {
	d := c.last
	return d.drained || d.noAck || d.how == acked && !d.void
}

// unheard says whether the acknowledgement may never have been read: its client went.
func (d *delivery) unheard() bool {
	return d.how == acked && !d.drained && d.settle.done == 0 && d.ch.ended
}

// routed lists the queues that the message certainly was routed to.
func (j *judge) routed(m *message) (queues []string) {
	for _, q := range j.w.possibleRoutes(m.exchange, m.key) {
		if !j.stood(q, m.act) {
			continue
		}
		if m.exchange != "" && !j.bound(q, m.exchange, m.act) {
			continue
		}
		queues = append(queues, q)
	}
	return queues
}

// bound says whether a queue certainly was bound to an exchange when a was done.
func (j *judge) bound(queue, exchange string, a *act) bool {
	return slices.ContainsFunc(j.l.binds, func(b *binding) bool {
		return b.queue == queue && b.exchange == exchange && b.done != 0 && b.before(a) && !j.mayGoBetween(queue, b.act, a)
	})
}

// stood says whether the queue certainly was there when a was done.
func (j *judge) stood(queue string, a *act) bool {
	for _, d := range j.l.declares[queue] {
		if d.done != 0 && d.before(a) && !(j.l.killedBetween(d.sent, a.sent) && !j.w.durable(queue)) && !j.mayGoBetween(queue, d, a) && !j.mayExpire(queue, d, a) {
			return true
		}
	}
	return false
}

// deleted says whether the queue certainly is not there: it was deleted, and nobody has
// asked for it since.
func (j *judge) deleted(queue string) bool {
	return slices.ContainsFunc(j.l.deletes[queue], func(x *act) bool {
		return x.done != 0 && !x.failed && !slices.ContainsFunc(j.l.declares[queue], func(d *act) bool { return !d.before(x) })
	})
}

// mayGoBetween says whether a delete may have come between two acts.
func (j *judge) mayGoBetween(queue string, first, second *act) bool {
	for _, x := range j.l.deletes[queue] {
		if !x.failed && !j.over(x, first) && !second.before(x) {
			return true
		}
	}
	return false
}

// over says whether a is certainly not to come any more when b is begun: it was done before, or
// the node that it was said to has ended.
func (j *judge) over(a, b *act) bool {
	return a.before(b) || a.done == 0 && j.l.killedBetween(a.sent, b.sent)
}

// mayExpire says whether a queue's time without use may be over between its declaration
// and the end of a.
func (j *judge) mayExpire(queue string, d, a *act) bool {
	expires := j.l.shortest(queue, func(s *queueSpec) int { return s.expires })
	return expires >= 0 && a.doneAt.Sub(d.sentAt).Milliseconds() >= int64(expires)
}

func (l *ledger) any(queue string, f func(*queueSpec) bool) bool {
	return slices.ContainsFunc(l.specs[queue], f)
}

// shortest is the least of what the specs of a queue say that is not negative; -1 if none.
func (l *ledger) shortest(queue string, f func(*queueSpec) int) int {
	least := -1
	for _, s := range l.specs[queue] {
		if n := f(s); n >= 0 && (least < 0 || n < least) {
			least = n
		}
	}
	return least
}

// explain lists what may have become of a message in a queue, with the path of queues it died in
// before: each explanation is what it needs, and none is needed where it is seen at the end of its
// way. Nothing explains a message that is lost. entered is the act that published it.
func (j *judge) explain(m *message, queue string, path, visited []string, entered *act) (all [][]need) {
	here := j.copies(m, queue, path)
	if slices.ContainsFunc(here, (*copied).final) {
		return [][]need{nil}
	}
	if j.l.noAckLost[queue] || j.vanishes(queue) && !j.diesFirst(m, queue, path) {
		all = append(all, []need{freely})
	}
	if !j.w.durable(queue) || !m.persistent && !j.w.quorum(queue) {
		if len(j.l.kills) > 0 {
			all = append(all, []need{freely})
		}
	}
	var last *delivery
	for _, c := range here {
		if last == nil || c.last.at > last.at {
			last = c.last
		}
	}
	if j.mayBeGone(j.l.deletes[queue], queue, entered, last) {
		all = append(all, []need{deletedWith(queue)})
	}
	if j.mayBeGone(j.l.purges[queue], queue, entered, last) {
		all = append(all, []need{purgedFrom(queue)})
	}
	root := len(path) == 0
	// A publish that nobody waits for may be refused without a word (DL-10.7, DL-10.8).
	if root && m.mode() == plain && j.l.any(queue, func(s *queueSpec) bool { return s.overflow != "" && s.overflow != "drop-head" }) {
		all = append(all, []need{freely})
	}
	if root && j.l.peer && m.mode() == transactional && j.w.quorum(queue) && j.l.any(queue, func(s *queueSpec) bool { return s.overflow != "" }) {
		all = append(all, []need{freely})
	}
	for _, v := range j.l.shovels {
		if v.from == queue {
			all = append(all, j.carried(m, v.to, visited)...)
		}
	}
	if by := j.mayDie(m, queue, path, last); by != 0 {
		all = append(all, j.died(m, queue, path, visited, by)...)
	}
	return least(all)
}

// carried explains a message that a shovel may have taken to a queue.
func (j *judge) carried(m *message, to string, visited []string) [][]need {
	for _, c := range m.copies {
		if c.queue == to && c.final() {
			return [][]need{nil}
		}
	}
	if slices.Contains(visited, ">"+to) {
		return nil
	}
	all := j.explain(m, to, []string{"*"}, append(slices.Clone(visited), ">"+to), m.act)
	if !j.stood(to, m.act) || len(j.l.deletes[to]) > 0 {
		all = append(all, []need{freely})
	}
	return all
}

// copies are those of a message in a queue that came by the path; of any way where a shovel
// has carried it.
func (j *judge) copies(m *message, queue string, path []string) (all []*copied) {
	for _, c := range m.copies {
		if c.queue == queue && (slices.Equal(c.path, path) || slices.Contains(path, "*")) {
			all = append(all, c)
		}
	}
	return all
}

// vanishes says whether the queue may go by itself.
func (j *judge) vanishes(queue string) bool {
	return j.l.any(queue, func(s *queueSpec) bool { return s.exclusive || s.autoDelete || s.expires >= 0 })
}

// diesFirst says whether the message's time in the queue is over certainly before the
// queue's own time without use can be (DL-8.11, DL-8.12).
func (j *judge) diesFirst(m *message, queue string, path []string) bool {
	specs := j.l.specs[queue]
	if len(specs) != 1 || len(path) > 0 || specs[0].ttl < 0 || specs[0].expires < 0 || specs[0].exclusive || specs[0].autoDelete {
		return false
	}
	var last *act
	for _, d := range j.l.declares[queue] {
		if d.done != 0 && d.before(m.act) && (last == nil || last.sent < d.sent) {
			last = d
		}
	}
	const margin = 30 * time.Millisecond
	return last != nil && m.act.doneAt.Add(time.Duration(specs[0].ttl)*time.Millisecond+margin).Before(last.sentAt.Add(time.Duration(specs[0].expires)*time.Millisecond))
}

// mayBeGone says whether one of the acts (deletes or purges) may have taken the message. What
// was rejected before is dead by then, and none of it (DL-1.2, DL-2.1, DL-2.2).
func (j *judge) mayBeGone(acts []*act, queue string, entered *act, last *delivery) bool {
	for _, x := range acts {
		if x.failed || j.over(x, entered) {
			continue
		}
		dead := last != nil && last.how == rejected && !last.void && last.settle.before(x)
		if dead && !j.l.any(queue, func(s *queueSpec) bool { return s.atLeastOnce }) {
			continue
		}
		return true
	}
	return false
}

// causes of a death.
type causes uint8

const (
	byReject causes = 1 << iota
	byItself
)

// mayDie says whether a message may die in a queue (DL-1.1).
func (j *judge) mayDie(m *message, queue string, path []string, last *delivery) (by causes) {
	l := j.l
	if last != nil && last.how == rejected && !last.void {
		by |= byReject
	}
	if l.any(queue, func(s *queueSpec) bool { return s.ttl >= 0 }) || len(path) == 0 && m.expiration >= 0 {
		by |= byItself
	}
	quorum := j.w.quorum(queue)
	if l.any(queue, func(s *queueSpec) bool {
		if s.maxLen < 0 {
			return false
		}
		return s.overflow == "" || s.overflow == "drop-head" || s.overflow == "reject-publish-dlx" ||
			// A policy and an argument may disagree about the overflow.
			len(l.specs[queue]) > 1
	}) {
		by |= byItself
	}
	limit := l.shortest(queue, func(s *queueSpec) int { return s.limit })
	if limit < 0 {
		limit = 20
	}
	if quorum && l.failures(m) > limit {
		by |= byItself
	}
	return by
}

// died explains a message that may have died in a queue.
func (j *judge) died(m *message, queue string, path, visited []string, by causes) (all [][]need) {
	deeper := slices.Clone(path)
	if !slices.Contains(deeper, queue) {
		deeper = append(deeper, queue)
		slices.Sort(deeper)
	}
	var seen []string
	for _, s := range j.l.specs[queue] {
		if s.dlx == "none" && s.policy {
			continue // what the queue itself says is in force
		}
		where := s.dlx + "\x00" + s.dlrk
		if slices.Contains(seen, where) {
			continue
		}
		seen = append(seen, where)
		if s.dlx == "none" {
			all = append(all, []need{dropped})
			continue
		}
		for _, key := range j.deadKeys(m, s, path) {
			all = append(all, j.diedTo(m, queue, key, deeper, visited, by, s)...)
		}
	}
	return all
}

// deadKeys are those that a message that dies may be routed by: the queue's, or the one it came
// with, which a queue that it died in before may have given it (DL-6.1).
func (j *judge) deadKeys(m *message, s *queueSpec, path []string) (keys []string) {
	if s.dlrk != "" {
		return []string{s.dlrk}
	}
	keys = []string{m.key}
	for _, from := range path {
		for _, before := range j.l.specs[from] {
			if before.dlrk != "" && !slices.Contains(keys, before.dlrk) {
				keys = append(keys, before.dlrk)
			}
		}
	}
	return keys
}

// diedTo explains a message that died in a queue and was routed by a key.
func (j *judge) diedTo(m *message, queue, key string, deeper, visited []string, by causes, s *queueSpec) [][]need {
	targets := j.w.possibleRoutes(s.dlx, key)
	if len(targets) == 0 {
		return [][]need{{dropped}, {heldIn(queue)}}
	}
	together := [][]need{nil}
	for _, t := range targets {
		branch := j.arrived(m, queue, t, deeper, visited, by, s)
		// What reached another target counts as routed, whichever were cut or refused.
		for _, needs := range branch {
			for i, n := range needs {
				if len(targets) > 1 && n == dropped {
					needs[i] = freely
				}
			}
		}
		together = product(together, branch)
	}
	return together
}

// arrived explains a message that died and was routed to the queue t.
func (j *judge) arrived(m *message, from, t string, path, visited []string, by causes, s *queueSpec) (all [][]need) {
	state := t + " " + strings.Join(path, ",")
	if slices.Contains(visited, state) {
		return nil
	}
	all = j.explain(m, t, path, append(slices.Clone(visited), state), m.act)
	if slices.ContainsFunc(all, func(n []need) bool { return len(n) == 0 }) {
		return [][]need{nil}
	}
	unsure := !j.stood(t, m.act) || len(j.l.deletes[t]) > 0 || j.vanishes(t) || s.dlx != "" && !j.bound(t, s.dlx, m.act)
	cut := by&byItself != 0 && slices.Contains(path, t) || slices.Contains(path, "*") // DL-9.2
	if s.atLeastOnce && s.overflow == "reject-publish" && len(j.l.specs[from]) == 1 {
		// It waits for its targets (DL-13.5), for ever if there are none (DL-9.7, DL-13.6).
		switch {
		case cut || unsure:
			all = append(all, []need{heldIn(from)}, []need{dropped})
		case j.l.any(t, func(s *queueSpec) bool { return s.maxLen == 0 && s.refuses() }):
			all = append(all, []need{heldIn(from)}) // there is never room
		}
		return all
	}
	full := !j.w.quorum(t) && j.l.any(t, (*queueSpec).refuses)
	if unsure || cut || full {
		all = append(all, []need{dropped})
		if s.atLeastOnce { // whether it is kept depends on the policy of the moment
			all = append(all, []need{heldIn(from)})
		}
	}
	return all
}

// product joins what each of two branches needs.
func product(a, b [][]need) (all [][]need) {
	for _, x := range a {
		for _, y := range b {
			all = append(all, slices.Concat(x, y))
		}
	}
	return least(all)
}

// least leaves out what explains nothing that another explanation does not: one that needs
// the same as another, or more.
func least(all [][]need) (kept [][]need) {
	for i := range all {
		// What nobody counts is needed only where nothing else is.
		if counted := slices.DeleteFunc(slices.Clone(all[i]), func(n need) bool { return n == freely }); len(counted) > 0 {
			all[i] = counted
		}
	}
	for i, x := range all {
		if !slices.ContainsFunc(all[:i], func(y []need) bool { return needsAll(x, y) }) &&
			!slices.ContainsFunc(all[i+1:], func(y []need) bool { return needsAll(x, y) && !needsAll(y, x) }) {
			kept = append(kept, x)
		}
	}
	return kept
}

// needsAll says whether x needs all that y needs. Whoever needs anything needs what is free.
func needsAll(x, y []need) bool {
	return len(y) == 0 || !slices.ContainsFunc(y, func(n need) bool { return n != freely && !slices.Contains(x, n) }) && len(x) > 0
}

// match gives each missing copy an explanation, of which there are only so many.
func (j *judge) match() {
	left := map[need]int{}
	budget := func(n need) int {
		if _, ok := left[n]; !ok {
			left[n] = j.budget(n)
		}
		return left[n]
	}
	// What only one explanation fits comes first.
	slices.SortStableFunc(j.loose, func(a, b *missing) int { return len(a.needs) - len(b.needs) })
	given := map[*missing]need{}
	var give func(x *missing, tried map[need]bool) bool
	give = func(x *missing, tried map[need]bool) bool {
		for _, alternative := range x.needs {
			n := alternative[0] // more than one are rare: the first stands for all
			if n == freely || budget(n) > 0 {
				given[x] = n
				left[n]--
				return true
			}
		}
		for _, alternative := range x.needs {
			n := alternative[0]
			if tried[n] {
				continue
			}
			tried[n] = true
			for other, has := range given {
				if has != n {
					continue
				}
				left[n]++
				delete(given, other)
				given[x] = n
				left[n]--
				if give(other, tried) {
					return true
				}
				given[other] = n
				delete(given, x)
			}
		}
		return false
	}
	for _, x := range j.loose {
		if give(x, map[need]bool{}) {
			continue
		}
		var may []string
		for _, alternative := range x.needs {
			may = append(may, fmt.Sprintf("%s (%d)", alternative[0], j.budget(alternative[0])))
		}
		j.l.complain("%s: lost: it was routed to %s, and is nowhere; what may explain it explains no more: %s; %s",
			x.m, x.queue, strings.Join(may, ", "), j.story(x.m))
	}
}

const unlimited = 1 << 30

// budget is how many messages a need explains at most.
func (j *judge) budget(n need) int {
	if n == freely {
		return unlimited
	}
	if n == dropped {
		if !j.l.counted || len(j.l.kills) > 0 {
			return unlimited
		}
		return int(j.l.deaths)
	}
	if queue, ok := strings.CutPrefix(string(n), "held in "); ok {
		return j.l.held[queue]
	}
	total := 0
	if queue, ok := strings.CutPrefix(string(n), "deleted with "); ok {
		for _, x := range j.l.deletes[queue] {
			if x.failed {
				continue
			}
			// It takes what is unacknowledged as well, which nobody counts.
			// RabbitMQ's quorum queues do not count what has just been published to them.
			if x.done == 0 || x.count < 0 || j.l.consumed[queue] || j.l.peer && j.w.quorum(queue) {
				return unlimited
			}
			total += x.count
		}
	}
	if queue, ok := strings.CutPrefix(string(n), "purged from "); ok {
		for _, x := range j.l.purges[queue] {
			if x.failed {
				continue
			}
			if x.done == 0 {
				return unlimited
			}
			total += x.count
		}
	}
	return total
}
