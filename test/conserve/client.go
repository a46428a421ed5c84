package conserve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

// frameMax is what clients agree to: the least there is, so that bodies have several frames.
const frameMax = 8192

// client is one connection. What it sends is collected in out until it is flushed, so that
// many methods can go in one write. The player owns out; the reader owns in; all else is
// guarded by the ledger's lock.
type client struct {
	l     *ledger
	conn  net.Conn
	name  string // for complaints
	out   []byte
	wmu   sync.Mutex // guards writes: the reader answers closes
	ten   *ten       // nil: it speaks AMQP 0-9-1
	chans map[uint16]*channel

	ended  bool // by anybody
	ending bool // by us, or the node was told to end
	clean  bool // by connection.close, so that all that was sent was read
	endAt  int64
	gone   chan struct{} // closed when the reader has ended
}

// mode is what a channel was made for.
type mode uint8

const (
	plain mode = iota
	confirming
	transactional
)

func (m mode) String() string { return [...]string{"plain", "confirm", "tx"}[m] }

// channel is one life of a channel number.
type channel struct {
	c       *client
	num     uint16
	mode    mode
	acts    []*act // all that was sent, in order
	waiting []*act // those that have an answer to come
	closing bool   // channel.close was sent, or connection.close, or the node is being stopped
	closeAt int64  // when, or since when the server may have closed it
	ended   bool
	endAt   int64 // 0 while it lives
	byPeer  bool  // the server closed it
	unheard int64 // since when the server may have closed it, of which its connection's end kept its client from hearing; 0: it has not
	crossed bool  // a close-ok may come for the channel that had the number before

	published   uint64 // delivery tag of the last publish
	unconfirmed map[uint64]*message
	outstanding []*delivery // not settled, by tag
	settled     []*delivery
	consumers   map[string]*consumer
	getting     []string // queues of gets under way
	inTx        []func(committed bool)
	content     *content // being received
	requestor   bool     // consumes direct replies
	ten         *session // what it has as one of AMQP 1.0
}

// consumer is a subscription as the client knows it.
type consumer struct {
	ch        *channel
	tag       string
	queue     string
	noAck     bool
	link      *link // of AMQP 1.0
	began     int64
	cancelled bool
	last      map[*channel]*message // the latest message of each publisher (see order)
}

// content is a message under way.
type content struct {
	method amqp091.Method
	size   int
	props  amqp091.PropertyList
	body   []byte
	header bool
}

// act is something that a client told the broker. It took place between sent and done, on
// the ledger's clock; done is 0 while it is not known to have been done, which it then may
// still be.
type act struct {
	ch         *channel // nil for what was said over HTTP
	pos        int
	what       string
	queue      string
	sent, done int64
	sentAt     time.Time
	doneAt     time.Time
	failed     bool // the broker refused it
	count      int  // of messages, as the answer said
	answers    []amqp091.MethodID
	onAnswer   func(amqp091.Method)
	link       *link // that it detaches
	fails      bool  // it settles deliveries as failed
	annotates  *annotation

	message *message // that it publishes
	commits []func() // called when the commit of what it does is asked for
	decided bool     // a commit or a rollback of it was asked for
	asked   int      // pos before the commit, which is pos from then on
}

// before says whether a was certainly done when b was begun.
func (a *act) before(b *act) bool {
	if a.failed {
		return false
	}
	if a.ch != nil && a.ch == b.ch {
		return a.pos < b.routedAt()
	}
	return a.done != 0 && a.done < b.sent
}

// routedAt is where the act stands for what comes before it: a publish of a transaction is
// routed when it comes, and takes its place among the others at the commit (BR-8.11).
func (a *act) routedAt() int {
	if a.message != nil && a.decided {
		return a.asked
	}
	return a.pos
}

// connect opens a connection as far as open-ok.
func connect(l *ledger, addr, vhost, name string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	c := &client{l: l, conn: conn, name: name, chans: map[uint16]*channel{}, gone: make(chan struct{})}
	var in []byte
	if in, err = c.handshake(vhost); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	l.mu.Lock()
	l.clients = append(l.clients, c)
	l.mu.Unlock()
	go c.read(in) // ends with the connection
	return c, nil
}

