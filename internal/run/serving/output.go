package serving

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
)

// Output is what is to be sent to a client, in order: ready bytes, and items (T) that are not encoded yet. Any goroutine puts
// something in: partitions put in deliveries while they are locked, the reader puts in answers. The holder of the pen, one goroutine
// at a time, takes everything, has the session encode the items, and writes.
//
//	Put, PutItem ──► owed ───┐                 ┌─ Wire ──► socket
//	                         ├─► waiting ─take─┤  Session.Encode, Piece
//	Deliver, Offer ► pending ┘                 └─ unsent  (Keep: the socket is broken)
//
//	pending ≥ HighWater: Deliver says that there is no room, and the session pauses who delivers: Pause
//	pending < LowWater:  the writer resumes who is Resumable
//	owed > MaxOwed:      the reader reads nothing more: WaitForRoom
//	a client that takes nothing for writeTimeout is disconnected: Socket
//
// Usually the writer goroutine holds the pen. If the pen is free and there is little to send, the goroutine that put it in takes the
// pen itself and writes what the socket accepts without blocking. So an answer to a single request needs no switch of goroutines.
//
// Invariant: nothing is forgotten. Whenever the lock is free, and something waits, is half written, or is paused and resumable, then
// a goroutine holds the pen, or the writer has been woken, or whoever put it in has not called Flush yet. So who lays the pen down
// looks again, and wakes the writer if there is more.
//
// P is what a session pauses. Init must be called first.
type Output[T, P any] struct {
	// Static after Init.
	socket  *Socket
	session Session[T, P]
	log     *slog.Logger
	wakec   chan struct{}
	roomc   chan struct{} // wakes a reader that waits for owed to fall
	writing sync.WaitGroup

	pending atomic.Int64 // approximate bytes of waiting deliveries
	beat    atomic.Int64 // how often the client wants to hear something, a time.Duration; 0: never

	mu      held.Mutex // guards what follows
	waiting List[entry[T]]
	ready   []byte // the bytes of entries that are ready, one after the other
	owed    int    // bytes of waiting answers, without deliveries
	held    bool   // a goroutine has the pen
	shut    bool   // it accepts nothing more
	paused  []P

	// Wire is what is encoded and not yet written. Owned by the holder of the pen, as all that follows.
	Wire []byte
	// Window is for records on disk. It is freed when there is nothing to send.
	Window bodies.Window
	inline bool // little was taken, which is encoded in one piece
	sent   int  // of pending: what has left since it was taken
	// unsent are deliveries of a connection whose socket is broken, or which must be closed because a message can neither be read nor
	// set aside. They go back to their queues when the connection has no consumer left that could get them again.
	unsent     []T
	taken      List[entry[T]]
	takenReady []byte
}

// entry is one thing to send.
type entry[T any] struct {
	ready int // length of ready bytes; 0: it is an item
	item  T
}

// Session is what an output needs of its session.
type Session[T, P any] interface {
	// Encode appends an item to Output.Wire. It is called with the pen, and the item is its own.
	Encode(it *T)
	// Resumable says whether who is paused may go on, or has ended. The output is locked: it may look at Pending, and waits for nothing.
	Resumable(p P) bool
	// Resume lets who is paused go on. It is called by the writer, without lock and pen.
	Resume(p P)
	// AppendBeat appends a frame that only shows that the connection lives.
	AppendBeat(b []byte) []byte
}

const (
	// HighWater is how many bytes of messages may wait for a client before its consumers are paused.
	HighWater = 6 << 20
	// LowWater is how few may wait when they continue.
	LowWater = 2 << 20
	// MaxOwed is how many bytes of answers may wait for a client before reading from it stops.
	MaxOwed = 1 << 20
	// WriteSize is how many bytes are encoded before they are written.
	WriteSize = 128 << 10
	// inlineItems is the number of items up to which the goroutine that put them in writes them itself.
	inlineItems = 8
	// ItemBytes is the memory of a waiting message besides its record: the item, and spare room in the list. Messages may be empty.
	ItemBytes = 160
	// ColdBytes is what a waiting delivery counts if its record is on disk, besides the size of its body.
	ColdBytes = 128
)

