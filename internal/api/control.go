package api

import (
	"net/http"
)

// stop answers, then has the server end in order: ours, for `bartleby stop`.
func (s *server) stop(*request) (any, error) {
	if s.Stop == nil {
		return nil, &failure{http.StatusNotImplemented, "not_implemented", "this node cannot be stopped by the API"}
	}
	go s.Stop() // it waits for requests, this one included; the server owns it
	return nil, nil
}

// setMemoryWatermark changes the memory limit until the next start: ours, for
// `rabbitmqctl set_vm_memory_high_watermark`. The body holds "fraction" or "bytes".
func (s *server) setMemoryWatermark(r *request) (any, error) {
	if s.SetMemoryWatermark == nil {
		return nil, &failure{http.StatusNotImplemented, "not_implemented", "this node has no memory limit to set"}
	}
	fraction, hasFraction := numberOf(r.body["fraction"])
	bytes, hasBytes := r.body["bytes"].(int64)
	if hasFraction == hasBytes || hasFraction && !(fraction >= 0) || hasBytes && bytes < 0 {
		return nil, badRequest(`the body must hold either "fraction" or "bytes", not negative`)
	}
	return nil, s.SetMemoryWatermark(fraction, bytes)
}

// checkLogin is ours, for `rabbitmqctl authenticate_user`: 204 if the password is right.
func (s *server) checkLogin(r *request) (any, error) {
	if err := missingKeys(r.body, "user", "password"); err != nil {
		return nil, err
	}
	return nil, r.checkPassword()
}
