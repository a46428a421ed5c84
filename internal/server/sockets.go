package server

import (
	"bartleby.mq/internal/config"
	"bartleby.mq/internal/edge/listen"
)

const (
	// fileReserve is how many files and sockets a node may need besides those of its clients: 128 tables of
	// declarations and 256 of the index, 128 segments of the journal, 128 files of bodies in keep and scratch, 64 sockets
	// to a backend, and some for shovels, logs, listeners and temporary files. A node that cannot open the next segment or
	// table cannot continue.
	fileReserve = 800
	// httpListeners is the maximal number of HTTP listeners: management and Prometheus, each with and without TLS, and the
	// control socket.
	httpListeners = 5
)

// sockets is how many connections clients may have at once. All of them together leave the reserve
// free.
type sockets struct {
	amqp int // of all listeners together; 0: the limit is unknown
	http int // of each listener
}

// shareSockets divides the files that a process may open among its clients. If there are few, clients get a quarter.
func shareSockets(open, limit int) sockets {
	if limit == 0 {
		return sockets{http: maxHTTPConnections}
	}
	room := max(limit-open-fileReserve, (limit-open)/4, 2*httpListeners)
	web := min(max(room/4/httpListeners, 1), maxHTTPConnections)
	return sockets{amqp: room - web*httpListeners, http: web}
}

// listenLimits returns the limits of AMQP listeners.
func (s *Server) listenLimits(c *config.Config) listen.Limits {
	most := c.MaxConnections
	if s.sockets.amqp > 0 && (most == 0 || most > s.sockets.amqp) {
		most = s.sockets.amqp
	}
	return listen.Limits{Connections: most, Handshakes: c.MaxHandshakes, TLSHandshake: c.TLSTimeout, Header: c.HandshakeTimeout}
}

// warnOfFiles warns if the process may open fewer files than the configured connections need.
func (s *Server) warnOfFiles(c *config.Config) {
	if most := s.listenLimits(c).Connections; c.MaxConnections > most {
		_, limit := openFiles()
		s.Logger.Warn("max_connections is larger than the limit of open files allows", "max_connections", c.MaxConnections, "connections", most, "open_files", limit)
	}
}
