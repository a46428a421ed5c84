package api

import (
	"net/http"
	"slices"
	"strconv"

	"bartleby.mq/internal/run/broker"
)

var healthy = map[string]any{"status": "ok"}

// failed is the answer of a failed check (BR-15.11).
func failed(reason string, facts map[string]any) withStatus {
	body := map[string]any{"status": "failed", "reason": reason}
	for k, v := range facts {
		body[k] = v
	}
	return withStatus{http.StatusServiceUnavailable, body}
}

// healthOK answers checks that cannot fail while this node answers.
func (s *server) healthOK(*request) (any, error) { return healthy, nil }

func (s *server) checkAlarms(reason string) func(*request) (any, error) {
	return func(*request) (any, error) {
		var shown []any
		active := s.b.ActiveAlarms()
		for _, a := range []struct {
			alarm    broker.Alarm
			resource string
		}{{broker.Memory, "memory"}, {broker.Disk, "disk"}} {
			if active&a.alarm != 0 {
				shown = append(shown, map[string]any{"node": s.NodeName, "resource": a.resource})
			}
		}
		if len(shown) == 0 {
			return healthy, nil
		}
		return failed(reason, map[string]any{"alarms": shown}), nil
	}
}

func (s *server) checkQuorumCritical(*request) (any, error) {
	return map[string]any{"status": "ok", "reason": "single node cluster"}, nil
}

func (s *server) checkPort(r *request) (any, error) {
	port, err := strconv.Atoi(r.params["port"])
	if err != nil {
		return nil, badRequest("Invalid port")
	}
	ports := []int{}
	for _, l := range s.listeners() {
		ports = append(ports, l.Port)
	}
	if slices.Contains(ports, port) {
		return map[string]any{"status": "ok", "port": port}, nil
	}
	return failed("No active listener", map[string]any{"missing": port, "ports": ports}), nil
}

// protocolNames are other names of protocols in checks.
var protocolNames = map[string]string{
	"amqp091": "amqp", "amqp10": "amqp", "amqps": "amqp/ssl", "https": "https", "prometheus": "http/prometheus",
}

func (s *server) checkProtocol(r *request) (any, error) {
	want := r.params["protocol"]
	if name, ok := protocolNames[want]; ok {
		want = name
	}
	protocols := []string{}
	for _, l := range s.listeners() {
		protocols = append(protocols, l.Protocol)
	}
	if slices.Contains(protocols, want) {
		return map[string]any{"status": "ok", "protocols": protocols}, nil
	}
	return failed("No active listener", map[string]any{"missing": []string{r.params["protocol"]}, "protocols": protocols}), nil
}

// checkNode is the old check, for this node only.
func (s *server) checkNode(r *request) (any, error) {
	if err := r.mustNode(); err != nil {
		return nil, err
	}
	return healthy, nil
}

// checkConnectionLimit fails if no further connection would be accepted.
func (s *server) checkConnectionLimit(*request) (any, error) {
	limits := s.limits()
	if limits.MaxConnections == 0 {
		return healthy, nil
	}
	facts := map[string]any{"connections": limits.Sockets, "limit": limits.MaxConnections}
	if limits.Sockets >= limits.MaxConnections {
		return failed("node connection limit is reached", facts), nil
	}
	facts["status"] = "ok"
	return facts, nil
}
