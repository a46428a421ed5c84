package conserve

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// A client of AMQP 1.0 is a client whose channels are sessions. What it says and hears becomes acts, deliveries and endings as
// those of AMQP 0-9-1 do, so the ledger judges both alike: a session is a channel, a link that receives a consumer, a message
// of unsettled transfers one that waits for its confirm, its outcome released a return, rejected a nack.

// ten is what a client of AMQP 1.0 has beside what every client has.
type ten struct {
	conn     *client10.Conn
	maxFrame uint32              // what the server may send
	theirs   map[uint16]*channel // by the server's channel numbers
}

// session is a channel of AMQP 1.0. Guarded by the ledger's lock.
type session struct {
	began  bool
	window uint32 // how many transfers the client takes ahead
	nextIn uint32 // transfer-id of the server's next transfer
	limit  uint32 // up to which transfer-id the server may send
	stale  bool   // a flow is said that may leave with an older limit than another one before it
	room   uint32 // up to which transfer-id the server takes ours

	nextOut uint32 // transfer-id of the next transfer
	sent    uint32 // of the first that is not written yet
	links   map[uint32]*link
	theirs  map[uint32]*link // by the server's handles
	owed    []uint32         // handles that the server has detached, and the client has not
	lost    bool             // the server has detached a link, of which something may have been said since
	serial  int              // of names of links

	requests, answers *link           // to the management node
	asked             map[string]*act // by message-id
}

// link is one life of a link.
type link struct {
	handle         uint32
	name           string
	target         string // of one that sends
	sends          bool
	attach, detach *act // what was asked of the server
	attached       bool
	refused        bool // the server says why next
	ended          bool

	count, limit uint32 // what was sent, or has come, and up to where there is credit
	most         uint32 // the highest limit of one that receives
	draining     *act
	consumer     *consumer

	got        []byte // of a message of which not all has come
	gotID      uint32
	gotSettled bool
	partly     bool
}

// connectTen opens a connection of AMQP 1.0.
func connectTen(l *ledger, addr, vhost, name string, maxFrame uint32) (*client, error) {
	conn, err := client10.Dial(addr, client10.Options{VHost: vhost, MaxFrame: maxFrame, Container: name, Timeout: patience})
	if err != nil {
		return nil, err
	}
	c := &client{l: l, conn: conn.Conn, name: name, chans: map[uint16]*channel{}, gone: make(chan struct{})}
	c.ten = &ten{conn: conn, maxFrame: maxFrame, theirs: map[uint16]*channel{}}
	l.mu.Lock()
	l.clients = append(l.clients, c)
	l.mu.Unlock()
	go c.readTen() // ends with the connection
	return c, nil
}

// readTen is read of a client of AMQP 1.0.
func (c *client) readTen() {
	defer close(c.gone)
	for {
		f, err := c.ten.conn.Next()
		if errors.Is(err, client10.ErrBadFrame) {
			c.l.fault("%s: %v", c.name, err)
			_ = c.conn.Close()
			return
		}
		if err != nil {
			break
		}
		c.l.mu.Lock()
		answers := c.frameTen(&f)
		c.l.mu.Unlock()
		if answers {
			c.wmu.Lock()
			c.l.mu.Lock()
			b := c.answersTen()
			c.l.mu.Unlock()
			c.write(b)
			c.wmu.Unlock()
		}
	}
	c.readEnded()
}

// answersTen is what is to be said now, whatever waits to be sent: REQUIRES: wmu and mu.
func (c *client) answersTen() (b []byte) {
	if c.ended {
		return amqp10.AppendFrame(b, 0, &amqp10.Close{})
	}
	for _, ch := range c.chans {
		if s := ch.ten; s.began && !ch.ended && !ch.closing && s.starves() {
			b = ch.appendFlow(b, s.sent, nil)
		}
	}
	return b
}

// owedTen adds to what is about to be written what is to follow it. REQUIRES: mu.
func (c *client) owedTen(b []byte) []byte {
	for _, ch := range c.chans {
		s := ch.ten
		s.sent = s.nextOut
		if ch.ended || ch.closing {
			continue
		}
		for _, handle := range s.owed {
			b = amqp10.AppendFrame(b, ch.num, &amqp10.Detach{Handle: handle, Closed: true})
			delete(s.links, handle)
		}
		s.owed = nil
		if s.stale && s.began {
			b = ch.appendFlow(b, s.nextOut, nil)
		}
		s.stale = false
	}
	return b
}