func (c *client) handshake(vhost string) (in []byte, err error) {
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	defer func() { _ = c.conn.SetDeadline(time.Time{}) }()
	if _, err := io.WriteString(c.conn, amqp091.ProtocolHeader); err != nil {
		return nil, err
	}
	expect := func(id amqp091.MethodID) (amqp091.Method, error) {
		for {
			f, n, err := amqp091.NextFrame(in, 1<<20)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				in = in[n:]
				m, err := amqp091.DecodeMethod(f.Payload)
				if err == nil && m.ID() != id {
					err = fmt.Errorf("want %v, got %v", id, m)
				}
				return m, err
			}
			b := make([]byte, 4096)
			k, err := c.conn.Read(b)
			if in = append(in, b[:k]...); k == 0 && err != nil {
				return nil, err
			}
		}
	}
	if _, err = expect(amqp091.ConnectionStartID); err != nil {
		return nil, err
	}
	capabilities := amqp091.Table{{Key: "consumer_cancel_notify", Value: true}, {Key: "basic.nack", Value: true}, {Key: "publisher_confirms", Value: true}}
	b := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{
		ClientProperties: amqp091.Table{{Key: "capabilities", Value: capabilities}}, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	})
	if _, err = c.conn.Write(b); err != nil {
		return nil, err
	}
	if _, err = expect(amqp091.ConnectionTuneID); err != nil {
		return nil, err
	}
	b = amqp091.AppendMethod(nil, 0, amqp091.ConnectionTuneOk{ChannelMax: 2047, FrameMax: frameMax})
	b = amqp091.AppendMethod(b, 0, amqp091.ConnectionOpen{VirtualHost: vhost})
	if _, err = c.conn.Write(b); err != nil {
		return nil, err
	}
	_, err = expect(amqp091.ConnectionOpenOkID)
	return in, err
}

// flush writes what was collected, in two writes if cut says where.
func (c *client) flush(cut int) {
	b := c.out
	c.out = nil
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.ten != nil {
		c.l.mu.Lock()
		b = c.owedTen(b)
		c.l.mu.Unlock()
	}
	if len(b) == 0 {
		return
	}
	if cut > 0 {
		n := cut % len(b)
		c.write(b[:n])
		b = b[n:]
		time.Sleep(200 * time.Microsecond)
	}
	c.write(b)
}

// write writes. REQUIRES: wmu.
func (c *client) write(b []byte) {
	_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.conn.Write(b); err != nil {
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			c.l.fault("%s: hangs: the server reads nothing for %v", c.name, patience)
		}
	}
}

// abort ends the socket at once; with unread bytes in it the peer gets a reset.
func (c *client) abort() {
	c.l.mu.Lock()
	c.ending = true
	c.l.connectionEnded(c)
	c.l.mu.Unlock()
	if t, ok := c.conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.conn.Close()
	<-c.gone
}

// read takes what the server sends until the connection ends.
func (c *client) read(in []byte) {
	defer close(c.gone)
	b := make([]byte, 64<<10)
	for {
		for {
			f, n, err := amqp091.NextFrame(in, frameMax)
			if err != nil {
				c.l.fault("%s: the server sent a bad frame: %v", c.name, err)
				_ = c.conn.Close()
				return
			}
			if n == 0 {
				break
			}
			c.l.mu.Lock()
			answer := c.frame(&f)
			c.l.mu.Unlock()
			if answer != nil {
				c.wmu.Lock()
				c.write(answer)
				c.wmu.Unlock()
			}
			in = in[n:]
		}
		k, err := c.conn.Read(b)
		in = append(slices.Clone(in), b[:k]...)
		if k == 0 && err != nil {
			break
		}
	}
	c.readEnded()
}

// readEnded notes the end of the socket.
func (c *client) readEnded() {
	c.l.mu.Lock()
	if !c.ended && !c.ending && !c.l.mayEnd {
		c.l.complain("%s: the server ended the connection without a word", c.name)
	}
	c.l.connectionEnded(c)
	c.l.mu.Unlock()
	_ = c.conn.Close()
}

