package broker

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/wire/amqp091"
)

// A notice is a message that the node itself publishes about what it does, at most once: nothing that it tells of waits for it,
// fails with it, or has its confirm depend on it.
type notice struct {
	vhost      message.VHost
	exchange   message.ExchangeName
	key        string               // at most message.MaxName bytes
	headers    []amqp091.RawField   // in any order
	properties amqp091.PropertyList // without headers
	body       [][]byte
	size       int // of the body
}

// notices carries messages of the node to their exchanges, one after the other, in a goroutine of its own. That goroutine alone
// waits for full disks and slow queues. Meanwhile the messages wait here; beyond a limit further ones are dropped, and counted.
type notices struct {
	b           *Broker
	what        string // for the log
	limit       int    // bytes that may wait
	heedsAlarms bool   // drops everything while an alarm is in force

	sent, dropped atomic.Uint64

	mu      held.Mutex // guards what follows; no other lock is taken under it
	turn    sync.Cond  // carried has changed, or ended
	waiting []letter
	bytes   int    // of these and of the batch under way
	taken   int    // bytes of that batch
	issued  uint64 // number of messages accepted
	carried uint64 // number of these that are where they go
	ended   bool

	wakec chan struct{} // has one token when there is something to do
	donec chan struct{} // closed at the goroutine's end; nil: it was not started
}

// NoticeCounts are what became of the node's own messages of one kind.
type NoticeCounts struct {
	Kind               string
	Published, Dropped uint64 // Published reached a queue, or was refused by it
}

// Notices counts the node's own messages, since its start.
func (b *Broker) Notices() []NoticeCounts {
	return []NoticeCounts{{"trace", b.traces.sent.Load(), b.traces.dropped.Load()}, {"event", b.events.sent.Load(), b.events.dropped.Load()}}
}

// letter is a notice that waits.
type letter struct {
	vhost    message.VHost
	exchange message.ExchangeName
	body     message.Ref // its record, with a reference
	size     int
}

// letterBytes is the memory of a letter beside its record.
const letterBytes = 64

// HeadersLimit is how many bytes of headers a message has at most. A client that has agreed to the usual frame_max of 128 KiB
// ends its connection when it gets more, and a classic queue would give it the same message again and again. So whoever declares
// or publishes something large could keep events and copies from everybody.
const HeadersLimit = 120 << 10

// fit leaves out the largest headers until the others are within HeadersLimit, and names them in the header left_out.
func fit(headers []amqp091.RawField) []amqp091.RawField {
	size := fieldBytes(headers...)
	if size <= HeadersLimit {
		return headers
	}
	var left amqp091.Array
	for size > HeadersLimit {
		largest := 0
		for i, f := range headers {
			if fieldBytes(f) > fieldBytes(headers[largest]) {
				largest = i
			}
		}
		size -= fieldBytes(headers[largest])
		left = append(left, headers[largest].Key)
		headers = slices.Delete(headers, largest, largest+1)
	}
	return append(headers, headerField("left_out", left))
}

// A batch is carried at once: so many letters at most, and no more once they have so many bytes.
const (
	batchLetters = 512
	batchBytes   = 4 << 20
)

func newNotices(b *Broker, what string, limit int, heedsAlarms bool) *notices {
	n := &notices{b: b, what: what, limit: limit, heedsAlarms: heedsAlarms, wakec: make(chan struct{}, 1)}
	held.Name(&n.mu, "the "+what)
	n.turn.L = &n.mu
	return n
}

// start starts the goroutine. REQUIRES: called once.
func (n *notices) start() {
	n.donec = make(chan struct{})
	go bug.Guarded(n.b.Logger, n.what, n.carry)() // ends with stop, which waits for it
}

// stop ends the goroutine and drops what waits.
func (n *notices) stop() {
	n.mu.Lock()
	n.ended = true
	waiting := n.waiting
	for i := range waiting {
		n.bytes -= waiting[i].size
	}
	n.waiting = nil
	n.turn.Broadcast()
	n.mu.Unlock()
	for i := range waiting {
		n.b.bodies.Release(waiting[i].body)
	}
	n.wake()
	if n.donec != nil {
		<-n.donec
	}
}

func (n *notices) wake() {
	select {
	case n.wakec <- struct{}{}:
	default:
	}
}

// send accepts a message, or drops it. It never waits for a disk or a queue. REQUIRES: the locks of broker, partitions and groups
// may be held, but none that comes after those of connections.
func (n *notices) send(m *notice) {
	if n.heedsAlarms && n.b.Alarmed() || !n.room(m.size) {
		n.dropped.Add(1)
		n.wake() // it says so in the log
		return
	}
	body := n.record(m)
	size := n.b.bodies.Size(body) + letterBytes
	n.mu.Lock()
	if n.ended || n.bytes+size > n.limit {
		n.mu.Unlock()
		n.b.bodies.Release(body)
		n.dropped.Add(1)
		n.wake()
		return
	}
	n.waiting = append(n.waiting, letter{m.vhost, m.exchange, body, size})
	n.bytes += size
	n.issued++
	n.mu.Unlock()
	n.wake()
}

