package scale

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The client library spends more on a message than the broker does. What is sent
// and received by the million goes over these two, which know no more of AMQP
// 0-9-1 than they need.

const (
	frameMethod  = 1
	frameHeader  = 2
	frameBody    = 3
	frameEnd     = 0xce
	classBasic   = 60
	methodPublic = 40
	methodDeliv  = 60
)

// handshake opens a connection and its channel 1.
func handshake(t testing.TB, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	r := bufio.NewReaderSize(c, 1<<20)
	send := func(b []byte) {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(class, method uint16) {
		t.Helper()
		for {
			kind, _, p, err := readFrame(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if kind == frameMethod && binary.BigEndian.Uint16(p) == class && binary.BigEndian.Uint16(p[2:]) == method {
				return
			}
			if kind == frameMethod {
				t.Fatalf("got method %d.%d, want %d.%d", binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:]), class, method)
			}
		}
	}
	send([]byte("AMQP\x00\x00\x09\x01"))
	expect(10, 10)
	ok := append([]byte{0, 0, 0, 0}, short("PLAIN")...)
	ok = append(ok, long("\x00guest\x00guest")...)
	send(method(0, 10, 11, append(ok, short("en_US")...)))
	expect(10, 30)
	send(method(0, 10, 31, []byte{7, 255, 0, 2, 0, 0, 0, 0})) // channel-max 2047, frame-max 131072, no heartbeat
	send(method(0, 10, 40, append(short("/"), 0, 0)))
	expect(10, 41)
	send(method(1, 20, 10, []byte{0}))
	expect(20, 11)
	return c, r
}

func short(s string) []byte { return append([]byte{byte(len(s))}, s...) }
func long(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

func frame(b []byte, kind byte, channel uint16, payload ...[]byte) []byte {
	n := 0
	for _, p := range payload {
		n += len(p)
	}
	b = binary.BigEndian.AppendUint16(append(b, kind), channel)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	for _, p := range payload {
		b = append(b, p...)
	}
	return append(b, frameEnd)
}

func method(channel, class, id uint16, args []byte) []byte {
	return frame(nil, frameMethod, channel, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), id), args)
}

func readFrame(r *bufio.Reader, buf []byte) (kind byte, channel uint16, payload []byte, err error) {
	var head [7]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[3:]))
	if cap(buf) < n+1 {
		buf = make([]byte, n+1)
	}
	buf = buf[:n+1]
	if _, err = io.ReadFull(r, buf); err != nil {
		return 0, 0, nil, err
	}
	if buf[n] != frameEnd {
		return 0, 0, nil, errors.New("a frame does not end with 0xce")
	}
	return head[0], binary.BigEndian.Uint16(head[1:]), buf[:n], nil
}

// publication is one message for publish.
type publication struct {
	body       []byte
	persistent bool
	expiration int64 // milliseconds, 0 = none
}

// publish sends n messages to a queue through the default exchange and returns
// when the broker has confirmed all of them.
func publish(t testing.TB, addr, queue string, n int, next func(i int, m *publication)) {
	t.Helper()
	publishTo(t, addr, n, func(i int, m *publication) string {
		next(i, m)
		return queue
	})
}

// publishTo is publish to the queue that next names for each message.
func publishTo(t testing.TB, addr string, n int, next func(i int, m *publication) (queue string)) {
	t.Helper()
	publishWindow(t, addr, n, 1<<30, next, func(int) {})
}

