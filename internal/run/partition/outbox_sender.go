package partition

import (
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/deathstore"
)

// The sender of a log is a goroutine. It carries entries of the outboxes to their destinations and brings the
// acknowledgements back. It has no state of its own: after a failure it begins again at the first entry without an
// answer. Nothing that clients do waits for it.

const (
	sendEntries = 256     // in one load
	sendBytes   = 1 << 20 // of messages and histories in one load
	sendAgain   = 250 * time.Millisecond
	sendWaits   = 30 * time.Second // for an entry that cannot be read, but may be readable soon
)

// wake wakes the sender.
func (o *outboxes) wake() {
	select {
	case o.wakec <- struct{}{}:
	default:
	}
}

// keepSending is the sender's goroutine. It ends when the node stops.
func (o *outboxes) keepSending() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if !o.sendAll() {
			timer.Reset(sendAgain)
		}
		select {
		case <-o.wakec:
		case <-timer.C:
		case <-o.n.stop:
			return
		}
	}
}

// sendAll empties the outboxes, one load of each at a time, so that a busy destination does not keep others waiting.
// It says whether all went well. After a failure it leaves that destination until the next call.
func (o *outboxes) sendAll() bool {
	var failed map[uint64]bool
	for more := true; more && !o.n.stopped(); {
		more = false
		for k := 0; ; k++ {
			b, ok := o.load(k)
			if !ok {
				break
			}
			if len(b.Entries) == 0 || failed[b.To] {
				o.release(b.Entries)
				continue
			}
			more = true
			if o.deliver(&b) != nil {
				if failed == nil {
					failed = map[uint64]bool{}
				}
				failed[b.To] = true
			}
		}
	}
	return failed == nil
}

// deliver brings a load to its destination and the answer back, and releases the load.
func (o *outboxes) deliver(b *load) error {
	var upTo uint64
	var refused outbox.Refusals
	err := o.warm(b)
	if err == nil {
		upTo, refused, err = o.carry(b)
	}
	o.release(b.Entries)
	o.n.memory.relieve() // what arrives takes memory, and no publisher relieves it
	if err != nil {
		return err
	}
	o.sent(b.To, upTo)
	return o.acknowledge(b.To, upTo, refused)
}

// load is a part of an outbox, pinned.
type load struct {
	outbox.Load
	from   uint64
	pos    journal.Pos // local: the frames with these entries end here
	unread int64       // since when something for the destination cannot be read; 0: everything can
}

