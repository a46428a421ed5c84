package api

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
)

// audit notes who asked to change what, from where, and with what result. Bodies are not
// noted: passwords are in them. What only reads is not noted either, nor are messages
// that are published or got, nor what strangers asked: the log has their logins that failed.
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

// note writes a line of a request. more is what belongs to this kind of request.
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

// local is what the operator on the node's own machine is called, and has for an address.
const local = "local"

// messaging are requests that are a client's work and no administrator's.
var messaging = map[string]bool{
	"exchanges/{vhost}/{exchange}/publish": true, "queues/{vhost}/{queue}/get": true,
}
