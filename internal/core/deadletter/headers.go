package deadletter

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"bartleby.mq/internal/wire/amqp091"
)

// The headers a dead message carries over AMQP 0-9-1, in the order of their
// bytes, which is the order they are sent in (DL-6.15).
const (
	headerDeath         = "x-death"
	headerTotal         = "x-death-total" // ApsaraMQ's: how often the message died (DL-22.6)
	headerFirstExchange = "x-first-death-exchange"
	headerFirstQueue    = "x-first-death-queue"
	headerFirstReason   = "x-first-death-reason"
	headerLastExchange  = "x-last-death-exchange"
	headerLastQueue     = "x-last-death-queue"
	headerLastReason    = "x-last-death-reason"

	// headerReplayedFrom names the queue that a replay took the message from (DL-19.6).
	headerReplayedFrom = "x-replayed-from"
)

// HeaderNames are the seven headers, sorted, which a replay removes (DL-19.6).
var HeaderNames = []string{
	headerDeath, headerFirstExchange, headerFirstQueue, headerFirstReason,
	headerLastExchange, headerLastQueue, headerLastReason,
}

// Headers renders the history as AMQP 0-9-1 headers, sorted (DL-7.1, DL-7.5).
func (h *History) Headers() []amqp091.RawField {
	fields, _ := h.AppendHeaders(nil, nil)
	return fields
}

// AppendHeaders is Headers for those who have memory for the fields and for their
// values, to which it appends.
func (h *History) AppendHeaders(fields []amqp091.RawField, values []byte) ([]amqp091.RawField, []byte) {
	f := fieldWriter{fields, values}
	if len(h.Deaths) > 0 {
		f.end(headerDeath, h.appendDeaths(f.values))
		h.summary(&f)
	}
	if h.ReplayedFrom != "" {
		f.string(headerReplayedFrom, h.ReplayedFrom)
	}
	return f.fields, f.values
}

// fieldWriter makes fields whose values stand behind each other in one slice.
type fieldWriter struct {
	fields []amqp091.RawField
	values []byte
}

// end makes a field of what values is longer than f.values.
func (f *fieldWriter) end(key string, values []byte) {
	begin, end := len(f.values), len(values)
	f.fields, f.values = append(f.fields, amqp091.RawField{Key: key, Encoded: values[begin:end:end]}), values
}

func (f *fieldWriter) string(key, value string) {
	f.end(key, appendLongString(append(f.values, 'S'), value))
}

// apsaraNames are those of ApsaraMQ's profile, sorted.
var apsaraNames = append([]string{headerDeath, headerTotal}, HeaderNames[1:]...)

// Removed are the headers that the message does not carry any more: a replay
// takes away those of its former deaths, which a client may have sent along, and
// CC goes if that was configured.
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

// Matchable is what a headers exchange sees of the history: all but x-death (DL-6.8).
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
	f.string(headerFirstReason, h.name(first.Reason))
	if h.Profile == ApsaraMQ {
		return
	}
	f.string(headerLastExchange, h.LastExchange)
	f.string(headerLastQueue, last.Queue)
	f.string(headerLastReason, h.name(last.Reason))
}

// LongField is a header holding a 64-bit integer, such as x-delivery-count.
func LongField(key string, v int64) amqp091.RawField {
	return amqp091.RawField{Key: key, Encoded: binary.BigEndian.AppendUint64([]byte{'l'}, uint64(v))}
}

func appendLongString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// appendDeaths encodes the x-death array; the fields of each entry stand in
// RabbitMQ's order (DL-7.1).
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
		b = appendLongString(b, h.name(d.Reason))
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
