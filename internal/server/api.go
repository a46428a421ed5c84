package server

import (
	"net"
	"net/http"
	"strconv"

	"bartleby.mq/internal/api"
	"bartleby.mq/internal/config"
)

// managementAPI is the handler of the management listener. token is what the
// command line shows instead of a password.
func (s *Server) managementAPI(token string) http.Handler {
	return api.New(api.Options{
		Broker: s.broker, Logger: s.Logger, NodeName: s.Config.NodeName, ClusterName: s.Config.ClusterName,
		ProductVersion: s.Version, Version: s.Config.ProductVersion,
		Token: token, Stop: s.OnStop, Listeners: s.listeners, Limits: s.limits,
		SetMemoryWatermark: func(fraction float64, bytes int64) error {
			s.memory.Store(&config.Watermark{Relative: fraction, Absolute: bytes})
			s.judge(s.nodeStatus())
			return nil
		},
	})
}

// listeners is where the node listens, as the API shows it.
func (s *Server) listeners() (all []api.Listener) {
	add := func(protocol string, at net.Addr) {
		if at == nil {
			return
		}
		host, port, _ := net.SplitHostPort(at.String())
		n, _ := strconv.Atoi(port)
		all = append(all, api.Listener{Protocol: protocol, Host: host, Port: n})
	}
	a := s.Addresses()
	for _, at := range a.AMQP {
		add("amqp", at)
	}
	add("http", a.HTTP)
	add("http/prometheus", a.Prometheus)
	return all
}

func (s *Server) limits() api.NodeLimits {
	n := s.nodeStatus()
	return api.NodeLimits{
		MemoryUsed: n.Resident, MemoryLimit: n.MemoryLimit, DiskFree: max(n.DiskFree, 0), DiskFreeLimit: n.DiskLimit,
		FilesUsed: n.OpenFiles, FilesLimit: n.MaxFiles, Sockets: s.listen.Connections(),
	}
}
