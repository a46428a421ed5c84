package session10

import (
	"crypto/sha256"
	"slices"
	"sync/atomic"

	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/run/serving"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp10"
)

const (
	// maxWindow is how many transfers a client may send before it hears of a new window, as in RabbitMQ.
	maxWindow = 400
	// outgoingWindow is our own, which never closes: what waits for a client is bounded otherwise.
	outgoingWindow = 1<<32 - 1
	// maxFlows is how many flows may wait in a session whose window is closed.
	maxFlows = 1024
)

// session is one session of a connection (2.5).
type session struct {
	c         *conn
	number    uint16 // of its channel, in both directions
	handleMax uint32
	parked    atomic.Int64 // bytes of what is parked in it

	// Owned by the reader, which writes it under conn.chMu; others read it under that.
	publishers map[uint32]*publisher // by handle
	// Owned by the reader.
	slack int // how many transfers beyond its window a client may send, since an alarm has closed it

	// Owned by the holder of the pen.
	parking serving.List[item] // what waits for the client's window, in order
	part    *part              // a delivery of which only a part was sent; before all in parking
	flows   int                // of parking, with answers of the management node
	holes   int                // of parking: see pen.withdraw

	mu           held.Mutex // guards what follows; goroutines that delete queues take it. It comes before output.mu
	closed       bool
	managers     map[[sha256.Size]byte]*manager // by name; nil before there is one. The reader, which alone writes it, reads it without the lock
	consumers    map[uint32]*consumer           // by handle
	nextIncoming uint32                         // transfer-id of the client's next transfer
	window       int                            // how many more it may send; negative if it has sent more
	theirWindow  uint32                         // how many more it says that it will send, which is only shown
	nextOutgoing uint32                         // transfer-id of our next transfer
	limit        uint32                         // up to which transfer-id the client takes them: see limitOf
	delivered    uint64                         // how many deliveries there were: the lower half is the delivery-id of our next one
	unsettled    unsettledList
}

// beginSession answers begin.
func (c *conn) beginSession(number uint16, b *amqp10.Begin) error {
	if b.RemoteChannel.Set {
		return fail(amqp10.ConditionInvalidField, "begin: remote-channel is set, and there is no session that it answers (2.7.2)").violation()
	}
	refused := c.link.OpenChannel()
	s := &session{
		c: c, number: number, handleMax: min(b.HandleMax.Value, uint32(c.LinkMax-1)), publishers: map[uint32]*publisher{},
		consumers: map[uint32]*consumer{}, nextIncoming: b.NextOutgoingID, window: maxWindow, theirWindow: b.OutgoingWindow, limit: limitOf(0, b.IncomingWindow),
	}
	if c.alarmed {
		s.window = 0
	}
	c.putFrame(number, &amqp10.Begin{
		RemoteChannel: amqp10.Some(number), IncomingWindow: uint32(s.window), OutgoingWindow: outgoingWindow, HandleMax: amqp10.Some(s.handleMax),
	})
	if refused != nil {
		f := asFailure(refused)
		c.log.Error("refused a session", "channel", number, "reason", f.text, "user", c.login.User)
		c.putFrame(number, &amqp10.End{Error: f.wire()})
		return nil
	}
	c.chMu.Lock()
	c.sessions[number] = s
	c.chMu.Unlock()
	return nil
}

// perform carries out a performative on an open session.
func (s *session) perform(d amqp10.Descriptor, v amqp10.Value, payload []byte) error {
	switch d {
	case amqp10.DescriptorTransfer:
		var t amqp10.Transfer
		if err := t.Decode(v); err != nil {
			return malformed(err)
		}
		return s.transfer(&t, payload)
	case amqp10.DescriptorFlow:
		var f amqp10.Flow
		if err := f.Decode(v); err != nil {
			return malformed(err)
		}
		return s.flow(&f)
	case amqp10.DescriptorDisposition:
		var d amqp10.Disposition
		if err := d.Decode(v); err != nil {
			return malformed(err)
		}
		return s.disposition(&d)
	case amqp10.DescriptorAttach:
		var a amqp10.Attach
		if err := a.Decode(v); err != nil {
			return malformed(err)
		}
		return s.attach(&a)
	case amqp10.DescriptorDetach:
		var d amqp10.Detach
		if err := d.Decode(v); err != nil {
			return malformed(err)
		}
		return s.detach(&d)
	case amqp10.DescriptorEnd:
		s.c.flushOps()
		s.c.confirm()
		s.c.endSession(s, nil)
		return nil
	}
	return failSession(amqp10.ConditionInternalError, "Unexpected frame %s", d)
}

