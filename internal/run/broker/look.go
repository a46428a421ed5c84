package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// What follows looks into queues and changes nothing. The Dead Letter Office calls it, after it has checked what its
// client may see.

// Incarnation is the number of the queue that is called so now.
func (q *QueueInfo) Incarnation() uint64 { return q.runtime.Incarnation }

// Quorum says whether it is a quorum queue.
func (q *QueueInfo) Quorum() bool { return q.runtime.Type() == queue.Quorum }

// Extent returns what the queue holds now.
func (b *Broker) Extent(q QueueInfo) (partition.Extent, error) { return b.node.Extent(q.runtime) }

// Glance is partition.Node.Glance.
func (b *Broker) Glance(q QueueInfo, after queue.Cursor, limit int, f func(v queue.View) bool) (next queue.Cursor, done bool, err error) {
	return b.node.Glance(q.runtime, after, limit, f)
}

// Retries is partition.Node.Retries.
func (b *Broker) Retries(ctx context.Context, q QueueInfo, f func(until int64)) error {
	return b.node.Retries(ctx, q.runtime, f)
}

// Show is called for messages that are looked at, until it returns false.
type Show func(v queue.View, r message.Record, history []byte) bool

// until is the Show that ends with ctx: what f does with one message may take long, and nobody may wait for it any more.
func until(ctx context.Context, f Show) Show {
	return func(v queue.View, r message.Record, history []byte) bool {
		return ctx.Err() == nil && f(v, r, history)
	}
}

// Browse is partition.Node.Browse. It ends with ctx, and returns its error then.
func (b *Broker) Browse(ctx context.Context, q QueueInfo, after queue.Cursor, limit int, f Show) (next queue.Cursor, done bool, err error) {
	next, done, err = b.node.Browse(q.runtime, after, limit, until(ctx, f))
	return next, done, cmp.Or(err, ctx.Err())
}

// Look is partition.Node.Look. It ends with ctx, and returns its error then.
func (b *Broker) Look(ctx context.Context, q QueueInfo, ids []queue.ID, f Show) error {
	return cmp.Or(b.node.Look(q.runtime, ids, until(ctx, f)), ctx.Err())
}

// MayRead says whether the client may read a queue, whether or not there is one. The answer of a backend is waited for.
func (c *Connection) MayRead(name message.QueueName) bool {
	err := c.decided(func() (err error) {
		c.b.glance(func() {
			err = c.readable(topology.Resource{VHost: c.VHost, Kind: topology.QueueResource, Name: string(name)})
		})
		return err
	})
	return err == nil
}

// Unreadable returns queues of the virtual host that the client may not read, at most most of them; more says that there may be others. A backend is
// not asked about many queues.
func (c *Connection) Unreadable(most int) (names []message.QueueName, more bool) {
	if c.Administers() {
		return nil, false
	}
	var all []message.QueueName
	there := false
	c.b.glance(func() {
		v, ok := c.b.state.VHost(c.VHost)
		if there = ok; !ok || c.elsewhere != nil && v.QueueCount() > mostAsked {
			there = false
			return
		}
		v.EachQueue(func(q *topology.Queue) { all = append(all, q.Name) })
	})
	for _, name := range all {
		if c.MayRead(name) {
			continue
		}
		if len(names) == most {
			return names, true
		}
		names = append(names, name)
	}
	return names, !there
}

// mostAsked is about how many queues a backend is asked at once.
const mostAsked = 20

// Elsewhere says whether a backend decides what the client may do: then it takes a while to ask.
func (c *Connection) Elsewhere() bool { return c.elsewhere != nil }

// Administers says whether the client is an administrator or the operator of the node.
func (c *Connection) Administers() bool {
	if c.operator {
		return true
	}
	c.b.topo.RLock()
	defer c.b.topo.RUnlock()
	u, ok := c.account()
	if c.elsewhere != nil {
		return ok && slices.Contains(c.id.Tags, auth.Administrator)
	}
	return ok && u.HasTag(auth.Administrator)
}

// Readable returns a queue that the client may read.
func (c *Connection) Readable(name message.QueueName) (q QueueInfo, err error) {
	decl, err := c.find(name, c.readable)
	if err != nil {
		return q, err
	}
	c.b.glance(func() { q = Describe(decl) })
	return q, nil
}

// Forecast is where a replay would put a message now.
type Forecast struct {
	Exchange string   `json:"exchange"`
	Keys     []string `json:"routing_keys"`
	Queues   []string `json:"queues"`
	Problem  string   `json:"problem"` // why nowhere; "" if there is none
}

// Forecast says where a replay of a message of the queue would put it now: by the same rules as Replay, permissions too.
func (c *Connection) Forecast(from QueueInfo, rec message.Record, history []byte) (f Forecast, err error) {
	h, ok := past(rec, history)
	if f.Exchange, f.Keys, _ = h.Origin(); !ok {
		f.Problem = "nobody knows where it was first published"
		return f, nil
	}
	var to Destination
	p := to.lead(0, rec, &h, from.Decl, deadletter.Marks{})
	targets, ticket, err := c.replayTargets(&p)
	err = cmp.Or(c.b.await(ticket), err)
	var refused *topology.Error
	switch {
	case errors.As(err, &refused):
		f.Problem = refused.Text
		return f, nil
	case err != nil:
		return f, err
	case p.missing:
		f.Problem = fmt.Sprintf("exchange '%s' does not exist", f.Exchange)
	case len(targets) == 0:
		f.Problem = fmt.Sprintf("exchange '%s' routes key '%s' to no queue", f.Exchange, p.m.Key)
	}
	for _, t := range targets {
		f.Queues = append(f.Queues, t.Name)
	}
	return f, nil
}
