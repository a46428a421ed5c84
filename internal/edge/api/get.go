package api

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"unicode/utf8"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// ackModes are the four of BR-15.8, and nack_requeue_true: as a consumer would whose listener failed. That one and peek are
// ours. They are not named among the valid values of an error, whose text tools compare with RabbitMQ's.
var ackModes = map[string]broker.After{
	"ack_requeue_true":     broker.AckRequeues,
	"ack_requeue_false":    broker.AckRemoves,
	"nack_requeue_true":    broker.NackRequeues,
	"reject_requeue_true":  broker.RejectRequeues,
	"reject_requeue_false": broker.RejectRemoves,
}

// peek looks and changes nothing.
const peek = "peek"

// maxShown is the maximal size of the messages in one answer, in bytes of JSON, because the answer is made in memory. Each
// message is encoded at once, because a decoded header of one byte, such as a null, takes some eighty.
const maxShown = 64 << 20

// fewShown is up to how many messages a request does not wait for its turn among what reads much at once (request.handle).
const fewShown = 32

// getMessages takes messages out of a queue and shows them (BR-15.8).
func (s *server) getMessages(r *request) (any, error) {
	if err := missingKeys(r.body, "ackmode", "count", "encoding"); err != nil {
		return nil, err
	}
	mode, ok := r.body["ackmode"].(string)
	after, known := ackModes[mode]
	if !ok || !known && mode != peek {
		return nil, badRequest(fmt.Sprintf("Invalid ackmode value: %v. Valid values are: ack_requeue_true, ack_requeue_false, "+
			"reject_requeue_true, reject_requeue_false", r.body["ackmode"]))
	}
	count, err := asInteger(r.body["count"])
	if err != nil {
		return nil, err
	}
	encoding, _ := r.body["encoding"].(string)
	if encoding != "auto" && encoding != "base64" {
		return nil, badRequest("Unsupported encoding. Please use auto or base64.")
	}
	truncate := int64(-1)
	if v, given := r.body["truncate"]; given {
		if truncate, err = asInteger(v); err != nil {
			return nil, err
		}
	}
	if _, err := r.findQueue(); err != nil {
		return nil, &failure{http.StatusNotFound, "not_found", "queue_not_found"}
	}
	if count == 0 {
		return []any{}, nil
	}
	if count < 0 || count > fewShown {
		if !r.s.reads.Begin(r.user, r.Context().Done(), nil) {
			return nil, nobodyWaits
		}
		defer r.s.reads.End()
	}
	items := bytes.NewBufferString("[")
	show := func(m *broker.Shown) (more bool, err error) {
		item, err := showMessage(m, encoding, truncate)
		if err != nil {
			return false, err
		}
		if items.Len() > 1 {
			items.WriteByte(',')
		}
		if err := writeJSON(items, item); err != nil {
			return false, err
		}
		if r.Context().Err() != nil {
			return false, nobodyWaits // nobody would see the messages
		}
		return items.Len() < maxShown, nil
	}
	limit := int(min(max(count, 0), math.MaxInt)) // negative: all there are
	if mode == peek {
		var failed error
		err = r.link().Peek(r.queueName(), limit, func(m *broker.Shown) (more bool) {
			more, failed = show(m)
			return more
		})
		err = cmp.Or(err, failed)
	} else {
		err = r.link().Take(r.queueName(), limit, after, show)
	}
	if refusal, ok := err.(*topology.Error); ok { // with code and name, which RabbitMQ has here and in publish only
		switch refusal.Kind {
		case topology.ResourceLocked:
			return nil, badRequest("405 RESOURCE_LOCKED - " + refusal.Text)
		case topology.AccessRefused:
			return nil, notAuthorised("ACCESS_REFUSED - " + refusal.Text)
		}
	}
	if err != nil {
		return nil, err
	}
	items.WriteByte(']')
	return jsonText(items.Bytes()), nil
}

func showMessage(m *broker.Shown, encoding string, truncate int64) (map[string]any, error) {
	properties, err := showProperties(m.Properties)
	if err != nil {
		return nil, fmt.Errorf("properties of a stored message: %w", err)
	}
	body := m.Body
	if truncate >= 0 && truncate < int64(len(body)) {
		body = body[:truncate]
	}
	item := map[string]any{
		"payload_bytes": len(m.Body), "redelivered": m.Redelivered, "exchange": m.Exchange, "routing_key": m.Key,
		"message_count": m.Left, "properties": properties,
	}
	if len(properties) == 0 {
		item["properties"] = []any{} // as RabbitMQ, and tools look at it
	}
	if encoding == "auto" && utf8.Valid(body) {
		item["payload"], item["payload_encoding"] = string(body), "string"
	} else {
		item["payload"], item["payload_encoding"] = base64.StdEncoding.EncodeToString(body), "base64"
	}
	return item, nil
}
