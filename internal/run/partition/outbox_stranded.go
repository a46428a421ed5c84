package partition

import (
	"context"
	"fmt"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
)

// A message is stranded if the queue in another log to which it was sent was gone when it arrived, or had no room for
// a replay. It stays in the outbox, counted. It leaves in one of three ways. Each is one command or one frame, so a
// crash leaves the message either stranded or at its new place:
//
//   - it is routed again, whenever held deaths are retried, until its exchange leads somewhere;
//   - it is relocated: an operator sends it to a queue, or back to the one it left;
//   - it is given up: its virtual host is gone, or it cannot be read and was set aside.

// Stranded is how many messages are stranded, including those whose own queue was deleted.
func (n *Node) Stranded() (count int) {
	for _, b := range n.Outboxes() {
		count += b.Stranded
	}
	return count
}

// strandedEntry is a stranded entry, with references.
type strandedEntry struct {
	o *outboxes
	outbox.StrandedEntry
}

// pinStranded pins the entries that outbox.Boxes.Stranded returns. In a group only the leader does that.
func (o *outboxes) pinStranded(below map[uint64]uint64, f func(*outbox.Entry) bool, skip, limit int) (found []strandedEntry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.g != nil && !o.g.leads {
		return nil
	}
	for _, e := range o.Stranded(below, f, skip, limit) {
		o.n.bodies.Retain(e.Body, 1)
		o.n.bodies.Retain(e.History, 1)
		found = append(found, strandedEntry{o, e})
	}
	return found
}

// release releases the entry.
func (s *strandedEntry) release() {
	s.o.n.bodies.Release(s.Body)
	s.o.n.bodies.Release(s.History)
}

// eachStranded calls f for the chosen entries that are stranded now, until `most` of them have left; 0 means all. f
// says whether the entry has left its outbox. The loop ends at the first error.
func (o *outboxes) eachStranded(chosen func(*outbox.Entry) bool, most int, f func(*strandedEntry) (left bool, err error)) error {
	o.mu.Lock()
	below := o.Numbers()
	o.mu.Unlock()
	for stay, left := 0, 0; ; {
		limit := sliceLimit
		if most > 0 {
			limit = min(limit, most-left)
		}
		found := o.pinStranded(below, chosen, stay, limit)
		var err error
		for i := range found {
			went := false
			if err == nil && o.n.stopped() {
				err = errLost
			}
			if err == nil {
				went, err = f(&found[i])
			}
			if went {
				left++
			} else {
				stay++
			}
			found[i].release() // its record may be in memory now
		}
		if err != nil || len(found) == 0 {
			return err
		}
	}
}

// warm reads the record into memory and says whether it could. A record that is lost on disk is set aside.
func (s *strandedEntry) warm() bool {
	body, err := s.o.n.bodies.Warm(s.Body)
	if err != nil {
		s.setAside(err)
		return false
	}
	s.Body = body
	return true
}

// source is the queue that the entry left, nil if that is gone.
func (s *strandedEntry) source() *Queue {
	parts := s.o.n.parts
	if s.o.g != nil {
		parts = []*Partition{s.o.g.p}
	}
	for _, p := range parts {
		p.mu.Lock()
		q := p.queues[s.Source]
		p.mu.Unlock()
		if q != nil {
			return q
		}
	}
	return nil
}

// RetryStranded routes stranded messages again, and gives up those of virtual hosts that are gone.
func (n *Node) RetryStranded() {
	all := func(*outbox.Entry) bool { return true }
	for _, o := range n.allOutboxes() {
		_ = o.eachStranded(all, 0, (*strandedEntry).retry) // after an error the next retry begins anew
	}
}

// retry routes the entry again. It says whether the entry has left already; a group decides later.
func (s *strandedEntry) retry() (gone bool, err error) {
	if !s.warm() {
		return false, nil
	}
	p := s.plan()
	if len(p.targets)+len(p.remote) == 0 {
		if s.o.n.Router.HasVHost(s.VHost, s.Source) {
			return false, nil
		}
		return s.giveUp() // it ends with its virtual host, and must not enter another one of that name
	}
	if s.o.g == nil {
		return s.reroute(p, 0), nil
	}
	return false, s.o.g.tell(func(w *commandWriter) { s.write(w, cmdReroute, p) })
}

