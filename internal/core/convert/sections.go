// Package convert turns messages of AMQP 1.0 into what the broker reads of every message, and messages of AMQP 0-9-1 into
// those of AMQP 1.0, as RabbitMQ 4.3 converts them (DL-14), with the two corrections of DL-14.4 and DL-15.2. It is pure: bytes
// and values, no policy of queues.
//
// A message of AMQP 1.0 lies in a record in three parts (message.Sections):
//
//	head  message-annotations | properties | application-properties | descriptor and length of the data section
//	body  the content of the data section
//	tail  the footer
//
// A body that is not one data section lies in the record as it was encoded, with its descriptors, and the head ends before
// it. So head, body and tail in this order are always the message but for its header and its delivery annotations, which
// belong to the way of a message and not to it (3.2.1, 3.2.2).
package convert

import (
	"errors"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp10"
)

// CheckSections returns an error unless sections and body are a message of AMQP 1.0 as the broker stores one: what comes
// from a file is as untrue as what comes from a socket.
func CheckSections(s *message.Sections, body []byte) error {
	whole := slices.Concat(s.Head, body, s.Tail)
	m, err := amqp10.ParseMessage(whole)
	if err != nil {
		return err
	}
	if err := m.Check(); err != nil {
		return err
	}
	switch footer := len(whole) - len(m.Footer); {
	case !m.Header.IsNull() || !m.DeliveryAnnotations.IsNull():
		return errors.New("it has a header or delivery annotations, which are not kept")
	case m.BodyKind == 0:
		return errors.New("it has no body")
	case len(m.Footer) != len(s.Tail), bodyAt(&m, footer) != len(s.Head):
		return errors.New("its parts are not where its body begins and ends")
	}
	return nil
}

// bodyAt is where in a message without header and delivery annotations the part begins that is stored as its body. footer is
// where its footer begins, or its end.
func bodyAt(m *amqp10.Message, footer int) int {
	content, single := m.Data()
	if single {
		return footer - len(content)
	}
	return footer - len(m.Body)
}

// Body is the body of a message for clients of AMQP 0-9-1: that of the record, or, of a message that came with several data
// sections, these as one. Then it is a copy.
func Body(rec message.Record) []byte {
	body := rec.Body()
	if !rec.HasSections() || !begins(body) {
		return body
	}
	// A body of one data section lies here without its descriptor, and may look like sections: then the head ends with the descriptor.
	for head := rec.Sections().Head; len(head) > 0; {
		_, _, rest, err := amqp10.NextSection(head)
		if err != nil {
			return body
		}
		head = rest
	}
	var joined []byte
	for rest := body; len(rest) > 0; {
		d, v, next, err := amqp10.NextSection(rest)
		if err != nil || d != amqp10.DescriptorData {
			return body
		}
		piece, _ := v.Underlying().Binary()
		joined, rest = append(joined, piece...), next
	}
	return joined
}

// begins says whether bytes begin as a data section does.
func begins(b []byte) bool {
	if len(b) < 4 || b[0] != 0 {
		return false
	}
	_, v, _, err := amqp10.NextSection(b)
	return err == nil && v.Descriptor() == amqp10.DescriptorData
}
