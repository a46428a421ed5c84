package deadletter

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// Cause says who made the message die and why, which RabbitMQ does not record. All fields may be empty. Whoever makes one
// bounds its strings.
type Cause struct {
	ConsumerTag string
	Connection  string // its name, "peer -> local"
	User        string
	Error       string // the text of the error, in the consumer's own words

	Name             string // what the client calls its connection
	Product, Version string // of the client's library
	Class            string // of the error, such as java.lang.IllegalStateException
	Detail           string // mostly a stack trace
	// DeliveryCount is how many deliveries had failed when it died, as x-delivery-count counts them; the last is counted if
	// it was a failure.
	DeliveryCount uint32
}

// Peer is the client's address and port, "" if the connection's name does not tell.
func (c *Cause) Peer() string {
	if peer, _, ok := strings.Cut(c.Connection, " -> "); ok {
		return peer
	}
	return ""
}

// Words puts the consumer's own words of another cause into this one.
func (c *Cause) Words(of *Cause) { c.Class, c.Error, c.Detail = of.Class, of.Error, of.Detail }

// Note is what a consumer has said of a delivery before it rejected it. A history has one from then until its death is
// recorded.
type Note struct {
	Cause
	// Key takes the place of the queue's dead-letter routing key if HasKey is set.
	Key    string
	HasKey bool
	// Annotations are merged into those of the message, whether it dies or not (History.Annotations). They are in notes on their
	// way to a queue, not in those of a history.
	Annotations string
}

// HasWords says whether the note says anything but annotations.
func (n *Note) HasWords() bool { return n.HasKey || n.Cause != Cause{} }

// Size is the approximate length of the stored form, in bytes.
func (n *Note) Size() int {
	const lengths = 24
	return lengths + len(n.ConsumerTag) + len(n.Connection) + len(n.User) + len(n.Error) + len(n.Name) + len(n.Product) +
		len(n.Version) + len(n.Class) + len(n.Detail) + len(n.Key) + len(n.Annotations)
}

// Noted returns the stored form of a history with a note. stored may be empty. If it cannot be read, the history begins
// anew: that is better than losing the note, and the message. The detail of the death before, which this one ends, goes: so a
// history has one. Annotations are left out.
func Noted(stored []byte, n *Note) []byte {
	var h History
	if len(stored) > 0 {
		h, _ = Parse(stored)
	}
	own := *n
	own.Annotations = ""
	h.Note, h.Cause.Detail = &own, ""
	return h.Append(make([]byte, 0, len(stored)+n.Size()))
}

// Fresh says whether nothing but notes and annotations has happened to the message so far.
func (h *History) Fresh() bool { return !h.Delayed && h.KeepsTTL() }

// What there is of a cause, and what follows it. Texts come first.
const (
	causeName = 1 << iota
	causeProduct
	causeVersion
	causeClass
	causeDetail
	causeCount
	causeNote // in a history: a note follows
	causeKey  // in a note: a key follows
	causeAnnotations
	causeBits = 1<<iota - 1

	causeTexts = causeCount - 1
)

func (c *Cause) texts() [5]*string {
	return [...]*string{&c.Name, &c.Product, &c.Version, &c.Class, &c.Detail}
}

// what says what appendMore has to write.
func (c *Cause) what() (what uint64) {
	for i, text := range c.texts() {
		if *text != "" {
			what |= 1 << i
		}
	}
	if c.DeliveryCount != 0 {
		what |= causeCount
	}
	return what
}

// append appends the part of a cause that every history has.
func (c *Cause) append(b []byte) []byte {
	b = appendString(b, c.ConsumerTag)
	b = appendString(b, c.Connection)
	b = appendString(b, c.User)
	return appendString(b, c.Error)
}

// appendMore appends the other part, of which nothing empty is stored:
//
//	what uvarint | name | product | version | class | detail | delivery count uvarint     of these, what "what" names
func (c *Cause) appendMore(b []byte, what uint64) []byte {
	b = binary.AppendUvarint(b, what)
	for _, text := range c.texts() {
		if *text != "" {
			b = appendString(b, *text)
		}
	}
	if c.DeliveryCount != 0 {
		b = binary.AppendUvarint(b, uint64(c.DeliveryCount))
	}
	return b
}

// Append appends the note's stored form: both parts of its cause, and its key and its annotations if it has them.
func (n *Note) Append(b []byte) []byte {
	what := n.what()
	if n.HasKey {
		what |= causeKey
	}
	if n.Annotations != "" {
		what |= causeAnnotations
	}
	b = n.appendMore(n.append(b), what)
	if n.HasKey {
		b = appendString(b, n.Key)
	}
	if n.Annotations != "" {
		b = appendString(b, n.Annotations)
	}
	return b
}

// ParseNote reads what Append wrote. It fails on any other bytes.
func ParseNote(b []byte) (*Note, error) {
	r := reader{b: b}
	n := r.note()
	if r.bad || len(r.b) > 0 {
		return nil, errHistory
	}
	return n, nil
}

func (r *reader) cause() Cause {
	return Cause{ConsumerTag: r.string(), Connection: r.string(), User: r.string(), Error: r.string()}
}

// more reads what appendMore wrote.
func (r *reader) more(c *Cause) (what uint64) {
	what = r.uvarint()
	r.bad = r.bad || what&^causeBits != 0
	for i, text := range c.texts() {
		if what&(1<<i) != 0 {
			*text = r.string()
		}
	}
	if what&causeCount != 0 {
		n := r.uvarint()
		c.DeliveryCount = uint32(n)
		r.bad = r.bad || n > 1<<32-1
	}
	return what
}

func (r *reader) note() *Note {
	n := &Note{Cause: r.cause()}
	what := r.more(&n.Cause)
	r.bad = r.bad || what&causeNote != 0
	if n.HasKey = what&causeKey != 0; n.HasKey {
		n.Key = r.string()
	}
	if what&causeAnnotations != 0 {
		n.Annotations = r.annotations()
	}
	return n
}

// skipMore skips what appendMore wrote.
func (r *reader) skipMore() (what uint64) {
	what = r.uvarint()
	for range bits.OnesCount64(what & causeTexts) {
		r.skip()
	}
	if what&causeCount != 0 {
		r.uvarint()
	}
	return what
}

// skipNote skips a note.
func (r *reader) skipNote() {
	for range 4 {
		r.skip()
	}
	what := r.skipMore()
	if what&causeKey != 0 {
		r.skip()
	}
	if what&causeAnnotations != 0 {
		r.skip()
	}
}

// headNoted says whether there is a note, or annotations, in a stored form, or in the shared part of one.
func headNoted(shared []byte) bool {
	if len(shared) < 2 || shared[1]&flagCause == 0 {
		return false
	}
	r := reader{b: shared}
	r.upToMore()
	return r.uvarint()&(causeNote|causeAnnotations) != 0 && !r.bad
}
