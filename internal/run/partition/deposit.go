package partition

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/safety/held"
)

// Deposit is a message that enters a queue with a history, although no queue had it before.
type Deposit struct {
	Body    message.Ref // Node.Deposit takes over the reference
	History []byte      // not empty

	// The result. ID is 0 if a consumer without acknowledgements has it.
	Taken bool
	ID    queue.ID
}

// Deposit puts messages into a queue of the local partitions, in order, and returns when those that are taken are durable.
// The queue takes what it has room for, as of an operator's move. An error means that the queue is gone, or that the node
// stops; the fate of the messages is unknown then. REQUIRES: q is not replicated.
func (n *Node) Deposit(q *Queue, list []Deposit) error {
	held.Nothing("a deposit")
	for len(list) > 0 {
		some := list[:min(len(list), sliceLimit)]
		list = list[len(some):]
		if err := n.deposit(q, some); err != nil {
			for i := range list {
				n.bodies.Release(list[i].Body)
			}
			return err
		}
	}
	return n.Journal.Sync()
}

func (n *Node) deposit(q *Queue, list []Deposit) error {
	h := n.lock(q.part)
	h.step.appended = FailPublishAppended
	gone := q.gone
	for i := range list {
		d := &list[i]
		history := storeHistory(n.bodies, d.History)
		h.drop(d.Body, history)
		rec := message.Record(n.bodies.Bytes(d.Body))
		if gone || !q.roomNow(h, rec) {
			continue
		}
		h.entries++
		p := plan{stored: d.History}
		a := arrival{
			entry: queue.Entry{Priority: priorityOf(rec), TTL: p.ttl(rec), Content: queue.Content{Body: d.Body, History: history}},
			rec:   rec, how: imposed,
		}
		h.entered = h.entered[:0]
		if d.Taken = tookIn(n.enter(h, q, &a)); !d.Taken {
			continue
		}
		in := h.entered[0]
		d.ID = in.id
		if in.logged {
			n.bodies.Retain(d.Body, 1)
			entry := entered{queue: q.Incarnation, id: in.id, history: d.History, historyRef: history, record: rec, recordRef: d.Body}
			entry.r.Due = q.m.Due(in.id)
			h.frame.enter(&entry)
		}
		h.flow()
		n.split(h)
	}
	n.unlock(h)
	n.relieve()
	if gone {
		return errGone
	}
	return nil
}