// endSession ends a session with a frame, and gives back what its consumers hold.
func (c *conn) endSession(s *session, f *failure) {
	var end amqp10.End
	if f != nil {
		c.log.Error("closing session", "channel", s.number, "condition", f.condition, "reason", f.text, "user", c.login.User)
		end.Error = f.wire()
	}
	s.wait()
	made := s.made()
	c.release([]*session{s})()
	for _, name := range made {
		s.dropTemporary(name)
	}
	c.forgetSession(s)
	c.putFrame(s.number, &end)
}

func (c *conn) forgetSession(s *session) {
	c.chMu.Lock()
	delete(c.sessions, s.number)
	c.chMu.Unlock()
}

// endSessions ends all sessions with the connection. None of them gets a delivery afterwards.
func (c *conn) endSessions() {
	list := c.sortedSessions()
	applied := c.release(list)
	for _, s := range list {
		c.forgetSession(s)
	}
	applied()
}

// release ends the consumers of sessions, and requeues what they hold, in order. It does so for several sessions at once: none
// of them gets a delivery that another gives back. Their deliveries in the output go back with it too.
func (c *conn) release(sessions []*session) (applied func()) {
	var seats []partition.Seat
	for _, s := range sessions {
		s.mu.Lock()
		s.closed = true
		list := make([]*consumer, 0, len(s.consumers))
		for _, k := range s.consumers {
			k.ended = true
			k.gone.Store(true)
			list = append(list, k)
		}
		clear(s.consumers)
		s.unsettled = unsettledList{}
		s.mu.Unlock()
		slices.SortFunc(list, func(a, b *consumer) int { return int(a.handle) - int(b.handle) })
		for _, k := range list {
			if k.q == nil {
				c.broker.RemoveRequester(k.replies)
				continue
			}
			seats = append(seats, partition.Seat{Queue: k.q, Consumer: &k.Consumer})
		}
		for _, p := range s.publishers {
			p.end()
		}
		for _, m := range s.managers {
			c.forgetAnswers(m)
		}
		c.chMu.Lock()
		clear(s.publishers)
		c.chMu.Unlock()
		c.putItem(item{kind: itemWindow, s: s}) // what is parked there is released
	}
	applied = func() {}
	if len(seats) > 0 {
		applied = c.link.Quit(seats, nil)
	}
	for range sessions {
		c.link.CloseChannel()
	}
	return applied
}

// abort makes the reader end a session. Any goroutine may call it.
func (c *conn) abort(s *session, f *failure) {
	c.chMu.Lock()
	c.aborts = append(c.aborts, abortion{s, f})
	c.chMu.Unlock()
	c.sock.Interrupt()
}

// departed makes the reader detach the session's publishers to a queue, which was deleted. Any goroutine may call it.
func (s *session) departed(queue string) {
	s.c.chMu.Lock()
	s.c.gone = append(s.c.gone, departure{s, queue})
	s.c.chMu.Unlock()
	s.c.sock.Interrupt()
}

type departure struct {
	s     *session
	queue string
}

// detachDeparted detaches the links to queues that were deleted, as RabbitMQ does.
func (c *conn) detachDeparted() {
	c.chMu.Lock()
	gone := c.gone
	c.gone = nil
	c.chMu.Unlock()
	for _, d := range gone {
		if c.sessions[d.s.number] != d.s {
			continue
		}
		var list []*publisher
		for _, p := range d.s.publishers {
			if p.to.queue && p.to.key == d.queue {
				list = append(list, p)
			}
		}
		slices.SortFunc(list, func(a, b *publisher) int { return int(b.handle) - int(a.handle) })
		for _, p := range list {
			p.fail(&failure{scope: ofLink, condition: amqp10.ConditionResourceDeleted})
		}
	}
}

type abortion struct {
	s *session
	f *failure
}

