package session091

import (
	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/wire/amqp091"
)

// renderer keeps the death headers that it rendered last: messages that died together share their history, and so
// their headers. Owned by the holder of the pen.
type renderer struct {
	ref      message.Ref // retained, so that its number is not reused for another history
	shared   message.Ref // the part of it that similar histories share, 0 if none
	history  deadletter.History
	headers  []amqp091.RawField
	values   []byte // of headers
	exchange []byte
	key      []byte
	props    []byte // scratch space
}

// render returns the properties of a delivery if they differ from those of the record. It sets exchange and key to
// where a dead letter is published now.
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
			h, err := deadletter.Parse(deathstore.Brief(store, it.d.History))
			if err != nil {
				r.shared = 0 // Renumber may have changed the history
				return nil   // the bytes are our own; the message matters more than its history
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
		r.headers, r.values = convert.AppendHeaders(&r.history, r.headers[:0], r.values[:0])
	}
	if r.history.Placed() {
		*exchange, *key = r.exchange, r.key
	}
	r.props = broker.RenderProps(r.props[:0], rec, &r.history, r.headers, it.d.Counts, quorum)
	return r.props
}

// forgetRendered releases the kept history. REQUIRES: the pen.
func (c *conn) forgetRendered() {
	c.broker.Bodies().Release(c.renderer.ref)
	c.renderer.ref, c.renderer.shared = 0, 0
}
