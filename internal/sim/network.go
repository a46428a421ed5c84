package sim

import (
	"bartleby.mq/internal/run/cluster"
)

// network is the weather between nodes.
type network struct {
	w         *World
	drop      float64        // of batches of messages
	repeat    float64        // likewise
	slow      float64        // share that is late, and so overtaken
	parts     map[uint64]int // which part of a divided network a node is in; those missing are in 0
	divisions int
	oneWay    [2]uint64 // nothing arrives at the second from the first
}

// cut reports whether nothing arrives.
func (n *network) cut(from, to uint64) bool {
	return n.parts[from] != n.parts[to] || n.oneWay == [2]uint64{from, to}
}

// delay is how long a batch travels, in microseconds.
func (n *network) delay() int64 {
	if n.w.rng.Float64() < n.slow {
		return 1000 + n.w.rng.Int64N(400_000)
	}
	return 50 + n.w.rng.Int64N(500)
}

// port is a node's transport.
type port struct {
	net  *network
	from *node
}

// Send carries messages, encoded and decoded as between machines, or loses them.
func (p port) Send(to, group uint64, messages []cluster.Message) {
	n, w := p.net, p.net.w
	for i := range messages {
		w.logf("  %d: %s", group, messages[i])
	}
	if p.from.dead || n.cut(p.from.id, to) || w.rng.Float64() < n.drop {
		w.logf("  lost")
		return
	}
	wire := w.encode(messages)
	times := 1
	if w.rng.Float64() < n.repeat {
		times = 2
	}
	for _, m := range messages {
		if m.Vote() {
			w.voted(p.from, to)
		}
	}
	for range times {
		w.after(n.delay(), func() { w.deliver(p.from.id, to, group, wire) })
	}
}

// SendSnapshot carries a snapshot, slowly, and tells the sender.
func (p port) SendSnapshot(to, group uint64, m cluster.Message) {
	n, w, life := p.net, p.net.w, p.from.life
	w.logf("  %d: %s", group, m)
	arrived := !p.from.dead && !n.cut(p.from.id, to) && w.rng.Float64() >= n.drop
	wire := w.encode([]cluster.Message{m})
	w.after(5*n.delay(), func() {
		if arrived {
			arrived = w.deliver(p.from.id, to, group, wire)
		}
		if p.from.up && p.from.life == life && w.rng.IntN(8) > 0 { // the answer may be lost, too
			p.from.driver.SnapshotSent(to, group, arrived)
			w.settle(p.from)
		}
	})
}

// encode makes the bytes that travel.
func (w *World) encode(messages []cluster.Message) [][]byte {
	wire := make([][]byte, len(messages))
	for i, m := range messages {
		wire[i] = m.Append(nil)
	}
	return wire
}

// deliver hands what arrives to a node, if it is there.
func (w *World) deliver(from, to, group uint64, wire [][]byte) bool {
	node := w.node(to)
	if node == nil || !node.up || w.net.cut(from, to) {
		return false
	}
	if node.paused > w.now {
		w.after(node.paused-w.now, func() { w.deliver(from, to, group, wire) })
		return true
	}
	messages := make([]cluster.Message, len(wire))
	for i, b := range wire {
		m, err := cluster.DecodeMessage(b)
		if err != nil {
			w.fail("a message from node %d does not decode: %v", from, err)
			return false
		}
		messages[i] = m
	}
	node.driver.Receive(group, messages)
	w.settle(node)
	return true
}
