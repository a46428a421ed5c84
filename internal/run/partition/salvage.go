package partition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/safety/held"
)

// Where the index is lost, and the journal does not go back to the beginning, recovery brings back what is on
// disk: it redoes every frame that is left, those of segments in the keep too. A frame that was given up may
// have settled what an earlier one brought, so a message may come back that was done with; none is lost
// whose record is there.
//
//   - Entries of classic queues are named by numbers that are given once: what the frames say of them holds.
//     From the last gap between segments on they say all.
//   - Entries of replicated queues get their numbers by counting from the beginning of the group's log, which is
//     gone. So no acknowledgement can be told to belong to a message: what the commands left have published is
//     there, all of it, in the queue that it was published to. The groups begin new logs.
//   - Records in dense files have no queue, nor has what was on its way to a queue that is gone. They
//     go to the queue Into.
//
// The places of records do not change: nothing is copied. A checkpoint makes what was found the
// index.

// Salvage is for Recover where the index is lost.
type Salvage struct {
	// Retired calls f for the frames of the segments in the keep that are intact, in order, and returns the highest
	// number of one that has damage, 0 if none has.
	Retired func(f func(pos journal.Pos, payload []byte) error) (damaged uint32, err error)
	// Dense calls f for each intact record in the dense files of the keep.
	Dense func(f func(at message.Location, r message.Record) error) error
	// Into is the queue for records of which nobody knows the queue: a durable classic one without limits. Without
	// it Recover fails with a *NoQueueError once it needs one.
	Into uint64

	Found Salvaged // set by Recover
}

// Salvaged is what was brought back.
type Salvaged struct {
	Queues  []SalvagedQueue // those that have messages, but for Into
	Into    int             // messages that went to Into; any of them may have been settled
	Surplus int             // of these, so many had a queue, which is over its limit with what came back
	Deleted int             // messages that were in queues when these were deleted: they were left behind
}

// SalvagedQueue is a queue with what it got.
type SalvagedQueue struct {
	Incarnation uint64
	Messages    int
	Unsure      int // of these, so many may have been settled already, or be elsewhere since
}

// NoQueueError says that there are messages of which nobody knows the queue, and no queue for those. Nothing was given up.
type NoQueueError struct{}

// Error says so.
func (*NoQueueError) Error() string {
	return "there are messages of which nobody knows the queue, and none is made for them"
}

// salvager is a recovery's part in it.
type salvager struct {
	*recovery
	first   uint32                    // segments from here on have no gap between them
	last    uint32                    // the segment of the last frame
	transit map[uint64][]outbox.Entry // what the local outboxes sent to each log, and it is not known to have taken
	refused map[uint64][]outbox.Entry // what it would not take
	highest map[uint64]uint64         // the highest number of what was sent to each log
	apart   *Queue                    // Salvage.Into
}

// beginSalvage redoes what the segments in the keep hold. Those of the journal follow.
func (r *recovery) beginSalvage() error {
	s := &salvager{recovery: r, transit: map[uint64][]outbox.Entry{}, refused: map[uint64][]outbox.Entry{}, highest: map[uint64]uint64{}}
	o := r.node.Repair.Salvage
	o.Found = Salvaged{}
	r.salvage, r.lost = s, true
	if o.Into != 0 {
		s.apart = r.queues[o.Into]
	}
	own := r.node.Journal.First()
	damaged, err := o.Retired(func(pos journal.Pos, payload []byte) error {
		if own != 0 && pos.Segment() >= own {
			return nil // a crash has left it in both places, see journal.Retire
		}
		return r.frame(pos, payload)
	})
	s.gap(damaged + 1)
	return err
}

// see notes that there is a frame in a segment.
func (s *salvager) see(pos journal.Pos) {
	if n := pos.Segment(); n != s.last {
		if n != s.last+1 {
			s.gap(n)
		}
		s.last = n
	}
}

// gap notes that something is missing before a segment.
func (s *salvager) gap(before uint32) { s.first = max(s.first, before) }

