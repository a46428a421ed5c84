package convert

import (
	"math"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// What an edit of a stored message of AMQP 1.0 needs to know of the conversion.

// Whole is a stored message of AMQP 1.0 as FromAMQP10 would take it again: the message, and before it a header with what the record
// has of the one that it came with. The bytes may be edited, and read by Again. REQUIRES: HasSections.
func Whole(rec message.Record) (header Header, whole []byte) {
	s := rec.Sections()
	p, _ := amqp091.ParseProps(rec.Properties()) // of a record that cannot be read nothing is known
	header.Durable = p.DeliveryMode == 2
	if p.Has(amqp091.FlagPriority) {
		header.Priority = &p.Priority
	}
	if p.Has(amqp091.FlagExpiration) {
		header.TTL = string(p.Expiration)
	}
	whole = append(append(append(make([]byte, 0, len(s.Head)+rec.BodySize()+len(s.Tail)), s.Head...), rec.Body()...), s.Tail...)
	return header, whole
}

// Header is what a record keeps of the section header.
type Header struct {
	Durable  bool
	Priority *uint8
	TTL      string // milliseconds, "" if there is none
}

// Again makes dst the message as the broker takes one with this header. An error says why it is none.
func Again(dst *Incoming, h *Header, whole []byte) error {
	b, start := amqp10.BeginList(amqp10.AppendDescriptor(nil, amqp10.DescriptorHeader))
	b = amqp10.AppendBool(b, h.Durable) // never null: an annotation would say it then
	if h.Priority != nil {
		b = amqp10.AppendUbyte(b, *h.Priority)
	} else {
		b = amqp10.AppendNull(b)
	}
	if ttl, ok := parseTTL(h.TTL); ok && ttl <= math.MaxUint32 {
		b = amqp10.AppendUint(b, uint32(ttl))
	} else {
		b = amqp10.AppendNull(b) // a longer one is in an annotation
	}
	m, err := amqp10.ParseMessage(append(amqp10.EndCompound(b, start, 3), whole...))
	if err == nil {
		err = m.Check()
	}
	if err == nil {
		err = FromAMQP10(dst, &m)
	}
	return err
}

// Field is a value of AMQP 1.0 as one of AMQP 0-9-1; ok is false if that has none.
func Field(v *amqp10.Value) (field any, ok bool) {
	b, ok := appendField(nil, v, 1)
	if !ok {
		return nil, false
	}
	field, err := amqp091.DecodeValue(CutField(b))
	return field, err == nil
}

// CutField is the type of an encoded field value, and what is in it: without its length, if it has one.
func CutField(field []byte) (typ byte, content []byte) {
	switch field[0] {
	case 'S', 'x', 'A', 'F':
		return field[0], field[5:]
	}
	return field[0], field[1:]
}

// AppendID appends a message-id as a client of AMQP 0-9-1 writes it: a uuid if it is written as RabbitMQ writes one, else a string.
func AppendID(dst []byte, id string) []byte { return appendID(dst, []byte(id)) }

// AppendReply appends the address of the queue that replies go to.
func AppendReply(dst []byte, queue string) []byte { return appendReply(dst, []byte(queue)) }

// IsX says whether a key is one of annotations, and of headers that are annotations.
func IsX(key string) bool { return isX(key) && isASCII(key) }

// Annotation is what a client of AMQP 0-9-1 sees of an annotation of a message of AMQP 1.0, if that is no header of the same name.
func Annotation(key string) (of string) {
	switch key {
	case annotationCC:
		return "header.CC"
	case annotationType:
		return "property.type"
	case annotationDelivery:
		return "property.delivery_mode"
	case annotationPriority:
		return "property.priority"
	case annotationExpires:
		return "property.expiration"
	case annotationDeaths, annotationExchange, annotationKey, annotationReceived:
		return "what the broker writes"
	}
	if len(key) >= len(basicPrefix) && key[:len(basicPrefix)] == basicPrefix {
		return "a property"
	}
	return ""
}
