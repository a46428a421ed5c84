package server

import (
	"net"
	"net/http"

	"bartleby.mq/internal/api"
	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/config"
)

// managementAPI is the handler of the management listener.
func (s *Server) managementAPI(token string) http.Handler {
	return api.New(api.Options{
		Broker: s.broker, Logger: s.Logger, NodeName: s.Config.NodeName, ClusterName: s.clusterName(),
		ProductVersion: s.Version, Version: s.Config.ProductVersion, Token: token, Stop: s.OnStop,
		Listeners: s.listeners, Alarms: s.alarms, SetMemoryWatermark: s.setMemoryWatermark, Limits: s.limits,
	})
}

// listeners are the sockets as the API shows them.
func (s *Server) listeners() (list []api.Listener) {
	add := func(protocol string, at net.Addr) {
		if a, ok := at.(*net.TCPAddr); ok {
			list = append(list, api.Listener{Protocol: protocol, Host: a.IP.String(), Port: a.Port})
		}
	}
	s.addrsMu.Lock()
	defer s.addrsMu.Unlock()
	for _, at := range s.addrs.AMQP {
		add("amqp", at)
	}
	add("http", s.addrs.HTTP)
	add("http/prometheus", s.addrs.Prometheus)
	return list
}

func (s *Server) alarms() (list []api.Alarm) {
	active := s.broker.ActiveAlarms()
	if active&broker.Memory != 0 {
		list = append(list, api.Alarm{Resource: "memory"})
	}
	if active&broker.Disk != 0 {
		list = append(list, api.Alarm{Resource: "disk"})
	}
	return list
}

// setMemoryWatermark changes the limit until the next start, and looks at once.
func (s *Server) setMemoryWatermark(fraction float64, bytes int64) error {
	s.memory.Store(&config.Watermark{Relative: fraction, Absolute: bytes})
	s.judge(s.nodeStatus())
	return nil
}

func (s *Server) limits() api.NodeLimits {
	n := s.nodeStatus()
	return api.NodeLimits{
		MemoryUsed: n.Resident, MemoryLimit: n.MemoryLimit, DiskFree: n.DiskFree, DiskFreeLimit: n.DiskLimit,
		FilesUsed: n.OpenFiles, FilesLimit: n.MaxFiles, Sockets: s.listen.Connections(),
	}
}
