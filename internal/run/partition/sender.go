package partition

import (
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/deathstore"
)

// A sender carries what is in the outboxes of one log to their destinations and
// brings the answers back. It owns no state: where it fails it begins again from the
// first entry that has no answer. Nothing that clients do waits for it.
type sender struct {
	n     *Node
	g     *group // nil: of the local partitions
	wakec chan struct{}
}

const (
	sendEntries = 256     // in one go
	sendBytes   = 1 << 20 // likewise, of messages and histories
	sendAgain   = 250 * time.Millisecond
	sendWaits   = 30 * time.Second // for what cannot be read, and may be soon
)

func (p *Partition) wakeSender() {
	c := p.node.sendc
	if p.group != nil {
		c = p.group.sendc
	}
	select {
	case c <- struct{}{}:
	default:
	}
}

func (g *group) wakeSender() { g.p.wakeSender() }

// run is the sender's goroutine; it ends when the node stops.
func (s *sender) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if !s.all() {
			timer.Reset(sendAgain)
		}
		select {
		case <-s.wakec:
		case <-timer.C:
		case <-s.n.stop:
			return
		}
	}
}

// all empties the outboxes, a load of each at a time: one whose destination gets more and more
// keeps no other waiting. It says whether it could; one that fails is left until the next time.
func (s *sender) all() bool {
	var failed map[uint64]bool
	for more := true; more && !s.n.stopped(); {
		more = false
		for k := 0; ; k++ {
			b, ok := s.load(k)
			if !ok {
				break
			}
			if len(b.entries) == 0 || failed[b.to] {
				s.release(&b)
				continue
			}
			more = true
			if s.deliver(&b) != nil {
				if failed == nil {
					failed = map[uint64]bool{}
				}
				failed[b.to] = true
			}
		}
	}
	return failed == nil
}

// deliver brings a load to its destination, and the answer back. It lets go of the load.
func (s *sender) deliver(b *load) error {
	var upTo uint64
	var refused []refusal
	err := s.warm(b)
	if err == nil {
		upTo, refused, err = s.carry(b)
	}
	s.release(b)
	s.n.memory.relieve() // what arrives takes memory, and nobody publishes it
	if err != nil {
		return err
	}
	s.sent(b.to, upTo)
	return s.acknowledge(b.to, upTo, refused)
}

// load is a part of an outbox, pinned.
type load struct {
	from, to uint64
	heard    uint64 // all answers up to it were acted on
	entries  []outEntry
	pos      journal.Pos
	unread   int64 // as the outbox's
}

// lock locks the log's mail.
func (s *sender) lock() *mail {
	if s.g != nil {
		s.g.p.mu.Lock()
		return &s.g.mail
	}
	s.n.mailMu.Lock()
	return &s.n.mail
}

func (s *sender) unlock() {
	if s.g != nil {
		s.g.p.mu.Unlock()
		return
	}
	s.n.mailMu.Unlock()
}

func (s *sender) load(k int) (b load, ok bool) {
	if s.g == nil {
		s.n.hear()
	}
	m := s.lock()
	defer s.unlock()
	if k >= len(m.out) {
		return load{}, false
	}
	box := m.out[k]
	b = load{to: box.to, heard: box.first - 1, pos: box.pos, unread: box.unread, from: localLog | s.n.NodeID}
	if s.g != nil {
		if b.from = s.g.id; !s.g.leads {
			return b, true
		}
	}
	box.sent = max(box.sent, box.first-1)
	for _, e := range box.entries[box.sent+1-box.first:] {
		if len(b.entries) == sendEntries || !m.free(&e) {
			break
		}
		s.n.bodies.Retain(e.body, 1)
		s.n.bodies.Retain(e.history, 1)
		b.entries = append(b.entries, e)
	}
	if len(b.entries) == 0 {
		box.unread = 0
	}
	return b, true
}

// warm brings the records into memory. It leaves those for the next load that would, with their
// histories, be too much at once: all of a load is one frame, or one command, which has a record once
// for entries that follow each other. It also leaves those from the first on that cannot be read now; an
// error says that this is the first of all.
func (s *sender) warm(b *load) error {
	before := b.unread
	b.unread = 0
	err := s.read(b, before)
	if b.unread != before {
		if box := s.lock().find(b.to); box != nil {
			box.unread = b.unread
		}
		s.unlock()
	}
	return err
}

// read does so. since is when something in the outbox could not be read, 0 if all could.
func (s *sender) read(b *load, since int64) error {
	store := s.n.bodies
	size, record := 0, 0       // of all that is sent, and of the record that was read last
	var cold, warm message.Ref // that record: as it was found, and in memory
	var history message.Ref    // of the entry before
	for i := range b.entries {
		e := &b.entries[i]
		again := e.body == cold
		if before := size - record; size > sendBytes && (!again || before > sendBytes) {
			s.cut(b, i)
			return nil
		}
		if again {
			store.Retain(warm, 1)
			store.Release(e.body)
			e.body = warm
		} else {
			body, err := store.Warm(e.body)
			cold = e.body
			if err != nil {
				if !s.passes(b, e, since, err) {
					if s.cut(b, i); i == 0 {
						return err
					}
					return nil
				}
				store.Release(e.body)
				e.target, body, cold = 0, s.n.blank(), 0
			}
			e.body, warm, record = body, body, store.Size(body)
			size += record
		}
		if e.history != history {
			history = e.history
			size += deathstore.Size(store, history)
		}
	}
	return nil
}