// Init prepares an output. Start starts its writer.
func (o *Output[T, P]) Init(s *Socket, session Session[T, P]) {
	o.socket, o.session, o.log = s, session, s.Log
	o.wakec, o.roomc = make(chan struct{}, 1), make(chan struct{}, 1)
	held.Name(&o.mu, "the output of a connection")
}

// Lock is the output's lock, to see whether it is free: see Free.
func (o *Output[T, P]) Lock() *held.Mutex { return &o.mu }

// Put appends ready bytes by letting f append them. They are an answer.
func (o *Output[T, P]) Put(f func(b []byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return
	}
	before := len(o.ready)
	o.ready = f(o.ready)
	n := len(o.ready) - before
	if n == 0 {
		return
	}
	o.owed += n
	if e := o.waiting.Newest(); e != nil && e.ready > 0 {
		e.ready += n
		return
	}
	o.waiting.Add().ready = n
}

// PutItem appends an item that is an answer and takes n bytes. It says whether the output took it: not at its end.
func (o *Output[T, P]) PutItem(it *T, n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return false
	}
	o.waiting.Add().item = *it
	o.owed += n
	return true
}

// Deliver appends a delivery that takes n bytes, and says whether there is room for more. It takes the delivery even at its end: Drain
// gives it back. owed is what of n is an answer, which the client has requested.
func (o *Output[T, P]) Deliver(it *T, n, owed int) (more bool) {
	o.mu.Lock()
	o.waiting.Add().item = *it
	o.owed += owed
	more = o.pending.Add(int64(n)) < HighWater
	o.mu.Unlock()
	return more
}

// Offer is Deliver for what may come when the output has been drained. It says whether the output took it.
func (o *Output[T, P]) Offer(it *T, n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return false
	}
	o.waiting.Add().item = *it
	o.pending.Add(int64(n))
	return true
}

// Pending is how many bytes of deliveries wait, approximately.
func (o *Output[T, P]) Pending() int64 { return o.pending.Load() }

// Pause notes who is to be resumed when there is room. There may be room just now: then the writer resumes it at once.
func (o *Output[T, P]) Pause(p P) {
	o.mu.Lock()
	if !o.shut {
		o.paused = append(o.paused, p)
	}
	o.mu.Unlock()
	o.Wake()
}

// Flush makes the content of the output be sent: by the caller if inline is set and there is little, otherwise by the writer.
func (o *Output[T, P]) Flush(inline bool) {
	o.mu.Lock()
	if o.waiting.Len() == 0 || o.held {
		o.mu.Unlock()
		return // the holder of the pen looks again before it lays the pen down
	}
	if inline && o.waiting.Len() <= inlineItems && o.owed < WriteSize && o.pending.Load() < WriteSize && o.socket.raw != nil && len(o.Wire) == 0 {
		o.held = true
		o.mu.Unlock()
		o.writeSome()
		return
	}
	o.mu.Unlock()
	o.Wake()
}

// Wake wakes the writer.
func (o *Output[T, P]) Wake() {
	select {
	case o.wakec <- struct{}{}:
	default:
	}
}

// WaitForRoom stops reading from a client that does not read its answers; they would pile up without end. Deliveries do not count:
// they have their own limit, and a client that settles them must be read. It returns early if the reader is interrupted, or if the
// socket is broken; the write deadline ends a connection that accepts nothing.
func (o *Output[T, P]) WaitForRoom() {
	held.Nothing("a client")
	for !o.socket.dead.Load() && !o.socket.interrupted.Load() && o.Full() {
		select {
		case <-o.roomc:
		case <-o.socket.heedc:
		}
	}
}

// Full says whether too many answers wait.
func (o *Output[T, P]) Full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owed > MaxOwed
}

// take takes everything to send. REQUIRES: the lock and the pen.
func (o *Output[T, P]) take() {
	o.taken, o.waiting = o.waiting, o.taken // o.taken is empty
	o.takenReady, o.ready = o.ready, o.takenReady[:0]
	if o.owed > MaxOwed {
		select {
		case o.roomc <- struct{}{}:
		default:
		}
	}
	o.owed = 0
}

