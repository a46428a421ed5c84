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

// Salvage recovers what is on disk if the index is lost and the journal does not begin with its first segment. It
// repeats every frame that is left, including segments in the keep. A frame that is gone may have settled a message
// from an earlier frame, so a settled message may come back. No message is lost whose record is there.
//
//   - Entries of classic queues have numbers that are given once, so what the frames say about them holds. After the
//     last gap between segments the frames say everything.
//   - Entries of replicated queues are numbered by counting from the beginning of the group's log, which is gone. So
//     no acknowledgement can be matched to its message. Every message that the remaining commands publish is there, in
//     the queue it was published to. The groups begin new logs.
//   - Records in dense files name no queue. Neither does a message on its way to a queue that is gone. They go to the
//     queue Into.
//
// Records keep their places: nothing is copied. A checkpoint makes the result the new index.

// Salvage configures Recover for a lost index.
type Salvage struct {
	// Retired calls f for the intact frames of the segments in the keep, in order. It returns the highest number of a
	// damaged segment, 0 if there is none.
	Retired func(f func(pos journal.Pos, payload []byte) error) (damaged uint32, err error)
	// Dense calls f for each intact record in the dense files of the keep.
	Dense func(f func(at message.Location, r message.Record) error) error
	// Into is the queue for records whose queue is unknown: a durable classic queue without limits. Without it
	// Recover fails with a *NoQueueError when it needs one.
	Into uint64

	Found Salvaged // set by Recover
}

// Salvaged is what was recovered.
type Salvaged struct {
	Queues  []SalvagedQueue // queues with messages, except Into
	Into    int             // messages in Into; any of them may have been settled before
	Surplus int             // of these, messages whose queue is known and was over its limit
	Deleted int             // messages left behind because their queue was deleted
}

// SalvagedQueue is a queue and what it got.
type SalvagedQueue struct {
	Incarnation uint64
	Messages    int
	Unsure      int // of these, messages that may have been settled, or moved elsewhere
}

// NoQueueError says that there are messages whose queue is unknown, and no queue for them. Nothing was dropped.
type NoQueueError struct{}

// Error says so.
func (*NoQueueError) Error() string {
	return "there are messages whose queue is unknown, and no queue to put them into"
}

// salvager is the part of a recovery that salvages.
type salvager struct {
	*recovery
	first   uint32                    // from this segment on there is no gap
	last    uint32                    // the segment of the last frame
	transit map[uint64][]outbox.Entry // sent by the local outboxes to each log, and not known to be taken
	refused map[uint64][]outbox.Entry // refused by that log
	highest map[uint64]uint64         // the highest number sent to each log
	apart   *Queue                    // Salvage.Into
}

// beginSalvage repeats the segments in the keep. Those of the journal follow.
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
			return nil // after a crash it may be in both places, see journal.Retire
		}
		return r.redoFrame(pos, payload)
	})
	s.gap(damaged + 1)
	return err
}

// see notes that a segment has a frame.
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

// sent notes that an outbox has taken a message. The salvager takes over its references.
func (s *salvager) sent(to uint64, e outbox.Entry) {
	if e.Body == 0 {
		s.hold.drop(0, e.History)
		return // its record was in a frame that is gone
	}
	list := s.transit[to]
	at, told := slices.BinarySearchFunc(list, e.Number, func(e outbox.Entry, n uint64) int { return cmp.Compare(e.Number, n) })
	switch {
	case told && s.same(&list[at], &e): // a compaction of an earlier release logged it again
		s.hold.drop(e.Body, e.History)
		return
	case e.Number <= s.highest[to]:
		// The numbers began anew when an index was lost before. Answers from then on are about the new numbers. The
		// older entries came into their queues at that time, which only the index that is lost now recorded.
		s.refused[to] = append(s.refused[to], list...)
		s.transit[to], s.highest[to] = []outbox.Entry{e}, e.Number
	default:
		s.transit[to], s.highest[to] = append(list, e), e.Number
	}
}

// same says whether two entries with the same number are the same entry.
func (s *salvager) same(a, b *outbox.Entry) bool {
	return a.Target == b.Target && a.Source == b.Source && s.node.bodies.Location(a.Body) == s.node.bodies.Location(b.Body)
}

// acknowledged notes the answers of another log. A refused message counts as not taken; what became of it afterwards
// is not known here.
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

// commands repeats the publishes in a frame of a group's log.
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

// unlock ends a hold of a group. The group does not lead, so nothing follows from it.
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

