package broker

import (
	"cmp"
	"slices"
	"strings"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/wire/amqp091"
)

// RenderProps appends the AMQP 0-9-1 properties with which a message is
// delivered: those it was published with, its death history (DL-7), and on quorum
// queues what was counted (DL-11.2). quorum says whether the queue is one.
func RenderProps(dst []byte, rec message.Record, history []byte, n queue.Counts, quorum bool) []byte {
	counted := quorum || n.Acquired > 0
	if len(history) == 0 && !(counted && n != queue.Counts{}) {
		return append(dst, rec.Properties()...)
	}
	props, err := amqp091.ParseProps(rec.Properties())
	if err != nil { // checked when it was published
		return append(dst, rec.Properties()...)
	}
	var edit amqp091.PropsEdit
	if len(history) > 0 {
		if h, err := deadletter.Parse(history); err == nil {
			edit.Set, edit.Remove = h.Headers(), h.Removed()
			edit.Expiration = &noExpiration // DL-6.10
		}
	}
	if counted {
		// What failed before it came here counts as acquired, until it is here.
		if acquired := cmp.Or(n.Acquired, n.Deliveries); acquired > 0 {
			edit.Set = append(edit.Set, deadletter.LongField("x-acquired-count", int64(acquired)))
		}
		if n.Deliveries > 0 {
			edit.Set = append(edit.Set, deadletter.LongField("x-delivery-count", int64(n.Deliveries)))
		}
	}
	slices.SortFunc(edit.Set, func(a, b amqp091.RawField) int { return strings.Compare(a.Key, b.Key) })
	return amqp091.AppendProps(dst, rec.Properties(), &props, &edit)
}

var noExpiration string

// Place is where a message is published to now: what basic.deliver shows as
// exchange and routing key (DL-6.2).
func Place(rec message.Record, history []byte) (exchange, key string) {
	if h, err := deadletter.Parse(history); err == nil {
		if len(h.Keys) > 0 {
			key = h.Keys[0]
		}
		return h.Exchange, key
	}
	return string(rec.Exchange()), string(rec.Key())
}
