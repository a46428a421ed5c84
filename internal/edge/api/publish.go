package api

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// publish publishes one message and answers when it is confirmed (BR-15.7).
func (s *server) publish(r *request) (any, error) {
	if err := missingKeys(r.body, "routing_key", "properties", "payload", "payload_encoding"); err != nil {
		return nil, err
	}
	if _, err := r.findExchange(); err != nil {
		return nil, &failure{http.StatusNotFound, "not_found", "exchange_not_found"}
	}
	key, err := r.text("routing_key")
	if err != nil {
		return nil, err
	}
	if err := message.CheckName("routing_key", key); err != nil {
		return nil, badRequest(err.Error())
	}
	payload, err := r.payload()
	if err != nil {
		return nil, err
	}
	if limit := s.b.MaxMessageSize; len(payload) > limit {
		return nil, badRequest(preconditionFailed(fmt.Sprintf("message size %d is larger than configured max size %d", len(payload), limit)))
	}
	p := broker.Publication{Exchange: []byte(r.exchangeName()), Key: []byte(key), Body: [][]byte{payload}, Size: len(payload)}
	if p.Raw, err = r.properties(); err != nil {
		return nil, err
	}
	if p.Props, err = amqp091.ParseProps(p.Raw); err != nil {
		return nil, badRequest(err.Error())
	}
	if reason, alarmed := s.b.Alarms(); alarmed {
		return nil, &failure{http.StatusServiceUnavailable, "service_unavailable", "publishers are blocked: " + reason}
	}
	routed, err := r.link().PublishOne(&p)
	if refusal, ok := err.(*topology.Error); ok {
		switch refusal.Kind {
		case topology.PreconditionFailed:
			return nil, badRequest(preconditionFailed(refusal.Text))
		case topology.AccessRefused:
			return nil, badRequest("403 ACCESS_REFUSED - " + refusal.Text)
		}
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"routed": routed}, nil
}

// preconditionFailed is RabbitMQ's form of the refusal of a publish, which only here has
// code and name.
func preconditionFailed(text string) string { return "406 PRECONDITION_FAILED - " + text }

// properties are those of the message.
func (r *request) properties() ([]byte, error) {
	v := r.body["properties"]
	if object, ok := v.(map[string]any); ok && r.s.b.Strict {
		for _, p := range textProperties {
			if value, given := object[p.name]; given && value == nil {
				return nil, badRequest("not_string", p.name)
			}
		}
		if hasNull(object["headers"]) {
			return nil, badRequest("null_not_allowed")
		}
	}
	return readProperties(v)
}

// hasNull says whether there is a null within a value, at any depth.
func hasNull(v any) bool {
	null := func(v any) bool { return v == nil || hasNull(v) }
	switch v := v.(type) {
	case map[string]any:
		for _, each := range v {
			if null(each) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, null)
	}
	return false
}

// maxEchoed is how much of a payload that cannot be read comes back in the refusal, in bytes.
const maxEchoed = 1 << 10

func (r *request) payload() ([]byte, error) {
	text, err := r.text("payload")
	if err != nil {
		return nil, err
	}
	encoding, err := r.text("payload_encoding")
	if err != nil {
		return nil, err
	}
	switch encoding {
	case "string":
		return []byte(text), nil
	case "base64":
		payload, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, badRequest("not_base64", text[:min(len(text), maxEchoed)])
		}
		return payload, nil
	}
	return nil, badRequest("unsupported_encoding", encoding)
}
