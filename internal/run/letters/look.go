package letters

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// What follows looks into queues and changes nothing. The Dead Letter Office calls it, after it has checked what its
// client may see.

// Extent returns what the queue holds now.
func Extent(b *broker.Broker, q broker.QueueInfo) (partition.Extent, error) {
	return b.Node().Extent(q.Runtime())
}

// Glance is partition.Node.Glance.
func Glance(b *broker.Broker, q broker.QueueInfo, after queue.Cursor, limit int, f func(v queue.View) bool) (next queue.Cursor, done bool, err error) {
	return b.Node().Glance(q.Runtime(), after, limit, f)
}

// Retries is partition.Node.Retries.
func Retries(ctx context.Context, b *broker.Broker, q broker.QueueInfo, f func(until int64)) error {
	return b.Node().Retries(ctx, q.Runtime(), f)
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
func Browse(ctx context.Context, b *broker.Broker, q broker.QueueInfo, after queue.Cursor, limit int, f Show) (next queue.Cursor, done bool, err error) {
	next, done, err = b.Node().Browse(q.Runtime(), after, limit, until(ctx, f))
	return next, done, cmp.Or(err, ctx.Err())
}

// Look is partition.Node.Look. It ends with ctx, and returns its error then.
func Look(ctx context.Context, b *broker.Broker, q broker.QueueInfo, ids []queue.ID, f Show) error {
	return cmp.Or(b.Node().Look(q.Runtime(), ids, until(ctx, f)), ctx.Err())
}

// Forecast is where a replay would put a message now.
type Forecast struct {
	Exchange string   `json:"exchange"`
	Keys     []string `json:"routing_keys"`
	Queues   []string `json:"queues"`
	Problem  string   `json:"problem"` // why nowhere; "" if there is none
}

// Forecast says where a replay of a message of the queue would put it now: by the same rules as Replay, permissions too.
func (c Client) Forecast(from broker.QueueInfo, rec message.Record, history []byte) (f Forecast, err error) {
	h, ok := past(rec, history)
	if f.Exchange, f.Keys, _ = h.Origin(); !ok {
		f.Problem = "nobody knows where it was first published"
		return f, nil
	}
	var to Destination
	p := to.lead(0, rec, &h, from.Decl, deadletter.Marks{})
	targets, ticket, err := c.replayTargets(&p)
	err = cmp.Or(c.broker().AwaitStored(ticket), err)
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
