package session091

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/wire/amqp091"
)

// renderer remembers the death headers it rendered last: messages that died
// together share their history, and so the headers. Owned by whoever has the pen.
type renderer struct {
	ref      message.Ref // held, so that it is not another history meanwhile
	shared   message.Ref // what it has in common with others, 0 if nothing
	history  deadletter.History
	headers  []amqp091.RawField
	values   []byte // of these
	exchange []byte
	key      []byte
	props    []byte // scratch
}

// render returns the properties of a delivery if they are others than those of
// the record, and puts in exchange and key where a dead letter is published to now.
func (c *conn) render(it *item, rec message.Record, exchange, key *[]byte) []byte {
	quorum := it.q != nil && it.q.Type() == queue.Quorum
	r := &c.renderer
	if it.d.History == 0 {
		if (it.d.Counts == queue.Counts{}) || !quorum && it.d.Counts.Acquired == 0 {
			return nil // nothing was counted
		}
		r.props = broker.RenderProps(r.props[:0], rec, nil, nil, it.d.Counts, quorum)
		return r.props
	}
	store := c.broker.Bodies()
	if r.ref != it.d.History {
		shared, own := deathstore.Parts(store, it.d.History)
		if shared == 0 || shared != r.shared || !r.history.Renumber(own) {
			h, err := deadletter.Parse(deathstore.Bytes(store, it.d.History))
			if err != nil {
				r.shared = 0 // Renumber may have tried
				return nil   // our own bytes: the message is more than its history
			}
			r.history = h
			r.exchange = append(r.exchange[:0], h.Exchange...)
			r.key = r.key[:0]
			if len(h.Keys) > 0 {
				r.key = append(r.key, h.Keys[0]...)
			}
		}
		store.Retain(it.d.History, 1)
		store.Release(r.ref)
		r.ref, r.shared = it.d.History, shared
		r.headers, r.values = r.history.AppendHeaders(r.headers[:0], r.values[:0])
	}
	*exchange, *key = r.exchange, r.key
	r.props = broker.RenderProps(r.props[:0], rec, &r.history, r.headers, it.d.Counts, quorum)
	return r.props
}

// forgetRendered lets go of the history remembered. REQUIRES: the pen.
func (c *conn) forgetRendered() {
	c.broker.Bodies().Release(c.renderer.ref)
	c.renderer.ref, c.renderer.shared = 0, 0
}
