package api

import (
	"net/http"

	"bartleby.mq/internal/core/topology"
)

// quorumStatus shows the members of a quorum queue, with the names RabbitMQ gives
// to what Raft knows of them.
func (s *server) quorumStatus(r *request) (any, error) {
	q, err := r.findQueue()
	if err != nil {
		return nil, err
	}
	if q.Decl.Type != topology.Quorum {
		return failed("classic_queue_not_supported", nil), nil
	}
	c := s.b.Counts(q)
	last := c.Stats.Published + c.Stats.Acked
	return []any{map[string]any{
		"Node Name": s.NodeName, "Raft State": "leader", "Membership": "voter", "Last Log Index": last, "Last Written": last,
		"Last Applied": last, "Commit Index": last, "Snapshot Index": -1, "Term": 1, "Machine Version": 8,
	}}, nil
}

// oneNode refuses to move replicas.
func (s *server) oneNode(r *request) (any, error) {
	if _, named := r.params["queue"]; named && r.Method == http.MethodPost {
		if err := missingKeys(r.body, "node"); err != nil {
			return nil, err
		}
		if r.body["node"] != s.NodeName {
			return nil, badRequest("Node is not a cluster member")
		}
	}
	return nil, badRequest("there is one node, which has the only replica")
}
