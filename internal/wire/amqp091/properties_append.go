package amqp091

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// A PropsEdit is what a broker changes in the properties of a message on its way. The
// zero value changes nothing.
type PropsEdit struct {
	// Set replaces headers or adds them. REQUIRES: sorted by the bytes of the keys, no
	// key twice. A message without headers gets a table.
	Set []RawField
	// Remove drops headers, unless Set has them. A table that gets empty stays.
	Remove []string
	// Expiration and ReplyTo: nil keeps the property, "" removes it, all else sets it.
	Expiration *string
	ReplyTo    *string
}

// A RawField is a header in its encoded form: AppendValue makes it.
type RawField struct {
	Key     string
	Encoded []byte // type octet and value
}

// none reports whether the edit changes nothing.
func (e *PropsEdit) none() bool {
	return e == nil || !e.changesHeaders() && e.Expiration == nil && e.ReplyTo == nil
}

func (e *PropsEdit) changesHeaders() bool { return e != nil && (len(e.Set) > 0 || len(e.Remove) > 0) }

// Canonical reports whether the raw properties that ParseProps made p of are as
// RabbitMQ would deliver them, so that they can be sent on as they are: headers sorted by
// the bytes of their keys, none twice (DL-6.15).
func Canonical(p *Props) bool {
	return p.Flags&unusedFlags == 0 && (p.headers == formCanonical || !p.Has(FlagHeaders))
}

// AppendProps appends the properties p, which ParseProps made of raw, in canonical form
// with the edit applied; e may be nil. The headers come sorted by the bytes of their
// keys, of equal keys the first; tables inside keep their order, as in RabbitMQ
// (see Table.Sorted). An empty table stays an empty table. Where nothing has to change
// it is a plain append of raw. It allocates nothing but room in dst, unless more than 32
// headers have to be sorted.
func AppendProps(dst, raw []byte, p *Props, e *PropsEdit) []byte {
	if e.none() {
		if Canonical(p) {
			return append(dst, raw...)
		}
		e = &PropsEdit{}
	}
	expiration := edited(p.Expiration, e.Expiration)
	replyTo := edited(p.ReplyTo, e.ReplyTo)

	flags := p.Flags &^ unusedFlags
	flags = withFlag(flags, FlagExpiration, e.Expiration)
	flags = withFlag(flags, FlagReplyTo, e.ReplyTo)
	if len(e.Set) > 0 {
		flags |= FlagHeaders
	}

	w := propWriter{dst: binary.BigEndian.AppendUint16(dst, flags), flags: flags}
	w.shortstr(FlagContentType, p.ContentType)
	w.shortstr(FlagContentEncoding, p.ContentEncoding)
	if flags&FlagHeaders != 0 {
		w.dst = appendHeaders(w.dst, p, e)
	}
	w.octet(FlagDeliveryMode, p.DeliveryMode)
	w.octet(FlagPriority, p.Priority)
	w.shortstr(FlagCorrelationID, p.CorrelationID)
	w.shortstr(FlagReplyTo, replyTo)
	w.shortstr(FlagExpiration, expiration)
	w.shortstr(FlagMessageID, p.MessageID)
	w.timestamp(FlagTimestamp, p.Timestamp)
	w.shortstr(FlagType, p.Type)
	w.shortstr(FlagUserID, p.UserID)
	w.shortstr(FlagAppID, p.AppID)
	w.shortstr(FlagClusterID, p.ClusterID)
	return w.dst
}

// edited returns the property after its edit.
func edited(property []byte, edit *string) []byte {
	if edit == nil {
		return property
	}
	return []byte(*edit)
}

// withFlag returns flags after the edit of the property with the flag.
func withFlag(flags, flag uint16, edit *string) uint16 {
	switch {
	case edit == nil:
		return flags
	case *edit == "":
		return flags &^ flag
	}
	return flags | flag
}

// propWriter appends the properties that flags has.
type propWriter struct {
	dst   []byte
	flags uint16
}

func (w *propWriter) shortstr(flag uint16, s []byte) {
	if w.flags&flag != 0 {
		w.dst = appendShortBytes(w.dst, s)
	}
}

func (w *propWriter) octet(flag uint16, v uint8) {
	if w.flags&flag != 0 {
		w.dst = append(w.dst, v)
	}
}

func (w *propWriter) timestamp(flag uint16, v uint64) {
	if w.flags&flag != 0 {
		w.dst = binary.BigEndian.AppendUint64(w.dst, v)
	}
}

// appendHeaders appends the header table of p, with its length, in canonical form and
// with the edit applied.
func appendHeaders(dst []byte, p *Props, e *PropsEdit) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	m := headerMerger{dst: dst, set: e.Set, remove: e.Remove}
	switch p.headers {
	case formCanonical:
		if !e.changesHeaders() {
			return endCounted(append(dst, p.Headers...), start)
		}
		for it := (fieldIterator{rest: p.Headers}); it.next(); {
			m.add(it.key, it.encoded)
		}
	default:
		var room [32]rawHeader // so that sorting the usual few allocates nothing
		for _, h := range sortHeaders(room[:0], p.Headers) {
			m.add(h.key, h.encoded)
		}
	}
	dst = m.end()
	if p.headers == formRespelled || p.headers == formUnknown {
		respellFields(dst[start+4:])
	}
	return endCounted(dst, start)
}

// rawHeader is a header in place.
type rawHeader struct{ key, encoded []byte }

// sortHeaders appends the headers to dst, sorted, of equal keys only the first.
func sortHeaders(dst []rawHeader, headers []byte) []rawHeader {
	for it := (fieldIterator{rest: headers}); it.next(); {
		dst = append(dst, rawHeader{it.key, it.encoded})
	}
	slices.SortStableFunc(dst, func(a, b rawHeader) int { return bytes.Compare(a.key, b.key) })
	return slices.CompactFunc(dst, func(a, b rawHeader) bool { return bytes.Equal(a.key, b.key) })
}

// headerMerger appends headers that come in order, with an edit applied.
type headerMerger struct {
	dst    []byte
	set    []RawField // those not yet appended
	remove []string
}

// add appends the next header, and the set ones that stand before it.
func (m *headerMerger) add(key, encoded []byte) {
	for len(m.set) > 0 && m.set[0].Key < string(key) {
		m.addSet()
	}
	switch {
	case len(m.set) > 0 && m.set[0].Key == string(key):
		m.addSet()
	case !m.removes(key):
		m.dst = append(appendShortBytes(m.dst, key), encoded...)
	}
}

// addSet appends the first of the set headers.
func (m *headerMerger) addSet() {
	m.dst = append(appendShortstr(m.dst, m.set[0].Key), m.set[0].Encoded...)
	m.set = m.set[1:]
}

// end appends the set headers that are left.
func (m *headerMerger) end() []byte {
	for len(m.set) > 0 {
		m.addSet()
	}
	return m.dst
}

func (m *headerMerger) removes(key []byte) bool {
	for _, r := range m.remove {
		if r == string(key) {
			return true
		}
	}
	return false
}
