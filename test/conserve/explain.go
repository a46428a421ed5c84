package conserve

import (
	"math"
	"slices"
	"strings"
)

// A place is where a message may have been: a queue, and the queues that it had died in before,
// sorted, with commas between. last is what it was seen to do there last, where that is known.
type place struct {
	queue, path string
	last        *delivery
}

// anyhow is the path of what a shovel may have carried: nobody knows how it came.
const anyhow = "*"

// deaths are the queues of the path.
func (p place) deaths() []string {
	if p.path == "" {
		return nil
	}
	return strings.Split(p.path, ",")
}

// look is what may have become of a message in a place. It ended there, which takes one of needs,
// or it went on.
type look struct {
	needs []need
	ways  [][]step  // each into all of its steps: what dies may go to several queues
	last  *delivery // as in sight, if it did not leave the broker here
	how   verdict
}

// step leads to another place, unless one of the needs explains that it did not arrive.
type step struct {
	to    place
	needs []need
}

// verdict says how what became of a message is explained, the best there is.
type verdict uint8

const (
	lost    verdict = iota
	counted         // by what explains so many messages and not more
	free            // by what nobody counts
	there           // it was found
)

func (n need) verdict() verdict {
	switch n {
	case found:
		return there
	case freely:
		return free
	default:
		return counted
	}
}

// begin lists the places from which a message is followed that was routed to a queue: that queue
// or, where one message is all there is, where it was seen last. If shovels have carried it
// nobody knows the order of what was read on several sockets: each of some may be the last.
func (j *judge) begin(m *message, queue string) (all []place) {
	if j.l.moved() && j.alone(m) {
		for _, d := range latest(m.deliveries(), func(*delivery) bool { return false }) {
			all = append(all, place{d.copied.queue, anyhow, d})
		}
	}
	if len(all) == 0 {
		all = append(all, place{queue: queue})
	}
	return all
}

// explain follows a message from where it was. It looks at each place once, so circles cost no
// more than their places, and lists the needs of which one must hold if the message is nowhere.
func (j *judge) explain(m *message, from []place) (how verdict, needs []need) {
	looks := map[place]*look{}
	queue := slices.Clone(from)
	for i := 0; i < len(queue); i++ {
		if looks[queue[i]] != nil {
			continue
		}
		k := j.look(m, queue[i])
		looks[queue[i]] = k
		for _, way := range k.ways {
			for _, s := range way {
				queue = append(queue, s.to)
			}
		}
	}
	for p, k := range looks {
		if k.last != nil && k.last.dies() && comesBack(looks, p) {
			k.needs = append(k.needs, j.taken(m, p, nil)...) // seen again or not, it may have been here once more
		}
	}
	decide(looks)
	for _, p := range from {
		how = max(how, looks[p].how)
	}
	if how != counted {
		return how, nil
	}
	return how, countedNeeds(looks, from)
}

// decide finds the verdict of each place. Verdicts only rise, so it ends.
func decide(looks map[place]*look) {
	for changed := true; changed; {
		changed = false
		for _, k := range looks {
			how := k.how
			for _, n := range k.needs {
				how = max(how, n.verdict())
			}
			for _, way := range k.ways {
				all := there
				for _, s := range way {
					all = min(all, s.verdict(looks))
				}
				how = max(how, all)
			}
			changed = changed || how != k.how
			k.how = how
		}
	}
}

func (s *step) verdict(looks map[place]*look) verdict {
	how := looks[s.to].how
	for _, n := range s.needs {
		how = max(how, n.verdict())
	}
	return how
}

// countedNeeds lists what may explain a message that nothing else explains. Where it died into
// several queues and more than one of the copies is nowhere, the first stands for all.
func countedNeeds(looks map[place]*look, from []place) (needs []need) {
	been := map[place]bool{}
	queue := slices.Clone(from)
	for i := 0; i < len(queue); i++ {
		k := looks[queue[i]]
		if been[queue[i]] || k.how == lost {
			continue
		}
		been[queue[i]] = true
		needs = append(needs, k.needs...)
		for _, way := range k.ways {
			if slices.ContainsFunc(way, func(s step) bool { return s.verdict(looks) == lost }) {
				continue
			}
			first := way[slices.IndexFunc(way, func(s step) bool { return s.verdict(looks) == counted })]
			needs = append(needs, first.needs...)
			queue = append(queue, first.to)
		}
	}
	slices.Sort(needs)
	return slices.Compact(needs)
}

