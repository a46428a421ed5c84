package partition

import (
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// A message is stranded when the queue it was sent to in another log was gone when
// it arrived, or had no room for a replay. It stays in the outbox it was sent from,
// counted, until its exchange leads somewhere again.

// Stranded is how many messages wait so, also those whose own queue was deleted.
func (n *Node) Stranded() (count int) {
	n.eachMail(func(_ *group, m *mail) {
		for _, b := range m.out {
			count += len(b.stranded)
		}
	})
	return count
}

// eachMail calls f for the mail of each log, locked.
func (n *Node) eachMail(f func(g *group, m *mail)) {
	for _, g := range n.logs() {
		n.withMail(g, func(m *mail) { f(g, m) })
	}
}

// logs are the groups, and nil for the local partitions.
func (n *Node) logs() (list []*group) {
	for _, p := range n.groups {
		list = append(list, p.group)
	}
	return append(list, nil)
}

// withMail calls f for the mail of one log, locked.
func (n *Node) withMail(g *group, f func(m *mail)) {
	if g != nil {
		g.p.mu.Lock()
		defer g.p.mu.Unlock()
		f(&g.mail)
		return
	}
	n.mailMu.Lock()
	defer n.mailMu.Unlock()
	f(&n.mail)
}

// strandedEntry is one that is to be routed anew; its references are held.
type strandedEntry struct {
	g  *group // nil: of the local partitions
	to uint64
	e  outEntry
}

// part is a partition of the log it is in.
func (s *strandedEntry) part(n *Node) *Partition {
	if s.g != nil {
		return s.g.p
	}
	return n.parts[0]
}

// numbersNow are the numbers that the next entries of a log's outboxes get, by destination. Whoever goes through what is
// stranded takes what has a lower one: what finds no place elsewhere is stranded again, under another number, and there would be no end of it.
func (n *Node) numbersNow(g *group) map[uint64]uint64 {
	next := map[uint64]uint64{}
	n.withMail(g, func(m *mail) {
		for _, b := range m.out {
			next[b.to] = b.next()
		}
	})
	return next
}

// pinStranded returns up to limit of the entries stranded in a log that f chooses, with numbers below those of
// numbersNow, but for the first few of these.
func (n *Node) pinStranded(g *group, below map[uint64]uint64, f func(*outEntry) bool, skip, limit int) (found []strandedEntry) {
	n.withMail(g, func(m *mail) {
		if g != nil && !g.leads {
			return
		}
		for _, b := range m.out {
			for _, e := range b.stranded {
				switch {
				case len(found) == limit:
					return
				case e.number >= below[b.to] || !f(&e):
				case skip > 0:
					skip--
				default:
					n.bodies.Retain(e.body, 1)
					n.bodies.Retain(e.history, 1)
					found = append(found, strandedEntry{g, b.to, e})
				}
			}
		}
	})
	return found
}

func (n *Node) unpinStranded(list []strandedEntry) {
	for i := range list {
		n.bodies.Release(list[i].e.body)
		n.bodies.Release(list[i].e.history)
	}
}

// warmStranded brings the record into memory, and says whether that went well. One that is
// lost on disk is set aside.
func (n *Node) warmStranded(s *strandedEntry) bool {
	body, err := n.bodies.Warm(s.e.body)
	if err != nil {
		n.setAsideStranded(s, err)
		return false
	}
	s.e.body = body
	return true
}

// retryStranded routes the stranded messages of each log anew.
func (n *Node) retryStranded() {
	all := func(*outEntry) bool { return true }
	for _, g := range n.logs() {
		below := n.numbersNow(g)
		for done := 0; ; done += sliceLimit {
			found := n.pinStranded(g, below, all, done, sliceLimit)
			gone, err := 0, error(nil)
			for i := range found {
				went := false
				if err == nil && n.stopped() {
					err = errLost
				}
				if err == nil {
					went, err = n.retryOne(&found[i])
				}
				if went {
					gone++
				}
				n.unpinStranded(found[i : i+1]) // it is in memory now
			}
			if err != nil || len(found) < sliceLimit {
				break // with an error, the next retry begins anew
			}
			done -= gone
		}
	}
}

// retryOne routes one anew. It says whether it is gone already: a group decides later.
func (n *Node) retryOne(s *strandedEntry) (gone bool, err error) {
	if !n.warmStranded(s) {
		return false, nil
	}
	p := n.planStranded(s)
	if len(p.targets)+len(p.remote) == 0 {
		if n.Router.HasVHost(s.e.vhost, s.e.source) {
			return false, nil
		}
		return n.dropStranded(s)
	}
	if s.g == nil {
		return n.rerouteLocal(s, p, 0), nil
	}
	return false, s.g.tell(func(w *commandWriter) { n.writeReroute(w, cmdReroute, s, p) })
}

// dropStranded ends a message whose virtual host was deleted: it has gone with that, and
// must not come into another of the same name.
func (n *Node) dropStranded(s *strandedEntry) (gone bool, err error) {
	if s.g != nil {
		return false, s.g.tell(func(w *commandWriter) { w.asideSent(s.to, s.e.number) })
	}
	h := n.lock(n.parts...)
	n.mailMu.Lock()
	h.mailing = true
	e, ok := n.mail.box(s.to).takeStranded(s.e.number)
	if ok {
		h.frame.mailBack(s.to, e.number)
		n.endStranded(h, &n.mail, n.localQueue(e.source), &e)
	}
	n.unlock(h)
	return ok, nil
}

// RetryStranded routes messages anew that are stranded, and gives up those of virtual hosts
// that are gone.
func (n *Node) RetryStranded() { n.retryStranded() }

// writeReroute writes where a stranded entry goes.
func (n *Node) writeReroute(w *commandWriter, code byte, s *strandedEntry, p *plan) {
	rec := message.Record(n.bodies.Bytes(s.e.body))
	w.reroute(code, s.to, s.e.number, quorumSize(rec), priorityOf(rec), p)
}

// planStranded finds where the message goes now.
func (n *Node) planStranded(s *strandedEntry) *plan {
	if s.e.flags&mailShared != 0 { // it could not be read: routed anew it would be doubled in the others
		return &plan{remote: []target{{s.to, s.e.target}}}
	}
	rec := message.Record(n.bodies.Bytes(s.e.body))
	h, err := deadletter.Parse(n.historyBytes(s.e.history))
	if err != nil || len(h.Keys) == 0 {
		return &plan{}
	}
	keys := h.Keys
	if !h.KeysReplaced {
		keys = appendShortStrings(slices.Clip(keys), rec.BCC())
	}
	targets, _, _ := n.Router.RouteDead(&Queue{VHost: s.e.vhost, Incarnation: s.e.source}, h.Exchange, keys, rec, &h, nil)
	p := &plan{targets: targets}
	p.split(s.part(n))
	return p
}

// takeStranded takes an entry out of an outbox.
func (b *outbox) takeStranded(number uint64) (e outEntry, ok bool) {
	i := slices.IndexFunc(b.stranded, func(e outEntry) bool { return e.number == number })
	if i < 0 {
		return e, false
	}
	e = b.stranded[i]
	if i == 0 { // as when all are sent elsewhere, one after the other
		b.stranded = b.stranded[1:]
	} else {
		b.stranded = slices.Delete(b.stranded, i, i+1)
	}
	return e, true
}

// place puts a stranded entry where it goes now: into queues of its own log, and
// into outboxes. source is the queue it came from, nil if that is gone. version is
// that of the command that says so, the present one for the local partitions. REQUIRES: the log is held.
func (n *Node) place(h *hold, m *mail, source *Queue, e *outEntry, p *plan, size uint32, priority int, version byte) {
	if source != nil {
		source.stranded--
		h.touch(source)
	}
	in := arrival{
		entry: queue.Entry{
			Body: e.body, History: e.history, Counts: queue.Counts{Deliveries: e.failed}, Size: size, Priority: priority, TTL: -1,
			Logged: true, Redelivered: e.failed > 0,
		},
		how: imposed, // it has left its outbox: a target that had no room was left out of the plan
	}
	if e.flags&mailMove != 0 {
		e.flags &^= mailShared // it goes elsewhere than the others
	}
	died := plan{stored: n.historyBytes(e.history)}
	h.entered = h.entered[:0]
	for _, t := range p.targets {
		in.entry.Rests = version >= restsVersion && e.flags&mailMove == 0 && died.rests(t)
		if t.part.group == nil {
			in.rec = message.Record(n.bodies.Bytes(e.body))
		}
		if n.enter(h, t, &in) != queue.Refused {
			n.logReceived(h, &in.entry, &mailed{history: died.stored, record: in.rec})
		}
	}
	if len(h.entered) > 0 {
		n.countSent(m, source, e, deadletter.Routed)
		e.flags &^= mailCounts
	}
	if version >= sharedVersion && len(h.entered)+len(p.remote) > 1 && e.flags&mailMove == 0 {
		e.flags |= mailShared
	}
	for _, t := range p.remote {
		again := *e
		again.target = t.queue
		e.flags &^= mailCounts // the first tells
		n.bodies.Retain(e.body, 1)
		n.bodies.Retain(e.history, 1)
		if source != nil {
			source.transit++
		}
		box := m.box(t.log)
		again.after = m.taken
		again.number = box.put(again)
		if h.mailing {
			n.logSend(h, box, &again, &queue.Death{})
		}
		h.sends = true
	}
	h.drop(e.body, e.history)
	h.flow()
}

// reroute applies a new plan for a stranded entry, which has flags besides from then on.
func (a *application) reroute(flags uint8) {
	to, number, size, priority := a.r.reroute()
	box := a.g.mail.box(to)
	p := a.plan(nil)
	if a.r.bad || len(p.targets)+len(p.remote) == 0 {
		return
	}
	ask := a.ask
	if ask != nil {
		ask.ok = true
	}
	if e, ok := box.takeStranded(number); ok {
		if ask != nil {
			ask.n++
		}
		e.flags |= flags
		a.g.node.place(a.h, &a.g.mail, a.g.p.queues[e.source], &e, p, size, priority, a.r.version)
	}
}

// rerouteLocal is reroute for the local partitions. It says whether the entry went.
func (n *Node) rerouteLocal(s *strandedEntry, p *plan, flags uint8) (went bool) {
	h := n.lock(n.parts...)
	n.mailMu.Lock()
	h.mailing = true
	rec := message.Record(n.bodies.Bytes(s.e.body))
	p.targets = slices.DeleteFunc(p.targets, func(q *Queue) bool {
		return q.gone || !q.m.Accepts(q.size(rec))
	})
	if len(p.targets)+len(p.remote) > 0 {
		var e outEntry
		if e, went = n.mail.box(s.to).takeStranded(s.e.number); went {
			e.flags |= flags
			h.frame.mailBack(s.to, e.number)
			n.bodies.Release(e.body) // it may be on disk
			e.body = s.e.body
			n.bodies.Retain(e.body, 1)
			n.place(h, &n.mail, n.localQueue(e.source), &e, p, 0, priorityOf(rec), commandVersion)
		}
	}
	n.unlock(h)
	return went
}

func (f *frame) mailBack(to, number uint64) {
	f.begin(opMailBack)
	f.uint(to)
	f.uint(number)
}

func (r *recovery) mailBack(fr *frameReader) {
	box, number := r.node.mail.box(fr.uint()), fr.uint()
	if e, ok := box.takeStranded(number); ok && !fr.bad {
		r.queue(e.source).stranded--
		r.hold.drop(e.body, e.history)
	}
}