// plan finds where the message goes now.
func (s *strandedEntry) plan() *plan {
	if s.Flags&outbox.Shared != 0 { // it could not be read: routing it again would duplicate it in its other targets
		return &plan{remote: []target{{s.To, s.Target}}}
	}
	rec := message.Record(s.o.n.bodies.Bytes(s.Body))
	h, err := deadletter.Parse(s.o.n.historyBytes(s.History))
	if err != nil || len(h.Keys) == 0 {
		return &plan{}
	}
	keys := h.Keys
	if !h.KeysReplaced {
		keys = appendShortStrings(slices.Clip(keys), rec.BCC())
	}
	targets, _, _ := s.o.n.Router.RouteDead(&Queue{VHost: s.VHost, Incarnation: s.Source}, h.Exchange, keys, rec, &h, nil)
	return s.planTo(targets...)
}

func (s *strandedEntry) planTo(targets ...*Queue) *plan {
	p := &plan{targets: targets}
	part := s.o.n.parts[0]
	if s.o.g != nil {
		part = s.o.g.p
	}
	p.split(part)
	return p
}

// write writes the command that sends the entry to its new place.
func (s *strandedEntry) write(w *commandWriter, code byte, p *plan) {
	rec := message.Record(s.o.n.bodies.Bytes(s.Body))
	w.reroute(code, s.To, s.Number, quorumSize(rec), priorityOf(rec), p)
}

// Relocation says which stranded messages go where.
type Relocation struct {
	VHost  message.VHost // the virtual host of the queues they left
	Source *Queue        // the queue they left; nil: any, also deleted ones
	Target *Queue        // where they go; nil: back to the queue they left
	Limit  int           // how many at most; 0: all
}

// wants says whether the entry is one of them.
func (r *Relocation) wants(e *outbox.Entry) bool {
	return e.VHost == r.VHost && (r.Source == nil || e.Source == r.Source.Incarnation)
}

// Relocate sends messages that are stranded now elsewhere and returns how many went. A message that has no place
// there, because the queue was deleted or a classic target is full, stays stranded or is stranded again. An error
// means that ctx has ended, that the node stops, or that a group has no leader here (Lost); messages before it went.
func (n *Node) Relocate(ctx context.Context, r Relocation) (moved int, err error) {
	for _, o := range n.allOutboxes() {
		if r.Limit > 0 && moved == r.Limit {
			break
		}
		err = o.eachStranded(r.wants, max(r.Limit-moved, 0), func(s *strandedEntry) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			done, err := s.relocate(r.Target)
			if done {
				moved++
				n.relocated.Add(1)
			}
			return done, err
		})
		if err != nil {
			return moved, err
		}
	}
	return moved, n.Journal.Sync()
}

// relocate sends the entry to its new place.
func (s *strandedEntry) relocate(to *Queue) (moved bool, err error) {
	if !s.o.n.Router.HasVHost(s.VHost, s.Source) {
		return false, nil // the next retry gives it up
	}
	if to == nil {
		to = s.source()
	}
	if to == nil || !s.warm() {
		return false, nil
	}
	p := s.planTo(to)
	if s.o.g == nil {
		return s.reroute(p, outbox.Move), nil
	}
	a := new(ask)
	err = s.o.g.question(a, func(w *commandWriter) { s.write(w, cmdRelocate, p) })
	return a.n > 0, err
}

// Relocated is how many stranded messages operators have relocated since the start.
func (n *Node) Relocated() uint64 { return n.relocated.Load() }

// reroute carries out a new plan for an entry of the local partitions, and adds flags to it. It says whether the
// entry left.
func (s *strandedEntry) reroute(p *plan, flags outbox.Flags) (went bool) {
	h := s.o.hold()
	rec := message.Record(s.o.n.bodies.Bytes(s.Body))
	p.targets = slices.DeleteFunc(p.targets, func(q *Queue) bool {
		return q.gone || !q.m.Accepts(q.size(rec))
	})
	if len(p.targets)+len(p.remote) > 0 {
		var e outbox.Entry
		if e, went = s.o.takeStranded(h, s.To, s.Number); went {
			e.Flags |= flags
			s.o.n.bodies.Release(e.Body) // it may be on disk
			e.Body = s.Body
			s.o.n.bodies.Retain(e.Body, 1)
			s.o.place(h, &e, p, 0, priorityOf(rec))
		}
	}
	s.o.n.unlock(h)
	return went
}