// starves says whether the server may send so little that it is time to tell it more.
func (s *session) starves() bool { return s.limit-s.nextIn <= s.window/2 }

// appendFlow appends a flow of the session, with what link adds to it. next is the transfer-id of what is sent after it.
func (ch *channel) appendFlow(b []byte, next uint32, link func(*amqp10.Flow)) []byte {
	s := ch.ten
	s.limit = s.nextIn + s.window
	f := amqp10.Flow{IncomingWindow: s.window, NextOutgoingID: next, OutgoingWindow: 1 << 20}
	if s.began {
		f.NextIncomingID = amqp10.Some(s.nextIn)
	}
	if link != nil {
		link(&f)
	}
	return amqp10.AppendFrame(b, ch.num, &f)
}

// sayTen adds a frame to what goes out, as an act. If it is to be answered the caller adds it to those that wait.
func (ch *channel) sayTen(what, queue string, c amqp10.Composite) *act {
	a := ch.act(what, queue)
	ch.c.out = amqp10.AppendFrame(ch.c.out, ch.num, c)
	return a
}

// beginTen begins the session.
func (ch *channel) beginTen(window uint32) {
	ch.ten = &session{window: window, links: map[uint32]*link{}, theirs: map[uint32]*link{}, asked: map[string]*act{}}
	ch.wait(ch.sayTen("open", "", &amqp10.Begin{IncomingWindow: window, OutgoingWindow: 1 << 20, HandleMax: amqp10.Some[uint32](255)}))
}

func (ch *channel) wait(a *act) { ch.waiting = append(ch.waiting, a) }

// newLink adds a link with a free handle; nil if there is none.
func (s *session) newLink(name string) *link {
	for h := range uint32(60) {
		if s.links[h] == nil {
			s.serial++
			k := &link{handle: h, name: fmt.Sprintf("%s%d", name, s.serial)}
			s.links[h] = k
			return k
		}
	}
	return nil
}

// attachSender begins a link to an address, "" for an anonymous one.
func (ch *channel) attachSender(what, target string) *link {
	k := ch.ten.newLink(what)
	if k == nil {
		return nil
	}
	k.sends, k.target = true, target
	t := amqp10.Target{}
	if target != "" {
		t.Address = []byte(target)
	}
	k.attach = ch.sayTen(what, "", &amqp10.Attach{
		Name: []byte(k.name), Handle: k.handle, Role: amqp10.RoleSender, Source: client10.Described(&amqp10.Source{}), Target: client10.Described(&t),
		InitialDeliveryCount: amqp10.Some[uint32](0),
	})
	ch.wait(k.attach)
	return k
}

// attachReceiver begins a link from a queue.
func (ch *channel) attachReceiver(s *consumer) *link {
	k := ch.ten.newLink("consume")
	if k == nil {
		return nil
	}
	k.consumer, s.link, s.tag = s, k, k.name
	what, mode := "consume", amqp10.SenderSettleModeMixed
	if s.noAck {
		what, mode = "consume!", amqp10.SenderSettleModeSettled
	}
	k.attach = ch.sayTen(what, s.queue, &amqp10.Attach{
		Name: []byte(k.name), Handle: k.handle, Role: amqp10.RoleReceiver, SndSettleMode: amqp10.Some(mode),
		Source: client10.Described(&amqp10.Source{Address: []byte(client10.Queue(s.queue))}), Target: client10.Described(&amqp10.Target{}),
	})
	ch.wait(k.attach)
	return k
}

// credit tells the server how much a link takes. A drain is answered.
func (ch *channel) credit(k *link, n uint32, drain bool) {
	s := ch.ten
	s.stale = true
	k.limit = k.count + n
	if int32(k.limit-k.most) > 0 {
		k.most = k.limit
	}
	a := ch.act("credit", "")
	ch.c.out = ch.appendFlow(ch.c.out, s.nextOut, func(f *amqp10.Flow) {
		f.Handle, f.DeliveryCount, f.LinkCredit, f.Drain = amqp10.Some(k.handle), amqp10.Some(k.count), amqp10.Some(n), drain
	})
	if drain {
		a.what = "drain"
		k.draining = a
		ch.wait(a)
	}
}

