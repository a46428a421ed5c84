package deadletter

import (
	"unicode/utf8"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/wire/amqp091"
)

const (
	// maxName is the maximal length of names and routing keys, in bytes.
	maxName = 255
	// maxCarried is the largest count that is accepted from a client, so that sums do not overflow.
	maxCarried = 1 << 32
)

// fits says whether a client's string can be a name or a routing key.
func fits(s string) bool { return len(s) <= maxName && utf8.ValidString(s) }

// Carried reads a history from the headers of a message that a client published itself.
// A consumer that parks a message copies the death headers of its delivery; Spring AMQP's
// RepublishMessageRecoverer records the origin in headers of its own. ok is false if there
// are neither.
//
// A client can write anything into such headers. So they are used only to find the way
// back for a replay (DL-7.9).
func Carried(headers []byte) (h History, ok bool) {
	if t, err := amqp091.DecodeTable(headers); err == nil {
		if h, ok = fromDeath(t); ok {
			return h, true
		}
		return fromSpring(t)
	}
	return History{}, false
}

func fromDeath(t amqp091.Table) (h History, ok bool) {
	v, _ := t.Get(headerDeath)
	list, _ := v.(amqp091.Array)
	for _, v := range list {
		e, _ := v.(amqp091.Table)
		d := Death{Expiration: -1, Count: 1}
		d.Queue = text(e, "queue")
		d.Exchange = text(e, "exchange")
		d.Reason, ok = parseShown(text(e, "reason"))
		if !ok || d.Queue == "" || !fits(d.Queue) || !fits(d.Exchange) {
			return History{}, false
		}
		if v, ok := e.Get("count"); ok {
			n, _ := amqp091.Int64(v)
			d.Count = uint64(min(max(1, n), maxCarried))
		}
		if v, ok := e.Get("time"); ok {
			seconds, _ := v.(amqp091.Timestamp)
			d.First = moment.OfSeconds(uint64(seconds))
			d.Last = d.First
		}
		keys, _ := e.Get("routing-keys")
		for _, k := range asArray(keys) {
			if s, ok := k.(string); ok && fits(s) {
				d.Keys = append(d.Keys, s)
			}
		}
		h.Deaths = append(h.Deaths, d)
	}
	if len(h.Deaths) == 0 {
		return History{}, false
	}
	h.First = len(h.Deaths) - 1
	queue, reason := text(t, headerFirstQueue), text(t, headerFirstReason)
	for i := range h.Deaths {
		if h.Deaths[i].Queue == queue && h.Deaths[i].Reason.String() == reason {
			h.First = i
		}
	}
	return h, true
}

// The headers in which Spring AMQP says where a message was first published.
const (
	springExchange = "x-original-exchange"
	springKey      = "x-original-routingKey"
)

// OriginHeaders are headers that say where a message was first published.
var OriginHeaders = []string{springExchange, springKey}

// fromSpring reads OriginHeaders.
func fromSpring(t amqp091.Table) (h History, ok bool) {
	if _, ok := t.Get(springKey); !ok {
		return History{}, false
	}
	d := Death{
		Reason: Rejected, Count: 1, Expiration: -1,
		Exchange: text(t, springExchange), Keys: []string{text(t, springKey)},
	}
	if !fits(d.Exchange) || !fits(d.Keys[0]) {
		return History{}, false
	}
	return History{Deaths: []Death{d}}, true
}

// parseShown reads a reason from the headers of any profile.
func parseShown(s string) (r Reason, ok bool) {
	switch s {
	case nack:
		return Nacked, true
	case reject:
		return Rejected, true
	}
	return ParseReason(s)
}

func asArray(v any) amqp091.Array {
	a, _ := v.(amqp091.Array)
	return a
}

func text(t amqp091.Table, key string) string {
	v, _ := t.Get(key)
	s, _ := v.(string)
	return s
}
