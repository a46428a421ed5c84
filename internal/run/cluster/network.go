package cluster

import (
	"sync"

	"bartleby.mq/internal/safety/bug"
)

// maxInbox is how many batches of messages wait for a node in a Network. More are
// lost, as they are where a socket is full.
const maxInbox = 4096

// Network carries messages between drivers of one process: for tests, and for
// a cluster inside a program. It has one goroutine for each node.
type Network struct {
	mu     sync.Mutex
	nodes  map[uint64]*inbox
	cut    map[uint64]bool
	closed bool
	work   sync.WaitGroup
}

// NewNetwork makes one without nodes.
func NewNetwork() *Network { return &Network{nodes: map[uint64]*inbox{}, cut: map[uint64]bool{}} }

// inbox is what waits for one node.
type inbox struct {
	d     *Driver
	mu    sync.Mutex
	some  sync.Cond
	queue []parcel
	ended bool
}

// parcel is messages for one group, or one snapshot and whom to tell about it.
type parcel struct {
	from, to, group uint64
	messages        []Message
	sender          *Driver // of a snapshot
}

// Transport is the network as the node of that id uses it.
func (n *Network) Transport(from uint64) Transport { return memoryTransport{n, from} }

// Join has a driver get what is sent to its id, until Leave or Close.
func (n *Network) Join(d *Driver) {
	b := &inbox{d: d}
	b.some.L = &b.mu
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.nodes[d.opts.ID] != nil {
		return
	}
	n.nodes[d.opts.ID] = b
	n.work.Go(bug.Guarded(d.opts.Logger, "a node's inbox", func() { b.deliver(n) }))
}

// Leave is the reverse of Join. What is on its way is lost.
func (n *Network) Leave(id uint64) {
	n.mu.Lock()
	b := n.nodes[id]
	delete(n.nodes, id)
	n.mu.Unlock()
	if b != nil {
		b.end()
	}
}

// Cut parts a node from all others, or no more.
func (n *Network) Cut(id uint64, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[id] = cut
}

// Close ends the goroutines and waits for them.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	for _, b := range n.nodes {
		b.end()
	}
	clear(n.nodes)
	n.mu.Unlock()
	n.work.Wait()
}

// inbox returns where a parcel goes, nil if nowhere.
func (n *Network) inbox(from, to uint64) *inbox {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[from] || n.cut[to] {
		return nil
	}
	return n.nodes[to]
}

// put returns false if the inbox is full.
func (b *inbox) put(p parcel) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || len(b.queue) >= maxInbox {
		return false
	}
	b.queue = append(b.queue, p)
	b.some.Signal()
	return true
}

func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.some.Signal()
}

// take waits for parcels; none is the end.
func (b *inbox) take() []parcel {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && !b.ended {
		b.some.Wait()
	}
	if b.ended {
		return nil
	}
	queue := b.queue
	b.queue = nil
	return queue
}

// deliver hands parcels to the driver until the inbox ends. It owns nothing.
func (b *inbox) deliver(n *Network) {
	for parcels := b.take(); parcels != nil; parcels = b.take() {
		for _, p := range parcels {
			if n.inbox(p.from, p.to) != b {
				p.answer(false)
				continue
			}
			b.d.Receive(p.group, p.messages)
			p.answer(true)
		}
	}
}

// answer tells the sender of a snapshot what became of it.
func (p *parcel) answer(arrived bool) {
	if p.sender != nil {
		p.sender.SnapshotSent(p.to, p.group, arrived)
	}
}

type memoryTransport struct {
	n    *Network
	from uint64
}

// Send puts the messages into the inbox of their node.
func (t memoryTransport) Send(to, group uint64, messages []Message) {
	if b := t.n.inbox(t.from, to); b != nil {
		b.put(parcel{from: t.from, to: to, group: group, messages: messages})
	}
}

// SendSnapshot does the same. One that cannot be sent is not told of: the group's
// lock is held. It tries again.
func (t memoryTransport) SendSnapshot(to, group uint64, m Message) {
	self := t.n.inbox(t.from, t.from)
	if b := t.n.inbox(t.from, to); b != nil && self != nil {
		b.put(parcel{from: t.from, to: to, group: group, messages: []Message{m}, sender: self.d})
	}
}
