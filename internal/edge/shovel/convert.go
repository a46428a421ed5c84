package shovel

import (
	"fmt"
	"time"

	client "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/internal/wire/amqp091"
)

// The client library has types of its own for what our codec decodes. Values that
// only one side knows are errors, not guesses.

func propertiesIn(d *client.Delivery) (l amqp091.PropertyList, err error) {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	l = amqp091.PropertyList{
		ContentType: text(d.ContentType), ContentEncoding: text(d.ContentEncoding), CorrelationID: text(d.CorrelationId),
		ReplyTo: text(d.ReplyTo), Expiration: text(d.Expiration), MessageID: text(d.MessageId), Type: text(d.Type),
		UserID: text(d.UserId), AppID: text(d.AppId),
	}
	if d.DeliveryMode != 0 {
		l.DeliveryMode = &d.DeliveryMode
	}
	if d.Priority != 0 {
		l.Priority = &d.Priority
	}
	if !d.Timestamp.IsZero() {
		l.Timestamp = new(uint64(d.Timestamp.Unix()))
	}
	if d.Headers != nil {
		l.Headers, err = tableIn(d.Headers)
	}
	return l, err
}

func publishing(m *carried) (client.Publishing, error) {
	l := &m.properties
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	p := client.Publishing{
		ContentType: text(l.ContentType), ContentEncoding: text(l.ContentEncoding), CorrelationId: text(l.CorrelationID),
		ReplyTo: text(l.ReplyTo), Expiration: text(l.Expiration), MessageId: text(l.MessageID), Type: text(l.Type),
		UserId: text(l.UserID), AppId: text(l.AppID), Body: m.body,
	}
	if l.DeliveryMode != nil {
		p.DeliveryMode = *l.DeliveryMode
	}
	if l.Priority != nil {
		p.Priority = *l.Priority
	}
	if l.Timestamp != nil {
		p.Timestamp = time.Unix(int64(*l.Timestamp), 0)
	}
	var err error
	if l.Headers != nil {
		p.Headers, err = tableOut(l.Headers)
	}
	return p, err
}

func tableIn(t client.Table) (out amqp091.Table, err error) {
	out = amqp091.Table{}
	for k, v := range t {
		in, err := valueIn(v)
		if err != nil {
			return nil, fmt.Errorf("header %q: %w", k, err)
		}
		out = append(out, amqp091.Field{Key: k, Value: in})
	}
	return out, nil
}

func valueIn(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64, string, []byte:
		return v, nil
	case int:
		return int64(v), nil
	case time.Time:
		return amqp091.Timestamp(v.Unix()), nil
	case client.Decimal:
		return amqp091.Decimal{Scale: v.Scale, Value: uint32(v.Value)}, nil
	case client.Table:
		return tableIn(v)
	case []any:
		list := make(amqp091.Array, len(v))
		for i, e := range v {
			in, err := valueIn(e)
			if err != nil {
				return nil, err
			}
			list[i] = in
		}
		return list, nil
	}
	return nil, fmt.Errorf("cannot convert a value of type %T", v)
}

func tableOut(t amqp091.Table) (client.Table, error) {
	out := client.Table{}
	for _, f := range t {
		v, err := valueOut(f.Value)
		if err != nil {
			return nil, fmt.Errorf("header %q: %w", f.Key, err)
		}
		out[f.Key] = v
	}
	return out, nil
}

func valueOut(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, int8, uint8, int16, int32, int64, float32, float64, string, []byte:
		return v, nil
	case uint16:
		return int32(v), nil // the library knows no unsigned integers but bytes
	case uint32:
		return int64(v), nil
	case amqp091.Timestamp:
		return time.Unix(int64(v), 0), nil
	case amqp091.Decimal:
		return client.Decimal{Scale: v.Scale, Value: int32(v.Value)}, nil
	case amqp091.Table:
		return tableOut(v)
	case amqp091.Array:
		list := make([]any, len(v))
		for i, e := range v {
			out, err := valueOut(e)
			if err != nil {
				return nil, err
			}
			list[i] = out
		}
		return list, nil
	}
	return nil, fmt.Errorf("cannot convert a value of type %T", v)
}
