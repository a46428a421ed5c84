// Package deadletter defines why a message died, the history of its deaths, the headers
// that show this history, and when a target would close a cycle.
//
// Queues, brokers and edges call it. It is pure: it owns no state and does no I/O. The
// stored form of a history is an immutable run of bytes, which copies with the same
// fate share.
package deadletter

import (
	"encoding/binary"
	"errors"
	"math"

	"bartleby.mq/internal/core/moment"
)

// Death is one entry of a history: it merges all deaths of a message in one queue for
// one reason (DL-7.2).
type Death struct {
	Queue  string
	Reason Reason
	Count  uint64
	First  int64 // time of the first of these deaths, in milliseconds since 1970
	Last   int64 // time of the last of these deaths

	// Where the message was published to before the first of these deaths (DL-7.3).
	Exchange string
	Keys     []string

	// Expiration is the message's own TTL in milliseconds, -1 if it had none (DL-7.4).
	Expiration int64
}

// History is what happened to a message since a client published it.
//
// Invariant: Deaths has at most one entry for each pair of queue and reason, the most
// recent death first. First is the index of the entry of the very first death; Record
// keeps it right while entries move.
type History struct {
	// Exchange and Keys are where the message is published to now: the last
	// dead-letter exchange and the keys used there. Keys does not hold BCC keys.
	Exchange string
	Keys     []string
	// KeysReplaced is set once a dead-letter routing key took the place of the
	// message's own keys; from then on its BCC keys route no more.
	KeysReplaced bool

	// StripCC is set if the CC header is no longer shown (DL-20.1).
	StripCC bool
	// Delayed is set if the message has waited in an exchange that delays messages. This is no death.
	Delayed bool

	// Profile is the virtual host's profile, unset for RabbitMQ's. It selects the headers (DL-22.6).
	Profile Profile
	// LimitReason is ApsaraMQ's name of DeliveryLimit when the message last died.
	LimitReason string

	Deaths []Death // most recent first (DL-7.1)
	First  int     // index in Deaths of the first death of all

	// LastExchange is the exchange the message was in before its last death (DL-7.5).
	LastExchange string
	Cause        Cause // of the last death
	Note         *Note // of the death that is under way, nil if there is none

	// Annotations are those that outcomes of AMQP 1.0 have merged into the message (DL-14.6), "" if there are none. They are the
	// message's, so neither deaths nor replays take them away. Their form is a map of AMQP 1.0; see convert.MergeAnnotations.
	Annotations string

	// ReplayedFrom is the queue that a replay last took the message from, "" if there was no replay.
	ReplayedFrom string

	Marks
}

// Marks are what replays, jobs and the lost and found leave in a history. Clients do not see them. Deaths that follow keep
// all but Sent and Lost.
type Marks struct {
	Job uint64 // the job that last moved the message, 0 = none
	// Sent is set while the message is where the job put it. The queue counts what becomes of it for the job. A death
	// ends that: what dies again and again is counted once.
	Sent    bool
	Replays uint64  // how often the message was replayed
	Earlier []Death // its deaths before the last replay, most recent first; the last maxEarlier of them are kept

	From       string // the queue that the job took it from without ending its deaths; "" if none did
	EditedFrom string // of the edited copy of a message: the id of the original in the archive
	Draft      bool   // it is such a copy, and waits in the archive until the original has come there
	// Lost is why the last death has put the message into the lost and found; Routed: it has not.
	Lost Outcome
	// Imported is set if the history, or what its first entry says, is a client's word: it came by an import, or continues one from a
	// client's headers (DL-7.10). A death does not end that, since the origin is still the first entry's; a replay does.
	Imported bool
}

// maxEarlier bounds Earlier, and with it the memory of a message that dies and is replayed for ever.
const maxEarlier = 8

// Replayed returns the marks of a message with this history after a replay by a job, 0 if no job did it: its deaths are
// over, and stand in front of the earlier ones.
func (h *History) Replayed(job uint64) Marks {
	earlier := make([]Death, 0, min(len(h.Deaths)+len(h.Earlier), maxEarlier))
	for _, list := range [][]Death{h.Deaths, h.Earlier} {
		earlier = append(earlier, list[:min(len(list), maxEarlier-len(earlier))]...)
	}
	return Marks{Job: job, Sent: job != 0, Replays: h.Replays + 1, Earlier: earlier, EditedFrom: h.EditedFrom}
}

