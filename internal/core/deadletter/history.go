// Package deadletter knows why a message died, what its history says about it,
// where it goes and when that would be a cycle.
//
// It is pure: bytes in, bytes out. The history of a message is an immutable run
// of bytes that copies with the same fate share; whoever holds a history keeps it.
package deadletter

import (
	"encoding/binary"
	"errors"
	"math"

	"bartleby.mq/internal/core/moment"
)

// Death is one entry of a history: all deaths of a message in one queue for one
// reason (DL-7.2).
type Death struct {
	Queue  string
	Reason Reason
	Count  uint64
	First  int64 // when it first died so, in milliseconds since 1970
	Last   int64 // when it last did

	// Where the message had been published to before that first death (DL-7.3).
	Exchange string
	Keys     []string

	// Expiration is the message's own TTL in milliseconds, -1 if it had none (DL-7.4).
	Expiration int64
}

// Cause is what RabbitMQ does not record: who made the message die. All fields may be empty.
type Cause struct {
	ConsumerTag string
	Connection  string // its name, "peer -> local"
	User        string
	Error       string // what the client gave as its reason, where the protocol lets it
}

// History is what happened to a message since it was published by a client.
type History struct {
	// Exchange and Keys are where the message is published to now: the last
	// dead-letter exchange and the keys used there. Keys does not hold BCC keys.
	Exchange string
	Keys     []string
	// KeysReplaced is set once a dead-letter routing key took the place of the
	// message's own keys; from then on its BCC keys route no more.
	KeysReplaced bool

	// StripCC is set if the CC header is not to be shown any more (DL-20.1).
	StripCC bool

	// Profile is that of the virtual host, unset for RabbitMQ's: it says which headers are shown (DL-22.6).
	Profile Profile
	// LimitReason is ApsaraMQ's name of DeliveryLimit when the message last died.
	LimitReason string

	Deaths []Death // most recent first (DL-7.1)
	First  int     // which of Deaths was the first of all

	// LastExchange is the exchange the message was in before its last death (DL-7.5).
	LastExchange string
	Cause        Cause // of the last death

	// ReplayedFrom is the queue a replay last took the message from, "" if none did.
	ReplayedFrom string
}

// Event is one death.
type Event struct {
	Queue      string
	Reason     Reason
	Time       int64 // milliseconds since 1970
	Expiration int64 // the message's own TTL in milliseconds, -1 if it has none
	Cause      Cause
	Rules      *Rules // of the queue; nil: RabbitMQ's

	// Where the message was, and where it goes.
	Exchange, NextExchange string
	Keys, NextKeys         []string
	KeysReplaced           bool
}

// Record adds a death (DL-7.2, DL-7.3, DL-7.5).
func (h *History) Record(e *Event) {
	entry := Death{
		Queue: e.Queue, Reason: e.Reason, Count: 1, First: e.Time, Last: e.Time,
		Exchange: e.Exchange, Keys: e.Keys, Expiration: e.Expiration,
	}
	at := len(h.Deaths)
	for i := range h.Deaths {
		if d := &h.Deaths[i]; d.Queue == e.Queue && d.Reason == e.Reason {
			entry = *d
			entry.Count++
			entry.Last = e.Time
			at = i
			break
		}
	}
	switch {
	case len(h.Deaths) == 0 || at < len(h.Deaths) && h.First == at:
		h.First = 0
	case h.First < at:
		h.First++ // the entries before at move back by one
	}
	if at == len(h.Deaths) {
		h.Deaths = append(h.Deaths, Death{})
	}
	copy(h.Deaths[1:at+1], h.Deaths[:at])
	h.Deaths[0] = entry
	h.LastExchange = e.Exchange
	h.Cause = e.Cause
	if e.Rules != nil && e.Rules.apsara() {
		h.Profile, h.LimitReason = e.Rules.Profile, e.Rules.LimitReason
	}
	h.Exchange, h.Keys, h.KeysReplaced = e.NextExchange, e.NextKeys, e.KeysReplaced
}

// ClosesCycle says whether a message with this history, its last death already
// recorded, must not enter the target: it died there before, and no rejection
// lies between (DL-9.2). Deaths by rejection are not to be asked about (DL-9.1).
func (h *History) ClosesCycle(target string) bool {
	for i := range h.Deaths {
		if h.Deaths[i].Reason.Counted() == Rejected {
			return false
		}
		if h.Deaths[i].Queue == target {
			return true
		}
	}
	return false
}

