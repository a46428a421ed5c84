package client10

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"bartleby.mq/internal/wire/amqp10"
)

// Session is a connection with one session, for tests that publish and consume. Run reads what the server sends; it calls the
// functions of links, one at a time. All other methods may be called from any goroutine, also by those functions.
type Session struct {
	c *Conn

	mu      sync.Mutex
	changed *sync.Cond
	err     error // why it has ended
	began   bool
	window  uint32 // how many transfers the server may send ahead
	nextIn  uint32 // transfer-id of the server's next transfer
	limit   uint32 // up to which transfer-id it may send
	nextOut uint32 // transfer-id of our next transfer
	room    uint32 // up to which transfer-id the server takes ours
	nextID  uint32 // delivery-id of our next message
	links   []*Link
	theirs  map[uint32]*Link // by the server's handles
}

// Link is a link of a session.
type Link struct {
	s        *Session
	handle   uint32
	sends    bool
	attached bool
	err      error // why it has ended

	count, limit uint32 // delivery-count, and up to where there is credit
	outcome      func(id uint32, state amqp10.Value)
	deliver      func(*Delivery)
	got          Delivery // of which not all has come
	partly       bool
}

// Delivery is a message as it came, not read yet.
type Delivery struct {
	ID      uint32
	Settled bool
	Payload []byte
}

// ErrEnded is wrapped by errors for what has ended: a connection, its session, a link.
var ErrEnded = errors.New("ended")

// Begin begins the session of a connection. Run must be running for anything to come of it. window is how many transfers the
// server may send ahead.
func (c *Conn) Begin(window uint32) (*Session, error) {
	s := &Session{c: c, window: window, theirs: map[uint32]*Link{}}
	s.changed = sync.NewCond(&s.mu)
	begin := amqp10.Begin{IncomingWindow: window, OutgoingWindow: 1 << 20, HandleMax: amqp10.Some[uint32](255)}
	_, err := c.Write(amqp10.AppendFrame(nil, 0, &begin))
	return s, err
}

// Close closes the socket. Run returns.
func (s *Session) Close() { _ = s.c.Close() }

// Sender attaches a link to an address, "" for one whose messages say where they go. outcome is called with each outcome of a
// message.
func (s *Session) Sender(address string, outcome func(id uint32, state amqp10.Value)) (*Link, error) {
	t := amqp10.Target{Address: octets(address)}
	return s.attach(&Link{s: s, sends: true, outcome: outcome}, &amqp10.Attach{
		Role: amqp10.RoleSender, Source: Described(&amqp10.Source{}), Target: Described(&t), InitialDeliveryCount: amqp10.Some[uint32](0),
	})
}

// Receiver attaches a link from a queue, without credit. deliver is called with each message.
func (s *Session) Receiver(queue string, settled bool, deliver func(*Delivery)) (*Link, error) {
	mode := amqp10.SenderSettleModeUnsettled
	if settled {
		mode = amqp10.SenderSettleModeSettled
	}
	return s.attach(&Link{s: s, deliver: deliver}, &amqp10.Attach{
		Role: amqp10.RoleReceiver, SndSettleMode: amqp10.Some(mode),
		Source: Described(&amqp10.Source{Address: []byte(Queue(queue))}), Target: Described(&amqp10.Target{}),
	})
}

func (s *Session) attach(k *Link, a *amqp10.Attach) (*Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.handle = uint32(len(s.links))
	a.Handle, a.Name = k.handle, []byte("link"+strconv.Itoa(len(s.links)))
	s.links = append(s.links, k)
	if err := s.write(amqp10.AppendFrame(nil, 0, a)); err != nil {
		return nil, err
	}
	err := k.await(func() bool { return k.attached })
	return k, err
}

// write writes. REQUIRES: mu, so that frames leave in the order in which they are counted.
func (s *Session) write(b []byte) error {
	_, err := s.c.Write(b)
	return err
}

// await waits until f holds, or the link has ended. REQUIRES: mu.
func (k *Link) await(f func() bool) error {
	for {
		switch {
		case k.s.err != nil:
			return k.s.err
		case k.err != nil:
			return k.err
		case f():
			return nil
		}
		k.s.changed.Wait()
	}
}

// Send publishes a message, in frames of at most maxFrame octets, and calls sent with its delivery-id just before. It waits for
// credit and for the window of the session; so it must not be called by functions of links.
func (k *Link) Send(payload []byte, settled bool, maxFrame uint32, sent func(id uint32)) error {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := k.await(func() bool { return int32(k.limit-k.count) > 0 }); err != nil {
		return err
	}
	id := s.nextID
	s.nextID++
	k.count++
	sent(id)
	t := amqp10.Transfer{
		Handle: k.handle, DeliveryID: amqp10.Some(id), DeliveryTag: strconv.AppendUint(nil, uint64(id), 10), MessageFormat: amqp10.Some[uint32](0), Settled: amqp10.Some(settled),
	}
	for done := 0; ; {
		if err := k.await(func() bool { return int32(s.room-s.nextOut) > 0 }); err != nil {
			return err
		}
		var b []byte
		b, done = amqp10.AppendTransfer(nil, 0, &t, min(maxFrame, s.c.PeerMaxFrame), done, payload)
		s.nextOut++
		if err := s.write(b); err != nil || done == len(payload) {
			return err
		}
		t = amqp10.Transfer{Handle: k.handle}
	}
}

