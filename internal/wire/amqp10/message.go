package amqp10

// A Message is a message with its sections where they lie (3.2):
//
//	header | delivery-    | message-    | properties | application- | body | footer
//	       | annotations  | annotations |            | properties   |      |
//	                                    ╰──────────── bare message ────────╯
//
// A section that is left out is no value. Each is a view, described as its section; what is in it is read when
// asked for: Header and Properties with the Decode of their structs, or a single property with Property, the maps
// with Lookup and Items.
//
// The bare message is what the sender made: nobody on the way may change an octet of it. Whoever forwards the message
// writes header and annotations anew, and Bare and Footer as they are.
type Message struct {
	Header                Value
	DeliveryAnnotations   Value
	MessageAnnotations    Value
	Properties            Value
	ApplicationProperties Value
	Bare                  []byte // properties, application-properties and body, as they came
	Kept                  []byte // message-annotations and Bare, as they came: what a broker keeps, but for the footer
	Body                  []byte // the sections of the body, as they came: NextSection reads them
	BodyKind              Descriptor
	Footer                []byte // as it came, nil if there is none

	head    Header // see Head
	first   Value  // the first section of the body
	several bool   // there are more
}

// sectionOrder are the places of the sections in a message: those of a body share one.
var sectionOrder = [...]uint8{
	DescriptorHeader: 1, DescriptorDeliveryAnnotations: 2, DescriptorMessageAnnotations: 3, DescriptorProperties: 4,
	DescriptorApplicationProperties: 5, DescriptorData: bodyPlace, DescriptorAMQPSequence: bodyPlace, DescriptorAMQPValue: bodyPlace,
	DescriptorFooter: 7,
}

const bodyPlace = 6

// NextSection reads the section at the start of b: a value that is described as one, with its type. It looks no
// deeper. An error is a *DecodeError.
func NextSection(b []byte) (d Descriptor, v Value, rest []byte, err error) {
	rest, err = v.read(b, 0)
	if err != nil {
		return 0, Value{}, nil, sectionError(0, err)
	}
	if d = v.Descriptor(); d >= Descriptor(len(sectionOrder)) || sectionOrder[d] == 0 {
		return 0, Value{}, nil, sectionError(0, ErrSection)
	}
	right := TypeMap
	switch d {
	case DescriptorHeader, DescriptorProperties, DescriptorAMQPSequence:
		right = TypeList
	case DescriptorData:
		right = TypeBinary
	case DescriptorAMQPValue:
		return d, v, rest, nil
	}
	if !v.describes(right) {
		return 0, Value{}, nil, sectionError(d, ErrType)
	}
	return d, v, rest, nil
}

// sectionError is the error for a section, or for what is none if d is 0.
func sectionError(d Descriptor, err error) error {
	e := &DecodeError{Type: "message", Section: "3.2", Err: err}
	if d != 0 {
		e.Field, e.Section = sectionName(d), sectionNumbers[d]
	}
	return e
}

// sectionNumbers are where the standard has the sections of a message.
var sectionNumbers = [...]string{
	DescriptorHeader: "3.2.1", DescriptorDeliveryAnnotations: "3.2.2", DescriptorMessageAnnotations: "3.2.3", DescriptorProperties: "3.2.4",
	DescriptorApplicationProperties: "3.2.5", DescriptorData: "3.2.6", DescriptorAMQPSequence: "3.2.7", DescriptorAMQPValue: "3.2.8",
	DescriptorFooter: "3.2.9",
}

// sectionName is "application-properties" of amqp:application-properties:map.
func sectionName(d Descriptor) string {
	name := d.String()[len("amqp:"):]
	for i := range name {
		if name[i] == ':' {
			return name[:i]
		}
	}
	return name
}

// ParseMessage finds the sections of a message, in time that depends on how many there are and not on what is in
// them. It holds them against the order of the standard; a message without a body is read, with a BodyKind of 0.
// An error is a *DecodeError. See Check.
func ParseMessage(b []byte) (m Message, err error) {
	err = m.Parse(b)
	return m, err
}

// Parse is ParseMessage into a Message that the caller has. After an error it has no section.
func (m *Message) Parse(b []byte) error {
	*m = Message{}
	err := m.parse(b)
	if err != nil {
		*m = Message{}
	}
	return err
}