// endAborted ends the sessions that others have aborted.
func (c *conn) endAborted() {
	c.chMu.Lock()
	aborts := c.aborts
	c.aborts = nil
	c.chMu.Unlock()
	for _, a := range aborts {
		if c.sessions[a.s.number] == a.s {
			c.flushOps()
			c.confirm()
			c.endSession(a.s, a.f)
		}
	}
}

// wait returns when no publish of the session waits for replicated queues.
func (s *session) wait() {
	for _, p := range s.publishers {
		if p.confirms.waiting() > 0 {
			s.c.link.Settle()
			return
		}
	}
}

// heedAlarm closes the session's window, or opens it again. Transfers that the client has sent already are taken.
func (s *session) heedAlarm(on bool) {
	s.mu.Lock()
	s.window, s.slack = maxWindow, 0
	if on {
		s.window, s.slack = 0, maxWindow
	}
	s.mu.Unlock()
	s.c.putItem(item{kind: itemFlow, s: s, flow: &flow{}})
}

// took counts a transfer of the client (2.5.6). Half way through its window the client gets a new one.
func (s *session) took() error {
	s.mu.Lock()
	s.window--
	s.theirWindow--
	s.nextIncoming++
	violated := s.window < -s.slack
	renew := !s.c.alarmed && s.window <= maxWindow/2
	if renew {
		s.window = maxWindow
	}
	s.mu.Unlock()
	if violated {
		return failSession(amqp10.ConditionWindowViolation, "incoming window violation (tolerated excess tranfers: %d)", s.slack)
	}
	if renew {
		s.c.putItem(item{kind: itemFlow, s: s, flow: &flow{}})
	}
	return nil
}

// flow handles the client's flow: that of the session, and that of a link (2.7.4).
func (s *session) flow(f *amqp10.Flow) error {
	s.mu.Lock()
	from := f.NextIncomingID.Value // unset: it has not seen our begin, and our first transfer-id is 0
	if int32(from-s.nextOutgoing) > 0 {
		at := s.nextOutgoing
		s.mu.Unlock()
		return failSession(amqp10.ConditionWindowViolation, "next-incoming-id from FLOW (%d) leads next-outgoing-id (%d)", from, at)
	}
	if limit := limitOf(from, f.IncomingWindow); s.limit != limit {
		s.limit = limit
		s.c.putItem(item{kind: itemWindow, s: s})
	}
	s.nextIncoming, s.theirWindow = f.NextOutgoingID, f.OutgoingWindow
	var k *consumer
	if f.Handle.Set {
		k = s.consumers[f.Handle.Value]
	}
	s.mu.Unlock()
	if !f.Handle.Set {
		return nil // an echo that is asked for does not come, as in RabbitMQ
	}
	if k != nil {
		return k.flow(f)
	}
	if m := s.managerOf(f.Handle.Value); m != nil {
		s.flowManager(m, f)
		return nil
	}
	if s.publishers[f.Handle.Value] == nil {
		return failSession(amqp10.ConditionUnattachedHandle, "Unattached link handle: %d", f.Handle.Value)
	}
	return nil // how many messages the client has
}

// limitOf is the transfer-id up to which a client takes transfers that says how many it takes from which on. Transfer-ids are serial
// numbers, which are compared over half of their range (RFC 1982): a window that is larger counts as that half.
func limitOf(from, window uint32) uint32 { return from + min(window, 1<<31-1) }

// room is how many transfers the client takes now.
func (s *session) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, int(int32(s.limit-s.nextOutgoing)))
}

// waiting says whether something is parked in the session. REQUIRES: the pen.
func (s *session) waiting() bool { return s.part != nil || s.parking.Len() > 0 }

// park keeps an item until the client's window is open. REQUIRES: the pen.
func (s *session) park(it *item) {
	it.parked = true
	if it.kind != itemDelivery {
		if s.flows++; s.flows > maxFlows {
			s.c.abort(s, failSession(amqp10.ConditionResourceLimitExceeded, "too many flows wait for the window of the session")) // nobody needs so many
		}
	}
	if it.kind != itemFlow {
		s.parked.Add(int64(it.bytes))
	}
	if it.kind == itemAnswer {
		s.c.parkedAnswers.Add(int64(it.bytes))
	}
	s.parking.Push(it)
}