// writeSome encodes all items and writes what the socket accepts at once; it leaves the rest to the writer. REQUIRES: the pen.
func (o *Output[T, P]) writeSome() {
	// Other goroutines leave their items to the holder of the pen; after a panic nobody would send them.
	defer bug.End(o.log, "the pen of a connection")
	o.mu.Lock()
	o.take()
	o.mu.Unlock()
	o.inline = true
	o.encode()
	o.inline = false
	size := len(o.Wire)
	if err := o.socket.raw.Write(&o.Wire); err != nil {
		o.socket.Break()
	}
	o.socket.wrote(size - len(o.Wire))
	o.layDown()
}

// layDown releases the pen and leaves new items to the writer. REQUIRES: the pen.
func (o *Output[T, P]) layDown() {
	o.mu.Lock()
	o.held = false // the next holder of the pen waits for the lock
	again := o.shut || o.work()
	if !again {
		o.Window.Free()
	}
	o.mu.Unlock()
	if again {
		o.Wake()
	}
}

// work says whether there is something to send, or somebody to resume. REQUIRES: the lock, and the pen is free.
func (o *Output[T, P]) work() bool {
	if o.waiting.Len() > 0 || len(o.Wire) > 0 {
		return true
	}
	if o.Failed() {
		o.paused = nil // they are being detached; what is unsent leaves no room for more
	}
	for i := range o.paused {
		if o.session.Resumable(o.paused[i]) {
			return true
		}
	}
	return false
}

// resume takes those who can go on out of the paused ones. REQUIRES: the lock, and the pen is free.
func (o *Output[T, P]) resume() (list []P) {
	if len(o.paused) == 0 || o.Failed() {
		return nil
	}
	rest := o.paused[:0]
	for _, p := range o.paused {
		if o.session.Resumable(p) {
			list = append(list, p)
		} else {
			rest = append(rest, p)
		}
	}
	clear(o.paused[len(rest):])
	o.paused = rest
	return list
}

// encode encodes the taken items into Wire. REQUIRES: the pen.
func (o *Output[T, P]) encode() {
	at := 0
	for k := range o.taken.Chunks() {
		chunk := o.taken.Chunk(k)
		for i := range chunk {
			if e := &chunk[i]; e.ready > 0 {
				o.Wire = append(o.Wire, o.takenReady[at:at+e.ready]...)
				at += e.ready
			} else {
				o.session.Encode(&e.item)
			}
			o.Piece()
		}
	}
	o.taken.Clear()
	if cap(o.takenReady) > 1<<20 {
		o.takenReady = nil
	}
	o.settleSent()
}

func (o *Output[T, P]) settleSent() {
	if o.sent > 0 {
		o.pending.Add(-int64(o.sent))
		o.sent = 0
	}
}

// Piece writes what is encoded, if it is enough. An Encode that encodes much calls it after each part. REQUIRES: the pen.
func (o *Output[T, P]) Piece() {
	if len(o.Wire) >= WriteSize && !o.inline {
		o.send(o.Wire)
		o.Wire = o.Wire[:0]
	}
}

// Enough says that a session with much more to encode shall put in an item for it, and come back: little was to be encoded in one piece.
// REQUIRES: the pen.
func (o *Output[T, P]) Enough() bool { return o.inline && len(o.Wire) >= WriteSize }

// Append encodes ready bytes behind Wire. They are not copied if there are many. REQUIRES: the pen.
func (o *Output[T, P]) Append(b []byte) {
	if o.inline || len(b) < WriteSize {
		o.Wire = append(o.Wire, b...)
		return
	}
	o.send(o.Wire)
	o.send(b)
	o.Wire = o.Wire[:0]
}

// Sent notes that a delivery of n bytes waits no longer. REQUIRES: the pen.
func (o *Output[T, P]) Sent(n int) { o.sent += n }

// Failed says whether no delivery can be sent any more: whoever encodes one keeps it. REQUIRES: the pen.
func (o *Output[T, P]) Failed() bool { return o.socket.dead.Load() || len(o.unsent) > 0 }

// Keep keeps a delivery that cannot be sent for Drain, and all that follow. REQUIRES: the pen.
func (o *Output[T, P]) Keep(it *T) { o.unsent = append(o.unsent, *it) }

// send writes b, unless the socket is broken. REQUIRES: the pen.
func (o *Output[T, P]) send(b []byte) {
	if len(b) == 0 || o.socket.dead.Load() {
		return
	}
	held.Nothing("a client")
	if err := o.socket.write(b); err != nil {
		o.socket.Break()
	}
}