// frame takes one frame. It returns what is to be answered.
func (c *client) frame(f *amqp091.Frame) (answer []byte) {
	ch := c.chans[f.Channel]
	switch f.Type {
	case amqp091.FrameHeartbeat:
		return nil
	case amqp091.FrameHeader:
		if ch != nil && ch.ended {
			return nil
		}
		if ch == nil || ch.content == nil {
			c.l.complain("%s: a header without a method", c.name)
			return nil
		}
		_, size, props, err := amqp091.ParseContentHeader(f.Payload)
		if err == nil {
			ch.content.props, err = amqp091.DecodeProps(props)
		}
		if err != nil {
			c.l.complain("%s: content header: %v", c.name, err)
		}
		ch.content.size, ch.content.header = int(size), true
		ch.contentDone()
		return nil
	case amqp091.FrameBody:
		if ch != nil && ch.ended {
			return nil
		}
		if ch == nil || ch.content == nil {
			c.l.complain("%s: a body without a method", c.name)
			return nil
		}
		ch.content.body = append(ch.content.body, f.Payload...)
		ch.contentDone()
		return nil
	}
	m, err := amqp091.DecodeMethod(f.Payload)
	if err != nil {
		c.l.complain("%s: %v", c.name, err)
		return nil
	}
	if f.Channel == 0 {
		switch m := m.(type) {
		case *amqp091.ConnectionClose:
			// A race of RabbitMQ's own.
			if theirs := c.l.peer && m.ReplyCode == 541 && strings.Contains(m.ReplyText, "failed consuming from quorum queue"); !c.ending && !theirs {
				c.l.complain("%s: the server closed the connection: %d %s", c.name, m.ReplyCode, m.ReplyText)
			}
			c.l.connectionEnded(c)
			return amqp091.AppendMethod(nil, 0, amqp091.ConnectionCloseOk{})
		case *amqp091.ConnectionCloseOk:
			c.l.connectionEnded(c)
		}
		return nil
	}
	if ch == nil {
		c.l.complain("%s: %s on channel %d, which is not open", c.name, m.Name(), f.Channel)
		return nil
	}
	ch.method(m)
	return nil
}

func (ch *channel) method(m amqp091.Method) {
	l := ch.c.l
	if ch.ended {
		return
	}
	switch m := m.(type) {
	case *amqp091.ChannelCloseOk:
		// Both sides had closed the channel that had the number before.
		if ch.crossed && len(ch.waiting) > 0 && ch.waiting[0].what == "open" {
			ch.crossed = false
			return
		}
		l.answered(ch, m)
	case *amqp091.ChannelClose:
		// It is answered before the number is used again: what waits to be sent on it goes first.
		l.channelClosed(ch, m)
	case *amqp091.BasicAck:
		l.confirmed(ch, m.DeliveryTag, m.Multiple, true)
	case *amqp091.BasicNack:
		l.confirmed(ch, m.DeliveryTag, m.Multiple, false)
	case *amqp091.BasicCancel:
		if s := ch.consumers[m.ConsumerTag]; s != nil {
			s.cancelled = true
		}
	case *amqp091.BasicDeliver, *amqp091.BasicReturn:
		ch.content = &content{method: m}
	case *amqp091.BasicGetOk:
		l.answered(ch, m)
		ch.content = &content{method: m}
	default:
		l.answered(ch, m)
	}
}

// contentDone hands the content over once all of it is there.
func (ch *channel) contentDone() {
	x := ch.content
	if !x.header || len(x.body) < x.size {
		return
	}
	ch.content = nil
	if ch.ended {
		return
	}
	l := ch.c.l
	switch m := x.method.(type) {
	case *amqp091.BasicReturn:
		l.returned(ch, x)
	case *amqp091.BasicGetOk:
		queue := ch.getting[0]
		ch.getting = ch.getting[1:]
		noAck := queue[0] == '!'
		l.delivered(ch, nil, queue[1:], m.DeliveryTag, m.Redelivered, noAck, x)
	case *amqp091.BasicDeliver:
		s := ch.consumers[m.ConsumerTag]
		if s == nil {
			l.complain("%s: a delivery for the consumer %q, which is not known", ch.c.name, m.ConsumerTag)
			return
		}
		l.delivered(ch, s, s.queue, m.DeliveryTag, m.Redelivered, s.noAck, x)
	}
}

// send adds a method to what goes out. answers are what may come back, nothing if the
// method has none.
func (ch *channel) send(what, queue string, m amqp091.Method, answers ...amqp091.MethodID) *act {
	a := ch.act(what, queue)
	ch.c.out = amqp091.AppendMethod(ch.c.out, ch.num, m)
	if a.answers = answers; len(answers) > 0 {
		ch.waiting = append(ch.waiting, a)
	}
	return a
}

// act notes that something is being said on the channel.
func (ch *channel) act(what, queue string) *act {
	a := &act{ch: ch, pos: len(ch.acts), what: what, queue: queue, sent: ch.c.l.tick(), sentAt: time.Now()}
	ch.acts = append(ch.acts, a)
	return a
}
