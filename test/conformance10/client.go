package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"bartleby.mq/internal/wire/amqp10"
)

// A client is one connection to the broker's AMQP 1.0 side. It sends whatever it is told, and keeps what comes until a
// step takes it. It knows just enough of the protocol to say which session and link a frame belongs to.
type client struct {
	socket net.Conn
	wg     sync.WaitGroup // the reader

	mu       sync.Mutex
	changed  chan struct{} // closed and made anew whenever something came
	inbox    []*item
	ended    bool
	maxFrame uint32                    // what this client announced; 0: nothing yet
	peerMax  uint32                    // what the broker announced
	sessions map[uint16]*session       // by the channel of this client
	remote   map[uint16]*session       // by the channel of the broker
	links    map[string]map[bool]*link // by their names and whether this client receives, those not yet attached too
}

// A session is one of a client's, with the counters that a flow frame has.
type session struct {
	client   *client
	channel  uint16
	nextOut  uint32 // next-outgoing-id of this client
	nextID   uint32 // delivery-id of this client's next delivery
	nextIn   uint32 // next-incoming-id of this client
	window   uint32 // incoming-window of this client
	firstOut uint32 // next-outgoing-id in the broker's begin
	firstID  uint32 // delivery-id of the broker's first transfer
	gotFirst bool
	links    []*link          // by the handles of this client
	handles  map[uint32]*link // by the handles of the broker
}

// A link is one of a session's.
type link struct {
	name          string
	session       *session
	handle        uint32
	receives      bool
	deliveryCount uint32
	inDelivery    bool // a delivery has begun and not ended
	nextTag       int
	unsettled     []uint32 // delivery-ids of this client without an outcome

	partial        []byte // what came of a delivery that is not whole, nil if there is none
	partialID      uint32
	partialSettled bool
}

// An item is something that the broker sent.
type item struct {
	kind    string // the performative, or "header", "empty", "broken"
	text    string // of header and broken
	channel uint16
	value   amqp10.Value // the performative
	payload []byte
	session *session
	link    *link
	further bool // a transfer that is not the first of its delivery
}

func dial(address string, timeout time.Duration) (*client, error) {
	socket, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil, err
	}
	c := &client{socket: socket, changed: make(chan struct{}), sessions: map[uint16]*session{}, remote: map[uint16]*session{}, links: map[string]map[bool]*link{}, peerMax: 512}
	c.wg.Go(c.read)
	return c, nil
}

// stop closes the socket and waits for the reader.
func (c *client) stop() {
	_ = c.socket.Close()
	c.wg.Wait()
}

// write sends octets; what is wrong with the socket shows when something is waited for.
func (c *client) write(b []byte) {
	_ = c.socket.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.socket.Write(b)
}

