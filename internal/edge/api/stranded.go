package api

import (
	"fmt"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/partition"
)

// listOutboxes shows what one log has for another: ours.
func (s *server) listOutboxes(*request) (any, error) {
	items := []map[string]any{}
	for _, o := range s.b.Node().Outboxes() {
		items = append(items, map[string]any{
			"from": showLog(o.From), "to": showLog(o.To), "messages_in_transit": o.Waiting, "messages_stranded": o.Stranded, "closed": o.Closed,
		})
	}
	return objects(items), nil
}

func showLog(l partition.LogName) string {
	if l.Group != 0 {
		return fmt.Sprintf("group %d", l.Group)
	}
	return fmt.Sprintf("classic queues of node %d", l.Node)
}

// relocateStranded sends messages that are stranded elsewhere: ours. The body holds, all
// optional:
//
//	{"queue": "orders",   the queue they left; any, if it is not there
//	 "to": "parking",     where they go; back to the queue they left, if it is not there
//	 "limit": 1}
func (s *server) relocateStranded(r *request) (any, error) {
	from, err := r.text("queue")
	if err != nil {
		return nil, err
	}
	to, err := r.text("to")
	if err != nil {
		return nil, err
	}
	limit, err := r.count("limit")
	if err != nil {
		return nil, err
	}
	moved, err := s.b.RelocateStranded(r.Context(), r.vhost(), message.QueueName(from), message.QueueName(to), int(min(limit, maxRelocated)))
	if err != nil {
		return nil, err
	}
	s.Logger.Info("stranded messages relocated", "vhost", string(r.vhost()), "queue", from, "to", to, "messages", moved, "user", r.by())
	return map[string]any{"relocated": moved, "messages_stranded": s.b.Node().Stranded()}, nil
}

// maxRelocated keeps a limit within what an int of any machine holds.
const maxRelocated = 1 << 30
