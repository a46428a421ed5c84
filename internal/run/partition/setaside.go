package partition

import (
	"encoding/json"
	"fmt"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/bodies"
)

// A damaged record on disk costs only its own message. The reader that finds it (a consumer, a router of deaths or a
// compaction) sets the message aside. First the remaining bytes go to a file, with their place and the error. When the
// file is durable, the entry leaves its queue; the journal or the group's log records that like a settlement. After a
// crash between the two steps the entry is still there: it is set aside again, into the same file.

// asidePrefix begins the names of these files.
const asidePrefix = "message-"

// AsideNote is the first line of the file of a message that was set aside, as JSON.
type AsideNote struct {
	VHost    string    `json:"vhost"`
	Queue    string    `json:"queue"`
	Position string    `json:"position"`        // of the record on disk
	Entry    uint64    `json:"entry,omitempty"` // its number in the queue
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
}

// spoilt is an entry of a queue whose record cannot be read.
type spoilt struct {
	q    *Queue
	id   queue.ID
	body message.Ref // the caller keeps the reference
	size uint32
	err  error // what Read or Warm returned

	by   *queue.Consumer // the consumer that has it, if out is set; nil: basic.get
	out  bool            // it is delivered
	left bool            // it was delivered without acknowledgement, and is no longer in the queue
}

// SetAside removes a delivery whose record cannot be read from its queue; by is the consumer that has it. It returns
// false if the message must stay: the error may pass, or what is left of the record cannot be stored. The references
// stay the caller's. Nothing may be locked.
func (n *Node) SetAside(q *Queue, d *queue.Delivery, by *queue.Consumer, err error) bool {
	return n.setAside(&spoilt{q: q, id: d.ID, body: d.Body, size: d.Size, err: err, by: by, out: true, left: d.NoAck})
}

func (n *Node) setAside(s *spoilt) bool {
	q := s.q
	if s.size == 0 {
		_ = n.with(q, func(*hold) { s.size = q.m.Size(s.id) })
	}
	note := AsideNote{VHost: string(q.VHost), Queue: q.Name, Entry: uint64(s.id)}
	if !n.keepAside(fmt.Sprintf("%s%d-%d", asidePrefix, q.Incarnation, s.id), &note, s.body, s.size, s.err) {
		return false
	}
	switch {
	case s.left:
		_ = n.with(q, func(*hold) { q.stats.SetAside++ })
	case q.part.group != nil:
		number := uint64(0)
		if s.out && s.by != nil {
			number = s.by.Number
		}
		err := q.part.group.tell(func(w *commandWriter) { w.aside(q.Incarnation, number, s.id) })
		return err == nil
	default:
		_ = n.with(q, func(h *hold) {
			q.why = JobDropped
			if q.m.Discard(s.id, s.by, s.out) {
				q.asideGone(s.id)
			}
			q.why = 0
			q.m.Flow(h.now, 0)
		})
	}
	return true
}

// passedOverEvery is how often the log tells of messages that looks leave out, in milliseconds.
const passedOverEvery = 60_000

// passedOver says whether a look may leave a message out that cannot be read: it is lost. It stays where it is, since
// the file may be put back.
func (n *Node) passedOver(q *Queue, why error) bool {
	if !bodies.Lost(why) {
		return false
	}
	now := n.Now()
	if last := n.toldPassed.Load(); (last == 0 || now-last > passedOverEvery) && n.toldPassed.CompareAndSwap(last, now) {
		n.Logger.Error("messages that cannot be read are left out where queues are looked at. They stay there until somebody is to have them. This is logged once a minute",
			"vhost", string(q.VHost), "queue", q.Name, "error", why)
	}
	return true
}

// asideGone counts an entry that was set aside, and forgets its targets. REQUIRES: q is held.
func (q *Queue) asideGone(id queue.ID) {
	q.stats.SetAside++
	q.waiting.forget(id)
}

// keepAside writes what is left of a record to its file, and says whether that worked.
func (n *Node) keepAside(name string, note *AsideNote, body message.Ref, size uint32, why error) bool {
	log := n.Logger.With("vhost", note.VHost, "queue", note.Queue)
	if n.Aside == nil || !bodies.Lost(why) {
		log.Error("A message cannot be read", "error", why)
		return false
	}
	note.Position, note.Reason, note.At = n.bodies.Location(body).String(), why.Error(), time.UnixMilli(n.Now()).UTC()
	text, err := json.Marshal(note)
	if err == nil {
		err = n.Aside.Put(name, text, n.bodies.Raw(body, int(size)))
	}
	if err != nil {
		log.Error("A message cannot be read and cannot be set aside: it stays", "error", why, "set_aside", err)
		return false
	}
	n.asides.Add(1)
	log.Error("A message cannot be read: it was set aside", "error", why, "file", n.Aside.Dir()+"/"+name)
	return true
}

// SetAsides is how many messages were set aside since the start.
func (n *Node) SetAsides() uint64 { return n.asides.Load() }

// aside removes an entry that the leader could not read.
func (a *application) aside(q *Queue) {
	number, id := a.r.aside()
	if q == nil || a.r.bad {
		return
	}
	var by *queue.Consumer
	s := a.g.consumers[number]
	if s != nil && s.q == q {
		by = s.c
	}
	q.why = JobDropped
	if q.m.Discard(id, by, by != nil) {
		q.asideGone(id)
	}
	q.why = 0
	q.m.Flow(a.h.now, 0)
	if by != nil {
		a.g.forgetIdle(s)
	}
}

// blank returns a record that replaces one that cannot be read and is on its way to another log. Numbers must have no
// gap, so the blank is sent in its place, to a queue that does not exist. The answer strands the entry, or makes the
// queue that holds it try again, and there it is set aside.
func (n *Node) blank() message.Ref {
	var e message.Envelope
	ref, b := n.bodies.Alloc(e.Size())
	e.Put(b)
	return ref
}