// load pins what is to be sent next from the k-th outbox. ok is false if there is none, or if another node leads the
// group.
func (o *outboxes) load(k int) (b load, ok bool) {
	if o.g == nil {
		o.hear()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.g != nil && !o.g.leads {
		return load{}, false
	}
	if b.Load, ok = o.Load(k, sendEntries); !ok {
		return load{}, false
	}
	b.from, b.pos, b.unread = o.log, o.pos, o.unread[b.To]
	for i := range b.Entries {
		o.n.bodies.Retain(b.Entries[i].Body, 1)
		o.n.bodies.Retain(b.Entries[i].History, 1)
	}
	if len(b.Entries) == 0 {
		delete(o.unread, b.To)
	}
	return b, true
}

// hear asks the groups' replicas on this node what they know the local partitions to have taken.
func (o *outboxes) hear() {
	o.mu.Lock()
	waits := o.Unheard()
	o.mu.Unlock()
	if !waits {
		return
	}
	known := map[uint64]uint64{}
	for _, p := range o.n.groups {
		p.mu.Lock()
		if box := p.outboxes.Find(o.log); box != nil && !box.Closed() {
			known[p.group.id] = box.Acknowledged()
		}
		p.mu.Unlock()
	}
	o.mu.Lock()
	o.HeardBy(known)
	o.mu.Unlock()
}

// warm reads the records into memory. It leaves entries for the next load if the load gets too large: a load is one
// frame or one command, in which neighbours share a record. It also leaves the entries from the first on that cannot
// be read now; if that is the first of all, it returns an error.
func (o *outboxes) warm(b *load) error {
	before := b.unread
	b.unread = 0
	err := o.read(b, before)
	if b.unread != before {
		o.mu.Lock()
		if b.unread == 0 {
			delete(o.unread, b.To)
		} else {
			o.unread[b.To] = b.unread
		}
		o.mu.Unlock()
	}
	return err
}

// read does the work of warm. since says since when something for the destination could not be read, 0 if everything
// could.
func (o *outboxes) read(b *load, since int64) error {
	store := o.n.bodies
	size, record := 0, 0       // of everything in the load, and of the last record
	var cold, warm message.Ref // the last record: as it was found, and in memory
	var history message.Ref    // of the entry before
	for i := range b.Entries {
		e := &b.Entries[i]
		again := e.Body == cold
		if before := size - record; size > sendBytes && (!again || before > sendBytes) {
			o.cut(b, i)
			return nil
		}
		if again {
			store.Retain(warm, 1)
			store.Release(e.Body)
			e.Body = warm
		} else {
			body, err := store.Warm(e.Body)
			cold = e.Body
			if err != nil {
				if !o.passes(b, e, since, err) {
					if o.cut(b, i); i == 0 {
						return err
					}
					return nil
				}
				store.Release(e.Body)
				e.Target, body, cold = 0, o.n.blank(), 0
			}
			e.Body, warm, record = body, body, store.Size(body)
			size += record
		}
		if e.History != history {
			history = e.History
			size += deathstore.Size(store, history)
		}
	}
	return nil
}

// passes says whether a blank takes the place of an entry that cannot be read, so that later entries need not wait:
// its record is lost, or something in its outbox could not be read for sendWaits.
func (o *outboxes) passes(b *load, e *outbox.Entry, since int64, err error) bool {
	log, now := o.n.Logger.With("vhost", string(e.VHost), "error", err), o.n.Now()
	if o.n.Aside != nil && bodies.Lost(err) {
		log.Error("A message on its way to another log cannot be read")
		return true
	}
	if since == 0 {
		log.Error("A message on its way to another log cannot be read: later messages wait")
		since = now
	}
	b.unread = min(since, now)
	if now-since < sendWaits.Milliseconds() {
		return false
	}
	log.Error("A message on its way to another log still cannot be read: later messages no longer wait")
	return true
}

// cut leaves the entries from the i-th on for the next load.
func (o *outboxes) cut(b *load, i int) {
	o.release(b.Entries[i:])
	b.Entries = b.Entries[:i]
}

// release releases entries that load has pinned.
func (o *outboxes) release(entries []outbox.Entry) {
	for i := range entries {
		o.n.bodies.Release(entries[i].Body)
		o.n.bodies.Release(entries[i].History)
	}
}

// sent notes that the answer to everything up to this number is on its way.
func (o *outboxes) sent(to, upTo uint64) {
	o.mu.Lock()
	o.Sent(to, upTo)
	o.mu.Unlock()
}

// carry brings the entries to their destination and returns its answer, which is durable there.
func (o *outboxes) carry(b *load) (upTo uint64, refused outbox.Refusals, err error) {
	if o.g == nil && b.pos != 0 {
		// An entry must be durable here before it is anywhere else.
		if err := o.n.Journal.Commit(b.pos); err != nil {
			return 0, nil, err
		}
	}
	o.n.at(FailMailSent)
	if local := o.n.outboxes; b.To == local.log {
		return local.receive(b)
	}
	g := o.n.groupByID(b.To)
	if g == nil {
		return 0, nil, errLost
	}
	a := new(ask)
	err = g.question(a, func(w *commandWriter) { o.write(w, b) })
	return a.last, a.refusals, err
}

// write writes the operation for a group.
func (o *outboxes) write(w *commandWriter, b *load) {
	w.outIn(b.from, b.Heard, b.Entries[0].Number, len(b.Entries))
	for i := range b.Entries {
		in := o.incoming(b.Entries, i)
		w.sent(&in)
	}
}

// incoming returns the i-th entry as it arrives.
func (o *outboxes) incoming(entries []outbox.Entry, i int) incoming {
	e := &entries[i]
	in := incoming{
		number: e.Number, target: e.Target, flags: e.Flags, failed: e.Failed,
		history: o.n.historyBytes(e.History), record: o.n.bodies.Bytes(e.Body),
	}
	if i > 0 {
		before := &entries[i-1]
		in.sameHistory, in.sameRecord = e.History == before.History, e.Body == before.Body
	}
	return in
}

// acknowledge brings an answer back into the source's log.
func (o *outboxes) acknowledge(to, upTo uint64, refused outbox.Refusals) error {
	o.n.at(FailMailTaken)
	if o.g != nil {
		return o.g.tell(func(w *commandWriter) { w.outAck(to, upTo, refused) })
	}
	h := o.hold()
	h.frame.mailAck(to, upTo, refused)
	o.acknowledged(h, to, upTo, refused)
	o.n.unlock(h)
	return nil
}

func (n *Node) groupByID(id uint64) *group {
	for _, p := range n.groups {
		if p.group.id == id {
			return p.group
		}
	}
	return nil
}
