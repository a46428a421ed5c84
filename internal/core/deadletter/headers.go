package deadletter

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"bartleby.mq/internal/wire/amqp091"
)

// The headers of a dead letter in AMQP 0-9-1, sorted by their bytes, which is the order in
// which they are sent (DL-6.15).
const (
	headerDeath         = "x-death"
	headerTotal         = "x-death-total" // ApsaraMQ's: how often the message died (DL-22.6)
	headerFirstExchange = "x-first-death-exchange"
	headerFirstQueue    = "x-first-death-queue"
	headerFirstReason   = "x-first-death-reason"
	headerLastExchange  = "x-last-death-exchange"
	headerLastQueue     = "x-last-death-queue"
	headerLastReason    = "x-last-death-reason"

	// HeaderReplayedFrom names the queue that a replay took the message from (DL-19.6).
	HeaderReplayedFrom = "x-replayed-from"
)

// HeaderNames are the seven headers that a replay removes, sorted (DL-19.6).
var HeaderNames = []string{
	headerDeath, headerFirstExchange, headerFirstQueue, headerFirstReason,
	headerLastExchange, headerLastQueue, headerLastReason,
}

// Headers renders the history as AMQP 0-9-1 headers, sorted (DL-7.1, DL-7.5).
func (h *History) Headers() []amqp091.RawField {
	fields, _ := h.AppendHeaders(nil, nil)
	return fields
}

// AppendHeaders is Headers without allocations: it appends to fields and values.
func (h *History) AppendHeaders(fields []amqp091.RawField, values []byte) ([]amqp091.RawField, []byte) {
	f := fieldWriter{fields, values}
	if len(h.Deaths) > 0 {
		f.end(headerDeath, h.appendDeaths(f.values))
		h.summary(&f)
	}
	if h.ReplayedFrom != "" {
		f.string(HeaderReplayedFrom, h.ReplayedFrom)
	}
	return f.fields, f.values
}

// fieldWriter makes fields whose values are consecutive parts of one slice.
type fieldWriter struct {
	fields []amqp091.RawField
	values []byte
}

// end makes a field of the bytes that values has beyond f.values.
func (f *fieldWriter) end(key string, values []byte) {
	begin, end := len(f.values), len(values)
	f.fields, f.values = append(f.fields, amqp091.RawField{Key: key, Encoded: values[begin:end:end]}), values
}

func (f *fieldWriter) string(key, value string) {
	f.end(key, appendLongString(append(f.values, 'S'), value))
}

// apsaraNames are the headers of ApsaraMQ's profile, sorted.
var apsaraNames = append([]string{headerDeath, headerTotal}, HeaderNames[1:]...)

// Removed returns the headers of the published message that are no longer shown. A replay
// removes death headers, which the client may have sent; CC is removed if configured.
func (h *History) Removed() []string {
	names, withCC := HeaderNames, replayedWithoutCC
	if h.Profile == ApsaraMQ {
		names, withCC = apsaraNames, apsaraWithoutCC
	}
	switch {
	case h.ReplayedFrom != "" && h.StripCC:
		return withCC
	case h.ReplayedFrom != "":
		return names
	case h.StripCC:
		return onlyCC
	}
	return nil
}

var (
	onlyCC            = []string{"CC"}
	replayedWithoutCC = append([]string{"CC"}, HeaderNames...)
	apsaraWithoutCC   = append([]string{"CC"}, apsaraNames...)
)

// Matchable returns the headers that a headers exchange sees: all except x-death (DL-6.8).
func (h *History) Matchable() []amqp091.RawField {
	if len(h.Deaths) == 0 {
		return nil
	}
	var f fieldWriter
	h.summary(&f)
	return f.fields
}

func (h *History) summary(f *fieldWriter) {
	first, last := &h.Deaths[h.First], &h.Deaths[0]
	if h.Profile == ApsaraMQ {
		total := int64(min(h.Total(), math.MaxInt64))
		f.end(headerTotal, binary.BigEndian.AppendUint64(append(f.values, 'l'), uint64(total))) // DL-22.6
	}
	f.string(headerFirstExchange, first.Exchange)
	f.string(headerFirstQueue, first.Queue)
	f.string(headerFirstReason, h.ReasonName(first.Reason))
	if h.Profile == ApsaraMQ {
		return
	}
	f.string(headerLastExchange, h.LastExchange)
	f.string(headerLastQueue, last.Queue)
	f.string(headerLastReason, h.ReasonName(last.Reason))
}

// LongField is a header with a 64-bit integer, such as x-delivery-count.
func LongField(key string, v int64) amqp091.RawField {
	return amqp091.RawField{Key: key, Encoded: binary.BigEndian.AppendUint64([]byte{'l'}, uint64(v))}
}

func appendLongString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// appendDeaths encodes the x-death array. The fields of each entry have RabbitMQ's order
// (DL-7.1).
func (h *History) appendDeaths(b []byte) []byte {
	b = append(slices.Grow(b, 64+128*len(h.Deaths)), 'A', 0, 0, 0, 0)
	begin := len(b)
	for i := range h.Deaths {
		d := &h.Deaths[i]
		b = append(b, 'F', 0, 0, 0, 0)
		table := len(b)
		if d.Expiration >= 0 {
			b = appendKey(b, "original-expiration", 'S')
			b = appendLongString(b, strconv.FormatInt(d.Expiration, 10))
		}
		b = appendKey(b, "count", 'l')
		b = binary.BigEndian.AppendUint64(b, d.Count)
		b = appendKey(b, "reason", 'S')
		b = appendLongString(b, h.ReasonName(d.Reason))
		b = appendKey(b, "queue", 'S')
		b = appendLongString(b, d.Queue)
		b = appendKey(b, "time", 'T')
		b = binary.BigEndian.AppendUint64(b, uint64(d.First/1000))
		b = appendKey(b, "exchange", 'S')
		b = appendLongString(b, d.Exchange)
		b = appendKey(b, "routing-keys", 'A')
		b = append(b, 0, 0, 0, 0)
		keys := len(b)
		for _, k := range d.Keys {
			b = appendLongString(append(b, 'S'), k)
		}
		binary.BigEndian.PutUint32(b[keys-4:], uint32(len(b)-keys))
		binary.BigEndian.PutUint32(b[table-4:], uint32(len(b)-table))
	}
	binary.BigEndian.PutUint32(b[begin-4:], uint32(len(b)-begin))
	return b
}

func appendKey(b []byte, key string, kind byte) []byte {
	b = append(b, byte(len(key)))
	b = append(b, key...)
	return append(b, kind)
}
