package peer

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/wire/amqp091"
)

// client says a life of a script. One goroutine reads and writes nothing, so that the node
// can always write.
type client struct {
	conn     *net.TCPConn
	promises *promises

	opened  chan uint16 // channels the server has opened, and 0 for the connection
	closing chan struct{}
	gone    chan struct{} // closed when nothing more can be read

	mu     sync.Mutex
	closed map[uint16]bool // channels the server has closed
	fault  error
}

// internalError is the code for what is never a client's fault.
const internalError = 541

// crash is all that RabbitMQ says where a client brings its reader down, and so do we.
const crash = "INTERNAL_ERROR"

// scratch is the number of the first channel that is opened to see that all before was read.
const scratch = 1000

func (n *node) play(s *script, vhost string) error {
	for i := range s.lives {
		if err := n.live(&s.lives[i], vhost, s.promises); err != nil {
			return fmt.Errorf("connection %d: %w", i+1, err)
		}
	}
	if err := n.quiet(vhost); err != nil {
		return err
	}
	all, durable := s.promises.places(vhost)
	n.durable = append(n.durable, durable...)
	return n.there(all)
}

func (n *node) live(l *life, vhost string, p *promises) error {
	conn, err := net.Dial("tcp", n.addr)
	if err != nil {
		return err
	}
	c := &client{
		conn: conn.(*net.TCPConn), opened: make(chan uint16, 1000), closing: make(chan struct{}), gone: make(chan struct{}), closed: map[uint16]bool{}, promises: p,
	}
	go c.read()
	defer func() {
		_ = c.conn.Close()
		<-c.gone
	}()
	if err := c.say(l, vhost); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// say says all of it.
func (c *client) say(l *life, vhost string) error {
	if l.open.VirtualHost == "" {
		l.open.VirtualHost = vhost
	}
	b := []byte(amqp091.ProtocolHeader)
	b = amqp091.AppendMethod(b, 0, l.startOk)
	b = amqp091.AppendMethod(b, 0, l.tuneOk)
	b = amqp091.AppendMethod(b, 0, l.open)
	if l.stranger {
		for _, burst := range l.bursts {
			b = append(b, burst.bytes...)
		}
		c.write(b)
		return nil
	}
	c.write(b)
	if ended, err := c.await(0); ended || err != nil {
		return err
	}
	var again []byte // opens again what the server has closed
	for i, burst := range l.bursts {
		b := append(again, burst.bytes...)
		cut := len(again) + burst.cut
		again = nil
		c.write(b[:cut])
		c.write(b[cut:])
		if i == len(l.bursts)-1 && l.end == reset {
			break
		}
		number := uint16(scratch + i)
		c.write(amqp091.AppendMethod(nil, number, amqp091.ChannelOpen{}))
		if ended, err := c.await(number); ended || err != nil {
			return err
		}
		c.mu.Lock()
		for n := uint16(1); n <= channels; n++ {
			if c.closed[n] {
				again = append(amqp091.AppendMethod(again, n, amqp091.ChannelCloseOk{}), firstMethods(n)...)
			}
		}
		clear(c.closed)
		c.mu.Unlock()
	}
	switch l.end {
	case inOrder:
		c.write(amqp091.AppendMethod(again, 0, amqp091.ConnectionClose{ReplyCode: 200}))
		_, err := c.await(0)
		return err
	case halfClosed:
		_ = c.conn.CloseWrite()
		_, err := c.await(0)
		return err
	case midFrame:
		whole := amqp091.AppendMethod(nil, 1, amqp091.QueueDeclare{Queue: long, Durable: true})
		c.write(whole[:len(whole)/2])
	case reset:
		_ = c.conn.SetLinger(0)
	}
	return nil
}

// write writes; whether the server took it is seen by its answers.
func (c *client) write(b []byte) {
	if len(b) > 0 {
		_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
		_, _ = c.conn.Write(b)
	}
}

// await waits until the server has opened a channel, or ended the connection.
func (c *client) await(channel uint16) (ended bool, err error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case n := <-c.opened:
			if n == channel {
				return false, nil
			}
		case <-c.closing:
			c.write(amqp091.AppendMethod(nil, 0, amqp091.ConnectionCloseOk{}))
			return true, nil
		case <-c.gone:
			return true, nil
		case <-late.C:
			return true, fmt.Errorf("channel %d: no answer within %v", channel, patience)
		}
	}
}

// read takes in what the server says.
func (c *client) read() {
	defer close(c.gone)
	var in []byte
	b := make([]byte, 64<<10)
	for {
		n, err := c.conn.Read(b)
		if n == 0 && err != nil {
			return
		}
		in = append(in, b[:n]...)
		for {
			f, size, err := amqp091.NextFrame(in, 1<<20)
			if err != nil {
				c.complain(fmt.Errorf("the server sent a bad frame: %w", err))
				return
			}
			if size == 0 {
				break
			}
			if c.frame(&f) {
				return // the server leaves it to the client to close
			}
			in = in[size:]
		}
	}
}

// frame hears one frame, and says whether the connection is closed with it.
func (c *client) frame(f *amqp091.Frame) (closed bool) {
	switch f.Type {
	case amqp091.FrameHeader:
		if _, _, props, err := amqp091.ParseContentHeader(f.Payload); err != nil {
			c.complain(err)
		} else if _, err := amqp091.DecodeProps(props); err != nil {
			c.complain(fmt.Errorf("the server sent bad properties: %w", err))
		}
		return false
	case amqp091.FrameMethod:
	default:
		return false
	}
	m, err := amqp091.DecodeMethod(f.Payload)
	if err != nil {
		c.complain(fmt.Errorf("the server sent a bad method: %w", err))
		return false
	}
	switch m := m.(type) {
	case *amqp091.ConnectionCloseOk:
		return true
	case *amqp091.ConnectionOpenOk:
		c.opened <- 0
	case *amqp091.ChannelOpenOk:
		if f.Channel >= scratch {
			c.opened <- f.Channel
		}
	case *amqp091.QueueDeclareOk:
		c.promises.told(m.Queue)
	case *amqp091.BasicCancel:
		if c.promises.remains(m.ConsumerTag) {
			c.complain(fmt.Errorf("consumer %q is cancelled, without a reason", m.ConsumerTag))
		}
	case *amqp091.ChannelClose:
		c.ended(m.ReplyCode, m.ReplyText)
		c.mu.Lock()
		c.closed[f.Channel] = true
		c.mu.Unlock()
	case *amqp091.ConnectionClose:
		c.ended(m.ReplyCode, m.ReplyText)
		select {
		case <-c.closing:
			c.complain(errors.New("the server closed twice"))
		default:
			close(c.closing)
		}
	}
	return false
}

// ended looks why the server ends something.
func (c *client) ended(code uint16, text string) {
	if code == internalError && text != crash || strings.Contains(text, " timed out") && c.promises.patient() {
		c.complain(fmt.Errorf("%d %s", code, text))
	}
}

func (c *client) complain(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == nil {
		c.fault = err
	}
}