// Moved returns the marks after a job has moved the message out of a queue without ending its deaths.
func (h *History) Moved(job uint64, from string) Marks {
	return Marks{Job: job, Sent: job != 0, Replays: h.Replays, Earlier: h.Earlier, From: from, EditedFrom: h.EditedFrom, Lost: h.Lost, Imported: h.Imported}
}

// any says whether there are marks to be stored.
func (m *Marks) any() bool { return m.Job != 0 || m.Replays != 0 || len(m.Earlier) > 0 || m.tracked() }

// tracked says whether there are the marks that flagTracked announces.
func (m *Marks) tracked() bool {
	return m.From != "" || m.EditedFrom != "" || m.Draft || m.Lost != Routed || m.Imported
}

// Lose notes after a death that the message goes to the queue lostAndFound, because of an outcome that would have dropped
// it.
func (h *History) Lose(why Outcome, lostAndFound string) {
	h.Lost, h.Exchange, h.Keys, h.KeysReplaced = why, "", []string{lostAndFound}, true
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

// Record adds a death (DL-7.2, DL-7.3, DL-7.5). If there is an entry for the queue and
// the reason, Record increments its count and moves it to the front; otherwise it puts a
// new entry there:
//
//	before    [a b c d]  First = 3 (d)
//	c again   [c a b d]  First = 3: the entries before c move back by one, d stays
//	d again   [d c a b]  First = 0: the first death of all is at the front now
//	e         [e d c a b]  First = 1
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
		h.First++ // the entries before at move back
	}
	if at == len(h.Deaths) {
		h.Deaths = append(h.Deaths, Death{})
	}
	copy(h.Deaths[1:at+1], h.Deaths[:at])
	h.Deaths[0] = entry
	h.LastExchange = e.Exchange
	h.Cause, h.Note = e.Cause, nil
	h.Sent, h.Lost = false, Routed
	if e.Rules != nil && e.Rules.apsara() {
		h.Profile, h.LimitReason = e.Rules.Profile, e.Rules.LimitReason
	}
	h.Exchange, h.Keys, h.KeysReplaced = e.NextExchange, e.NextKeys, e.KeysReplaced
}

// ClosesCycle says whether the target would close a cycle: the message died in target
// before, and was not rejected since (DL-9.2). REQUIRES: the last death is recorded, and
// it is not a rejection (DL-9.1).
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

// Origin returns the exchange and the keys, without BCC keys, with which the message was
// published before its first death.
func (h *History) Origin() (exchange string, keys []string, ok bool) {
	if len(h.Deaths) == 0 {
		return "", nil, false
	}
	d := &h.Deaths[h.First]
	return d.Exchange, d.Keys, len(d.Keys) > 0
}

// KeepsTTL says whether the message still has its own TTL, which a death, a replay or a job takes away (DL-6.10).
func (h *History) KeepsTTL() bool { return len(h.Deaths) == 0 && h.ReplayedFrom == "" && h.Job == 0 }

// StoredKeepsTTL is KeepsTTL of a stored form.
func StoredKeepsTTL(stored []byte) bool {
	if !HeadMayKeepTTL(stored) {
		return false
	}
	h, err := Parse(stored)
	return err == nil && h.KeepsTTL()
}

// HeadDelayed says whether Delayed is set in a stored form, or in the shared part of one.
func HeadDelayed(stored []byte) bool { return len(stored) > 1 && stored[1]&flagDelayed != 0 }

// Placed says whether Exchange and Keys are where the message is: a death, a replay or a wait has put it there. Without one it is
// where it was published, which only its record says.
func (h *History) Placed() bool { return len(h.Keys) > 0 }

// HeadMayKeepTTL says whether KeepsTTL may be true of a history with this shared part: all that are neither delayed, noted nor
// annotated begin with a death, a replay or a job.
func HeadMayKeepTTL(shared []byte) bool { return HeadDelayed(shared) || headNoted(shared) }