// detachLink ends a link.
func (ch *channel) detachLink(k *link, what string, closed bool) *act {
	queue := ""
	if k.consumer != nil {
		queue = k.consumer.queue
	}
	k.detach = ch.sayTen(what, queue, &amqp10.Detach{Handle: k.handle, Closed: closed})
	k.detach.link = k
	ch.wait(k.detach)
	return k.detach
}

// syncTen asks for something that is answered when everything before it is done.
func (ch *channel) syncTen() {
	if k := ch.attachSender("sync", ""); k != nil {
		ch.detachLink(k, "detach", true)
	}
}

// did notes that an act was answered, whatever stands before it: an answer of AMQP 1.0 names what it answers.
func (l *ledger) did(ch *channel, a *act) {
	i := slices.Index(ch.waiting, a)
	if i < 0 {
		return
	}
	ch.waiting = slices.Delete(ch.waiting, i, i+1)
	l.finished(ch, a, nil)
}

// frameTen takes one frame. It returns whether something is to be said at once.
func (c *client) frameTen(f *client10.Frame) (answers bool) {
	l := c.l
	if x, ok := f.Is.(*amqp10.Close); ok {
		said := client10.Said(x)
		if !c.ending {
			l.complain("%s: the server closed the connection: %s", c.name, said)
		}
		asked := c.ending && said == ""
		l.connectionEnded(c)
		return !asked
	}
	if b, ok := f.Is.(*amqp10.Begin); ok {
		ch := c.chans[b.RemoteChannel.Value]
		if !b.RemoteChannel.Set || ch == nil {
			l.complain("%s: the server begins a session on channel %d that nobody asked for", c.name, f.Channel)
			return false
		}
		c.ten.theirs[f.Channel] = ch
		s := ch.ten
		s.began, s.nextIn, s.limit, s.room = true, b.NextOutgoingID, b.NextOutgoingID+s.window, b.IncomingWindow
		if i := slices.IndexFunc(ch.waiting, func(a *act) bool { return a.what == "open" }); i >= 0 {
			l.did(ch, ch.waiting[i])
		}
		return false
	}
	ch := c.ten.theirs[f.Channel]
	if ch == nil {
		l.complain("%s: %s on channel %d, which is not open", c.name, f.Is.Descriptor(), f.Channel)
		return false
	}
	if e, ok := f.Is.(*amqp10.End); ok {
		delete(c.ten.theirs, f.Channel)
		ch.endTen(e)
		return false
	}
	if ch.ended {
		return false
	}
	return ch.frameTen(f)
}

func (ch *channel) frameTen(f *client10.Frame) (answers bool) {
	s, l := ch.ten, ch.c.l
	switch x := f.Is.(type) {
	case *amqp10.Attach:
		var k *link
		for _, other := range s.links {
			if other.name == string(x.Name) && other.sends != (x.Role == amqp10.RoleSender) {
				k = other
			}
		}
		if k == nil {
			l.complain("%s: the server attaches %q, which nobody asked for", ch.c.name, x.Name)
			return false
		}
		s.theirs[x.Handle] = k
		if k.refused = k.sends && x.Target.IsNull() && k.target != "" || !k.sends && x.Source.IsNull(); k.refused {
			return false
		}
		k.attached = true
		l.did(ch, k.attach)
	case *amqp10.Flow:
		s.room = x.NextIncomingID.Value + x.IncomingWindow
		if k := s.theirs[x.Handle.Value]; x.Handle.Set && k != nil {
			ch.flowed(k, x)
		}
	case *amqp10.Transfer:
		ch.transferred(x, f.Payload)
		return s.starves()
	case *amqp10.Disposition:
		ch.disposed(x)
	case *amqp10.Detach:
		ch.detached(x)
	default:
		l.complain("%s: the server sent %s on channel %d", ch.c.name, x.Descriptor(), ch.num)
	}
	return false
}