// read takes frames and protocol headers off the socket until it ends.
func (c *client) read() {
	for {
		it, err := c.next()
		c.mu.Lock()
		if err != nil {
			c.ended = true
		} else {
			c.track(it)
			c.inbox = append(c.inbox, it)
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// largest is how much a frame of the broker may have before the client calls it broken.
const largest = 64 << 20

func (c *client) next() (*item, error) {
	b := make([]byte, 8)
	if _, err := io.ReadFull(c.socket, b); err != nil {
		return nil, err
	}
	if string(b[:4]) == "AMQP" {
		return &item{kind: "header", text: fmt.Sprintf("AMQP %d %d %d %d", b[4], b[5], b[6], b[7])}, nil
	}
	size := binary.BigEndian.Uint32(b)
	if size < 8 || size > largest {
		return nil, fmt.Errorf("a frame of %d bytes", size)
	}
	b = append(b, make([]byte, size-8)...)
	if _, err := io.ReadFull(c.socket, b[8:]); err != nil {
		return nil, err
	}
	c.mu.Lock()
	limit := c.maxFrame
	c.mu.Unlock()
	if limit > 0 && size > limit {
		return &item{kind: "broken", text: fmt.Sprintf("a frame of %d bytes, more than %d", size, limit)}, nil
	}
	f, _, err := amqp10.NextFrame(b, largest)
	if err != nil {
		return &item{kind: "broken", text: err.Error()}, nil
	}
	if len(f.Body) == 0 {
		return &item{kind: "empty", channel: f.Channel}, nil
	}
	d, v, payload, err := amqp10.ReadPerformative(f)
	if err != nil {
		return &item{kind: "broken", text: err.Error(), channel: f.Channel}, nil
	}
	return &item{kind: compositeOf(d).name, channel: f.Channel, value: v, payload: payload}, nil
}

// track notes what a frame changes, and whose it is. REQUIRES: c.mu.
func (c *client) track(it *item) {
	switch it.kind {
	case "header", "broken", "empty":
		return
	case "open":
		var o amqp10.Open
		if o.Decode(it.value) == nil {
			c.peerMax = o.MaxFrameSize.Value
		}
		return
	case "begin":
		var b amqp10.Begin
		if b.Decode(it.value) == nil && b.RemoteChannel.Set {
			if s := c.sessions[b.RemoteChannel.Value]; s != nil {
				s.firstOut, s.nextIn = b.NextOutgoingID, b.NextOutgoingID
				c.remote[it.channel] = s
			}
		}
	}
	s := c.remote[it.channel]
	it.session = s
	if s == nil {
		return
	}
	switch it.kind {
	case "attach":
		var a amqp10.Attach
		if a.Decode(it.value) != nil {
			return
		}
		it.link = c.links[string(a.Name)][a.Role == amqp10.RoleSender]
		if it.link != nil {
			s.handles[a.Handle] = it.link
			if a.InitialDeliveryCount.Set && it.link.receives {
				it.link.deliveryCount = a.InitialDeliveryCount.Value
			}
		}
	case "flow":
		var f amqp10.Flow
		if f.Decode(it.value) == nil && f.Handle.Set {
			it.link = s.handles[f.Handle.Value]
			if it.link != nil && it.link.receives && f.DeliveryCount.Set {
				it.link.deliveryCount = f.DeliveryCount.Value
			}
		}
	case "transfer":
		var t amqp10.Transfer
		s.nextIn++
		if t.Decode(it.value) != nil {
			return
		}
		if t.DeliveryID.Set && !s.gotFirst {
			s.firstID, s.gotFirst = t.DeliveryID.Value, true
		}
		if it.link = s.handles[t.Handle]; it.link != nil {
			if it.further = it.link.inDelivery; !it.further {
				it.link.deliveryCount++
			}
			it.link.inDelivery = t.More
		}
	case "detach":
		var d amqp10.Detach
		if d.Decode(it.value) == nil {
			it.link = s.handles[d.Handle]
		}
	}
}

// take waits for the first thing in the inbox that matches and takes it out; nil if the time is over or the connection
// ended without it.
func (c *client) take(limit time.Duration, match func(*item) bool) *item {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		for i, it := range c.inbox {
			if match(it) {
				c.inbox = append(c.inbox[:i:i], c.inbox[i+1:]...)
				c.mu.Unlock()
				return it
			}
		}
		ended, changed := c.ended, c.changed
		c.mu.Unlock()
		if ended {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		}
	}
}

// putBack makes a thing the next in the inbox again.
func (c *client) putBack(it *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inbox = append([]*item{it}, c.inbox...)
}

// hasEnded reports whether the socket was closed.
func (c *client) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// failed reports whether a frame ends the connection, the session or the link, each of which may be nil.
func (it *item) failed(s *session, l *link) bool {
	switch it.kind {
	case "close", "broken":
		return true
	case "end":
		return it.session == s
	case "detach":
		return l != nil && it.link == l
	}
	return false
}

// newSession makes a session on the first channel that is free.
func (c *client) newSession() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &session{client: c, window: 100_000, handles: map[uint32]*link{}}
	for c.sessions[s.channel] != nil {
		s.channel++
	}
	c.sessions[s.channel] = s
	return s
}

// newLink makes a link on the next handle of the session.
func (s *session) newLink(name string, receives bool) *link {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	l := &link{name: name, session: s, handle: uint32(len(s.links)), receives: receives}
	s.links = append(s.links, l)
	if s.client.links[name] == nil {
		s.client.links[name] = map[bool]*link{}
	}
	s.client.links[name][receives] = l
	return l
}

// lines shows what came: the performative with its fields, of which only may name some.
func (it *item) lines(only []string) []string {
	switch it.kind {
	case "header":
		return []string{"header " + it.text}
	case "broken":
		return []string{"broken frame: " + it.text}
	case "empty":
		return []string{"empty frame"}
	}
	relative := func(name string, v amqp10.Value) (string, bool) {
		n, isNumber := v.Uint64()
		s := it.session
		switch {
		case it.further && (name == "delivery-id" || name == "delivery-tag" || name == "message-format" || name == "settled"):
			return "", true // what its first transfer said, or nothing (2.7.5)
		case name == "delivery-tag":
			return "delivery-tag=(some)", true
		case !isNumber || s == nil:
		case name == "handle" && it.kind != "attach" && it.link != nil:
			return "link=" + it.link.name, true
		// The ids that the broker begins with are its own affair.
		case name == "next-outgoing-id" && it.kind == "begin":
			return "next-outgoing-id=<id>", true
		case name == "next-outgoing-id" && it.kind == "flow":
			return fmt.Sprintf("next-outgoing-id=<id>+%d", uint32(n)-s.firstOut), true
		case name == "delivery-id" && it.kind == "transfer":
			return fmt.Sprintf("delivery-id=<id>+%d", uint32(n)-s.firstID), true
		case (name == "first" || name == "last") && it.kind == "disposition" && it.fromSender():
			return fmt.Sprintf("%s=<id>+%d", name, uint32(n)-s.firstID), true
		}
		return "", false
	}
	c := compositeNamed(it.kind)
	line := it.kind
	for _, w := range showFields(c, it.value.Underlying(), only, relative) {
		line += " " + w
	}
	return []string{line}
}

// fromSender reports whether a disposition is about what the broker sent.
func (it *item) fromSender() bool {
	var d amqp10.Disposition
	return d.Decode(it.value) == nil && d.Role == amqp10.RoleSender
}
