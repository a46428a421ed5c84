package server

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/edge/console"
	"bartleby.mq/internal/edge/openapi"
)

// makeAPI makes the handler of the management API.
func (s *Server) makeAPI() {
	s.api = api.New(api.Options{
		Broker: s.broker, Logger: s.Logger, NodeName: s.Config.NodeName, ClusterName: s.Config.ClusterName,
		ProductVersion: s.Version, Version: s.Config.ProductVersion,
		Stop: s.OnStop, StopApp: s.OnStopApp, SetAlarm: s.setAlarm, Listeners: s.listeners, Limits: s.limits, Shovels: s.shovels, Certificates: s.expiries, MaxBody: s.Config.MaxHTTPBody, Known: known,
		NoBasicAuth: s.Config.NoBasicAuth, KeepOperatorPolicies: s.Config.KeepOperatorPolicies, HideAllow: s.Config.HideAllow, SessionLife: s.Config.SessionLife,
		Audit: s.Audit, Settings: s.settings, Office: s.office,
		SetMemoryWatermark: s.setLimit(&s.memory), SetDiskFreeLimit: s.setLimit(&s.disk), LogLevel: s.LogLevel, SetLogLevel: s.SetLogLevel,
	})
}

// managementAPI is the handler of the management listeners and of the control socket.
func (s *Server) managementAPI() http.Handler {
	return s.sameOrigin(openapi.New(openapi.Options{Broker: s.broker, Access: s.openAPIAccess, Next: console.Handler(s.adminScript(s.api)), Logger: s.Logger, Audit: s.Audit, Known: known}))
}

// sameOrigin refuses requests that a page of another site makes a browser send: browsers add
// a stored password to every request, also to one that the user did not intend. Browsers say
// where a request comes from (Sec-Fetch-Site, Origin); requests without these headers pass.
func (s *Server) sameOrigin(h http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Logger.Warn("cross-site request refused", "peer", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "origin", r.Header.Get("Origin"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error":"forbidden","reason":"a browser asks for this on behalf of another site"}`)
	}))
	return guard.Handler(h)
}

// openAPIAccess returns the current access keys of ApsaraMQ's API.
func (s *Server) openAPIAccess() openapi.Access {
	o := &s.config.Load().OpenAPI
	a := openapi.Access{InstanceID: o.InstanceID}
	for _, k := range o.AccessKeys {
		a.Keys = append(a.Keys, openapi.Key{ID: k.ID, Secret: k.Secret, User: k.User})
	}
	return a
}

// listeners lists the node's listeners for the API.
func (s *Server) listeners() (all []api.Listener) {
	add := func(protocol string, at net.Addr) {
		if at == nil {
			return
		}
		host, port, _ := net.SplitHostPort(at.String())
		n, _ := strconv.Atoi(port)
		all = append(all, api.Listener{Protocol: protocol, Host: host, Port: n, TLS: strings.Contains(protocol, "ssl") || strings.HasPrefix(protocol, "https")})
	}
	a := s.Addresses()
	for _, at := range a.AMQP {
		add("amqp", at)
	}
	for _, at := range a.AMQPS {
		add("amqp/ssl", at)
	}
	add("http", a.HTTP)
	add("https", a.HTTPS)
	add("http/prometheus", a.Prometheus)
	add("https/prometheus", a.PrometheusHTTPS)
	add("http/web-amqp", a.WebAMQP)
	add("https/web-amqp", a.WebAMQPS)
	return all
}

func (s *Server) limits() api.NodeLimits {
	n, c := s.nodeStatus(), s.config.Load()
	open, most := s.listen.Connections(), s.listenLimits(c).Connections
	if c.MaxConnections == 0 && open < most {
		most = 0 // a limit that is not configured is shown only when it is reached
	}
	return api.NodeLimits{
		MemoryUsed: n.Resident, MemoryLimit: n.MemoryLimit, DiskFree: max(n.DiskFree, 0), DiskFreeLimit: n.DiskLimit,
		FilesUsed: n.OpenFiles, FilesLimit: n.MaxFiles, Sockets: open,
		MaxConnections: most,
	}
}

// settings lists the configuration in force, with secrets masked.
func (s *Server) settings() (lines []string) {
	for _, setting := range s.inForce().Settings() {
		lines = append(lines, setting.String())
	}
	return lines
}