// flowed takes the flow of a link.
func (ch *channel) flowed(k *link, f *amqp10.Flow) {
	if k.sends {
		k.limit = f.DeliveryCount.Value + f.LinkCredit.Value
		return
	}
	if !f.Drain || k.draining == nil {
		return
	}
	want := k.limit
	if int32(k.count-want) > 0 {
		want = k.count // what has come since the client has taken its credit back
	}
	if f.LinkCredit.Value != 0 || f.DeliveryCount.Value != want {
		ch.c.l.complain("%s: %s is drained up to %d and has credit %d, want %d and 0", ch.c.name, k.name, f.DeliveryCount.Value, f.LinkCredit.Value, want)
	}
	k.count = f.DeliveryCount.Value
	ch.c.l.did(ch, k.draining)
	k.draining = nil
}

// transferred takes a part of a message, or all of it.
func (ch *channel) transferred(t *amqp10.Transfer, payload []byte) {
	s, l := ch.ten, ch.c.l
	if s.nextIn++; int32(s.limit-s.nextIn) < 0 {
		l.complain("%s: the server sends more transfers than the window of channel %d has", ch.c.name, ch.num)
	}
	k := s.theirs[t.Handle]
	if k == nil || k.sends {
		l.complain("%s: a transfer for the handle %d, which is not known", ch.c.name, t.Handle)
		return
	}
	if !k.partly {
		if !t.DeliveryID.Set || t.DeliveryTag == nil {
			l.complain("%s: the first transfer of a delivery has no delivery-id or no tag", ch.c.name)
		}
		k.partly, k.gotID, k.gotSettled, k.got = true, t.DeliveryID.Value, t.Settled.Value, nil
	}
	if k.got = append(k.got, payload...); t.More {
		return
	}
	k.partly = false
	if k.count++; int32(k.most-k.count) < 0 {
		l.complain("%s: the server sends more messages to %s than it has had credit for", ch.c.name, k.name)
	}
	r, err := client10.Read(k.got)
	if k == s.answers {
		ch.responded(k.got)
		return
	}
	if err != nil {
		l.complain("%s: a message from %s: %v", ch.c.name, k.consumer.queue, err)
	}
	if k.gotSettled != k.consumer.noAck {
		l.complain("%s: a message from %s is settled: %v", ch.c.name, k.consumer.queue, k.gotSettled)
	}
	if r != nil {
		l.delivered(ch, k.consumer, k.consumer.queue, uint64(k.gotID), !r.FirstAcquirer, k.consumer.noAck, contentOf(r))
	}
}

// contentOf shows a message as a client of AMQP 0-9-1 sees it.
func contentOf(r *client10.Received) *content {
	mode, priority := uint8(1), uint8(r.Priority)
	if r.Durable {
		mode = 2
	}
	x := &content{size: len(r.Body), body: r.Body, header: true}
	x.props = amqp091.PropertyList{MessageID: &r.ID, DeliveryMode: &mode, Priority: &priority, Headers: amqp091.Table{{Key: "id", Value: r.Properties["id"]}}}
	add := func(key string, v any) {
		x.props.Headers = append(x.props.Headers, amqp091.Field{Key: key, Value: v})
	}
	var deaths amqp091.Array
	for _, d := range r.Deaths {
		deaths = append(deaths, amqp091.Table{{Key: "queue", Value: d.Queue}, {Key: "reason", Value: d.Reason}, {Key: "count", Value: int64(d.Count)}})
	}
	if deaths != nil {
		add("x-death", deaths)
	}
	for _, key := range sortedKeys(r.Annotations) {
		if key == "x-first-death-queue" || key == "x-delivery-count" || merges(key) {
			add(key, r.Annotations[key])
		}
	}
	return x
}