// Origin is where the message was published to before it first died, and with
// which keys, BCC keys not included.
func (h *History) Origin() (exchange string, keys []string, ok bool) {
	if len(h.Deaths) == 0 {
		return "", nil, false
	}
	d := &h.Deaths[h.First]
	return d.Exchange, d.Keys, len(d.Keys) > 0
}

// Total is how often the message died.
func (h *History) Total() (n uint64) {
	for i := range h.Deaths {
		n += h.Deaths[i].Count
	}
	return n
}

const historyVersion = 1

const (
	flagKeysReplaced = 1 << iota
	flagStripCC
	flagApsara   // the name of DeliveryLimit follows what a replay has noted
	historyFlags = 1<<iota - 1
)

// Append writes the history's stored form.
func (h *History) Append(b []byte) []byte {
	b = append(b, historyVersion)
	var flags byte
	if h.KeysReplaced {
		flags |= flagKeysReplaced
	}
	if h.StripCC {
		flags |= flagStripCC
	}
	if h.Profile == ApsaraMQ {
		flags |= flagApsara
	}
	b = append(b, flags)
	b = appendString(b, h.Exchange)
	b = appendStrings(b, h.Keys)
	b = appendString(b, h.LastExchange)
	b = appendString(b, h.Cause.ConsumerTag)
	b = appendString(b, h.Cause.Connection)
	b = appendString(b, h.Cause.User)
	b = appendString(b, h.Cause.Error)
	b = appendString(b, h.ReplayedFrom)
	if flags&flagApsara != 0 {
		b = appendString(b, h.LimitReason)
	}
	b = binary.AppendUvarint(b, uint64(h.First))
	b = binary.AppendUvarint(b, uint64(len(h.Deaths)))
	for i := range h.Deaths {
		d := &h.Deaths[i]
		b = append(b, byte(d.Reason))
		b = appendString(b, d.Queue)
		b = appendString(b, d.Exchange)
		b = appendStrings(b, d.Keys)
		b = d.appendNumbers(b)
	}
	return b
}

func (d *Death) appendNumbers(b []byte) []byte {
	b = binary.AppendUvarint(b, d.Count)
	b = binary.AppendVarint(b, d.First)
	b = binary.AppendVarint(b, d.Last-d.First)
	return binary.AppendUvarint(b, uint64(min(d.Expiration, moment.Last)+1))
}

var errHistory = errors.New("death history: malformed")

// Parse reads the stored form. It fails on anything that is none.
func Parse(b []byte) (h History, err error) {
	r := reader{b: b}
	if r.byte() != historyVersion {
		return h, errHistory
	}
	flags := r.byte()
	h.KeysReplaced, h.StripCC = flags&flagKeysReplaced != 0, flags&flagStripCC != 0
	h.Exchange = r.string()
	h.Keys = r.strings()
	h.LastExchange = r.string()
	h.Cause = Cause{r.string(), r.string(), r.string(), r.string()}
	h.ReplayedFrom = r.string()
	if flags&flagApsara != 0 {
		h.Profile, h.LimitReason = ApsaraMQ, r.string()
	}
	first := r.uvarint()
	n := r.uvarint()
	if n > uint64(len(r.b)) { // an entry takes several bytes
		return h, errHistory
	}
	h.Deaths = make([]Death, 0, n+1) // room for the death that is usually added
	for range n {
		d := Death{Reason: Reason(r.byte())}
		d.Queue = r.string()
		d.Exchange = r.string()
		d.Keys = r.strings()
		d.readNumbers(&r)
		if !d.Reason.Valid() {
			r.bad = true
		}
		h.Deaths = append(h.Deaths, d)
	}
	if r.bad || len(r.b) > 0 || flags&^historyFlags != 0 || first >= max(n, 1) {
		return History{}, errHistory
	}
	h.First = int(first)
	return h, nil
}

func (d *Death) readNumbers(r *reader) {
	d.Count = r.uvarint()
	d.First = r.varint()
	d.Last = d.First + r.varint()
	e := r.uvarint()
	if e > math.MaxInt64 {
		r.bad = true
	}
	d.Expiration = int64(e) - 1
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// reader reads a stored form; after a fault it returns zeros and bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) strings() []string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, r.string())
	}
	return list
}
