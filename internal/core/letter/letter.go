package letter

import (
	"slices"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// Reader reads messages one after the other. One goroutine at a time uses it.
type Reader struct {
	names *Names // nil: none are configured
	mask  *Mask  // see Masked

	// histories are parsed forms by their shared part: a million letters of one queue differ only in times and counts.
	histories   map[string]*deadletter.History
	shared, own []byte
	letter      Letter
	lastShared  string
	lastHistory *deadletter.History
}

// maxHistories is how many shared parts a Reader remembers, and largestHistory the longest of these, in bytes: what a consumer says of each
// failure may be long, and then no other letter shares it.
const maxHistories, largestHistory = 1024, 1 << 10

// NewReader returns a reader. names may be nil.
func NewReader(names *Names) *Reader {
	return &Reader{names: names, histories: map[string]*deadletter.History{}}
}

// Masked makes the reader show letters, and answer queries, as they are behind a mask, which may be nil.
func (r *Reader) Masked(m *Mask) *Reader {
	r.mask = m
	return r
}

// Mask is what Masked was given.
func (r *Reader) Mask() *Mask { return r.mask }

// Letter is a message that died, or that a consumer parked. It is valid until its reader reads the next one.
type Letter struct {
	Record  message.Record
	History *deadletter.History // the broker's own, or what a client's headers say; it has a death
	Parked  bool                // a consumer published it: History is only the client's word
	Died    int64               // last, or when it was parked; in milliseconds since 1970

	names     *Names
	parsed    bool // props and told are filled
	props     amqp091.Props
	told      told
	hasCause  bool
	causeOnce Cause

	mask   *Mask
	masked bool // behind is filled
	behind told // told behind the mask
}

// Read returns the message as a letter, or false if it is none. history is its stored form, nil if it has none. A message
// that a replay has moved, and that has not died since, is no letter.
func (r *Reader) Read(rec message.Record, history []byte) (*Letter, bool) {
	l := &r.letter
	*l = Letter{Record: rec, names: r.names, mask: r.mask}
	if len(history) > 0 {
		h := r.parse(history)
		if h != nil && len(h.Deaths) > 0 {
			l.History, l.Died = h, h.Deaths[0].Last
			return l, true
		}
		if h != nil && h.ReplayedFrom != "" {
			return nil, false
		}
	}
	if !rec.HasHeaders() || !l.mayBeParked() {
		return nil, false
	}
	l.Parked, l.Died = true, rec.Serial().UnixMilli()
	h, ok := deadletter.Carried(l.props.Headers)
	if !ok {
		if !l.told.parked() {
			return nil, false
		}
		h = deadletter.History{Deaths: []deadletter.Death{{Reason: deadletter.Rejected, Count: 1, Expiration: -1, First: l.Died, Last: l.Died}}}
	}
	if h.Deaths[0].Queue == "" {
		h.Deaths[0].Queue = l.told.source()
	}
	l.History = &h
	return l, true
}

// mayBeParked looks for a header that tells of a death, without decoding any.
func (l *Letter) mayBeParked() bool {
	l.parse()
	if l.told.parked() {
		return true
	}
	for _, name := range [...]string{"x-death", "x-original-routingKey"} {
		if _, _, ok := amqp091.HeaderField(l.props.Headers, name); ok {
			return true
		}
	}
	return false
}

// parse reads a stored history. The result is valid until the next call; nil: it cannot be read.
func (r *Reader) parse(stored []byte) *deadletter.History {
	var ok bool
	if r.shared, r.own, ok = deadletter.Divide(stored, r.shared[:0], r.own[:0]); !ok {
		return nil
	}
	h := r.lastHistory
	if h == nil || r.lastShared != string(r.shared) {
		if h, ok = r.histories[string(r.shared)]; !ok {
			parsed, err := deadletter.Parse(stored)
			if err != nil {
				return nil
			}
			h = &parsed
			if len(r.shared) > largestHistory {
				return h
			}
			if len(r.histories) >= maxHistories {
				clear(r.histories)
			}
			key := string(r.shared)
			r.histories[key], r.lastShared, r.lastHistory = h, key, h
			return h
		}
		r.lastShared, r.lastHistory = string(r.shared), h
	}
	if !h.Renumber(r.own) {
		delete(r.histories, string(r.shared))
		r.lastHistory = nil
		return nil
	}
	return h
}

// parse reads the properties, once.
func (l *Letter) parse() {
	if l.parsed {
		return
	}
	l.parsed = true
	l.props, _ = amqp091.ParseProps(l.Record.Properties()) // of a record that cannot be read nothing is known
	if annotations := l.annotations(); annotations != "" || len(l.props.Headers) > 0 {
		l.told.read(annotations, l.props.Headers, l.names, nil)
	}
}

// annotations are those that outcomes of AMQP 1.0 have merged into a message that has died: "" while it is looked at whether a consumer has
// parked it, since these say only that somebody has had it before.
func (l *Letter) annotations() string {
	if l.History == nil {
		return ""
	}
	return l.History.Annotations
}

// Props are the properties as they were published.
func (l *Letter) Props() *amqp091.Props {
	l.parse()
	return &l.props
}

// HasHeader says whether it was published with a header of this name.
func (l *Letter) HasHeader(name string) bool {
	l.parse()
	_, _, ok := amqp091.HeaderField(l.props.Headers, name)
	return ok
}

// shown are the headers behind the mask.
func (l *Letter) shown() *told {
	l.parse()
	if l.mask == nil {
		return &l.told
	}
	if !l.masked {
		l.masked = true
		l.behind.read(l.annotations(), l.props.Headers, l.names, l.mask)
	}
	return &l.behind
}

// Mask is the mask of the reader.
func (l *Letter) Mask() *Mask { return l.mask }

// Cause is why it died, without the detail.
func (l *Letter) Cause() Cause {
	if l.mask == nil {
		return l.unmaskedCause()
	}
	said := l.said()
	c := l.causeOf(l.shown(), &said)
	c.Class, c.Error = l.mask.Text(c.Class), l.mask.Text(c.Error) // splitting may have joined what a pattern matches
	return c
}

// HeadersAreOlder says whether the headers tell of an error that is not of its last death: the letter was replayed, with the same headers, and
// has died since.
func (l *Letter) HeadersAreOlder() bool {
	l.parse()
	return l.replayed() && (l.told.parked() || l.told.set[fieldDetail])
}

// replayed says whether its deaths are those since a replay. A consumer that parks a letter writes its headers anew.
func (l *Letter) replayed() bool { return !l.Parked && l.History.ReplayedFrom != "" }

// causeOf is the cause of what the consumer told the broker or, if it told nothing, of headers that are not older than the death.
func (l *Letter) causeOf(t *told, said *deadletter.Cause) Cause {
	if l.replayed() && !saidOf(said) {
		return Cause{}
	}
	return t.cause(said)
}

// said is what the consumer told the broker, behind the mask.
func (l *Letter) said() deadletter.Cause {
	c := l.History.Cause
	c.Class, c.Error, c.Detail = l.mask.Text(c.Class), l.mask.Text(c.Error), l.mask.Document(c.Detail)
	return c
}

func (l *Letter) unmaskedCause() Cause {
	if !l.hasCause {
		l.parse()
		l.causeOnce, l.hasCause = l.causeOf(&l.told, &l.History.Cause), true
	}
	return l.causeOnce
}

// WholeCause is Cause with the detail.
func (l *Letter) WholeCause() Cause {
	c, t, said := l.Cause(), l.shown(), l.said()
	if l.replayed() && !saidOf(&said) {
		return c
	}
	c.Detail = l.mask.Text(t.detail(&said))
	if c.Detail != "" && c.From == "" {
		c.From = familyNames[t.from[fieldDetail]]
	}
	return c
}

// Type is the type of the message.
func (l *Letter) Type() string {
	if l.mask == nil {
		return l.unmaskedType()
	}
	t := l.shown()
	typ, subject := l.typed()
	return l.mask.Text(t.messageType([]byte(l.mask.Text(string(typ))), []byte(l.mask.Text(string(subject)))))
}

func (l *Letter) unmaskedType() string {
	l.parse()
	return l.told.messageType(l.typed())
}

// typed are the property type, and the subject of a message that came by AMQP 1.0. The type amqp-1.0 says how a body is encoded, and nothing
// of the message.
func (l *Letter) typed() (property, subject []byte) {
	if property = l.props.Type; string(property) == "amqp-1.0" {
		property = nil
	}
	if l.Record.HasSections() {
		subject, property = convert.Named(l.Record)
	}
	return property, subject
}

// WholeText is how many bytes of a body's text are all of it for those who edit or store it. Only of a value that is made for this the text is
// longer: an array whose elements take no room.
func WholeText(rec message.Record) int { return max(MaxMasked, 6*rec.BodySize()) }

// Text is the body as people read it, at least its first limit bytes if it is not masked: of a value of AMQP 1.0 the text, otherwise all of
// the body, of several data sections as one. kind is that of convert.BodyText. cut: there is more than that.
func (l *Letter) Text(limit int) (body []byte, kind string, cut bool) {
	if body, kind, cut = convert.BodyText(l.Record, limit); kind == "" {
		return convert.Body(l.Record), "", false
	}
	return body, kind, cut
}

// Source is the queue in which it died last, "" if nobody says.
func (l *Letter) Source() string { return l.Place(l.unmaskedSource()) }

func (l *Letter) unmaskedSource() string { return l.History.Deaths[0].Queue }

// Place is the name of a queue of the history behind the mask: a header may have named it.
func (l *Letter) Place(name string) string {
	if l.mask == nil || name == "" {
		return name
	}
	if shown := l.shown().source(); shown != name && l.told.source() == name {
		return shown
	}
	return l.mask.Text(name)
}

// Reason is why it died last.
func (l *Letter) Reason() deadletter.Reason { return l.History.Deaths[0].Reason.Counted() }

// TimesDied counts its deaths.
func (l *Letter) TimesDied() uint64 { return l.History.Total() }

// Origin is where it was first published.
func (l *Letter) Origin() (exchange string, keys []string) {
	exchange, keys, _ = l.History.Origin()
	return l.mask.Text(exchange), l.mask.Texts(keys)
}

// MessageID is the property of this name.
func (l *Letter) MessageID() string { return l.mask.Text(string(l.Props().MessageID)) }

// Group is what it shares with the letters of its group. A mask does not change it.
func (l *Letter) Group() Key {
	c := l.unmaskedCause()
	return Key{Source: l.unmaskedSource(), Reason: l.Reason().String(), Class: c.Class, Error: Pattern(c.Error), Type: l.unmaskedType()}
}

// GroupShown is Group as it is shown behind the mask.
func (l *Letter) GroupShown() Key {
	if l.mask == nil {
		return l.Group()
	}
	c := l.Cause()
	return Key{Source: l.Source(), Reason: l.Reason().String(), Class: c.Class, Error: l.mask.Text(Pattern(c.Error)), Type: l.Type()}
}

// IsMasked says whether the mask changes what is said of the letter, without its body and the properties that are not said apart.
func (l *Letter) IsMasked() bool {
	if l.mask == nil {
		return false
	}
	exchange, keys, _ := l.History.Origin()
	shownExchange, shownKeys := l.Origin()
	said, unmasked := l.said(), &l.History.Cause
	return said.Class != unmasked.Class || said.Error != unmasked.Error || said.Detail != unmasked.Detail || l.Cause() != l.unmaskedCause() || l.Type() != l.unmaskedType() || l.Source() != l.unmaskedSource() || exchange != shownExchange || !slices.Equal(keys, shownKeys) ||
		l.MessageID() != string(l.Props().MessageID)
}