// Credit lets the server send so many messages from now on.
func (k *Link) Credit(n uint32) error {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	k.limit = k.count + n
	return s.flow(func(f *amqp10.Flow) {
		f.Handle, f.DeliveryCount, f.LinkCredit = amqp10.Some(k.handle), amqp10.Some(k.count), amqp10.Some(n)
	})
}

// flow tells the server where the session stands. REQUIRES: mu.
func (s *Session) flow(link func(*amqp10.Flow)) error {
	s.limit = s.nextIn + s.window
	f := amqp10.Flow{NextIncomingID: amqp10.Some(s.nextIn), IncomingWindow: s.window, NextOutgoingID: s.nextOut, OutgoingWindow: 1 << 20}
	if link != nil {
		link(&f)
	}
	return s.write(amqp10.AppendFrame(nil, 0, &f))
}

// Settle says an outcome of the deliveries from first to last.
func (s *Session) Settle(first, last uint32, state amqp10.Composite) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(amqp10.AppendFrame(nil, 0, &amqp10.Disposition{
		Role: amqp10.RoleReceiver, First: first, Last: amqp10.Some(last), Settled: true, State: Described(state),
	}))
}

// Run reads until the connection or the session ends, and returns why: what the server says wraps ErrEnded.
func (s *Session) Run() error {
	for {
		f, err := s.c.Next()
		var call func()
		s.mu.Lock()
		if err == nil {
			call, err = s.frame(&f)
		}
		if err != nil {
			s.err = err
		}
		s.changed.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if call != nil {
			call()
		}
	}
}

// frame takes a frame, and returns what is to be called without the lock. REQUIRES: mu.
func (s *Session) frame(f *Frame) (call func(), err error) {
	switch x := f.Is.(type) {
	case *amqp10.Begin:
		s.began, s.nextIn, s.limit, s.room = true, x.NextOutgoingID, x.NextOutgoingID+s.window, x.IncomingWindow
	case *amqp10.Attach:
		n, _ := strconv.Atoi(string(x.Name)[len("link"):])
		k := s.links[n]
		s.theirs[x.Handle] = k
		k.attached = !k.sends && !x.Source.IsNull() || k.sends && !x.Target.IsNull()
	case *amqp10.Flow:
		s.room = x.NextIncomingID.Value + x.IncomingWindow
		if k := s.theirs[x.Handle.Value]; x.Handle.Set && k != nil && k.sends {
			k.limit = x.DeliveryCount.Value + x.LinkCredit.Value
		}
	case *amqp10.Transfer:
		return s.transfer(x, f.Payload)
	case *amqp10.Disposition:
		if x.Role == amqp10.RoleReceiver {
			return s.outcomes(x), nil
		}
	case *amqp10.Detach:
		if k := s.theirs[x.Handle]; k != nil {
			k.err = fmt.Errorf("link %w: %s", ErrEnded, Said(x))
		}
	case *amqp10.End:
		return nil, fmt.Errorf("session %w: %s", ErrEnded, Said(x))
	case *amqp10.Close:
		return nil, fmt.Errorf("connection %w: %s", ErrEnded, Said(x))
	}
	return nil, nil
}

func (s *Session) transfer(t *amqp10.Transfer, payload []byte) (call func(), err error) {
	k := s.theirs[t.Handle]
	if k == nil || k.deliver == nil {
		return nil, fmt.Errorf("%w: a transfer for the handle %d", ErrBadFrame, t.Handle)
	}
	s.nextIn++
	if s.limit-s.nextIn <= s.window/2 {
		if err := s.flow(nil); err != nil {
			return nil, err
		}
	}
	if !k.partly {
		k.partly, k.got = true, Delivery{ID: t.DeliveryID.Value, Settled: t.Settled.Value}
	}
	if k.got.Payload = append(k.got.Payload, payload...); t.More {
		return nil, nil
	}
	k.partly = false
	k.count++
	d := k.got
	return func() { k.deliver(&d) }, nil
}

func (s *Session) outcomes(d *amqp10.Disposition) (call func()) {
	last := d.First
	if d.Last.Set {
		last = d.Last.Value
	}
	return func() {
		for id := d.First; ; id++ {
			for _, k := range s.links { // an id belongs to one of them: the functions know which
				if k.outcome != nil {
					k.outcome(id, d.State)
				}
			}
			if id == last {
				return
			}
		}
	}
}
