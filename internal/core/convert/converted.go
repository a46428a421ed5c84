package convert

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// converted is AppendAMQP10 for a message that came by AMQP 0-9-1 (DL-14.5).
func (o *outgoing) converted(dst []byte) (head, body, tail []byte) {
	o.parse()
	dst = o.header(dst)
	o.begin(dst)
	o.headerAnnotations()
	dst = o.properties(o.w.end())
	dst = o.applicationProperties(dst)
	if body = o.rec.Body(); o.props.Has(amqp091.FlagType) && string(o.props.Type) == string(amqp10Type) && isBody(body) {
		return dst, body, nil
	}
	return appendDataHead(dst, len(body)), body, nil
}

// isBody says whether bytes are the encoded body of a message, as those are that came by AMQP 1.0: a client may write the type
// amqp-1.0 over anything.
func isBody(b []byte) bool {
	m, err := amqp10.ParseMessage(b)
	return err == nil && m.BodyKind != 0 && len(m.Body)+len(m.Footer) == len(b) && m.Check() == nil
}

// appendDataHead appends what a data section has before its content (3.2.6).
func appendDataHead(dst []byte, size int) []byte {
	const codeBinary8, codeBinary32 = 0xa0, 0xb0
	dst = amqp10.AppendDescriptor(dst, amqp10.DescriptorData)
	if size <= math.MaxUint8 {
		return append(dst, codeBinary8, byte(size))
	}
	return binary.BigEndian.AppendUint32(append(dst, codeBinary32), uint32(size))
}

// annotates says whether a header becomes an annotation. A key that is no ASCII cannot be one.
func annotates(key []byte) bool { return isX(key) && isASCII(key) }

// routes says whether a header is CC as it routes: an array.
func routes(key []byte, kind byte) bool { return kind == 'A' && string(key) == headerCC }

// headerAnnotations adds the annotations that headers and the type become.
func (o *outgoing) headerAnnotations() {
	w, hasCC := &o.w, false
	amqp091.RangeHeaders(o.props.Headers, func(key []byte, kind byte, value []byte) bool {
		name := key
		switch {
		case routes(key, kind):
			name, hasCC = []byte(annotationCC), true
		case !annotates(key) || hasCC && string(key) == annotationCC: // the headers are sorted
			return true
		}
		if o.replaces(name) {
			return true
		}
		before := len(w.b)
		b, ok := appendValue(amqp10.AppendSymbol(w.b, name), kind, value, 0)
		if !ok {
			b = b[:before]
		} else {
			w.n += 2
		}
		w.b = b
		return true
	})
	if o.props.Has(amqp091.FlagType) && !o.merged[annotationType] {
		addText(w, annotationType, o.props.Type)
	}
}

// applicationProperties appends the section with all other headers, if there are any. Those that are tables or arrays stay
// (DL-15.2).
func (o *outgoing) applicationProperties(dst []byte) []byte {
	begin, start, n := len(dst), 0, 0
	out, start := amqp10.BeginMap(amqp10.AppendDescriptor(dst, amqp10.DescriptorApplicationProperties))
	amqp091.RangeHeaders(o.props.Headers, func(key []byte, kind byte, value []byte) bool {
		if annotates(key) || routes(key, kind) || o.d.Strict && (kind == 'A' || kind == 'F') {
			return true
		}
		before := len(out)
		var ok bool
		if out, ok = appendValue(amqp10.AppendString(out, key), kind, value, 0); ok {
			n += 2
		} else {
			out = out[:before]
		}
		return true
	})
	if n == 0 {
		return out[:begin]
	}
	return amqp10.EndCompound(out, start, n)
}