// disposed takes outcomes of what the client has sent, and answers to settlements of its own.
func (ch *channel) disposed(d *amqp10.Disposition) {
	l := ch.c.l
	last := d.First
	if d.Last.Set {
		last = d.Last.Value
	}
	if last-d.First > 1<<20 {
		l.complain("%s: a disposition of %d to %d", ch.c.name, d.First, last)
		return
	}
	if d.Role == amqp10.RoleSender {
		for _, v := range ch.settled {
			if a := v.settle; a != nil && a.done == 0 && a.what == "settle unasked" && v.tag-uint64(d.First) <= uint64(last-d.First) {
				a.done, a.doneAt = l.tick(), time.Now()
			}
		}
		return
	}
	for id := d.First; ; id++ {
		m := ch.unconfirmed[uint64(id)]
		switch d.State.Descriptor() {
		case amqp10.DescriptorAccepted:
			l.confirmed(ch, uint64(id), false, true)
		case amqp10.DescriptorRejected:
			l.confirmed(ch, uint64(id), false, false)
		case amqp10.DescriptorReleased:
			if m != nil {
				m.fate = returned
			}
			l.confirmed(ch, uint64(id), false, true)
		default:
			l.complain("%s: the outcome of %d is %s", ch.c.name, id, d.State.Descriptor())
		}
		if id == last {
			break
		}
	}
	if !d.Settled {
		l.complain("%s: an outcome that is not settled", ch.c.name)
	}
}

// mayRefuse are the conditions by which a server refuses what episodes ask for.
var mayRefuse = []string{amqp10.ConditionNotFound, amqp10.ConditionResourceLocked, amqp10.ConditionResourceDeleted}

func conditionOf(e *amqp10.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Condition)
}

// detached takes the end of a link.
func (ch *channel) detached(d *amqp10.Detach) {
	s, l := ch.ten, ch.c.l
	k := s.theirs[d.Handle]
	if k == nil {
		l.complain("%s: the server detaches %d, which is not attached", ch.c.name, d.Handle)
		return
	}
	delete(s.theirs, d.Handle)
	k.ended = true
	if s := k.consumer; s != nil {
		s.cancelled = true
		l.noAckLost[s.queue] = l.noAckLost[s.queue] || s.noAck // what waits for the window is lost with its link
	}
	if k.draining != nil {
		ch.unanswered(k.draining)
		k.draining = nil
	}
	if d.Error != nil && !slices.Contains(mayRefuse, conditionOf(d.Error)) {
		l.complain("%s: the server detached %s: %s", ch.c.name, k.name, client10.Said(d))
	}
	if !k.attached {
		k.attach.failed = true
		l.did(ch, k.attach)
	}
	s.lost = s.lost || d.Error != nil
	switch {
	case k.detach == nil && d.Error == nil:
		l.complain("%s: the server detached %s without an error", ch.c.name, k.name)
	case k.detach == nil:
		s.owed = append(s.owed, k.handle)
	case d.Error == nil:
		l.did(ch, k.detach)
		delete(s.links, k.handle)
	default: // both have ended it, and the server answers its client's end no more
		ch.unanswered(k.detach)
		delete(s.links, k.handle)
	}
}

// unanswered notes that an act gets no answer: nobody knows what has become of what was said before it.
func (ch *channel) unanswered(a *act) {
	ch.waiting = slices.DeleteFunc(ch.waiting, func(b *act) bool { return a == b })
}

// endTen takes the end of the session.
func (ch *channel) endTen(e *amqp10.End) {
	l := ch.c.l
	if ch.ended {
		return
	}
	asked := ch.asked()
	for _, k := range ch.ten.links { // what waits for the window is lost with its session
		if s := k.consumer; s != nil && s.noAck {
			l.noAckLost[s.queue] = true
		}
	}
	if condition := conditionOf(e.Error); e.Error != nil || !asked && !ch.closing {
		known := slices.Contains(mayRefuse, condition) || condition == amqp10.ConditionUnattachedHandle && ch.ten.lost
		if !known && !ch.c.ending {
			l.complain("%s: the server ended the session %d: %s", ch.c.name, ch.num, client10.Said(e))
		}
	}
	if e.Error != nil || !asked {
		ch.byPeer = true
		if at := ch.failing(); !ch.closing || at < ch.closeAt {
			ch.closeAt = at
		}
		l.channelEnded(ch)
		return
	}
	i := slices.IndexFunc(ch.waiting, func(a *act) bool { return a.what == "close" })
	l.did(ch, ch.waiting[i])
	for _, a := range ch.ten.asked { // the answer is dropped with the session: whether it was refused, and of how many it told, nobody knows
		a.done = 0
	}
	l.channelEnded(ch)
}
