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
	// found is no need at all: a client had it, or the drain.
	found need = "found"
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
	looks int // at places of messages
}

// missing is a copy that is nowhere, with all that may explain it.
type missing struct {
	m     *message
	queue string
	needs []need
}

func (j *judge) message(m *message) {
	if m.reply {
		return
	}
	j.doubled(m)
	j.annotated(m)
	if m.fate == refused || m.fate == returned || m.fate == rolledBack || m.act.done == 0 {
		j.mustNot(m)
		return
	}
	if j.l.killedBetween(m.act.sent, j.l.ticks+1) && m.fate != confirmed && m.fate != committed || len(j.l.kills) > 0 && m.mode() == plain {
		return // nothing was promised
	}
	for _, q := range j.routed(m) {
		switch how, needs := j.explain(m, j.begin(m, q)); how {
		case lost:
			j.l.complain("%s: lost: it was routed to %s, and is nowhere; %s", m, q, j.story(m))
		case counted:
			j.loose = append(j.loose, &missing{m, q, needs})
		case free, there:
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
	if j.l.moved() && j.alone(m) {
		j.together(m)
	}
	if j.l.moved() || j.w.divides || len(j.l.kills) > 0 {
		return
	}
	ends := map[string][]*copied{}
	possible := j.w.possibleRoutes(m.exchange, m.key)
	for _, c := range m.copies {
		if !slices.Contains(possible, c.root) {
			j.l.complain("%s: in %s [%s], where it was not routed to (BR-6.5)", m, c.queue, c.sig)
		}
		if c.last.gone() {
			ends[c.root] = append(ends[c.root], c)
		}
	}
	for root, all := range ends {
		if len(all) > 1 {
			j.l.complain("%s: doubled: routed to %s once, it came to %d ends; %s", m, root, len(all), j.story(m))
		}
	}
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

// vanishes says whether the queue may go by itself.
func (j *judge) vanishes(queue string) bool {
	return j.l.any(queue, func(s *queueSpec) bool { return s.exclusive || s.autoDelete || s.expires >= 0 })
}

// diesFirst says whether the message's time in the queue is over certainly before the
// queue's own time without use can be (DL-8.11, DL-8.12).
func (j *judge) diesFirst(m *message, p place) bool {
	queue := p.queue
	specs := j.l.specs[queue]
	if len(specs) != 1 || p.path != "" || specs[0].ttl < 0 || specs[0].expires < 0 || specs[0].exclusive || specs[0].autoDelete {
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
		dead := last != nil && last.dies() && last.settle.before(x)
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
func (j *judge) mayDie(m *message, p place, rejected bool) (by causes) {
	l, queue := j.l, p.queue
	if rejected {
		by |= byReject
	}
	if l.any(queue, func(s *queueSpec) bool { return s.ttl >= 0 }) || (p.path == "" || p.path == anyhow) && m.expiration >= 0 {
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

// died adds what may have become of a message that died in a place.
func (j *judge) died(m *message, p place, by causes, k *look) {
	deeper := p
	deeper.last = nil
	if deaths := p.deaths(); p.path != anyhow && !slices.Contains(deaths, p.queue) {
		deaths = append(deaths, p.queue)
		slices.Sort(deaths)
		deeper.path = strings.Join(deaths, ",")
	}
	var seen []string
	for _, s := range j.l.specs[p.queue] {
		if s.dlx == "none" && s.policy {
			continue // what the queue itself says is in force
		}
		where := s.dlx + "\x00" + s.dlrk
		if slices.Contains(seen, where) {
			continue
		}
		seen = append(seen, where)
		if s.dlx == "none" {
			k.needs = append(k.needs, dropped)
			continue
		}
		for _, key := range j.deadKeys(m, s, p) {
			j.diedTo(m, key, deeper, by, s, k)
		}
	}
}

// deadKeys are those that a message that dies may be routed by: the queue's, or the one it came
// with, which a queue that it died in before may have given it (DL-6.1).
func (j *judge) deadKeys(m *message, s *queueSpec, p place) (keys []string) {
	if s.dlrk != "" {
		return []string{s.dlrk}
	}
	keys = []string{m.key}
	before := p.deaths()
	if p.path == anyhow {
		before = sortedKeys(j.l.specs) // any of them
	}
	for _, from := range before {
		for _, s := range j.l.specs[from] {
			if s.dlrk != "" {
				keys = appendOnce(keys, s.dlrk)
			}
		}
	}
	return keys
}

// diedTo adds what may have become of a message that died and was routed by a key. p is the
// queue that it died in, with the path that it has from then on.
func (j *judge) diedTo(m *message, key string, p place, by causes, s *queueSpec, k *look) {
	targets := j.w.possibleRoutes(s.dlx, key)
	if len(targets) == 0 {
		k.needs = append(k.needs, dropped, heldIn(p.queue))
		return
	}
	var way []step
	for _, t := range targets {
		needs := j.stopped(m, p, t, by, s)
		// What reached another target counts as routed, whichever were cut or refused.
		if i := slices.Index(needs, dropped); i >= 0 && len(targets) > 1 {
			needs[i] = freely
		}
		way = append(way, step{place{queue: t, path: p.path}, needs})
	}
	k.ways = append(k.ways, way)
}

// stopped lists what may explain that a message that died did not come to the queue t.
func (j *judge) stopped(m *message, p place, t string, by causes, s *queueSpec) (needs []need) {
	unsure := !j.stood(t, m.act) || len(j.l.deletes[t]) > 0 || j.vanishes(t) || s.dlx != "" && !j.bound(t, s.dlx, m.act)
	cut := by&byItself != 0 && slices.Contains(p.deaths(), t) || p.path == anyhow // DL-9.2
	if s.atLeastOnce && s.overflow == "reject-publish" && len(j.l.specs[p.queue]) == 1 {
		// It waits for its targets (DL-13.5), for ever if there are none (DL-9.7, DL-13.6).
		switch {
		case cut || unsure:
			return []need{heldIn(p.queue), dropped}
		case j.l.any(t, func(s *queueSpec) bool { return s.maxLen == 0 && s.refuses() }):
			return []need{heldIn(p.queue)} // there is never room
		}
		return nil
	}
	full := !j.w.quorum(t) && j.l.any(t, (*queueSpec).refuses)
	if unsure || cut || full {
		needs = append(needs, dropped)
		// Whether it is kept depends on the policy of the moment, whose exchange may be the one that
		// the queue names itself, or it was on its way when its target, in another log, went.
		if j.l.any(p.queue, func(s *queueSpec) bool { return s.atLeastOnce }) || unsure {
			return append(needs, heldIn(p.queue))
		}
	}
	// A policy leaves in force what the queue itself says: what has to arrive at least once waits for a target that refuses.
	if j.l.any(p.queue, func(s *queueSpec) bool { return s.atLeastOnce }) && j.l.any(t, (*queueSpec).refuses) {
		needs = append(needs, heldIn(p.queue))
	}
	return needs
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
		for _, n := range x.needs {
			if budget(n) > 0 {
				given[x] = n
				left[n]--
				return true
			}
		}
		for _, n := range x.needs {
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
		for _, n := range x.needs {
			may = append(may, fmt.Sprintf("%s (%d)", n, j.budget(n)))
		}
		j.l.complain("%s: lost: it was routed to %s, and is nowhere; what may explain it explains no more: %s; %s",
			x.m, x.queue, strings.Join(may, ", "), j.story(x.m))
	}
}

const unlimited = 1 << 30

// budget is how many messages a need explains at most.
func (j *judge) budget(n need) int {
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
