package api

import (
	"log/slog"
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/run/broker"
)

// replay moves dead letters back to where they came from (DL-19.6). It answers
// when it is done; a client that goes away ends it, between two messages. The body
// holds, all optional:
//
//	{"reason": "rejected", "queue": "orders",
//	 "older_than_ms": 1, "newer_than_ms": 1, "limit": 1, "rate": 1,
//	 "dry_run": true, "to": "origin"}
func (s *server) replay(r *request) (any, error) {
	if _, err := r.findQueue(); err != nil {
		return nil, err
	}
	if to, given := r.body["to"]; given && to != "origin" {
		return nil, badRequest(`"to" must be "origin"`)
	}
	var q broker.ReplayRequest
	reason, err := r.text("reason")
	if err != nil {
		return nil, err
	}
	if reason != "" {
		var ok bool
		if q.Reason, ok = deadletter.ParseReason(reason); !ok {
			return nil, badRequest("unknown reason '" + reason + "'; should be one of: rejected, expired, maxlen, delivery_limit")
		}
	}
	if q.Queue, err = r.text("queue"); err != nil {
		return nil, err
	}
	if q.DryRun, err = r.boolean("dry_run"); err != nil {
		return nil, err
	}
	var older, newer, limit, rate int64
	for _, n := range []struct {
		key string
		to  *int64
	}{{"older_than_ms", &older}, {"newer_than_ms", &newer}, {"limit", &limit}, {"rate", &rate}} {
		if *n.to, err = r.count(n.key); err != nil {
			return nil, err
		}
	}
	q.OlderThan, q.NewerThan = moment.Milliseconds(older), moment.Milliseconds(newer)
	q.Limit, q.Rate = int(min(limit, math.MaxInt)), int(min(rate, math.MaxInt))
	if !q.DryRun {
		s.note(r, "begun") // a node that is killed in the middle has this line alone
	}
	result, err := r.link().Replay(r.Context(), r.queueName(), q)
	r.did = []any{slog.Group("replay", "dry_run", q.DryRun, "examined", result.Examined, "matched", result.Matched, "replayed", result.Replayed,
		"unroutable", result.Unroutable, "refused", result.Refused, "no_origin", result.NoOrigin, "gone", result.Gone)}
	if err != nil {
		return nil, err
	}
	return result, nil
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