// reroute applies a new plan for a stranded entry of a group, and adds flags to it.
func (a *application) reroute(flags outbox.Flags) {
	to, number, size, priority := a.r.reroute()
	p := a.plan(nil)
	if a.r.bad || len(p.targets)+len(p.remote) == 0 {
		return
	}
	ask := a.ask
	if ask != nil {
		ask.ok = true
	}
	if e, ok := a.g.p.outboxes.takeStranded(a.h, to, number); ok {
		if ask != nil {
			ask.n++
		}
		e.Flags |= flags
		a.g.p.outboxes.place(a.h, &e, p, size, priority)
	}
}

// takeStranded takes an entry out of the outbox for a log and writes that into the frame. Its references are the
// caller's. REQUIRES: h holds the log.
func (o *outboxes) takeStranded(h *hold, to, number uint64) (e outbox.Entry, ok bool) {
	if box := o.Find(to); box != nil {
		e, ok = box.TakeStranded(number, o.tally)
	}
	if ok && o.g == nil {
		h.frame.mailBack(to, number)
	}
	return e, ok
}

// place puts an entry that was stranded into its new place: into queues of its own log, and into outboxes. REQUIRES: h holds the log.
func (o *outboxes) place(h *hold, e *outbox.Entry, p *plan, size uint32, priority int) {
	n, source := o.n, o.queue(e.Source)
	if source != nil {
		h.touch(source)
	}
	in := arrival{
		entry: queue.Entry{Priority: priority, TTL: -1, Content: queue.Content{
			Body: e.Body, History: e.History, Counts: queue.Counts{Deliveries: e.Failed}, Size: size, Logged: true, Redelivered: e.Failed > 0,
		}},
		how: imposed, // the plan has no targets without room
	}
	if e.Flags&outbox.Move != 0 {
		e.Flags &^= outbox.Shared // an operator sends it elsewhere than its other targets
	}
	died := plan{stored: n.historyBytes(e.History)}
	h.entered = h.entered[:0]
	for _, t := range p.targets {
		in.entry.Rests = e.Flags&outbox.Move == 0 && died.rests(t)
		if t.part.group == nil {
			in.rec = message.Record(n.bodies.Bytes(e.Body))
		}
		if n.enter(h, t, &in) != queue.Refused {
			o.logReceived(h, &in.entry, &incoming{history: died.stored, record: in.rec})
		}
	}
	if len(h.entered) > 0 {
		o.count(source, e, deadletter.Routed)
		e.Flags &^= outbox.Counts
	}
	if len(h.entered)+len(p.remote) > 1 && e.Flags&outbox.Move == 0 {
		e.Flags |= outbox.Shared
	}
	for _, t := range p.remote {
		again := *e
		again.Target = t.queue
		e.Flags &^= outbox.Counts // the first one counts
		n.bodies.Retain(e.Body, 1)
		n.bodies.Retain(e.History, 1)
		o.put(h, t.log, &again, source, &queue.Death{})
	}
	h.drop(e.Body, e.History)
	h.flow()
}

// setAside is Node.setAside for a stranded message.
func (s *strandedEntry) setAside(why error) {
	note := AsideNote{VHost: string(s.VHost)}
	if source := s.source(); source != nil {
		note.Queue = source.Name
	}
	if s.o.n.keepAside(fmt.Sprintf("%s%d-to-%d-%d", asidePrefix, s.o.log, s.To, s.Number), &note, s.Body, 0, why) {
		_, _ = s.giveUp()
	}
}

// giveUp ends the entry. It says whether it is gone already; a group decides later.
func (s *strandedEntry) giveUp() (gone bool, err error) {
	if s.o.g != nil {
		return false, s.o.g.tell(func(w *commandWriter) { w.asideSent(s.To, s.Number) })
	}
	h := s.o.hold()
	gone = s.o.endStranded(h, s.To, s.Number)
	s.o.n.unlock(h)
	return gone, nil
}

// endStranded ends an entry that is stranded in the outbox for a log. REQUIRES: h holds the log.
func (o *outboxes) endStranded(h *hold, to, number uint64) bool {
	e, ok := o.takeStranded(h, to, number)
	if !ok {
		return false
	}
	if source := o.queue(e.Source); source != nil {
		h.touch(source)
		source.stats.SetAside++
	} else {
		o.count(nil, &e, deadletter.Deleted)
	}
	h.drop(e.Body, e.History)
	return true
}

// asideSent gives up a stranded entry of this group.
func (a *application) asideSent() {
	if to, number := a.r.asideSent(); !a.r.bad {
		a.g.p.outboxes.endStranded(a.h, to, number)
	}
}