func (m *Message) parse(b []byte) error {
	kept, bare, body, end := -1, -1, -1, len(b) // offsets in b
	for at, last := 0, uint8(0); at < len(b); {
		d, v, rest, err := NextSection(b[at:])
		if err != nil {
			return err
		}
		place := sectionOrder[d]
		again := place == bodyPlace && place == last && d == m.BodyKind && d != DescriptorAMQPValue
		if place <= last && !again {
			return sectionError(d, ErrSection)
		}
		last = place
		if place >= 3 && place <= bodyPlace && kept < 0 {
			kept = at
		}
		if place >= 4 && place <= bodyPlace && bare < 0 {
			bare = at
		}
		switch d {
		case DescriptorHeader:
			m.Header = v
		case DescriptorDeliveryAnnotations:
			m.DeliveryAnnotations = v
		case DescriptorMessageAnnotations:
			m.MessageAnnotations = v
		case DescriptorProperties:
			m.Properties = v
		case DescriptorApplicationProperties:
			m.ApplicationProperties = v
		case DescriptorFooter:
			m.Footer, end = b[at:len(b)-len(rest):len(b)-len(rest)], at
		default:
			if m.BodyKind = d; body < 0 {
				body, m.first = at, v
			} else {
				m.several = true
			}
		}
		at = len(b) - len(rest)
	}
	if kept >= 0 {
		m.Kept = b[kept:end:end]
	}
	if bare >= 0 {
		m.Bare = b[bare:end:end]
	}
	if body >= 0 {
		m.Body = b[body:end:end]
	}
	return nil
}

// Head is what the section header says; without one, and before Check, all is zero.
func (m *Message) Head() *Header { return &m.head }

// Data is the content of a body that is one data section. Other messages have none.
func (m *Message) Data() (content []byte, ok bool) {
	if m.BodyKind != DescriptorData || m.several {
		return nil, false
	}
	return m.first.content, true
}

// Check looks at everything in the message, in time linear in its size, so that whoever keeps it can read all of
// it later: every value is well-formed, header and properties have the fields of their types, keys of annotations
// are symbols or ulongs (3.2.10) and those of application-properties strings (3.2.5). The values of
// application-properties may be of any type, as RabbitMQ takes them. An error is a *DecodeError.
func (m *Message) Check() error {
	if m.Header.code != 0 {
		if err := m.head.Decode(m.Header); err != nil {
			return err
		}
	}
	var p Properties
	if m.Properties.code != 0 {
		if err := p.Decode(m.Properties); err != nil {
			return err
		}
	}
	if err := checkMap(DescriptorDeliveryAnnotations, m.DeliveryAnnotations, TypeSymbol, TypeUlong); err != nil {
		return err
	}
	if err := checkMap(DescriptorMessageAnnotations, m.MessageAnnotations, TypeSymbol, TypeUlong); err != nil {
		return err
	}
	if err := checkMap(DescriptorApplicationProperties, m.ApplicationProperties, TypeString, TypeString); err != nil {
		return err
	}
	if err := m.checkBody(); err != nil {
		return err
	}
	if m.Footer == nil {
		return nil
	}
	d, v, _, err := NextSection(m.Footer)
	if err != nil {
		return err
	}
	return checkMap(d, v, TypeSymbol, TypeUlong)
}

// checkBody is Check for the body.
func (m *Message) checkBody() error {
	if m.BodyKind == 0 {
		return nil
	}
	if err := m.first.check(); err != nil {
		return sectionError(m.BodyKind, err)
	}
	if !m.several {
		return nil
	}
	for rest := m.Body; len(rest) > 0; {
		d, v, next, err := NextSection(rest)
		if err != nil {
			return err
		}
		if err := v.check(); err != nil {
			return sectionError(d, err)
		}
		rest = next
	}
	return nil
}

// checkMap looks at everything in a section that is a map with keys of one of two types, or no value.
func checkMap(d Descriptor, v Value, a, b Type) error {
	if v.code == 0 {
		return nil
	}
	err := v.checkDescriptors()
	if err == nil {
		err = v.checkMap(a, b)
	}
	if err != nil {
		return sectionError(d, err)
	}
	return nil
}

// Property returns a property without a look at the others' content, or none: see the constants Property....
func (m *Message) Property(p Property) Value { return m.Properties.Underlying().At(int(p)) }

// A Property is the place of a property in the section properties (3.2.4).
type Property int

// Properties.
const (
	PropertyMessageID Property = iota
	PropertyUserID
	PropertyTo
	PropertySubject
	PropertyReplyTo
	PropertyCorrelationID
	PropertyContentType
	PropertyContentEncoding
	PropertyAbsoluteExpiryTime
	PropertyCreationTime
	PropertyGroupID
	PropertyGroupSequence
	PropertyReplyToGroupID
)

// ApplicationProperty returns the value of an application property.
func (m *Message) ApplicationProperty(key string) (Value, bool) {
	return m.ApplicationProperties.Underlying().Lookup(key)
}

// MessageAnnotation returns the value of a message annotation.
func (m *Message) MessageAnnotation(key string) (Value, bool) {
	return m.MessageAnnotations.Underlying().Lookup(key)
}

// AppendData appends a section data.
func AppendData(dst, b []byte) []byte {
	return AppendBinary(AppendDescriptor(dst, DescriptorData), b)
}
