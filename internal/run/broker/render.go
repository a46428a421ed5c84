package broker

import (
	"cmp"
	"slices"
	"strings"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/wire/amqp091"
)

// RenderProps appends the AMQP 0-9-1 properties with which a message is delivered: those it was published with, its
// death history (DL-7), its delay if it has waited in an exchange, and on quorum queues its counters (DL-11.2). h is nil
// if nothing has happened to it; headers are those of h (convert.Headers), of which annotations are left out if they would make the
// message unreadable (HeadersLimit). quorum says whether the queue is a quorum queue.
func RenderProps(dst []byte, rec message.Record, h *deadletter.History, headers []amqp091.RawField, n queue.Counts, quorum bool) []byte {
	counted := n != queue.Counts{} && (quorum || n.Acquired > 0)
	if h == nil && !counted {
		return append(dst, rec.Properties()...)
	}
	props, err := amqp091.ParseProps(rec.Properties())
	if err != nil { // impossible: they were checked when it was published
		return append(dst, rec.Properties()...)
	}
	if h != nil && h.Annotations != "" && len(rec.Properties())+fieldBytes(headers...) > HeadersLimit {
		headers = h.Headers() // annotations have no room: clients of AMQP 1.0 get them
	}
	edit := amqp091.PropsEdit{Set: slices.Clip(headers)} // the caller may use headers again
	if h != nil {
		if edit.Remove = h.Removed(); !h.KeepsTTL() {
			edit.Expiration = &noExpiration // DL-6.10
		}
		if h.Delayed {
			if ms, _ := message.Delay(props.Headers); ms > 0 {
				edit.Set = append(edit.Set, deadletter.LongField(message.DelayHeader, -ms))
			}
		}
	}
	if counted {
		// Failed deliveries in an earlier queue count as acquired, until the message is acquired here.
		if acquired := cmp.Or(n.Acquired, n.Deliveries); acquired > 0 {
			edit.Set = append(edit.Set, deadletter.LongField("x-acquired-count", int64(acquired)))
		}
		if n.Deliveries > 0 {
			edit.Set = append(edit.Set, deadletter.LongField("x-delivery-count", int64(n.Deliveries)))
		}
	}
	if len(edit.Set) > len(headers) {
		slices.SortFunc(edit.Set, func(a, b amqp091.RawField) int { return strings.Compare(a.Key, b.Key) })
	}
	return amqp091.AppendProps(dst, rec.Properties(), &props, &edit)
}

var noExpiration string

// fieldBytes is how many bytes headers take.
func fieldBytes(headers ...amqp091.RawField) (n int) {
	for _, f := range headers {
		n += 1 + len(f.Key) + len(f.Encoded)
	}
	return n
}

// Rendered returns a message as a consumer would get it: its properties, and its present exchange and key (DL-6.2).
func Rendered(rec message.Record, history []byte, n queue.Counts, quorum bool) (props []byte, exchange, key string) {
	h, err := deadletter.Parse(history)
	if err != nil {
		return RenderProps(nil, rec, nil, nil, n, quorum), string(rec.Exchange()), string(rec.Key())
	}
	exchange, key = string(rec.Exchange()), string(rec.Key())
	if h.Placed() {
		exchange, key = h.Exchange, h.Keys[0]
	}
	return RenderProps(nil, rec, &h, convert.Headers(&h), n, quorum), exchange, key
}