// sent notes that an outbox has taken a message, whose references pass to the salvager.
func (s *salvager) sent(to uint64, e outbox.Entry) {
	if e.Body == 0 {
		s.hold.drop(0, e.History)
		return // its record came with a frame that is gone
	}
	list := s.transit[to]
	at, told := slices.BinarySearchFunc(list, e.Number, func(e outbox.Entry, n uint64) int { return cmp.Compare(e.Number, n) })
	switch {
	case told && s.same(&list[at], &e): // a compaction of an earlier release told it anew
		s.hold.drop(e.Body, e.History)
		return
	case e.Number <= s.highest[to]:
		// The numbers began anew when an index was lost before. No answer from then on is about what is left of those
		// before, which came into their queues then: only the index that is lost now knew.
		s.refused[to] = append(s.refused[to], list...)
		s.transit[to], s.highest[to] = []outbox.Entry{e}, e.Number
	default:
		s.transit[to], s.highest[to] = append(list, e), e.Number
	}
}

// same says whether two entries with one number are one.
func (s *salvager) same(a, b *outbox.Entry) bool {
	return a.Target == b.Target && a.Source == b.Source && s.node.bodies.Location(a.Body) == s.node.bodies.Location(b.Body)
}

// acknowledged notes that another log has taken what it was sent. What it refused counts as not taken: what
// became of that is not looked at.
func (s *salvager) acknowledged(to, upTo uint64, refused outbox.Refusals) {
	list := s.transit[to]
	n := 0
	for ; n < len(list) && list[n].Number <= upTo; n++ {
		if e := list[n]; refused.Of(e.Number) != outbox.Taken {
			s.refused[to] = append(s.refused[to], e)
		} else {
			s.hold.drop(e.Body, e.History)
		}
	}
	s.transit[to] = list[n:]
}

// commands redoes what a frame of a group's log has published.
func (s *salvager) commands(pos journal.Pos, payload []byte) error {
	var failed error
	err := cluster.Commands(s.node.Journal.PayloadPos(pos), payload, func(id uint64, e *cluster.Entry) {
		if g := s.node.groupByID(id); g != nil && failed == nil {
			failed = s.command(g, e)
		}
	})
	if err != nil {
		return s.node.passOver(Senseless{Pos: pos, Frame: payload, To: len(payload), Why: fmt.Sprintf("the journal frame at %v: %v", pos, err)})
	}
	return failed
}

func (s *salvager) command(g *group, e *cluster.Entry) error {
	a := application{execution: execution{n: s.node, h: s.node.lock(g.p), g: g}, at: e.At}
	err := s.commandIn(&a, e)
	s.unlock(a.h)
	return err
}

// unlock ends a hold of a group, which does not lead: nothing follows from it.
func (s *salvager) unlock(h *hold) {
	s.node.release(h)
	s.node.finish(h)
}

func (s *salvager) commandIn(a *application, e *cluster.Entry) error {
	n, g, begins := s.node, a.g, 0
	_, _, now, ok := a.r.head(e.Data)
	if !ok && e.Data[0] > commandVersion {
		return fmt.Errorf("command %d of group %d: format version not known to this release", e.Index, g.id)
	}
	if ok {
		g.clock = a.moment(g.clock, now)
		a.h.now = g.clock
	}
	for ok && a.r.more() {
		begins = a.r.at
		if err := s.operation(a, a.r.byte()); err != nil {
			return err
		}
	}
	if ok && !a.r.bad {
		return nil
	}
	return n.passOver(Senseless{
		Pos: e.At, Group: g.id, Index: e.Index, Frame: e.Data, From: begins, To: len(e.Data),
		Why: fmt.Sprintf("command %d of group %d makes no sense from byte %d on", e.Index, g.id, begins),
	})
}

