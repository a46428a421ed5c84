package server

import (
	"fmt"
	"html"
	"net/http"
)

// frontPage answers a browser that asks for / with a page that says what this is and where its parts are. It needs no login
// and says nothing that RabbitMQ's own page and the greeting of a connection do not. All else goes to next, a request of ApsaraMQ's
// OpenAPI (/?Action=...) too.
func (s *Server) frontPage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" || r.URL.RawQuery != "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		metrics := "off"
		if at := s.Addresses(); at.Prometheus != nil {
			metrics = "http://" + at.Prometheus.String() + "/metrics"
		} else if at.PrometheusHTTPS != nil {
			metrics = "https://" + at.PrometheusHTTPS.String() + "/metrics"
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		_, _ = fmt.Fprintf(w, frontText, html.EscapeString(s.Version), html.EscapeString(metrics))
	})
}

const frontText = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Bartleby</title>
<h1>Bartleby %s</h1>
<p>A message broker that is compatible with RabbitMQ. This is its management API; there is no console yet.</p>
<ul>
<li>API: <a href="/api/overview">/api/overview</a>, as of RabbitMQ, with user and password</li>
<li>Command line: <code>bartleby help</code>, <code>rabbitmqctl</code>, <code>rabbitmqadmin</code></li>
<li>Metrics for Prometheus: %s</li>
<li>Documentation: <code>docs/user</code> in the source</li>
</ul>
</html>
`
