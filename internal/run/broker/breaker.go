package broker

import (
	"fmt"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// WhyBroken says why the breaker of a queue is open, or tries; "" if it is closed.
func WhyBroken(b queue.Broken) string {
	if b.State != queue.BreakerOpen && b.State != queue.BreakerTrying {
		return ""
	}
	why := fmt.Sprintf("%d of %d deliveries that ended within %v died", b.Died, b.Ended, moment.Milliseconds(b.Rule.Window))
	if b.Again {
		why += ", and so did one that tried whether it is over"
	}
	return why
}

// whyClosed says why a breaker has closed.
var whyClosed = map[queue.BreakerChange]string{
	queue.BreakerCloses: "a message was acknowledged",
	queue.BreakerReset:  "somebody has closed it",
	queue.BreakerLifted: "the policy has changed",
}

// breakerChanged tells of the breaker of a queue. That it has opened again, or tries, is no event: from the one that it has opened
// to the one that it has closed it is not closed.
func (b *Broker) breakerChanged(q *partition.Queue, change queue.BreakerChange, as queue.Broken) {
	log := b.Logger.With("vhost", string(q.VHost), "queue", q.Name)
	of := amqp091.Table{fact("vhost", string(q.VHost)), fact("queue", q.Name)}
	switch change {
	case queue.BreakerOpens:
		log.Warn("The breaker of a queue has opened: too many deliveries have died. The queue delivers nothing until the window is over, and then one message at a time",
			"died", as.Died, "ended", as.Ended, "until", time.UnixMilli(as.Until).UTC())
		b.Notify("breaker.opened", func() amqp091.Table {
			return append(of, fact("why", WhyBroken(as)), fact("died", as.Died), fact("ended", as.Ended), fact("until_ms", as.Until))
		})
	case queue.BreakerOpensAgain:
		log.Info("The breaker of a queue has opened again: the message that tried has died", "until", time.UnixMilli(as.Until).UTC())
	default:
		log.Warn("The breaker of a queue has closed: it delivers again", "why", whyClosed[change])
		b.Notify("breaker.closed", func() amqp091.Table { return append(of, fact("why", whyClosed[change])) })
	}
}

// CloseBreaker closes the breaker of a queue, which takes permission to configure it, and returns what it was before.
func (c *Connection) CloseBreaker(name message.QueueName) (before queue.Broken, err error) {
	q, err := c.find(name, func(r topology.Resource) error { return c.permit(topology.Configure, r) })
	if err != nil {
		return before, err
	}
	before, err = c.b.node.CloseBreaker(runtimeOf(q))
	if err = missing(err, q); err != nil {
		return before, err
	}
	if before.State == queue.BreakerNone {
		return before, topology.Refuse(topology.PreconditionFailed, "%s has no breaker: no policy sets dead-letter-breaker for it", q.Resource())
	}
	if before.State != queue.BreakerClosed {
		c.b.Logger.Info("The breaker of a queue was closed by hand", "vhost", string(q.VHost), "queue", string(q.Name), "user", c.User)
	}
	return before, nil
}