// operation redoes one operation if it brings a message, or a queue. A queue's deletion is not redone: what it had may be
// elsewhere since.
func (s *salvager) operation(a *application, code byte) error {
	switch code {
	case cmdPublish, cmdDelayed:
		in := a.r.publication(code)
		e := queue.Entry{Priority: in.priority, TTL: in.ttl, Delay: in.delay}
		for range a.r.count(1) {
			inc := a.r.uint()
			if a.r.bad {
				break
			}
			if err := s.enter(a, inc, in.record, in.at, e); err != nil {
				return err
			}
		}
	case cmdOutIn:
		_, _, _, n := a.r.outIn()
		for range n {
			in, at := a.r.sent()
			if a.r.bad {
				break
			}
			if message.CheckRecord(in.record) != nil {
				continue // it was refused
			}
			e := queue.Entry{Content: queue.Content{Counts: queue.Counts{Deliveries: in.failed}, Redelivered: in.failed > 0}, Priority: priorityOf(message.Record(in.record)), TTL: -1}
			e.History = storeHistory(s.node.bodies, in.history)
			if q := s.replicated(a.g, in.target, a.h.now); q != nil && in.flags&outbox.Move == 0 {
				died := plan{stored: in.history}
				e.Rests = died.rests(q)
			}
			err := s.enter(a, in.target, in.record, at, e)
			s.node.bodies.Release(e.History)
			if err != nil {
				return err
			}
		}
	case cmdCreate:
		inc := a.r.uint()
		o := a.r.create()
		o.settings = withoutLimits(o.settings)
		if !a.r.bad && a.g.p.queues[inc] == nil && (s.node.Repair.KeepUndeclared || a.g.declared[inc] != nil) {
			a.g.newQueue(inc, &o, a.h.now)
		}
	default:
		a.r.skip(code)
	}
	return nil
}

// enter lets a message whose record stands in a command into a queue of the group.
func (s *salvager) enter(a *application, inc uint64, record message.Record, at int, e queue.Entry) error {
	e.Body = s.placed(uint64(a.place(at)))
	q := s.replicated(a.g, inc, a.h.now)
	if q == nil || over(q, &e, a.h.now, s.hold.now) { // it was deleted, or has died, and the message may have gone elsewhere before
		e.Size, e.Priority, e.TTL, e.Delay = s.sizeApart(record), -1, -1, 0
		return s.setApart(e)
	}
	e.Size = q.size(record)
	return s.put(a.h, q, e)
}

// put lets a message into a queue that no limit holds for. The reference to the body passes to the queue, the
// history's stays the caller's.
func (s *salvager) put(h *hold, q *Queue, e queue.Entry) error {
	h.touch(q)
	e.Logged = true
	s.node.bodies.Retain(e.History, 1)
	if _, result := q.m.Enqueue(h.now, &e); result == queue.Refused || result == queue.RefusedDead {
		return fmt.Errorf("queue %q in vhost %q does not take a message back", q.Name, q.VHost)
	}
	return nil
}

// replicated is a queue of a group, which is made if there ought to be one; nil if it was deleted.
func (s *salvager) replicated(g *group, inc uint64, now int64) *Queue {
	if q := g.p.queues[inc]; q != nil {
		return q
	}
	if q := g.declared[inc]; q != nil {
		return g.newQueue(inc, &create{q.VHost, q.Name, q.config, withoutLimits(q.wanted.settings), q.wanted.dead}, now)
	}
	if !s.node.Repair.KeepUndeclared {
		return nil
	}
	config := queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1}
	return g.newQueue(inc, &create{config: config, settings: queue.Unlimited()}, now)
}

// withoutLimits are settings by which nothing is refused, and nothing dies to make room: what comes back may be more
// than there ever was at once.
func withoutLimits(s queue.Settings) queue.Settings {
	s.MaxLength, s.MaxBytes, s.Expires = -1, -1, -1
	return s
}

// end brings back what no frame tells the queue of, once all frames were redone.
func (s *salvager) end() error {
	n := s.node
	for _, p := range n.parts {
		for _, q := range p.queues {
			q.m.Restored(s.hold.now) // what was out counts for limits
		}
	}
	for _, p := range n.groups {
		h := n.lock(p)
		for _, q := range p.queues {
			if p.group.declared[q.Incarnation] != nil {
				q.m.Configure(h.now, q.wanted.settings)
			}
		}
		s.unlock(h)
	}
	for _, step := range []func() error{s.deleted, s.expired, s.arrive, s.dense, s.surplus} {
		if err := step(); err != nil {
			return err
		}
	}
	s.count()
	return nil
}