// properties appends the section properties, if there are any.
func (o *outgoing) properties(dst []byte) []byte {
	p, begin := &o.props, len(dst)
	const converted = amqp091.FlagMessageID | amqp091.FlagUserID | amqp091.FlagReplyTo | amqp091.FlagCorrelationID | amqp091.FlagContentType |
		amqp091.FlagContentEncoding | amqp091.FlagTimestamp | amqp091.FlagAppID
	if p.Flags&converted == 0 {
		return dst
	}
	w := propertiesWriter{flags: p.Flags}
	w.b, w.start = amqp10.BeginList(amqp10.AppendDescriptor(dst, amqp10.DescriptorProperties))
	if w.has(amqp10.PropertyMessageID, amqp091.FlagMessageID) {
		w.b = appendID(w.b, p.MessageID)
	}
	if w.has(amqp10.PropertyUserID, amqp091.FlagUserID) {
		w.b = amqp10.AppendBinary(w.b, p.UserID)
	}
	if w.has(amqp10.PropertyReplyTo, amqp091.FlagReplyTo) {
		w.b = appendReply(w.b, p.ReplyTo)
	}
	if w.has(amqp10.PropertyCorrelationID, amqp091.FlagCorrelationID) {
		w.b = appendID(w.b, p.CorrelationID)
	}
	if isASCII(p.ContentType) && w.has(amqp10.PropertyContentType, amqp091.FlagContentType) {
		w.b = amqp10.AppendSymbol(w.b, p.ContentType)
	}
	if isASCII(p.ContentEncoding) && w.has(amqp10.PropertyContentEncoding, amqp091.FlagContentEncoding) {
		w.b = amqp10.AppendSymbol(w.b, p.ContentEncoding)
	}
	if w.has(amqp10.PropertyCreationTime, amqp091.FlagTimestamp) {
		w.b = amqp10.AppendTimestamp(w.b, int64(p.Timestamp*1000))
	}
	if w.has(amqp10.PropertyGroupID, amqp091.FlagAppID) {
		w.b = amqp10.AppendString(w.b, p.AppID)
	}
	if w.next == 0 {
		return w.b[:begin]
	}
	return amqp10.EndCompound(w.b, w.start, int(w.next))
}

// propertiesWriter writes the list of properties in their order.
type propertiesWriter struct {
	flags uint16 // of the message
	b     []byte
	start int
	next  amqp10.Property
}

// has says whether the message has the property with the flag, and appends nulls up to its place then.
func (w *propertiesWriter) has(place amqp10.Property, flag uint16) bool {
	if w.flags&flag == 0 {
		return false
	}
	for ; w.next < place; w.next++ {
		w.b = amqp10.AppendNull(w.b)
	}
	w.next++
	return true
}

// appendID appends a message-id: a uuid if it is written as RabbitMQ writes one, else a string.
func appendID(dst, id []byte) []byte {
	if uuid, ok := parseURN(id); ok {
		return amqp10.AppendUUID(dst, uuid)
	}
	return amqp10.AppendString(dst, id)
}

// parseURN is the reverse of appendURN. Digits may be capitals.
func parseURN(s []byte) (id [16]byte, ok bool) {
	digits, ok := bytes.CutPrefix(s, []byte(urn))
	if !ok || len(digits) != 36 {
		return id, false
	}
	octets := id[:0]
	for i, group := range [...]int{8, 4, 4, 4, 12} {
		if i > 0 {
			if digits[0] != '-' {
				return id, false
			}
			digits = digits[1:]
		}
		var err error
		if octets, err = hex.AppendDecode(octets, digits[:group]); err != nil {
			return id, false
		}
		digits = digits[group:]
	}
	return id, true
}

// appendReply appends the address of the queue that replies go to.
func appendReply(dst, queue []byte) []byte {
	var room [len(queues) + 3*math.MaxUint8]byte
	address := append(room[:0], queues...)
	for _, c := range queue {
		if isUnreserved(c) {
			address = append(address, c)
			continue
		}
		const digits = "0123456789ABCDEF"
		address = append(address, '%', digits[c>>4], digits[c&15])
	}
	return amqp10.AppendString(dst, address)
}

// isUnreserved says whether a character stands for itself in an address (RFC 3986, 2.3).
func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}