// HeadSent returns the job that counts what becomes of the message in its queue (Marks.Sent), 0 if none does. It reads a
// stored form, or the shared part of one.
func HeadSent(stored []byte) (job uint64) {
	if len(stored) < 3 || stored[1]&flagSent == 0 {
		return 0
	}
	job, _ = binary.Uvarint(stored[2:]) // 0 if malformed
	return job
}

// HeadLost is Marks.Lost of a stored form, or of the shared part of one.
func HeadLost(stored []byte) Outcome {
	if len(stored) < 2 || stored[1]&flagTracked == 0 {
		return Routed
	}
	r := reader{b: stored}
	r.byte()
	var m Marks
	r.marks(r.byte(), &m)
	return m.Lost
}

// Total counts all deaths of the message since the last replay.
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
	flagApsara // LimitReason follows ReplayedFrom
	flagDelayed
	flagMarks   // there are Marks
	flagSent    // Marks.Sent
	flagCause   // more of the Cause follows the reason's name, or a Note, or annotations
	flagTracked // Marks.tracked
)

// Append appends the history's stored form to b:
//
//	version u8 | flags u8
//	job uvarint | replays uvarint | number of earlier deaths uvarint     if flagMarks
//	what u8 | from | edited from | lost u8 (if what has trackedLost)     if flagTracked
//	exchange | keys | last exchange
//	consumer tag | connection | user | error     the Cause
//	replayed from | limit reason (if flagApsara) | more of the Cause (if flagCause): see Cause.appendMore
//	the note, the annotations                    if more of the Cause says so
//	first uvarint | number of deaths uvarint
//	each death: reason u8 | queue | exchange | keys
//	            count uvarint | first varint | last - first varint | expiration + 1 uvarint
//	each earlier death likewise
//
// A string has its length, a uvarint, in front; keys are a uvarint and this many strings.
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
	if h.Delayed {
		flags |= flagDelayed
	}
	if h.Marks.any() {
		flags |= flagMarks
		if h.Sent {
			flags |= flagSent
		}
		if h.tracked() {
			flags |= flagTracked
		}
	}
	what := h.Cause.what()
	if h.Note != nil {
		what |= causeNote
	}
	if h.Annotations != "" {
		what |= causeAnnotations
	}
	if what != 0 {
		flags |= flagCause
	}
	b = append(b, flags)
	if flags&flagMarks != 0 {
		b = binary.AppendUvarint(b, h.Job)
		b = binary.AppendUvarint(b, h.Replays)
		b = binary.AppendUvarint(b, uint64(len(h.Earlier)))
	}
	if flags&flagTracked != 0 {
		b = h.appendTracked(b)
	}
	b = appendString(b, h.Exchange)
	b = appendStrings(b, h.Keys)
	b = appendString(b, h.LastExchange)
	b = h.Cause.append(b)
	b = appendString(b, h.ReplayedFrom)
	if flags&flagApsara != 0 {
		b = appendString(b, h.LimitReason)
	}
	if what != 0 {
		b = h.Cause.appendMore(b, what)
	}
	if h.Note != nil {
		b = h.Note.Append(b)
	}
	if h.Annotations != "" {
		b = appendString(b, h.Annotations)
	}
	b = binary.AppendUvarint(b, uint64(h.First))
	b = binary.AppendUvarint(b, uint64(len(h.Deaths)))
	for i := range h.Deaths {
		b = h.Deaths[i].append(b)
	}
	for i := range h.Earlier {
		b = h.Earlier[i].append(b)
	}
	return b
}

func (d *Death) append(b []byte) []byte {
	b = append(b, byte(d.Reason))
	b = appendString(b, d.Queue)
	b = appendString(b, d.Exchange)
	b = appendStrings(b, d.Keys)
	return d.appendNumbers(b)
}

func (d *Death) appendNumbers(b []byte) []byte {
	b = binary.AppendUvarint(b, d.Count)
	b = binary.AppendVarint(b, d.First)
	b = binary.AppendVarint(b, d.Last-d.First)
	return binary.AppendUvarint(b, uint64(min(d.Expiration, moment.Last)+1))
}

