package convert

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// converter collects the AMQP 0-9-1 properties of a message of AMQP 1.0. A short string that is nil is not there.
type converter struct {
	in   *Incoming
	size int // of the headers

	contentType, contentEncoding  []byte
	correlationID, replyTo        []byte
	messageID, userID, typ, appID []byte
	persistent, hasCC             bool
	hasPriority, hasTTL, hasTime  bool
	priority                      uint8
	ttl                           uint64 // milliseconds
	time                          int64  // seconds since 1970
}

// MaxHeaders is how many bytes the headers of one message may take up: a client of AMQP 0-9-1 gets all of them in
// one frame, and there the frame of a publish limits them. What has no room is left out; clients of AMQP 1.0 get it.
const MaxHeaders = 120 << 10

// end makes a header of the bytes that values has beyond those of in.values, if there is room.
func (c *converter) end(key, values []byte) {
	if size := 1 + len(key) + len(values) - len(c.in.values); c.size+size <= MaxHeaders {
		c.size += size
		c.keep(key, values)
		return
	}
	c.in.values = values[:len(c.in.values)] // it may have grown: what comes next needs no room of its own
}

func (c *converter) keep(key, values []byte) {
	c.in.headers = append(c.in.headers, header{key, len(c.in.values), len(values)})
	c.in.values = values
}

// add makes a header of a value, unless AMQP 0-9-1 has no such value.
func (c *converter) add(key []byte, v *amqp10.Value) {
	if v.Size() > MaxHeaders { // it may become a little shorter, and that is not worth a copy of whatever comes
		return
	}
	values, ok := appendField(c.in.values, v, 1)
	if !ok {
		c.in.values = values
		return
	}
	c.end(key, values)
}

// annotations reads the message-annotations: what they say of properties, and headers.
func (c *converter) annotations(section *amqp10.Value) error {
	items := section.ItemsBelow()
	var k, v amqp10.Value
	for items.Read(&k) && items.Read(&v) {
		key, ok := k.Symbol()
		if !ok || !isX(key) {
			return reserved(k)
		}
		if err := c.annotation(key, &v); err != nil {
			return err
		}
	}
	return nil
}

func (c *converter) annotation(key []byte, v *amqp10.Value) error {
	switch string(key) {
	case annotationCC:
		return c.cc(v)
	case annotationReceived:
		if ms, ok := v.Timestamp(); ok {
			c.end(keyReceived, binary.BigEndian.AppendUint64(append(c.in.values, 'l'), uint64(ms)))
			return nil
		}
	case annotationDeaths:
		if v.Size() > MaxHeaders {
			return nil
		}
		values, ok := appendDeaths(c.in.values, v)
		if !ok {
			c.in.values = values
			return nil
		}
		c.end(keyDeath, values)
		return nil
	case annotationExchange, annotationKey, headerDeath: // the broker's own
		return nil
	case annotationType:
		c.typ = shortText(v)
	case annotationDelivery:
		mode, ok := v.Uint64()
		c.persistent = ok && v.Type() == amqp10.TypeUbyte && mode == 2
	case annotationPriority:
		if p, ok := v.Int64(); ok && p >= 0 && p <= math.MaxUint8 {
			c.priority, c.hasPriority = uint8(p), true
		}
	case annotationExpires:
		if s, ok := v.Text(); ok {
			if ms, ok := parseTTL(string(s)); ok {
				c.ttl, c.hasTTL = ms, true
			}
		}
	}
	if len(key) <= math.MaxUint8 && !bytes.HasPrefix(key, basic) {
		c.add(key, v)
	}
	return nil
}

// parseTTL reads a time to live in milliseconds.
func parseTTL(s string) (ms uint64, ok bool) {
	ms, err := strconv.ParseUint(s, 10, 63)
	return ms, err == nil && ms <= maxTTL
}

// maxTTL is ten years in milliseconds (DL-8.3).
const maxTTL = 315360000000

var basic = []byte(basicPrefix)

// cc makes the header CC of the annotation x-cc. Of several the first counts. RabbitMQ takes null for no key.
func (c *converter) cc(v *amqp10.Value) error {
	if c.hasCC || v.IsNull() {
		return nil
	}
	c.hasCC = true
	if v.Type() != amqp10.TypeList {
		return &CCError{printed(*v)}
	}
	if v.Size() > MaxHeaders {
		return tooManyKeys(v.Size())
	}
	items := v.Items()
	for key, ok := items.Next(); ok; key, ok = items.Next() {
		if key.Type() != amqp10.TypeString {
			return &CCError{printed(*v)}
		}
	}
	values, ok := appendField(c.in.values, v, 1)
	if !ok {
		return nil
	}
	size := 1 + len(keyCC) + len(values) - len(c.in.values)
	if size > MaxHeaders {
		return tooManyKeys(size)
	}
	if c.size+size > MaxHeaders { // the message is routed by it: it has room before the headers so far
		c.in.headers, c.size = c.in.headers[:0], 0
	}
	c.size += size
	c.keep(keyCC, values)
	return nil
}

