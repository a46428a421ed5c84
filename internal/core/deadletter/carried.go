package deadletter

import (
	"unicode/utf8"

	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/wire/amqp091"
)

const (
	// maxName is how many bytes names and routing keys have at most.
	maxName = 255
	// maxCarried is the most deaths that a client is believed: sums of such have room.
	maxCarried = 1 << 32
)

// fits says whether what a client sent can be a name or a routing key.
func fits(s string) bool { return len(s) <= maxName && utf8.ValidString(s) }

// Carried reads the history that a client sent along in the headers of a message
// it published itself: the death headers of the delivery it copied, as consumers
// do that park a message, or the headers with which Spring AMQP's
// RepublishMessageRecoverer tells the origin. ok is false if there is neither.
//
// Such headers are a client's word: they find the way back of a replay, and
// nothing else (DL-7.9).
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

// fromSpring reads x-original-exchange and x-original-routingKey.
func fromSpring(t amqp091.Table) (h History, ok bool) {
	if _, ok := t.Get("x-original-routingKey"); !ok {
		return History{}, false
	}
	d := Death{
		Reason: Rejected, Count: 1, Expiration: -1,
		Exchange: text(t, "x-original-exchange"), Keys: []string{text(t, "x-original-routingKey")},
	}
	if !fits(d.Exchange) || !fits(d.Keys[0]) {
		return History{}, false
	}
	return History{Deaths: []Death{d}}, true
}

// parseShown reads a reason as the headers of any profile have it.
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
