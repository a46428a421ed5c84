package twodrivers

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

const (
	vhost    = "/"
	frameMax = 131072
	// patience is how long a client writes: in a bubble this passes when nobody reads.
	patience = 10 * time.Second
)

// node is a whole broker in memory, with its clients.
type node struct {
	quorum  bool // the type of its queues
	fs      *vfs.MemFS
	options broker.Options
	b       *broker.Broker
	clients [connections]*client
	serving sync.WaitGroup
}

func newNode(quorum bool, e episode) *node {
	n := &node{quorum: quorum, fs: vfs.NewMem()}
	n.options = broker.Options{
		FS: n.fs, Dir: "/data", Partitions: 2, LoopbackUsers: []string{},
		Topology:  topology.Options{ClassicAtLeastOnce: true}, // else classic queues have no strategy at all (DL-21.5)
		CountNack: new(bool),                                  // DL-11.5
		RetryHeld: retryHeld,
	}
	if e.apsara {
		n.options.Topology.DefaultProfile = deadletter.ApsaraMQ
		n.options.ApsaraMQ = broker.DefaultApsaraMQ()
		n.options.ApsaraMQ.MaxRedeliveries, n.options.ApsaraMQ.ConsumerTimeout = 2, consumerTimeout
		n.options.ApsaraMQ.Priorities = e.priorities
	}
	return n
}

func (n *node) start() (err error) {
	if n.b, err = broker.Open(n.options); err != nil {
		return err
	}
	if n.b.Empty() {
		err = n.b.CreateDefault(broker.Default{
			VHost: vhost, User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*",
		})
	}
	return err
}

// drain begins to stop the node, as SIGTERM does: clients are told.
func (n *node) drain() error {
	n.b.Drain()
	return nil
}

// stop ends it. REQUIRES: all is at rest after drain.
func (n *node) stop() error {
	for i := range n.clients {
		n.hangUp(i)
	}
	n.serving.Wait()
	return n.b.Close()
}

// admin acts for an operator.
func (n *node) admin() *broker.Connection { return n.b.As("guest", vhost) }

// client is one connection.
type client struct {
	conn net.Conn
	in   []byte
	gone chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	ended   bool // the server closed it
	events  []event
	content map[uint16]*content
}

// event is something that a client was told.
type event struct {
	channel uint16
	method  amqp091.Method
	content *content // of a method that has one
}

type content struct {
	method amqp091.Method
	size   int
	props  amqp091.PropertyList
	body   []byte
}

// dial is a client's socket to the node, where a session serves its other end and is given the protocol header.
func (n *node) dial(session func(nc net.Conn, first []byte)) net.Conn {
	ours, theirs := net.Pipe()
	n.serving.Go(func() {
		var first [8]byte
		if _, err := io.ReadFull(theirs, first[:]); err != nil {
			_ = theirs.Close()
			return
		}
		session(theirs, first[:])
	})
	return ours
}

// connect opens a connection of a node as far as open-ok.
func (n *node) connect(i int) error {
	ours := n.dial(func(theirs net.Conn, first []byte) {
		if session091.Serve(theirs, first, session091.Options{Broker: n.b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6", Heartbeat: -1}) {
			_ = theirs.Close()
		}
	})
	c := &client{conn: ours, gone: make(chan struct{}), content: map[uint16]*content{}}
	n.clients[i] = c
	go c.read()
	c.write([]byte(amqp091.ProtocolHeader))
	synctest.Wait()
	capabilities := amqp091.Table{{Key: "consumer_cancel_notify", Value: true}, {Key: "basic.nack", Value: true}, {Key: "publisher_confirms", Value: true}}
	c.write(amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{
		ClientProperties: amqp091.Table{{Key: "capabilities", Value: capabilities}}, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	}))
	synctest.Wait()
	b := amqp091.AppendMethod(nil, 0, amqp091.ConnectionTuneOk{ChannelMax: 2047, FrameMax: frameMax})
	c.write(amqp091.AppendMethod(b, 0, amqp091.ConnectionOpen{VirtualHost: vhost}))
	synctest.Wait()
	for _, e := range c.take() {
		if _, ok := e.method.(*amqp091.ConnectionOpenOk); ok {
			return nil
		}
	}
	return fmt.Errorf("connection %d was not opened", i)
}

// hangUp ends a connection without a word.
func (n *node) hangUp(i int) {
	if c := n.clients[i]; c != nil {
		_ = c.conn.Close()
		<-c.gone
		n.clients[i] = nil
	}
}

func (c *client) write(b []byte) {
	_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
	_, _ = c.conn.Write(b) // one that fails is missed among the answers
}

// take takes what the client was told since it was asked last.
func (c *client) take() []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return events
}