// tooManyKeys is the refusal of an annotation x-cc that no frame of AMQP 0-9-1 could have: a client that gets such a message may close
// its connection, and get it again.
func tooManyKeys(size int) error {
	return &CCError{fmt.Sprintf("a list of %d bytes, at most %d are possible", size, MaxHeaders)}
}

// properties reads the section properties. Message.Check has looked at the types of its fields.
func (c *converter) properties(section *amqp10.Value) {
	in := c.in
	items := section.ItemsBelow()
	place := amqp10.PropertyMessageID
	var v amqp10.Value
	for items.Read(&v) {
		if !v.IsNull() {
			switch place {
			case amqp10.PropertyMessageID:
				c.messageID = c.id(&v, textMessageID, keyMessageID)
			case amqp10.PropertyUserID:
				if in.UserID, _ = v.Binary(); utf8.Valid(in.UserID) && bytes.IndexByte(in.UserID, 0) < 0 {
					c.userID = short(in.UserID)
				}
			case amqp10.PropertyTo:
				in.To, _ = v.Text()
			case amqp10.PropertySubject:
				in.Subject, _ = v.Text()
			case amqp10.PropertyReplyTo:
				c.replyTo = c.reply(shortText(&v))
			case amqp10.PropertyCorrelationID:
				c.correlationID = c.id(&v, textCorrelationID, keyCorrelationID)
			case amqp10.PropertyContentType:
				c.contentType = shortText(&v)
			case amqp10.PropertyContentEncoding:
				c.contentEncoding = shortText(&v)
			case amqp10.PropertyCreationTime:
				ms, _ := v.Timestamp()
				c.time, c.hasTime = ms/1000, true
			case amqp10.PropertyGroupID:
				c.appID = shortText(&v)
			}
		}
		place++
	}
}

// short is the string, or nil if it is no short string.
func short(s []byte) []byte {
	if len(s) > math.MaxUint8 {
		return nil
	}
	return s
}

// shortText is a value as a short string, or nil if it is none.
func shortText(v *amqp10.Value) []byte {
	var s []byte
	switch v.Type() {
	case amqp10.TypeString:
		s, _ = v.Text()
	case amqp10.TypeSymbol:
		s, _ = v.Symbol()
	case amqp10.TypeBinary:
		if s, _ = v.Binary(); !utf8.Valid(s) {
			return nil
		}
	}
	return short(s)
}

// id is a message-id as a short string, or nil if it is none: then there is a header for what it is.
func (c *converter) id(v *amqp10.Value, text int, key []byte) []byte {
	b := c.in.texts[text][:0]
	switch v.Type() {
	case amqp10.TypeUUID:
		id, _ := v.UUID()
		b = appendURN(b, &id)
	case amqp10.TypeUlong:
		n, _ := v.Uint64()
		b = strconv.AppendUint(b, n, 10)
	case amqp10.TypeBinary:
		if s, _ := v.Binary(); len(s) <= MaxHeaders {
			c.end(key, appendLong(append(c.in.values, 'x'), s))
		}
		return nil
	case amqp10.TypeString:
		s, _ := v.Text()
		if len(s) > math.MaxUint8 {
			c.add(key, v)
			return nil
		}
		return s
	default:
		return nil
	}
	c.in.texts[text] = b
	return b
}

// appendURN appends a uuid as RabbitMQ writes it in AMQP 0-9-1.
func appendURN(dst []byte, id *[16]byte) []byte {
	dst = append(dst, urn...)
	for i, end := range [...]int{4, 6, 8, 10, 16} {
		if i > 0 {
			dst = append(dst, '-')
		}
		begin := [...]int{0, 4, 6, 8, 10}[i]
		dst = hex.AppendEncode(dst, id[begin:end])
	}
	return dst
}

const urn = "urn:uuid:"