// operation repeats an operation that brings a message or a queue. It does not repeat the deletion of a queue: its
// messages may have moved elsewhere before.
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

// enter lets a message whose record is in a command into a queue of the group.
func (s *salvager) enter(a *application, inc uint64, record message.Record, at int, e queue.Entry) error {
	e.Body = s.placed(uint64(a.place(at)))
	q := s.replicated(a.g, inc, a.h.now)
	if q == nil || over(q, &e, a.h.now, s.hold.now) { // its queue was deleted, or it has expired; before that it may have moved elsewhere
		e.Size, e.Priority, e.TTL, e.Delay = s.sizeApart(record), -1, -1, 0
		return s.setApart(e)
	}
	e.Size = q.size(record)
	return s.put(a.h, q, e)
}

// put lets a message into a queue whose limits are suspended. The queue takes over the reference to the body; that to
// the history stays the caller's.
func (s *salvager) put(h *hold, q *Queue, e queue.Entry) error {
	h.touch(q)
	e.Logged = true
	s.node.bodies.Retain(e.History, 1)
	if _, result := q.m.Enqueue(h.now, &e); result == queue.Refused || result == queue.RefusedDead {
		return fmt.Errorf("queue %q in vhost %q refuses a recovered message", q.Name, q.VHost)
	}
	return nil
}

// replicated returns a queue of a group and makes it if it should exist; nil if it was deleted.
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

// withoutLimits returns settings under which nothing is refused and nothing dies to make room: more may come back
// than was ever there at once.
func withoutLimits(s queue.Settings) queue.Settings {
	s.MaxLength, s.MaxBytes, s.Expires = -1, -1, -1
	return s
}

// end recovers what no frame assigns to a queue, after all frames were repeated.
func (s *salvager) end() error {
	n := s.node
	for _, p := range n.parts {
		for _, q := range p.queues {
			q.m.Restored(s.hold.now) // what was out counts towards limits
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

// deleted moves the unsure messages of deleted classic queues into Into. A message from behind the last gap was
// deleted with its queue; an earlier one may have moved elsewhere before.
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

// expired moves the unsure messages that would expire at once into Into: they may have moved elsewhere before they
// expired.
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

// setApartOf moves the unsure messages of a classic queue for which `which` is true into Into, and returns how many.
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

// over says whether a message that came to the queue at the moment `came` has expired by now.
func over(q *Queue, e *queue.Entry, came, now int64) bool {
	ttl := e.TTL
	for _, most := range []int64{q.m.Settings().TTL, q.m.Rules().Retention - 1} { // a retention of 0 means none
		if most >= 0 && (ttl < 0 || most < ttl) {
			ttl = most
		}
	}
	return ttl >= 0 && !e.Rests && ttl <= now-came-e.Delay
}

// arrive delivers messages that were on their way to other logs.
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
					var record message.Record // the examination finds records that cannot be read
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

// deliver lets a message that was on its way into its queue, or into Into.
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

// dense moves the records of dense files into Into.
func (s *salvager) dense() error {
	n := s.node
	return n.Repair.Salvage.Dense(func(at message.Location, r message.Record) error {
		return s.setApart(queue.Entry{Content: queue.Content{Body: s.placed(uint64(at)), Size: s.sizeApart(r)}, Priority: -1, TTL: -1})
	})
}

// surplus moves messages beyond a queue's limit into Into: otherwise they would die as soon as the node runs.
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

// setApart lets a message into Into.
func (s *salvager) setApart(e queue.Entry) error {
	if s.apart == nil {
		return &NoQueueError{}
	}
	s.node.Repair.Salvage.Found.Into++
	return s.put(s.hold, s.apart, e)
}

// sizeApart is the size that a record counts in Into, 0 if there is no such queue.
func (s *salvager) sizeApart(r message.Record) uint32 {
	if s.apart == nil {
		return 0
	}
	return s.apart.size(r)
}

// count counts what each queue has.
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

// unsure returns the messages of a classic queue from before the last gap.
func (s *salvager) unsure(q *Queue) (list []queue.ID) {
	before := func(location uint64) bool { return message.Location(location).Segment() < s.first }
	var cursor index.SaveCursor
	for done := false; !done; {
		cursor, done = q.m.RangeBodies(cursor, saveSlice, before, func(id queue.ID, _ message.Ref) { list = append(list, id) })
	}
	return list
}

// skip skips the operands of an operation.
func (r *commandReader) skip(code byte) {
	switch code {
	case cmdGone, cmdClose:
		r.uint()
		return
	case cmdForget:
		r.jobs()
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