// look says what may have become of a message in a place.
func (j *judge) look(m *message, p place) *look {
	j.looks++
	s := j.sight(m, p)
	if s.final {
		return &look{needs: []need{found}}
	}
	k := &look{needs: append(j.exits(m, p), j.taken(m, p, s.last)...), last: s.last}
	for _, v := range j.l.shovels {
		if v.from == p.queue {
			k.ways = append(k.ways, []step{j.carried(m, v.to)})
		}
	}
	if by := j.mayDie(m, p, s.rejected); by != 0 {
		j.died(m, p, by, k)
	}
	return k
}

// taken lists the deletes and purges that may have taken a message from a place, if last is what
// it was seen to do there last.
func (j *judge) taken(m *message, p place, last *delivery) (needs []need) {
	if j.mayBeGone(j.l.deletes[p.queue], p.queue, m.act, last) {
		needs = append(needs, deletedWith(p.queue))
	}
	if j.mayBeGone(j.l.purges[p.queue], p.queue, m.act, last) {
		needs = append(needs, purgedFrom(p.queue))
	}
	return needs
}

// comesBack says whether a way leads from a place back to it. A path names each queue once, so
// what dies in a circle comes to the same place again (DL-9.1).
func comesBack(looks map[place]*look, p place) bool {
	been := map[place]bool{}
	queue := []place{p}
	for i := 0; i < len(queue); i++ {
		for _, way := range looks[queue[i]].ways {
			for _, s := range way {
				if s.to == p {
					return true
				}
				if !been[s.to] {
					been[s.to] = true
					queue = append(queue, s.to)
				}
			}
		}
	}
	return false
}

// exits lists the ways out that nobody counts.
func (j *judge) exits(m *message, p place) (needs []need) {
	queue := p.queue
	if j.l.noAckLost[queue] || j.vanishes(queue) && !j.diesFirst(m, p) {
		needs = append(needs, freely)
	}
	if len(j.l.kills) > 0 && (!j.w.durable(queue) || !m.persistent && !j.w.quorum(queue)) {
		needs = append(needs, freely)
	}
	if p.path != "" {
		return needs
	}
	// A publish that nobody waits for may be refused without a word, be it that there are no confirms or that its
	// channel was closed before one came (DL-10.7, DL-10.8).
	if (m.mode() == plain || m.mode() == confirming && m.fate == sent) && j.l.any(queue, func(s *queueSpec) bool { return s.overflow != "" && s.overflow != "drop-head" }) {
		needs = append(needs, freely)
	}
	if j.l.peer && m.mode() == transactional && j.w.quorum(queue) && j.l.any(queue, func(s *queueSpec) bool { return s.overflow != "" }) {
		needs = append(needs, freely)
	}
	return needs
}

// carried is the step of what a shovel takes to a queue.
func (j *judge) carried(m *message, to string) step {
	s := step{to: place{queue: to, path: anyhow}}
	if !j.stood(to, m.act) || len(j.l.deletes[to]) > 0 {
		s.needs = append(s.needs, freely)
	}
	return s
}

// sight is what clients saw of a message in a place.
type sight struct {
	final    bool      // it left the broker
	rejected bool      // it was rejected for good
	last     *delivery // the last there was, if that is known
}

func (j *judge) sight(m *message, p place) (s sight) {
	switch {
	case p.last != nil:
		return sight{p.last.final(), p.last.dies(), p.last}
	case j.l.moved() && j.alone(m):
		return sight{} // it was followed from where it was seen last
	}
	for _, c := range j.copies(m, p) {
		if !j.l.moved() {
			s.final = s.final || c.last.final()
			if s.last == nil || c.last.at > s.last.at {
				s.last, s.rejected = c.last, c.last.dies()
			}
			continue
		}
		for _, d := range latest(c.all, (*delivery).decided) {
			s.final, s.rejected = s.final || d.final(), s.rejected || d.dies()
		}
	}
	return s
}

