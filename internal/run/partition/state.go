package partition

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
)

// The state of a group. A new follower gets it, and two replicas that have applied the same commands have equal
// states. It has the queues with their entries and consumers, the origins of consumers, and the outboxes. It is built
// of the same pieces as commands.
//
//	version byte | with entries | applied | clock
//	queues:    n | n × (create operation's operands | held: n × (id | n × answered | n × asked | refused) | sent | entries | rest bytes)
//	consumers: n | n × (number | queue | origin)
//	departures: n | n × (origin | number | n × (queue | n × consumer))
//	processes: n | n × (origin | last)
//	outboxes:  see outbox_codec.go
//	tallies:   see tally_codec.go, as for sent
//
// A checkpoint saves entries page by page, so its state has none, and names bodies in outboxes by their place on
// disk.
const stateVersion = 1

var errState = errors.New("partition: the snapshot of a group is malformed")

// appendState appends the whole state. REQUIRES: the partition is held.
func (g *group) appendState(b []byte) []byte {
	read := g.reader()
	return g.append(b, read, func(w *commandWriter, body message.Ref) { w.record(read(body)) })
}

// append appends the state with entries.
func (g *group) append(b []byte, read func(message.Ref) []byte, body func(*commandWriter, message.Ref)) []byte {
	return g.image((*queue.Machine).NowRest, body).append(b, read)
}

// groupImage is a group's state at one moment, without entries. The parts that may be very large are collected later
// in slices (collect). The image is encoded with nothing locked.
type groupImage struct {
	g          *group
	applied    uint64
	clock      int64
	queues     []queueImage // in no order
	departures []departureImage
	tail       []byte // processes and outboxes
}

type queueImage struct {
	q        *Queue
	settings queue.Settings
	dead     DeadLetter
	held     []byte // see appendHeld and appendSent
	rest     *queue.Rest
}

// image begins an image. body writes the bodies that are in outboxes, not in queues. REQUIRES: the partition is held.
func (g *group) image(rest func(*queue.Machine) *queue.Rest, body func(*commandWriter, message.Ref)) *groupImage {
	im := &groupImage{g: g, applied: g.applied, clock: g.clock, queues: make([]queueImage, 0, len(g.p.queues))}
	for _, q := range g.p.queues {
		im.queues = append(im.queues, queueImage{q, q.m.Settings(), q.dead, q.appendHeld(nil), rest(q.m)})
	}
	for _, d := range g.departures {
		im.departures = append(im.departures, d.image())
	}
	var w commandWriter
	w.uint(uint64(len(g.processes)))
	for _, p := range g.processes {
		w.uint(p.origin)
		w.uint(p.last)
	}
	g.p.outboxes.append(&w, body)
	g.p.tallies.append(&w)
	im.tail = w.b
	return im
}

// collect collects the rest of the image in slices. The group goes on in between.
func (im *groupImage) collect() error {
	n, p := im.g.node, im.g.p
	for i := 0; i < len(im.queues); {
		if n.stopped() {
			return errStopped
		}
		began := time.Now()
		h := n.lock(p)
		for i < len(im.queues) && h.entries < sliceLimit {
			looked, more := im.queues[i].rest.Collect(sliceLimit - h.entries)
			if h.entries += looked + 1; !more {
				i++
			}
		}
		n.unlock(h)
		p.giveWay(began)
	}
	return nil
}

// append appends the state, with the present entries if read is not nil. REQUIRES: the image is complete.
func (im *groupImage) append(b []byte, read func(message.Ref) []byte) []byte {
	w := commandWriter{b: append(b, stateVersion)}
	w.bool(read != nil)
	w.uint(im.applied)
	w.uint(uint64(im.clock))
	slices.SortFunc(im.queues, func(a, b queueImage) int { return cmp.Compare(a.q.Incarnation, b.q.Incarnation) })
	w.uint(uint64(len(im.queues)))
	type place struct{ number, queue, origin uint64 }
	var seats []place
	for i := range im.queues {
		q := &im.queues[i]
		w.uint(q.q.Incarnation)
		w.text(string(q.q.VHost))
		w.text(q.q.Name)
		w.config(q.q.config)
		w.settings(&q.settings, &q.dead)
		w.b = append(w.b, q.held...)
		if read != nil {
			w.b = q.q.m.AppendEntries(w.b, read, im.g.node.historyBytes)
		}
		w.raw(q.rest.Append(nil))
		q.rest.Range(func(c *queue.Consumer) { seats = append(seats, place{c.Number, q.q.Incarnation, c.Origin}) })
	}
	slices.SortFunc(seats, func(a, b place) int { return cmp.Compare(a.number, b.number) })
	w.uint(uint64(len(seats)))
	for _, s := range seats {
		w.uint(s.number)
		w.uint(s.queue)
		w.uint(s.origin)
	}
	w.departures(im.departures)
	return append(w.b, im.tail...)
}

// reader returns a function that reads records. Each record is valid until the next call. A record that cannot be
// read ends the process.
func (g *group) reader() func(message.Ref) []byte {
	var w bodies.Window
	return func(ref message.Ref) []byte {
		if ref.OnDisk() {
			b, err := g.node.bodies.Read(ref, &w)
			if err != nil {
				g.node.fail(err)
			}
			return b
		}
		return g.node.bodies.Bytes(ref)
	}
}