// deleted sets apart what classic queues had that are not declared any more, but for messages that came behind the last gap:
// these have gone with their queue, others may have gone elsewhere before.
func (s *salvager) deleted() error {
	for _, q := range s.ghosts {
		has := undeclaredQueue(q, 0).Messages
		n, err := s.setApartOf(q, func(*queue.View) bool { return true })
		if err != nil {
			return err
		}
		s.node.Repair.Salvage.Found.Deleted += has - n
	}
	return nil
}

// purged sets apart what a purge takes and may have gone elsewhere before.
func (s *salvager) purged(q *Queue, keep map[queue.ID]bool) error {
	_, err := s.setApartOf(q, func(v *queue.View) bool { return !keep[v.ID] })
	return err
}

// expired sets apart what dies as soon as the node runs since its time is over, and may have gone elsewhere before it was.
func (s *salvager) expired() error {
	for _, p := range s.node.parts {
		for _, inc := range slices.Sorted(maps.Keys(p.queues)) {
			_, err := s.setApartOf(p.queues[inc], func(v *queue.View) bool { return v.Due != 0 && v.Due <= s.hold.now })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// setApartOf sets apart what a classic queue is not sure to have, where which says so, and returns how many that were.
func (s *salvager) setApartOf(q *Queue, which func(*queue.View) bool) (n int, err error) {
	if q == s.apart {
		return 0, nil
	}
	for _, id := range s.unsure(q) {
		v, ok := q.m.View(id)
		if !ok || !which(&v) {
			continue
		}
		body, history, _ := q.m.RestoreRemoved(id)
		if err := s.setApart(queue.Entry{Content: queue.Content{Body: body, History: history, Size: v.Size}, Priority: -1, TTL: -1}); err != nil {
			return n, err
		}
		s.hold.drop(0, history)
		n++
	}
	return n, nil
}

// over says whether a message is to die before now in a queue that it came to at a moment.
func over(q *Queue, e *queue.Entry, came, now int64) bool {
	ttl := e.TTL
	for _, most := range []int64{q.m.Settings().TTL, q.m.Rules().Retention - 1} { // a retention of 0 is none
		if most >= 0 && (ttl < 0 || most < ttl) {
			ttl = most
		}
	}
	return ttl >= 0 && !e.Rests && ttl <= now-came-e.Delay
}

// arrive lets what was on its way to other logs into its queues.
func (s *salvager) arrive() error {
	n := s.node
	var w bodies.Window
	defer w.Free()
	for _, sent := range []map[uint64][]outbox.Entry{s.transit, s.refused} {
		for _, to := range slices.Sorted(maps.Keys(sent)) {
			g := n.groupByID(to)
			for _, e := range sent[to] {
				entry := queue.Entry{Content: queue.Content{Body: e.Body, History: e.History, Counts: queue.Counts{Deliveries: e.Failed}, Redelivered: e.Failed > 0}, Priority: -1, TTL: -1}
				var err error
				held.Apart(func() {
					var record message.Record // what cannot be read is found by who reads all
					if record, err = n.bodies.Read(e.Body, &w); err == nil {
						entry.Priority, entry.Size = priorityOf(record), quorumSize(record)
					}
				})
				if err != nil && !bodies.Lost(err) {
					return err
				}
				if err := s.deliver(g, e.Target, entry); err != nil {
					return err
				}
				s.hold.drop(0, e.History)
			}
		}
	}
	return nil
}

// deliver lets a message that was on its way into its queue, or sets it apart.
func (s *salvager) deliver(g *group, target uint64, e queue.Entry) error {
	if g == nil {
		return s.setApart(e)
	}
	h := s.node.lock(g.p)
	var err error
	if q := s.replicated(g, target, h.now); q == nil {
		err = s.setApart(e)
	} else {
		settings := q.m.Settings()
		q.m.Configure(h.now, withoutLimits(settings))
		err = s.put(h, q, e)
		q.m.Configure(h.now, settings)
	}
	s.unlock(h)
	return err
}

// dense sets apart what lies in dense files.
func (s *salvager) dense() error {
	n := s.node
	return n.Repair.Salvage.Dense(func(at message.Location, r message.Record) error {
		return s.setApart(queue.Entry{Content: queue.Content{Body: s.placed(uint64(at)), Size: s.sizeApart(r)}, Priority: -1, TTL: -1})
	})
}

// surplus sets apart what would die as soon as the node runs, because its queue has more than it may have.
func (s *salvager) surplus() error {
	for _, p := range s.node.all {
		h := s.hold
		if p.group != nil {
			h = s.node.lock(p)
		}
		err := s.surplusIn(p, h)
		if p.group != nil {
			s.unlock(h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *salvager) surplusIn(p *Partition, h *hold) error {
	for _, inc := range slices.Sorted(maps.Keys(p.queues)) {
		q := p.queues[inc]
		for q != s.apart {
			e, ok := q.m.TakeSurplus()
			if !ok {
				break
			}
			h.touch(q)
			history := e.History
			e.Priority, e.TTL = -1, -1
			if err := s.setApart(e); err != nil {
				return err
			}
			h.drop(0, history)
			s.node.Repair.Salvage.Found.Surplus++
		}
	}
	return nil
}

// setApart lets a message into the queue for those of which nobody knows the queue.
func (s *salvager) setApart(e queue.Entry) error {
	if s.apart == nil {
		return &NoQueueError{}
	}
	s.node.Repair.Salvage.Found.Into++
	return s.put(s.hold, s.apart, e)
}

// sizeApart is the size of a record there, 0 if there is no such queue.
func (s *salvager) sizeApart(r message.Record) uint32 {
	if s.apart == nil {
		return 0
	}
	return s.apart.size(r)
}

// count counts what the queues have.
func (s *salvager) count() {
	n := s.node
	for _, p := range n.all {
		h := s.hold
		if p.group != nil {
			h = n.lock(p)
		}
		for _, inc := range slices.Sorted(maps.Keys(p.queues)) {
			q := p.queues[inc]
			found := SalvagedQueue{Incarnation: inc, Messages: undeclaredQueue(q, 0).Messages}
			if found.Unsure = found.Messages; p.group == nil {
				found.Unsure = len(s.unsure(q))
			}
			if found.Messages > 0 && q != s.apart {
				n.Repair.Salvage.Found.Queues = append(n.Repair.Salvage.Found.Queues, found)
			}
		}
		if p.group != nil {
			s.unlock(h)
		}
	}
}

// unsure are the messages of a classic queue that came before the last gap.
func (s *salvager) unsure(q *Queue) (list []queue.ID) {
	before := func(location uint64) bool { return message.Location(location).Segment() < s.first }
	var cursor index.SaveCursor
	for done := false; !done; {
		cursor, done = q.m.RangeBodies(cursor, saveSlice, before, func(id queue.ID, _ message.Ref) { list = append(list, id) })
	}
	return list
}

// skip reads over the operands of an operation.
func (r *commandReader) skip(code byte) {
	switch code {
	case cmdGone, cmdClose:
		r.uint()
		return
	case cmdOutAck:
		r.outAck()
		return
	case cmdReroute, cmdRelocate:
		r.reroute()
		r.list()
		return
	case cmdAsideSent:
		r.asideSent()
		return
	case cmdQuit, cmdLeave:
		if code == cmdLeave {
			r.uint()
			r.uint()
		}
		for range r.count(seatBytes) {
			r.seat()
		}
		for range r.count(deliveryBytes) {
			r.delivery()
		}
		return
	}
	r.uint() // the queue
	switch code {
	case cmdAck, cmdReject, cmdReturn:
		r.settlement(code)
	case cmdDead:
		r.dead()
		r.list()
		for range r.count(1) {
			r.id()
		}
	case cmdTake:
		r.take()
		r.list()
	case cmdAside:
		r.aside()
	default:
		r.operation(code)
	}
}
