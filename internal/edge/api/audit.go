package api

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"bartleby.mq/internal/run/office"
)

// audit logs a request that changes something: the user, the address, the object and the
// result. It does not log bodies, which may contain passwords. It also skips requests that only
// read, published and received messages, and requests without a login: the log has the failed
// login.
func (s *server) audit(r *request, out *responder) {
	if out.status == http.StatusUnauthorized && r.identity == nil && !r.local {
		return
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead || messaging[r.rt.pattern] {
		return
	}
	result := "done"
	switch {
	case out.status >= http.StatusInternalServerError && r.Context().Err() != nil: // the client went away
		result = "cut off"
	case out.status >= http.StatusInternalServerError || out.status == 0:
		result = "failed"
	case out.status >= http.StatusBadRequest:
		result = "refused"
	}
	s.note(r, result, append(r.did, "status", out.status)...)
}

// note writes a line about a request. more are the attributes of this kind of request.
func (s *server) note(r *request, result string, more ...any) {
	object := make([]any, 0, len(r.params))
	for _, name := range slices.Sorted(maps.Keys(r.params)) {
		object = append(object, slog.String(name, r.params[name]))
	}
	user, peer := r.user, r.RemoteAddr
	if r.local {
		user, peer = local, local
	}
	s.Audit.Info("administrative action", append([]any{
		"user", user, "peer", peer, "method", r.Method, "resource", r.rt.pattern, slog.Group("object", object...), "result", result,
	}, more...)...)
}

// local is the name and the address of the operator on the node's machine.
const local = office.Local

// messaging are requests of clients, not of administrators.
var messaging = map[string]bool{
	"exchanges/{vhost}/{exchange}/publish": true, "queues/{vhost}/{queue}/get": true,
}
