package convert

import (
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// Incoming is a message of AMQP 1.0 as the broker takes it: what a broker.Publication is made of. FromAMQP10 fills it. It may be
// used again for the next message, and then allocates nothing.
type Incoming struct {
	// Raw are the message's properties as AMQP 0-9-1 has them, in canonical form, Props their values.
	Raw   []byte
	Props amqp091.Props
	// Sections and Body are views of the message: they may be sent on by AMQP 1.0 as they are.
	Sections message.Sections
	Body     []byte

	// UserID is the property user-id. One that is no short string is not in Props, and no user has such a name: nil says that
	// there is none. To and Subject are properties that address the message, and nothing else. All three are views.
	UserID, To, Subject []byte

	headers []header
	values  []byte    // of headers
	texts   [3][]byte // properties that are not views
}

// Places in Incoming.texts.
const (
	textMessageID = iota
	textCorrelationID
	textReplyTo
)

// header is a header whose encoded value is a part of Incoming.values.
type header struct {
	key        []byte
	begin, end int
}

// keptMemory is how much of its own memory an Incoming keeps for the next message, in bytes.
const keptMemory = 1 << 16

// keptHeaders is the same in headers.
const keptHeaders = 1 << 10

// Annotations that are more than headers.
const (
	annotationCC        = "x-cc"
	annotationDeaths    = "x-opt-deaths"
	annotationReceived  = "x-opt-rabbitmq-received-time"
	annotationExchange  = "x-exchange"
	annotationKey       = "x-routing-key"
	basicPrefix         = "x-basic-" // properties of AMQP 0-9-1 without an equivalent in AMQP 1.0
	annotationType      = "x-basic-type"
	annotationDelivery  = "x-basic-delivery-mode"
	annotationPriority  = "x-basic-priority"
	annotationExpires   = "x-basic-expiration"
	headerDeath         = "x-death"
	headerCC, headerBCC = "CC", "BCC"

	queues = "/queues/" // the address of a queue begins so (DL-14.7)
)

// amqp10Type is the property type of a message whose body is encoded sections.
var amqp10Type = []byte("amqp-1.0")

// Keys of headers that are not those of the message.
var (
	keyCC            = []byte(headerCC)
	keyDeath         = []byte(headerDeath)
	keyReceived      = []byte("timestamp_in_ms")
	keyMessageID     = []byte("x-message-id")
	keyCorrelationID = []byte("x-correlation-id")
)

// FromAMQP10 makes dst the message m, as the broker takes it (DL-14.5). What is in dst aliases m, and is valid until the next
// call. An error is ErrNoBody, a *ReservedKeyError or a *CCError: RabbitMQ refuses these messages too. REQUIRES: m.Check.
func FromAMQP10(dst *Incoming, m *amqp10.Message) error {
	if m.BodyKind == 0 {
		return ErrNoBody
	}
	if err := checkKeys(&m.DeliveryAnnotations); err != nil {
		return err
	}
	dst.reset()
	c := converter{in: dst}
	if err := c.annotations(&m.MessageAnnotations); err != nil {
		return err
	}
	c.properties(&m.Properties)
	c.applicationProperties(&m.ApplicationProperties)
	c.header(m)
	content, single := m.Data()
	if !single {
		content = m.Body
		if m.BodyKind != amqp10.DescriptorData { // several of them are one body for AMQP 0-9-1: see Body
			c.typ = amqp10Type
		}
	}
	head := len(m.Kept) - len(content)
	dst.Sections = message.Sections{Head: m.Kept[:head:head], Tail: m.Footer}
	dst.Body = content
	c.write()
	return dst.Props.Parse(dst.Raw) // without an error: the converter writes nothing else
}

// Forget lets go of the message, whose memory may be large, and keeps the memory of its own.
func (in *Incoming) Forget() {
	clear(in.headers)
	in.Props, in.Sections, in.Body = amqp091.Props{}, message.Sections{}, nil
	in.reset()
}

func (in *Incoming) reset() {
	if cap(in.Raw) > keptMemory {
		in.Raw = nil
	}
	if cap(in.values) > keptMemory {
		in.values = nil
	}
	if cap(in.headers) > keptHeaders {
		in.headers = nil
	}
	in.Raw, in.values, in.headers = in.Raw[:0], in.values[:0], in.headers[:0]
	in.UserID, in.To, in.Subject = nil, nil, nil
}

// checkKeys refuses reserved keys of a section with annotations. A section that is none has no keys.
func checkKeys(section *amqp10.Value) error {
	items := section.ItemsBelow()
	var k, v amqp10.Value
	for items.Read(&k) && items.Read(&v) {
		if key, ok := k.Symbol(); !ok || !isX(key) {
			return reserved(k)
		}
	}
	return nil
}

func reserved(key amqp10.Value) error { return &ReservedKeyError{printed(key)} }

// isX says whether a key is one of annotations and of headers that are annotations.
func isX[S ~string | ~[]byte](key S) bool {
	return len(key) >= 2 && key[0] == 'x' && key[1] == '-'
}