func (c *client) read() {
	defer close(c.gone)
	b := make([]byte, 64<<10)
	for {
		k, err := c.conn.Read(b)
		c.in = append(c.in, b[:k]...)
		for {
			f, n, err := amqp091.NextFrame(c.in, frameMax)
			if err != nil || n == 0 {
				break
			}
			if answer := c.frame(&f); answer != nil {
				go c.write(answer) // the server may be writing
			}
			c.in = slices.Clone(c.in[n:])
		}
		if err != nil {
			_ = c.conn.Close()
			return
		}
	}
}

// frame takes one frame. It returns what is to be answered.
func (c *client) frame(f *amqp091.Frame) (answer []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.content[f.Channel]
	switch f.Type {
	case amqp091.FrameHeartbeat:
		return nil
	case amqp091.FrameHeader:
		_, size, raw, err := amqp091.ParseContentHeader(f.Payload)
		if err == nil {
			x.props, err = amqp091.DecodeProps(raw)
		}
		if err != nil {
			c.events = append(c.events, event{method: &amqp091.ConnectionClose{ReplyText: "a bad content header: " + err.Error()}})
		}
		x.size = int(size)
		c.whole(f.Channel)
		return nil
	case amqp091.FrameBody:
		x.body = append(x.body, f.Payload...)
		c.whole(f.Channel)
		return nil
	}
	m, err := amqp091.DecodeMethod(f.Payload)
	if err != nil {
		m = &amqp091.ConnectionClose{ReplyText: "a bad method: " + err.Error()}
	}
	if m.ID().HasContent() {
		c.content[f.Channel] = &content{method: m}
		return nil
	}
	c.events = append(c.events, event{channel: f.Channel, method: m})
	switch m.(type) {
	case *amqp091.ConnectionClose:
		c.ended = true
		return amqp091.AppendMethod(nil, 0, amqp091.ConnectionCloseOk{})
	case *amqp091.ChannelClose:
		return amqp091.AppendMethod(nil, f.Channel, amqp091.ChannelCloseOk{})
	}
	return nil
}

func (c *client) whole(channel uint16) {
	if x := c.content[channel]; len(x.body) >= x.size {
		c.events = append(c.events, event{channel, x.method, x})
		delete(c.content, channel)
	}
}

// declared is the declaration of a queue, nil if there is none.
func (n *node) declared(name string) (info *broker.QueueInfo) {
	n.b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(vhost); ok {
			if q, ok := v.Queue(message.QueueName(name)); ok {
				described := broker.Describe(q)
				info = &described
			}
		}
	})
	return info
}

// place is where a message stands in its queue.
type place struct {
	state    string // ready, out, delayed or dead
	returned bool   // it came back to a quorum queue and goes before all others (BR-9.13)
	until    int64  // when its wait is over, in milliseconds since 1970; 0: it does not wait
	name     string // of the copy: what it is and how it got here
}

// places are all messages of a queue in the order of its levels, the most urgent first,
// and of their numbers.
func (n *node) places(name string) (list []place) {
	info := n.declared(name)
	if info == nil {
		return nil
	}
	rt := info.Decl.Runtime.(*partition.Queue)
	var cursor queue.Cursor
	for done := false; !done; {
		var err error
		cursor, done, err = n.b.Node().Browse(rt, cursor, 256, func(v queue.View, r message.Record, history []byte) bool {
			state := "ready"
			switch {
			case v.Dead:
				state = "dead"
			case v.Out:
				state = "out"
			case v.NotBefore != 0:
				state = "delayed"
			}
			raw, _, _ := broker.Rendered(r, history, queue.Counts{}, n.quorum)
			props, err := amqp091.DecodeProps(raw)
			if err != nil {
				panic(err)
			}
			list = append(list, place{state, v.Returned && n.quorum, v.NotBefore, copyName(&props, r.Body())})
			return true
		})
		if err != nil {
			return nil
		}
	}
	return list
}

// order is the order of all messages of a queue.
func (n *node) order(name string) string {
	var b strings.Builder
	for _, at := range n.places(name) {
		fmt.Fprintf(&b, "%s %s\n", at.state, at.name)
	}
	return b.String()
}

// copyName tells copies of a message apart that came to a queue different ways.
func copyName(p *amqp091.PropertyList, body []byte) string {
	name := strings.TrimRight(string(body), ".")
	if from, ok := p.Headers.Get("x-replayed-from"); ok {
		name += fmt.Sprintf("~%v", from)
	}
	if deaths, ok := p.Headers.Get("x-death"); ok {
		name += " " + deathText(deaths)
	}
	return name
}

func deathText(deaths any) string {
	list, _ := deaths.(amqp091.Array)
	var b strings.Builder
	for _, d := range list {
		t, _ := d.(amqp091.Table)
		q, _ := t.Get("queue")
		reason, _ := t.Get("reason")
		count, _ := t.Get("count")
		fmt.Fprintf(&b, "<%v/%v*%v", q, reason, count)
	}
	return b.String()
}
