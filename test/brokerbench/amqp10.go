package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// Just enough AMQP 1.0 for one session a connection: its events are those of
// AMQP 0-9-1, so that the same publishers and receivers count them.

// Performatives and outcomes, by the last byte of their descriptor.
const (
	tenOpen        = 0x10
	tenBegin       = 0x11
	tenAttach      = 0x12
	tenFlow        = 0x13
	tenTransfer    = 0x14
	tenDisposition = 0x15
	tenDetach      = 0x16
	tenEnd         = 0x17
	tenClose       = 0x18
	tenError       = 0x1d
	tenAccepted    = 0x24
	tenRejected    = 0x25
	tenMechanisms  = 0x40
	tenOutcome     = 0x44
)

const (
	tenFrameMax = 131072
	tenWindow   = 0x7fffffff // of transfers, both ways: no window of a session stops us
)

// session is what a connection of AMQP 1.0 knows besides its bytes.
type session struct {
	credit    *progress // a publisher may have sent so many messages in all
	link      uint64    // that, by the credit of the link
	window    uint64    // that, by the window of the session
	handleMax uint32
	prefetch  uint32            // credit of a receiver, renewed when half of it is used
	given     map[uint32]uint32 // to each handle: the number of deliveries up to which it has credit
	taken     map[uint32]uint32
	acks      uint64 // confirms that next has not returned yet: from nextAck up to here
	nextAck   uint64
}

// ten is an AMQP value that was read: its format code and its content.
type ten struct {
	code byte
	data []byte
}

var errTen = errors.New("a frame that makes no sense")

// value reads the next value of b; a described one is its descriptor, and its value follows.
func value(b []byte) (v ten, rest []byte, err error) {
	if len(b) == 0 {
		return v, nil, errTen
	}
	v.code, b = b[0], b[1:]
	if v.code == 0 {
		d, rest, err := value(b)
		if err != nil || len(d.data) == 0 {
			return v, nil, errTen
		}
		return ten{0, d.data[len(d.data)-1:]}, rest, nil
	}
	n, width := 0, 0
	switch v.code >> 4 {
	case 4:
	case 5:
		n = 1
	case 6:
		n = 2
	case 7:
		n = 4
	case 8:
		n = 8
	case 9:
		n = 16
	case 0xa, 0xc, 0xe:
		width = 1
	default:
		width = 4
	}
	if len(b) < n+width {
		return v, nil, errTen
	}
	switch width {
	case 1:
		n, b = int(b[0]), b[1:]
	case 4:
		n, b = int(be.Uint32(b)), b[4:]
	}
	if len(b) < n {
		return v, nil, errTen
	}
	v.data = b[:n]
	return v, b[n:], nil
}

// described reads a descriptor and the fields of the list behind it, at most as many as fit.
func described(b []byte, fields []ten) (descriptor byte, rest []byte, err error) {
	d, b, err := value(b)
	if err != nil || d.code != 0 {
		return 0, nil, errTen
	}
	list, rest, err := value(b)
	if err != nil {
		return 0, nil, err
	}
	clear(fields)
	in := list.data
	switch list.code {
	case 0x45:
		return d.data[0], rest, nil
	case 0xc0:
		in = in[min(1, len(in)):]
	case 0xd0:
		in = in[min(4, len(in)):]
	default: // mechanisms and errors of a SASL frame are lists too
		return 0, nil, errTen
	}
	for i := 0; i < len(fields) && len(in) > 0; i++ {
		if in[0] == 0 { // a described value: its descriptor is enough
			var d ten
			if d, in, err = value(in); err != nil {
				return 0, nil, err
			}
			all := in
			if _, in, err = value(in); err != nil {
				return 0, nil, err
			}
			fields[i] = ten{0, append([]byte{d.data[0]}, all[:len(all)-len(in)]...)}
			continue
		}
		if fields[i], in, err = value(in); err != nil {
			return 0, nil, err
		}
	}
	return d.data[0], rest, nil
}

func (v ten) uint() (n uint32) {
	for _, c := range v.data {
		n = n<<8 | uint32(c)
	}
	return n
}

func (v ten) null() bool { return v.code == 0x40 || v.code == 0 && v.data == nil }

func (b enc) tenUint(v uint32) enc { return b.u8(0x70).u32(v) }
func (b enc) tenText(code byte, s string) enc {
	return append(b.u8(code).u8(byte(len(s))), s...)
}

// tenList is a described list.
func tenList(descriptor byte, count int, fields enc) enc {
	return append(enc{0, 0x53, descriptor, 0xd0}.u32(uint32(len(fields)+4)).u32(uint32(count)), fields...)
}