// publishWindow is publishTo with at most so many messages not confirmed, so that
// none lies in a buffer for long. It calls sure, on another goroutine, when the broker
// has confirmed another message, in their order.
func publishWindow(t testing.TB, addr string, n, window int, next func(i int, m *publication) (queue string), sure func(i int)) {
	t.Helper()
	c, r := handshake(t, addr)
	if _, err := c.Write(method(1, 85, 10, []byte{0})); err != nil { // confirm.select
		t.Fatal(err)
	}
	var confirmed atomic.Uint64
	done := make(chan error, 1)
	go func() { // ends with the connection
		defer confirmed.Store(1 << 62) // whoever waits for more would wait for ever
		buf := make([]byte, 0, 4096)
		for last := uint64(0); ; {
			kind, _, p, err := readFrame(r, buf)
			if err != nil {
				done <- err
				return
			}
			if kind != frameMethod || binary.BigEndian.Uint16(p) != classBasic {
				if kind == frameMethod && binary.BigEndian.Uint16(p) != 85 {
					done <- fmt.Errorf("the broker closes: %q", p)
					return
				}
				continue
			}
			if id := binary.BigEndian.Uint16(p[2:]); id != 80 {
				done <- fmt.Errorf("the broker answers with basic method %d", id)
				return
			}
			tag := binary.BigEndian.Uint64(p[4:])
			if p[12]&1 == 0 && tag != last+1 {
				done <- fmt.Errorf("message %d is confirmed, and not message %d, which comes before it", tag, last+1)
				return
			}
			for ; last < tag; last++ {
				sure(int(last))
			}
			if confirmed.Store(max(confirmed.Load(), tag)); confirmed.Load() >= uint64(n) && p[12]&1 == 1 || tag == uint64(n) {
				done <- nil
				return
			}
		}
	}()
	heads := map[string][]byte{}
	w := bufio.NewWriterSize(c, 256<<10)
	var b, props []byte
	var m publication
	for i := range n {
		if i%(window/4+1) == 0 && window < 1<<30 {
			if err := w.Flush(); err != nil {
				t.Fatal(errors.Join(err, <-done))
			}
			for uint64(i) > confirmed.Load()+uint64(window) {
				time.Sleep(100 * time.Microsecond)
			}
		}
		m = publication{body: m.body[:0]}
		queue := next(i, &m)
		head := heads[queue]
		if head == nil {
			args := append([]byte{0, classBasic, 0, methodPublic, 0, 0, 0}, short(queue)...)
			head = frame(nil, frameMethod, 1, append(args, 0))
			heads[queue] = head
		}
		b = append(b[:0], head...)
		var flags uint16
		props = props[:0]
		if m.persistent {
			flags |= 1 << 12
			props = append(props, 2)
		}
		if m.expiration > 0 {
			flags |= 1 << 8
			at := len(props)
			props = strconv.AppendInt(append(props, 0), m.expiration, 10)
			props[at] = byte(len(props) - at - 1)
		}
		header := binary.BigEndian.AppendUint64([]byte{0, classBasic, 0, 0}, uint64(len(m.body)))
		b = frame(b, frameHeader, 1, binary.BigEndian.AppendUint16(header, flags), props)
		b = frame(b, frameBody, 1, m.body)
		if _, err := w.Write(b); err != nil {
			t.Fatal(errors.Join(err, <-done))
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(errors.Join(err, <-done))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// consume takes n messages of a queue, without acknowledgements.
func consume(t testing.TB, addr, queue string, n int, each func(i int, body []byte)) {
	t.Helper()
	c, r := handshake(t, addr)
	args := append([]byte{0, 0}, short(queue)...)
	args = append(append(args, short("c")...), 1<<1|1<<3, 0, 0, 0, 0) // no-ack, no-wait
	if _, err := c.Write(method(1, classBasic, 20, args)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 0, 1<<17)
	for i := 0; i < n; {
		kind, _, p, err := readFrame(r, buf)
		if err != nil {
			t.Fatalf("after %d messages: %v", i, err)
		}
		switch {
		case kind == frameBody:
			each(i, p)
			i++
		case kind == frameMethod && binary.BigEndian.Uint16(p[2:]) != methodDeliv:
			t.Fatalf("the broker sends method %q", p)
		}
	}
	// What comes next is not for us, and would be lost with us.
	if _, err := c.Write(method(1, classBasic, 30, append(short("c"), 0))); err != nil {
		t.Fatal(err)
	}
	for cancelled := false; !cancelled; {
		kind, _, p, err := readFrame(r, buf)
		if err != nil {
			t.Fatal(err)
		}
		cancelled = kind == frameMethod && binary.BigEndian.Uint16(p[2:]) == 31
	}
	_ = c.Close()
}

// channel is one of the client library, for what is done once.
func channel(t testing.TB, addr string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func declare(t testing.TB, ch *amqp.Channel, name string, args amqp.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}