// room says whether there may be room for a message: one that is dropped is not made first.
func (n *notices) room(size int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.ended && n.bytes+size < n.limit
}

// record makes the record of a message and returns the one reference to it.
func (n *notices) record(m *notice) message.Ref {
	if !n.b.Strict {
		m.headers = fit(m.headers)
	}
	slices.SortFunc(m.headers, func(a, b amqp091.RawField) int { return strings.Compare(a.Key, b.Key) })
	raw := amqp091.AppendPropsFrom(nil, m.properties)
	props, _ := amqp091.ParseProps(raw) // of our own
	e := message.Envelope{
		Serial: n.b.nextSerial(n.b.now()), Exchange: []byte(m.exchange), Key: []byte(m.key), BodySize: m.size, HasHeaders: true, Persistent: props.DeliveryMode == 2,
		Properties: amqp091.AppendProps(nil, raw, &props, &amqp091.PropsEdit{Set: m.headers}),
	}
	ref, b := n.b.bodies.Alloc(e.Size())
	body := e.Put(b)
	for _, piece := range m.body {
		body = body[copy(body, piece):]
	}
	if e.Persistent {
		message.Record(b).Seal()
	}
	return ref
}

// carry is the goroutine.
func (n *notices) carry() {
	defer close(n.donec)
	var told time.Time // when the log was told of dropped messages
	var toldOf uint64
	for {
		batch, ended := n.take()
		if ended {
			return
		}
		if dropped := n.dropped.Load(); dropped > toldOf && time.Since(told) > time.Minute {
			n.b.Logger.Warn("messages of the node itself are dropped: they do not leave as fast as they are made, or an alarm is in force", "what", n.what, "dropped", dropped-toldOf)
			told, toldOf = time.Now(), dropped
		}
		if len(batch) == 0 {
			<-n.wakec
			continue
		}
		n.deliver(batch)
		n.mu.Lock()
		n.carried += uint64(len(batch))
		n.turn.Broadcast()
		n.mu.Unlock()
	}
}

// take takes the next batch. Its bytes count until the next one is taken.
func (n *notices) take() (batch []letter, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bytes -= n.taken
	size, k := 0, 0
	for k < len(n.waiting) && k < batchLetters && size < batchBytes {
		size += n.waiting[k].size
		k++
	}
	batch, n.waiting = n.waiting[:k:k], n.waiting[k:]
	if len(n.waiting) == 0 {
		n.waiting = nil // or the array would stay as large as it once was
	}
	n.taken = size
	return batch, n.ended
}

// deliver publishes a batch and returns when its queues have it: what follows waits here, where there is a limit.
func (n *notices) deliver(batch []letter) {
	var ops []partition.Op
	size := 0
	n.b.topo.RLock()
	for i := range batch {
		l := &batch[i]
		targets := n.b.routeLetter(l)
		if len(targets) == 0 {
			n.b.bodies.Release(l.body)
			continue
		}
		size += l.size
		ops = append(ops, partition.Op{Kind: partition.Publish, Targets: targets, Body: l.body, TTL: -1, Priority: -1})
	}
	n.b.topo.RUnlock()
	if len(ops) == 0 {
		return
	}
	n.b.Received(size)      // it is memory that nobody is slowed down for
	_ = n.b.node.Enter(ops) // a refusal is not told to anybody; a failure of the disk ends the node
	n.sent.Add(uint64(len(ops)))
}

// flush returns when all that was accepted before is where it goes.
func (n *notices) flush() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for upTo := n.issued; n.carried < upTo && !n.ended; {
		n.turn.Wait()
	}
}

// routeLetter finds the queues of a letter. REQUIRES: topo is held for reading, and nothing else: others may be let in.
func (b *Broker) routeLetter(l *letter) (targets []*partition.Queue) {
	v, ok := b.state.VHost(l.vhost)
	if !ok {
		return nil
	}
	x, ok := v.Exchange(l.exchange)
	if !ok {
		return nil
	}
	rec := message.Record(b.bodies.Bytes(l.body))
	m := routing.Message{Key: rec.Key()}
	targets, _ = b.routeRecord(v, x, &m, rec, nil)
	return targets
}

// routeRecord finds the queues that a record reaches from an exchange, by the keys in m. REQUIRES: topo is held for reading, and nothing
// else: others may be let in.
func (b *Broker) routeRecord(v *topology.VHost, x *topology.Exchange, m *routing.Message, rec message.Record, out []*partition.Queue) (targets []*partition.Queue, byKeys bool) {
	m.Chance, m.Pause = rand.Uint64(), b.onPause
	if props, err := amqp091.ParseProps(rec.Properties()); err == nil {
		m.Headers, m.MessageID, m.CorrelationID = props.Headers, props.MessageID, props.CorrelationID
		m.Timestamp, m.HasTimestamp = props.Timestamp, props.Has(amqp091.FlagTimestamp)
	}
	router := b.routers.Get().(*topology.Router)
	found := router.Route(v, x, m, nil)
	byKeys = router.ByKeys
	b.routers.Put(router)
	for _, t := range found {
		out = append(out, runtimeOf(t))
	}
	return out, byKeys
}