// tenFrame appends a frame, of SASL if kind is 1.
func tenFrame(dst []byte, kind byte, body ...[]byte) []byte {
	n := 8
	for _, b := range body {
		n += len(b)
	}
	dst = enc(dst).u32(uint32(n)).u8(2).u8(kind).u16(0)
	for _, b := range body {
		dst = append(dst, b...)
	}
	return dst
}

// tenFrame returns the next frame's body.
func (c *conn) tenFrame() ([]byte, error) {
	for {
		b := c.in[c.r:c.w]
		if len(b) >= 8 {
			n := int(be.Uint32(b))
			if n < 8 || n > maxBuffer {
				return nil, fmt.Errorf("frame of %d bytes", n)
			}
			if len(b) >= n {
				c.r += n
				return b[8:n], nil
			}
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// tenNext is next for AMQP 1.0.
func (c *conn) tenNext() (event, error) {
	s := c.ten
	var fields [11]ten
	for {
		if s.nextAck < s.acks {
			s.nextAck++
			return event{id: basicAck, tag: s.nextAck}, nil
		}
		body, err := c.tenFrame()
		if err != nil {
			return event{}, err
		}
		if len(body) == 0 {
			continue // a sign of life
		}
		what, payload, err := described(body, fields[:])
		if err != nil {
			return event{}, err
		}
		switch what {
		case tenFlow:
			if !fields[4].null() { // of a link
				s.link = uint64(fields[5].uint()) + uint64(fields[6].uint())
			}
			s.window = uint64(fields[0].uint()) + uint64(fields[1].uint())
			s.credit.set(min(s.link, s.window))
		case tenTransfer:
			handle := fields[0].uint()
			ev := event{id: basicDeliver, who: byte('a' + handle), tag: uint64(fields[1].uint())}
			at := bytes.Index(payload, []byte{0, 0x53, 0x75})
			if at < 0 {
				return ev, errors.New("a message without data")
			}
			data, _, err := value(payload[at+3:])
			if err != nil || len(data.data) < 16 {
				return ev, errors.New("a message that is not ours")
			}
			ev.seq, ev.stamp = be.Uint64(data.data), int64(be.Uint64(data.data[8:]))
			s.taken[handle]++
			if s.given[handle]-s.taken[handle] <= s.prefetch/2 {
				c.give(handle, s.prefetch)
			}
			return ev, nil
		case tenDisposition:
			first := fields[1].uint()
			last := first
			if !fields[2].null() {
				last = fields[2].uint()
			}
			if len(fields[4].data) == 0 || fields[4].data[0] != tenAccepted {
				return event{}, fmt.Errorf("messages %d to %d were not accepted", first, last)
			}
			if uint64(first) != s.acks && s.nextAck == s.acks {
				s.nextAck = uint64(first)
			} else if uint64(first) != s.acks {
				return event{}, errors.New("confirms that do not follow each other")
			}
			s.acks = uint64(last) + 1
		case tenDetach, tenEnd, tenClose:
			return event{}, fmt.Errorf("closed by broker: %q", body)
		default:
			return event{id: uint32(what), args: body}, nil
		}
	}
}

// give lets a receiver have n messages beyond those it took.
func (c *conn) give(handle, n uint32) {
	s := c.ten
	s.given[handle] = s.taken[handle] + n
	c.out = tenFrame(c.out, 0, tenList(tenFlow, 7, enc{}.tenUint(0).tenUint(tenWindow).tenUint(0).tenUint(tenWindow).
		tenUint(handle).tenUint(s.taken[handle]).tenUint(n)))
}

// tenSettle queues the outcome of one delivery.
func (c *conn) tenSettle(id uint32, tag uint64) {
	outcome := byte(tenAccepted)
	if id == basicReject {
		outcome = tenRejected
	}
	c.out = tenFrame(c.out, 0, []byte{0, 0x53, tenDisposition, 0xc0, 13, 5, 0x41, 0x70, byte(tag >> 24), byte(tag >> 16), byte(tag >> 8), byte(tag), 0x40, 0x41, 0, 0x53, outcome, 0x45})
}

// tenCall sends a performative and waits for one of its kind.
func (c *conn) tenCall(kind byte, list []byte, reply uint32) ([]byte, error) {
	c.out = tenFrame(c.out, kind, list)
	return c.expect(reply)
}

// dialTen opens a connection of AMQP 1.0 and a session.
func dialTen(rawURL string, timeout time.Duration) (*conn, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	nc, err := net.DialTimeout("tcp", u.Host, timeout)
	if err != nil {
		return nil, err
	}
	c := newConn(nc)
	c.ten = &session{credit: newProgress(), given: map[uint32]uint32{}, taken: map[uint32]uint32{}}
	c.SetDeadline(time.Now().Add(timeout))
	if err := c.tenHandshake(u); err != nil {
		c.Conn.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	c.SetDeadline(time.Time{})
	return c, nil
}

// header sends a protocol header and reads the same one.
func (c *conn) header(h string) error {
	c.out = append(c.out, h...)
	for c.w-c.r < 8 {
		if err := c.fill(); err != nil {
			return err
		}
	}
	if got := string(c.in[c.r : c.r+8]); got != h {
		return fmt.Errorf("the broker answers %q", got)
	}
	c.r += 8
	return nil
}

func (c *conn) tenHandshake(u *url.URL) error {
	user, password := u.User.Username(), ""
	if user == "" {
		user, password = "guest", "guest"
	} else {
		password, _ = u.User.Password()
	}
	vhost := strings.TrimPrefix(u.Path, "/")
	if vhost == "" {
		vhost = "/"
	}
	if err := c.header("AMQP\x03\x01\x00\x00"); err != nil {
		return err
	}
	if _, err := c.expect(tenMechanisms); err != nil {
		return err
	}
	outcome, err := c.tenCall(1, tenList(0x41, 2, enc{}.tenText(0xa3, "PLAIN").tenText(0xa0, "\x00"+user+"\x00"+password)), tenOutcome)
	if err != nil {
		return err
	}
	var fields [1]ten
	if _, _, err := described(outcome, fields[:]); err != nil || fields[0].uint() != 0 {
		return errors.New("the login was refused")
	}
	if err := c.header("AMQP\x00\x01\x00\x00"); err != nil {
		return err
	}
	if _, err := c.tenCall(0, tenList(tenOpen, 3, enc{}.tenText(0xa1, "brokerbench").tenText(0xa1, "vhost:"+vhost).tenUint(tenFrameMax)), tenOpen); err != nil {
		return err
	}
	begun, err := c.tenCall(0, tenList(tenBegin, 5, enc{0x40}.tenUint(0).tenUint(tenWindow).tenUint(tenWindow).tenUint(1<<16)), tenBegin)
	if err != nil {
		return err
	}
	var begin [5]ten
	if _, _, err := described(begun, begin[:]); err != nil {
		return err
	}
	c.ten.window, c.ten.handleMax = uint64(begin[2].uint()), begin[4].uint()
	return nil
}

// attach attaches a link to a queue: a receiver with credit, or a sender.
func (c *conn) attach(queue string, handle, credit uint32) error {
	address := func(descriptor byte) enc {
		return tenList(descriptor, 1, enc{}.tenText(0xa1, "/queues/"+url.PathEscape(queue)))
	}
	f := enc{}.tenText(0xa1, fmt.Sprint("link-", handle)).tenUint(handle)
	if credit > 0 {
		f = append(append(f.u8(0x41).u8(0x40).u8(0x40), address(0x28)...), tenList(0x29, 0, nil)...)
	} else {
		f = append(append(f.u8(0x42).u8(0x40).u8(0x40), tenList(0x28, 0, nil)...), address(0x29)...)
		f = f.u8(0x40).u8(0x40).tenUint(0)
	}
	count := 7
	if credit == 0 {
		count = 10
	}
	if _, err := c.tenCall(0, tenList(tenAttach, count, f), tenAttach); err != nil {
		return err
	}
	if credit > 0 {
		c.ten.prefetch = credit
		c.give(handle, credit)
		return c.flush()
	}
	return nil
}

// tenShut closes the connection in good order.
func (c *conn) tenShut() {
	c.out = tenFrame(c.out, 0, []byte{0, 0x53, tenClose, 0x45})
	c.flush()
	for {
		if _, err := c.tenNext(); err != nil { // its close is an error too
			c.Conn.Close()
			return
		}
	}
}

// encodeTransfer is encodePublish for a link with the handle 0: the delivery-id
// and the tag are that of the message's sequence number.
func encodeTransfer(size int, persistent bool) message {
	size = max(size, 16)
	head := enc{0, 0x53, tenTransfer, 0xc0, 15, 5, 0x43}
	id := 8 + len(head) + 1
	head = head.tenUint(0).u8(0xa0).u8(4).u32(0).u8(0x43).u8(0x42)
	head = append(head, 0, 0x53, 0x70, 0xc0, 2, 1, 0x42-bit(persistent, 0))
	head = append(head, 0, 0x53, 0x75, 0xb0)
	head = head.u32(uint32(size))
	m := message{id: id, body: 8 + len(head)}
	m.frames = tenFrame(nil, 0, head, make([]byte, size))
	return m
}
