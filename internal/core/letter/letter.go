package letter

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// Reader reads messages one after the other. One goroutine at a time uses it.
type Reader struct {
	names *Names // nil: none are configured

	// histories are parsed forms by their shared part: a million letters of one queue differ only in times and counts.
	histories   map[string]*deadletter.History
	shared, own []byte
	letter      Letter
	lastShared  string
	lastHistory *deadletter.History
}

// maxHistories is how many shared parts a Reader remembers.
const maxHistories = 1024

// NewReader returns a reader. names may be nil.
func NewReader(names *Names) *Reader {
	return &Reader{names: names, histories: map[string]*deadletter.History{}}
}

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
}

// Read returns the message as a letter, or false if it is none. history is its stored form, nil if it has none. A message
// that a replay has moved, and that has not died since, is no letter.
func (r *Reader) Read(rec message.Record, history []byte) (*Letter, bool) {
	l := &r.letter
	*l = Letter{Record: rec, names: r.names}
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
			if len(r.histories) >= maxHistories {
				clear(r.histories)
			}
			h = &parsed
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
	if len(l.props.Headers) > 0 {
		l.told.readHeaders(l.props.Headers, l.names)
	}
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

// Cause is why it died, without the detail.
func (l *Letter) Cause() Cause {
	if !l.hasCause {
		l.parse()
		l.causeOnce, l.hasCause = l.told.cause(&l.History.Cause), true
	}
	return l.causeOnce
}

// WholeCause is Cause with the detail.
func (l *Letter) WholeCause() Cause {
	c := l.Cause()
	c.Detail = l.told.detail(&l.History.Cause)
	if c.Detail != "" && c.From == "" {
		c.From = familyNames[l.told.from[fieldDetail]]
	}
	return c
}

// Type is the type of the message.
func (l *Letter) Type() string {
	l.parse()
	return l.told.messageType(l.props.Type)
}

// Source is the queue in which it died last, "" if nobody says.
func (l *Letter) Source() string { return l.History.Deaths[0].Queue }

// Reason is why it died last.
func (l *Letter) Reason() deadletter.Reason { return l.History.Deaths[0].Reason.Counted() }

// TimesDied counts its deaths.
func (l *Letter) TimesDied() uint64 { return l.History.Total() }

// Origin is where it was first published.
func (l *Letter) Origin() (exchange string, keys []string) {
	exchange, keys, _ = l.History.Origin()
	return exchange, keys
}

// Group is what it shares with the letters of its group.
func (l *Letter) Group() Key {
	c := l.Cause()
	return Key{Source: l.Source(), Reason: l.Reason().String(), Class: c.Class, Error: Pattern(c.Error), Type: l.Type()}
}
