package api

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/letters"
)

// replay moves dead letters back to where they came from, or to where the request says (DL-19.6). It answers
// when it is done; a client that goes away ends it, between two messages. The body
// holds, all optional:
//
//	{"reason": "rejected", "queue": "orders", "message_id": "order-1", "headers": {"tenant": "a"}, "replayed": false,
//	 "older_than_ms": 1, "newer_than_ms": 1, "limit": 1, "rate": 1, "dry_run": true,
//	 "to": "origin", "to_queue": "orders", "to_exchange": "orders", "routing_key": "new"}
func (s *server) replay(r *request) (any, error) {
	if _, err := r.findQueue(); err != nil {
		return nil, err
	}
	q, err := r.replayRequest()
	if err != nil {
		return nil, err
	}
	asked := slog.Group("asked", r.replayAsked()...)
	if !q.DryRun {
		s.note(r, "begun", asked) // a node that is killed in the middle has this line alone
	}
	result, err := letters.As(r.link()).Replay(r.Context(), r.queueName(), q)
	r.did = []any{asked, slog.Group("replay", "dry_run", q.DryRun, "examined", result.Examined, "matched", result.Matched, "replayed", result.Replayed,
		"unroutable", result.Unroutable, "refused", result.Refused, "no_origin", result.NoOrigin, "gone", result.Gone)}
	var refused *topology.Error
	switch {
	case errors.As(err, &refused) && refused.Kind == topology.AccessRefused:
		return nil, notAuthorised(refused.Text) // which exchange and key, and what was done before
	case err != nil:
		return nil, err
	}
	return result, nil
}

// replayKeys are those of a request, in the order of its documentation.
var replayKeys = []string{
	"reason", "queue", "message_id", "headers", "replayed", "older_than_ms", "newer_than_ms", "limit", "rate", "dry_run",
	"to", "to_queue", "to_exchange", "routing_key",
}

// replayAsked is what the audit log shows of a request: whoever goes on with a replay must know it.
func (r *request) replayAsked() (asked []any) {
	for _, key := range replayKeys {
		if v, given := r.body[key]; given && key != "dry_run" {
			asked = append(asked, slog.Any(key, v))
		}
	}
	return asked
}

func (r *request) replayRequest() (q letters.ReplayRequest, err error) {
	for key := range r.body {
		if !slices.Contains(replayKeys, key) && key != "vhost" && key != "name" {
			return q, badRequest(fmt.Sprintf("unknown key '%s'; the keys are: %s", key, strings.Join(replayKeys, ", ")))
		}
	}
	if to, given := r.body["to"]; given && to != "origin" {
		return q, badRequest(`"to" must be "origin"`)
	}
	reason, err := r.text("reason")
	if err != nil {
		return q, err
	}
	if reason != "" {
		var ok bool
		if q.Reason, ok = deadletter.ParseReason(reason); !ok {
			return q, badRequest("unknown reason '" + reason + "'; should be one of: rejected, expired, maxlen, delivery_limit")
		}
	}
	if q.Queue, err = r.text("queue"); err != nil {
		return q, err
	}
	if q.MessageID, err = r.text("message_id"); err != nil {
		return q, err
	}
	if q.Headers, err = r.headerValues(); err != nil {
		return q, err
	}
	if v, given := r.body["replayed"]; given && v != nil {
		replayed, err := r.boolean("replayed")
		if err != nil {
			return q, err
		}
		q.Replayed = &replayed
	}
	if q.To, err = r.destination(); err != nil {
		return q, err
	}
	if q.DryRun, err = r.boolean("dry_run"); err != nil {
		return q, err
	}
	var older, newer, limit, rate int64
	for _, n := range []struct {
		key string
		to  *int64
	}{{"older_than_ms", &older}, {"newer_than_ms", &newer}, {"limit", &limit}, {"rate", &rate}} {
		if *n.to, err = r.count(n.key); err != nil {
			return q, err
		}
	}
	q.OlderThan, q.NewerThan = moment.Milliseconds(older), moment.Milliseconds(newer)
	q.Limit, q.Rate = int(min(limit, math.MaxInt)), int(min(rate, math.MaxInt))
	return q, nil
}

// headerValues reads {"name": value}: text, an integer or a boolean.
func (r *request) headerValues() (list []letters.HeaderValue, err error) {
	headers, err := r.object("headers")
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch v := headers[name].(type) {
		case string, int64, bool:
			list = append(list, letters.HeaderValue{Name: name, Value: fmt.Sprint(v)})
		default:
			return nil, badRequest(fmt.Sprintf("the value of the header '%s' must be text, an integer or a boolean", name))
		}
	}
	return list, nil
}

// destination reads where a replay is to go. An empty exchange is the default exchange.
func (r *request) destination() (d letters.Destination, err error) {
	queue, err := r.text("to_queue")
	if err != nil {
		return d, err
	}
	if v, given := r.body["to_queue"]; given && v != nil && queue == "" {
		return d, badRequest("to_queue must not be empty") // else all would go to where they were first published
	}
	d.Queue = message.QueueName(queue)
	if v := r.body["to_exchange"]; v != nil {
		name, err := r.text("to_exchange")
		if err != nil {
			return d, err
		}
		exchange := exchangeName(name)
		d.Exchange = &exchange
	}
	if v := r.body["routing_key"]; v != nil {
		key, err := r.text("routing_key")
		if err != nil {
			return d, err
		}
		d.Key = &key
	}
	if _, origin := r.body["to"]; origin && (d.Queue != "" || d.Exchange != nil || d.Key != nil) {
		return d, badRequest(`"to" cannot be combined with to_queue, to_exchange or routing_key`)
	}
	return d, nil
}

// maxCount keeps milliseconds within what a time.Duration holds.
const maxCount = 1 << 43

// count reads an optional integer that is not negative.
func (r *request) count(key string) (int64, error) {
	v, given := r.body[key]
	if !given || v == nil {
		return 0, nil
	}
	n, ok := v.(int64)
	if !ok {
		return 0, badRequest("not_integer", v)
	}
	if n < 0 || n > maxCount {
		return 0, badRequest(key + " is out of range")
	}
	return n, nil
}
