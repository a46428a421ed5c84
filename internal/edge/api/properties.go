package api

import (
	"math"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/definitions"
	"bartleby.mq/internal/wire/amqp091"
)

// textProperty is a property that is text: its name in JSON, and where it is.
type textProperty struct {
	name string
	of   func(*amqp091.PropertyList) **string
}

// textProperties are all of them, in the order of the wire.
var textProperties = []textProperty{
	{"content_type", func(l *amqp091.PropertyList) **string { return &l.ContentType }},
	{"content_encoding", func(l *amqp091.PropertyList) **string { return &l.ContentEncoding }},
	{"correlation_id", func(l *amqp091.PropertyList) **string { return &l.CorrelationID }},
	{"reply_to", func(l *amqp091.PropertyList) **string { return &l.ReplyTo }},
	{"expiration", func(l *amqp091.PropertyList) **string { return &l.Expiration }},
	{"message_id", func(l *amqp091.PropertyList) **string { return &l.MessageID }},
	{"type", func(l *amqp091.PropertyList) **string { return &l.Type }},
	{"user_id", func(l *amqp091.PropertyList) **string { return &l.UserID }},
	{"app_id", func(l *amqp091.PropertyList) **string { return &l.AppID }},
	{"cluster_id", func(l *amqp091.PropertyList) **string { return &l.ClusterID }},
}

// showProperties renders raw properties as plain JSON, the death headers like any
// other (DL-7.8).
func showProperties(raw []byte) (map[string]any, error) {
	return showPropertiesAs(raw, topology.Readable)
}

// showPropertiesBehind is showProperties behind a mask.
func showPropertiesBehind(m *letter.Mask, raw []byte) (map[string]any, error) {
	shown, err := showPropertiesAs(raw, func(s string) string { return topology.Readable(m.Text(s)) })
	if err != nil {
		return nil, err
	}
	headers, ok := shown["headers"]
	delete(shown, "headers")
	hidden := map[string]any{}
	for name, value := range shown {
		hidden[name] = m.Value(value)
	}
	if ok {
		hidden["headers"] = m.Value(headers)
	}
	return hidden, nil
}

func showPropertiesAs(raw []byte, text func(string) string) (map[string]any, error) {
	l, err := amqp091.DecodeProps(raw)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	for _, p := range textProperties {
		if of := *p.of(&l); of != nil {
			object[p.name] = text(*of)
		}
	}
	if l.Headers != nil {
		form := topology.TableForm{Text: text, Unreal: topology.HeadersForm.Unreal}
		object["headers"] = form.Object(l.Headers)
	}
	if l.DeliveryMode != nil {
		object["delivery_mode"] = *l.DeliveryMode
	}
	if l.Priority != nil {
		object["priority"] = *l.Priority
	}
	if l.Timestamp != nil {
		object["timestamp"] = *l.Timestamp
	}
	return object, nil
}

// readProperties turns JSON into raw properties. Unknown names are ignored; so is
// an empty list, which some clients send for an empty object.
func readProperties(v any) ([]byte, error) {
	object, err := definitions.Object(v, "properties")
	if err != nil {
		return nil, err
	}
	var l amqp091.PropertyList
	for _, p := range textProperties {
		v, ok := object[p.name]
		if !ok || v == nil {
			continue
		}
		text, ok := v.(string)
		if !ok || message.CheckName(p.name, text) != nil {
			return nil, badRequest("not_string", p.name)
		}
		*p.of(&l) = &text
	}
	if v, ok := object["headers"]; ok && v != nil {
		headers, err := definitions.Object(v, "headers")
		if err != nil {
			return nil, err
		}
		if l.Headers, err = topology.ParseArguments(headers); err != nil {
			return nil, badRequest(err.Error())
		}
	}
	if l.DeliveryMode, err = octet(object, "delivery_mode"); err != nil {
		return nil, err
	}
	if l.Priority, err = octet(object, "priority"); err != nil {
		return nil, err
	}
	if v, ok := object["timestamp"]; ok && v != nil {
		n, ok := v.(int64)
		if !ok || n < 0 {
			return nil, badRequest("not_int", "timestamp")
		}
		l.Timestamp = new(uint64(n))
	}
	return amqp091.AppendPropsFrom(nil, l), nil
}

func octet(object map[string]any, name string) (*uint8, error) {
	v, ok := object[name]
	if !ok || v == nil {
		return nil, nil
	}
	n, ok := v.(int64)
	if !ok || n < 0 || n > math.MaxUint8 {
		return nil, badRequest("not_int", name)
	}
	return new(uint8(n)), nil
}