// passes says whether those behind an entry that cannot be read pass it, for which a blank then takes its
// turn: it is lost, or for another reason something in its outbox cannot be read since very long ago.
func (s *sender) passes(b *load, e *outEntry, since int64, err error) bool {
	log, now := s.n.Logger.With("vhost", string(e.vhost), "error", err), s.n.Now()
	if s.n.Aside != nil && bodies.Lost(err) {
		log.Error("A message on its way cannot be read")
		return true
	}
	if since == 0 {
		log.Error("A message on its way cannot be read: those behind it wait")
		since = now
	}
	b.unread = min(since, now)
	if now-since < sendWaits.Milliseconds() {
		return false
	}
	log.Error("A message on its way cannot be read for long: those behind it wait no longer")
	return true
}

// cut leaves the entries from the i-th on for the next load.
func (s *sender) cut(b *load, i int) {
	s.release(&load{entries: b.entries[i:]})
	b.entries = b.entries[:i]
}

// release lets go of the entries.
func (s *sender) release(b *load) {
	for _, e := range b.entries {
		s.n.bodies.Release(e.body)
		s.n.bodies.Release(e.history)
	}
}

// sent notes that everything up to a number has an answer on its way.
func (s *sender) sent(to, upTo uint64) {
	if box := s.lock().find(to); box != nil { // a snapshot may have replaced it
		box.sent = upTo
	}
	s.unlock()
}

// carry hands the entries to their destination and returns its answer, which is
// durable there.
func (s *sender) carry(b *load) (upTo uint64, refused []refusal, err error) {
	if s.g == nil && b.pos != 0 {
		// What is not durable here must not be anywhere else.
		if err := s.n.Journal.Commit(b.pos); err != nil {
			return 0, nil, err
		}
	}
	s.n.at(FailMailSent)
	if b.to == localLog|s.n.NodeID {
		return s.n.takeMail(b)
	}
	g := s.n.groupByID(b.to)
	if g == nil {
		return 0, nil, errLost
	}
	a := newAsk()
	err = g.question(a, func(w *commandWriter) { s.write(w, b) })
	return a.last, a.refusals, err
}

// write writes what a group is to take.
func (s *sender) write(w *commandWriter, b *load) {
	w.outIn(b.from, b.heard, b.entries[0].number, len(b.entries))
	for i := range b.entries {
		in := s.n.mailed(b, i)
		w.sent(&in)
	}
}

// mailed is the i-th entry of a load as it arrives.
func (n *Node) mailed(b *load, i int) mailed {
	e := &b.entries[i]
	in := mailed{
		number: e.number, target: e.target, flags: e.flags, failed: e.failed,
		history: n.historyBytes(e.history), record: n.bodies.Bytes(e.body),
	}
	if i > 0 {
		before := &b.entries[i-1]
		in.sameHistory, in.sameRecord = e.history == before.history, e.body == before.body
	}
	return in
}

// acknowledge brings an answer back into the source's own log.
func (s *sender) acknowledge(to, upTo uint64, refused []refusal) error {
	s.n.at(FailMailTaken)
	if s.g != nil {
		return s.g.tell(func(w *commandWriter) { w.outAck(to, upTo, refused) })
	}
	n := s.n
	h := n.lock(n.parts...)
	n.mailMu.Lock()
	h.mailing = true
	box := n.mail.box(to)
	h.frame.mailAck(to, upTo, refused)
	for _, e := range box.answered(upTo) {
		n.taken(h, &n.mail, box, e, why(refused, e.number), n.localQueue)
	}
	h.flowWithdrawn()
	n.unlock(h)
	return nil
}

// takeMail lets what a group has sent into local queues.
func (n *Node) takeMail(b *load) (upTo uint64, refused []refusal, err error) {
	h := n.lock(n.parts...)
	n.mailMu.Lock()
	h.mailing = true
	box := n.mail.inbox(b.from)
	before := box.last
	box.heard(b.heard)
	box.last = max(box.last, b.heard) // the frames that told may be lost, and the source sends it no more
	c := incoming{n: n, h: h}
	for i := range b.entries {
		in := n.mailed(b, i)
		c.next(&in)
		h.entries++
		if !box.accept(in.number) {
			continue
		}
		keep := func() message.Ref {
			body, mem := n.bodies.Alloc(len(in.record))
			copy(mem, in.record)
			return body
		}
		if answer := c.receive(n.localQueue(in.target), &in, keep); answer != 0 {
			box.refuse(in.number, answer)
			h.frame.mailIn(b.from, in.number, answer, b.heard)
		}
	}
	upTo = min(box.last, b.entries[len(b.entries)-1].number)
	refused = append(refused, box.refusals...)
	if box.last > before {
		n.mail.took(b.from, box.last)
		h.frame.mailIn(b.from, box.last, 0, b.heard)
	}
	pos := n.unlock(h)
	if pos == 0 {
		return upTo, refused, nil // all of it was taken before
	}
	return upTo, refused, n.Journal.Commit(pos)
}

// localQueue finds a queue of the local partitions, which are held.
func (n *Node) localQueue(inc uint64) *Queue {
	for _, p := range n.parts {
		if q := p.queues[inc]; q != nil {
			return q
		}
	}
	return nil
}

func (n *Node) groupByID(id uint64) *group {
	for _, p := range n.groups {
		if p.group.id == id {
			return p.group
		}
	}
	return nil
}