// appendHeld appends the answers of targets that the queue's dead and offered entries wait for, and its entries that jobs
// have sent.
func (q *Queue) appendHeld(b []byte) []byte {
	w := commandWriter{b: b}
	ids := map[queue.ID]bool{}
	for _, m := range []map[queue.ID]targetSet{q.waiting.taken, q.waiting.asked} {
		for id := range m {
			ids[id] = true
		}
	}
	for id := range q.waiting.refused {
		ids[id] = true
	}
	w.uint(uint64(len(ids)))
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		w.uint(uint64(id))
		w.numbers(q.waiting.taken[id])
		w.numbers(q.waiting.asked[id])
		w.bool(q.waiting.refused[id])
	}
	q.appendSent(&w)
	return w.b
}

func (w *commandWriter) numbers(list []uint64) {
	w.uint(uint64(len(list)))
	for _, v := range list {
		w.uint(v)
	}
}

// restoreState replaces the state by one that appendState wrote. at is where its bytes begin in the journal.
// REQUIRES: the partition is held.
func (g *group) restoreState(b []byte, at journal.Pos) error {
	r := &stateReader{g: g, place: at}
	r.all = b
	if err := g.restore(r, true, r.body); err != nil {
		return err
	}
	return g.restoreRests()
}

// restoreMeta reads what groupImage.append wrote into a new group. restoreRests follows once the queues have their
// entries. REQUIRES: the partition is held.
func (g *group) restoreMeta(b []byte) error {
	r := &stateReader{g: g}
	r.all = b
	return g.restore(r, false, func() (message.Ref, bool) { return r.located(g.node) })
}

func (g *group) restore(r *stateReader, entries bool, body func() (message.Ref, bool)) error {
	if r.byte() != stateVersion || (r.byte() != 0) != entries {
		return errState
	}
	g.forgetState()
	g.applied, g.clock = r.uint(), r.time()
	for range r.count(8) {
		if !r.queue(entries) {
			return errState
		}
	}
	for range r.count(3) {
		number, inc, origin := r.uint(), r.uint(), r.uint()
		q := g.p.queues[inc]
		if q == nil || number == 0 || g.consumers[number] != nil {
			return errState
		}
		g.consumers[number] = &seat{q: q, c: &queue.Consumer{Origin: origin}} // a placeholder until restoreRests has the real one
	}
	r.departures()
	for range r.count(2) {
		p := process{r.uint(), r.uint()}
		if k := len(g.processes); k > 0 && g.processes[k-1].origin>>originTimeBits >= p.origin>>originTimeBits {
			return errState
		}
		g.processes = append(g.processes, p)
	}
	r.outboxes(g.p.outboxes, body, g.p.outboxes.queue)
	g.p.tallies.restore(&r.commandReader)
	if r.bad || r.at != len(r.all) {
		return errState
	}
	return nil
}

// restoreRests gives queues what refers to their entries: consumers and lists.
func (g *group) restoreRests() error {
	for _, q := range g.sorted() {
		rest := q.rest
		if q.rest = nil; rest == nil {
			continue
		}
		left, err := q.m.RestoreRest(rest, func(c *queue.Consumer) {
			if s := g.consumers[c.Number]; s != nil && s.q == q {
				c.Origin = s.c.Origin
				s.c = c
			}
		})
		if err != nil || len(left) > 0 {
			return errState
		}
	}
	for number, s := range g.consumers {
		if s.c.Number != number {
			return errState // its queue does not know it
		}
	}
	return nil
}

// forgetState drops the group's whole state.
func (g *group) forgetState() {
	for inc, q := range g.p.queues {
		q.m.Close()
		g.p.unschedule(q)
		for q.m.BuryRest(sliceLimit) { // not in slices: the queue's new pages may have the names of the old ones
		}
		if g.declared[inc] == nil {
			q.gone = true
			shelf{q}.discardMeta(g.p.pages.Version())
		}
		q.endOffers()
		q.live, q.waiting, q.away, q.sent = false, waiting{}, outbox.Tally{}, nil
		delete(g.p.queues, inc)
	}
	g.p.outboxes.forget(g.p.hold)
	g.p.tallies.forgetAll()
	g.consumers, g.processes, g.departures = map[uint64]*seat{}, nil, nil
}

// stateReader reads a state.
type stateReader struct {
	commandReader
	g     *group
	place journal.Pos // where the state begins in the journal, 0 if unknown
}

// body reads a record. The reference is the caller's.
func (r *stateReader) body() (message.Ref, bool) {
	record, at := r.record()
	if r.bad {
		return 0, false
	}
	ref, err := r.keep(record, true, len(r.all)-at)
	return ref, err == nil
}

// keep stores bytes that begin fromEnd bytes before the end of the state.
func (r *stateReader) keep(b []byte, record bool, fromEnd int) (message.Ref, error) {
	if record && message.CheckRecord(b) != nil {
		return 0, errState
	}
	if !record {
		return storeHistory(r.g.node.bodies, b), nil
	}
	var place message.Location
	if r.place != 0 {
		place = message.Location(r.place) + message.Location(len(r.all)-fromEnd)
	}
	return r.g.keep(b, place), nil
}

func (r *stateReader) queue(entries bool) bool {
	g := r.g
	inc := r.uint()
	o := r.create()
	if r.bad || g.p.queues[inc] != nil {
		return false
	}
	q := g.newQueue(inc, &o, g.clock)
	for range r.count(4) {
		id := r.id()
		for range r.count(1) {
			q.waiting.take(id, r.uint())
		}
		for range r.count(1) {
			q.waiting.ask(id, r.uint())
		}
		if r.byte() != 0 {
			q.waiting.note(id, true)
		}
	}
	r.sentTo(q)
	if r.bad {
		return false
	}
	if entries {
		left, err := q.m.RestoreEntries(r.all[r.at:], r.keep)
		if err != nil {
			return false
		}
		r.at = len(r.all) - len(left)
	}
	rest, _ := r.bytes()
	q.rest = bytes.Clone(rest)
	return !r.bad
}