// reply is the name of the queue in an address of a queue, or nil if the address is not encoded as it has to be. Other
// addresses stay what they are.
func (c *converter) reply(address []byte) []byte {
	name, ok := bytes.CutPrefix(address, []byte(queues))
	switch {
	case !ok:
		return address
	case len(name) == 0:
		return name
	}
	b := c.in.texts[textReplyTo][:0]
	for len(name) > 0 {
		if c := name[0]; isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:@", c) >= 0 {
			b, name = append(b, c), name[1:]
			continue
		}
		var octet [1]byte
		if name[0] != '%' || len(name) < 3 {
			return nil
		}
		if _, err := hex.Decode(octet[:], name[1:3]); err != nil {
			return nil
		}
		b, name = append(b, octet[0]), name[3:]
	}
	if c.in.texts[textReplyTo] = b; !utf8.Valid(b) {
		return nil
	}
	return b
}

// applicationProperties makes headers of the application-properties. CC and BCC would be routing keys of the message: those of
// AMQP 1.0 are in its annotation x-cc only.
func (c *converter) applicationProperties(section *amqp10.Value) {
	items := section.ItemsBelow()
	var k, v amqp10.Value
	for items.Read(&k) && items.Read(&v) {
		key, ok := k.Text()
		if ok && len(key) <= math.MaxUint8 && string(key) != headerCC && string(key) != headerBCC {
			c.add(key, &v)
		}
	}
}

// header reads the section header: what it says goes before what annotations say.
func (c *converter) header(m *amqp10.Message) {
	h := m.Head()
	if h.Durable {
		c.persistent = true
	} else if c.persistent {
		durable := m.Header.Underlying().At(0) // not there, it says nothing
		c.persistent = durable.IsNull()
	}
	if h.Priority.Set {
		c.priority, c.hasPriority = h.Priority.Value, true
	}
	if h.TTL.Set {
		c.ttl, c.hasTTL = uint64(h.TTL.Value), true
	}
}

// write writes the properties in canonical form.
func (c *converter) write() {
	w := propertyWriter{b: append(c.in.Raw, 0, 0)}
	w.short(amqp091.FlagContentType, c.contentType)
	w.short(amqp091.FlagContentEncoding, c.contentEncoding)
	if len(c.in.headers) > 0 {
		w.flags |= amqp091.FlagHeaders
		w.headers(c.in)
	}
	w.octet(amqp091.FlagDeliveryMode, 2, c.persistent)
	w.octet(amqp091.FlagPriority, c.priority, c.hasPriority)
	w.short(amqp091.FlagCorrelationID, c.correlationID)
	w.short(amqp091.FlagReplyTo, c.replyTo)
	if c.hasTTL {
		w.flags |= amqp091.FlagExpiration
		at := len(w.b)
		w.b = strconv.AppendUint(append(w.b, 0), c.ttl, 10)
		w.b[at] = byte(len(w.b) - at - 1)
	}
	w.short(amqp091.FlagMessageID, c.messageID)
	if c.hasTime {
		w.flags |= amqp091.FlagTimestamp
		w.b = binary.BigEndian.AppendUint64(w.b, uint64(c.time))
	}
	w.short(amqp091.FlagType, c.typ)
	w.short(amqp091.FlagUserID, c.userID)
	w.short(amqp091.FlagAppID, c.appID)
	binary.BigEndian.PutUint16(w.b, w.flags)
	c.in.Raw = w.b
}

// propertyWriter appends properties in their order.
type propertyWriter struct {
	b     []byte
	flags uint16
}

func (w *propertyWriter) short(flag uint16, s []byte) {
	if s != nil {
		w.flags |= flag
		w.b = append(append(w.b, byte(len(s))), s...)
	}
}

func (w *propertyWriter) octet(flag uint16, v uint8, has bool) {
	if has {
		w.flags |= flag
		w.b = append(w.b, v)
	}
}

// headers writes the table, sorted; of equal keys the first counts (DL-6.15).
func (w *propertyWriter) headers(in *Incoming) {
	at := len(w.b)
	w.b = append(w.b, 0, 0, 0, 0)
	slices.SortStableFunc(in.headers, func(a, b header) int { return bytes.Compare(a.key, b.key) })
	for i := range in.headers {
		h := &in.headers[i]
		if i > 0 && bytes.Equal(h.key, in.headers[i-1].key) {
			continue
		}
		w.b = append(append(w.b, byte(len(h.key))), h.key...)
		w.b = append(w.b, in.values[h.begin:h.end]...)
	}
	putSize(w.b, at)
}

// putSize writes at the place at how many bytes follow these four.
func putSize(b []byte, at int) { binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4)) }