// copies are those of a message in a queue that came by the path; of any way where a shovel
// has carried it.
func (j *judge) copies(m *message, p place) (all []*copied) {
	for _, c := range m.copies {
		if c.queue == p.queue && (strings.Join(c.path, ",") == p.path || p.path == anyhow) {
			all = append(all, c)
		}
	}
	return all
}

// alone says whether what was published is one message and stays one, wherever it goes: then it
// is in one place at a time. What is refused where a shovel carries it, and dies of that, comes back to
// where it was, too (DL-10.9).
func (j *judge) alone(m *message) bool {
	twice := func(s *queueSpec) bool { return s.overflow == "reject-publish-dlx" }
	return len(j.w.possibleRoutes(m.exchange, m.key)) == 1 && !j.w.divides && len(j.l.kills) == 0 && !j.l.peer &&
		!slices.ContainsFunc(j.l.shovels, func(v *mover) bool { return j.l.any(v.to, twice) })
}

func (m *message) deliveries() (all []*delivery) {
	for _, c := range m.copies {
		all = append(all, c.all...)
	}
	return all
}

// together checks that no two clients had the message at once, and nobody after its end.
func (j *judge) together(m *message) {
	all := m.deliveries()
	for i, p := range all {
		for _, d := range all[i+1:] {
			if max(p.at, d.at) >= min(p.until(), d.until()) {
				continue
			}
			switch ends := p.gone(); {
			case ends && d.gone():
				j.l.complain("%s: doubled: it came to an end in %s and in %s; %s", m, p.copied.queue, d.copied.queue, j.story(m))
			case ends || d.gone():
				j.l.complain("%s: in %s and in %s: delivered again after it was settled (DL-2.5); %s", m, p.copied.queue, d.copied.queue, j.story(m))
			default:
				j.l.complain("%s: in %s and in %s: delivered to two clients at once (BR-9.4); %s", m, p.copied.queue, d.copied.queue, j.story(m))
			}
			return
		}
	}
}

// latest are the deliveries of which one was the last: none was certainly given back before
// another. Those that stays holds for are left in any case.
func latest(all []*delivery, stays func(*delivery) bool) (left []*delivery) {
	for _, p := range all {
		if stays(p) || !slices.ContainsFunc(all, func(d *delivery) bool { return d.after(p) }) {
			left = append(left, p)
		}
	}
	return left
}

// after says whether d certainly was sent after p, which was read before it. It was if its
// client still had it then.
func (d *delivery) after(p *delivery) bool { return p.at < d.at && p.at < d.until() }

// until is the earliest moment at which the broker can have had the message again.
func (d *delivery) until() int64 {
	switch heard := d.settle != nil && d.settle.done != 0; {
	case d.gone():
		return math.MaxInt64
	case d.ch.byPeer && !heard:
		return 0 // the channel ended at the server before its client knew
	case d.settle != nil:
		return d.settle.sent
	case d.ch.closing:
		return d.ch.closeAt
	case d.ch.ended:
		return d.ch.endAt
	}
	return math.MaxInt64
}

// gone says that the message certainly left the broker by this delivery.
func (d *delivery) gone() bool { return d.final() && !d.unheard() }

// decided says that the message certainly left its queue by this delivery.
func (d *delivery) decided() bool { return d.gone() || d.dies() && d.settle.done != 0 }

// dies says that it was rejected for good.
func (d *delivery) dies() bool { return d.how == rejected && !d.void }

// final says that the message left the broker by this delivery, if its end was heard.
func (d *delivery) final() bool { return d.drained || d.noAck || d.how == acked && !d.void }

// unheard says whether the acknowledgement may never have been read: its client went.
func (d *delivery) unheard() bool {
	return d.how == acked && !d.drained && d.settle.done == 0 && d.ch.ended
}
