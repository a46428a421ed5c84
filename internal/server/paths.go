package server

import (
	"net/http"
	"strings"
)

// dressed is what the management listeners serve of h: below management.path_prefix, with the headers that the configuration sets.
func (s *Server) dressed(h http.Handler) http.Handler {
	prefix, headers := s.Config.ManagementPrefix, s.Config.Headers
	if prefix != "" {
		h = below(prefix, h)
	}
	if len(headers) == 0 {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&withHeaders{w, headers, false}, r)
	})
}

// below serves h below a path. What is asked for at the root is sent there, as in RabbitMQ.
func below(prefix string, h http.Handler) http.Handler {
	inner := http.StripPrefix(prefix, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, prefix+"/"):
			inner.ServeHTTP(w, r)
		case path == "/" || path == prefix:
			w.Header().Set("Location", prefix+"/")
			w.WriteHeader(http.StatusMovedPermanently)
		default:
			http.NotFound(w, r)
		}
	})
}

// metricsPath serves the metrics at the path of the configuration, to those who may have them.
func (s *Server) metricsPath(h http.Handler) http.Handler {
	if at := s.Config.PrometheusPath; at != "" && at != metricsAt {
		inner := h
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rest, ok := strings.CutPrefix(r.URL.Path, at)
			if !ok || rest != "" && rest[0] != '/' {
				http.NotFound(w, r)
				return
			}
			moved := r.Clone(r.Context())
			moved.URL.Path, moved.URL.RawPath = metricsAt+rest, ""
			inner.ServeHTTP(w, moved)
		})
	}
	if s.Config.PrometheusLogin {
		h = s.api.Guard("RabbitMQ Prometheus", h)
	}
	return h
}

// metricsAt is where the handler of the metrics has them.
const metricsAt = "/metrics"

// withHeaders sets headers as the answer begins, over those that its handler has set.
type withHeaders struct {
	http.ResponseWriter
	headers map[string]string
	begun   bool
}

// WriteHeader implements http.ResponseWriter.
func (w *withHeaders) WriteHeader(status int) {
	if !w.begun {
		w.begun = status >= http.StatusOK
		for name, value := range w.headers {
			w.Header().Set(name, value)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *withHeaders) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *withHeaders) Unwrap() http.ResponseWriter { return w.ResponseWriter }