var errHistory = errors.New("death history: malformed")

// Parse reads the stored form. It fails on any other bytes.
func Parse(b []byte) (h History, err error) {
	r := reader{b: b}
	if r.byte() != historyVersion {
		return h, errHistory
	}
	flags := r.byte()
	h.KeysReplaced, h.StripCC, h.Delayed = flags&flagKeysReplaced != 0, flags&flagStripCC != 0, flags&flagDelayed != 0
	h.Sent = flags&flagSent != 0
	earlier := r.marks(flags, &h.Marks)
	h.Exchange = r.string()
	h.Keys = r.strings()
	h.LastExchange = r.string()
	h.Cause = r.cause()
	h.ReplayedFrom = r.string()
	if flags&flagApsara != 0 {
		h.Profile, h.LimitReason = ApsaraMQ, r.string()
	}
	if flags&flagCause != 0 {
		what := r.more(&h.Cause)
		r.bad = r.bad || what == 0 || what&causeKey != 0
		if what&causeNote != 0 && !r.bad {
			h.Note = r.note()
			r.bad = r.bad || h.Note.Annotations != ""
		}
		if what&causeAnnotations != 0 {
			h.Annotations = r.annotations()
		}
	}
	first := r.uvarint()
	n := r.uvarint()
	if n > uint64(len(r.b)) { // an entry takes several bytes
		return h, errHistory
	}
	h.Deaths = make([]Death, 0, n+1) // room for the death that is usually added
	for range n {
		h.Deaths = append(h.Deaths, r.whole())
	}
	for range earlier {
		h.Earlier = append(h.Earlier, r.whole())
	}
	if r.bad || len(r.b) > 0 || first >= max(n, 1) {
		return History{}, errHistory
	}
	h.First = int(first)
	return h, nil
}

// The marks that flagTracked announces.
const (
	trackedDraft = 1 << iota
	trackedLost  // Lost follows
	trackedImported
	trackedBits = 1<<iota - 1
)

func (m *Marks) appendTracked(b []byte) []byte {
	var what byte
	if m.Draft {
		what |= trackedDraft
	}
	if m.Lost != Routed {
		what |= trackedLost
	}
	if m.Imported {
		what |= trackedImported
	}
	b = appendString(appendString(append(b, what), m.From), m.EditedFrom)
	if m.Lost != Routed {
		b = append(b, byte(m.Lost))
	}
	return b
}

func (r *reader) tracked(m *Marks) {
	what := r.byte()
	m.Draft, m.Imported = what&trackedDraft != 0, what&trackedImported != 0
	m.From, m.EditedFrom = r.string(), r.string()
	if what&trackedLost != 0 {
		m.Lost = Outcome(r.byte())
		r.bad = r.bad || !m.Lost.lost()
	}
	r.bad = r.bad || what&^trackedBits != 0 || !m.tracked()
}

// marks reads the marks except Sent, and returns how many earlier deaths follow.
func (r *reader) marks(flags byte, m *Marks) (earlier uint64) {
	if flags&flagMarks == 0 {
		r.bad = r.bad || flags&(flagSent|flagTracked) != 0
		return 0
	}
	m.Job, m.Replays, earlier = r.uvarint(), r.uvarint(), r.uvarint()
	if flags&flagTracked != 0 {
		r.tracked(m)
	}
	if earlier > maxEarlier || m.Sent && m.Job == 0 || earlier == 0 && !m.any() {
		r.bad = true
		return 0
	}
	return earlier
}

// whole reads a death.
func (r *reader) whole() Death {
	d := Death{Reason: Reason(r.byte())}
	d.Queue = r.string()
	d.Exchange = r.string()
	d.Keys = r.strings()
	d.readNumbers(r)
	if !d.Reason.Valid() {
		r.bad = true
	}
	return d
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

// reader reads a stored form. After an error it returns zeros and bad is set.
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

// annotations reads annotations, of which there are some.
func (r *reader) annotations() string {
	s := r.string()
	r.bad = r.bad || s == ""
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
