package server

import (
	"bartleby.mq/internal/config"
	"bartleby.mq/internal/edge/listen"
)

const (
	// fileReserve is how many files and sockets a node may need beside those of its clients: 128 tables of
	// declarations and 256 of the index, 128 segments of the journal, 128 files of bodies in the keep and
	// the scratch, 64 sockets to a backend, and some for shovels, logs, listeners and what is made and removed again. Who
	// finds none for the next segment or table cannot go on.
	fileReserve = 800
	// httpListeners is how many there are at most: management and Prometheus, each with TLS and without, and the control socket.
	httpListeners = 5
)

// sockets is how many connections clients may have at once: all of them together leave the reserve
// of the files that the process may have open.
type sockets struct {
	amqp int // of all listeners together; 0: no limit is known
	http int // of each listener
}

// shareSockets divides what a process may open among its clients, which get a quarter of few.
func shareSockets(open, limit int) sockets {
	if limit == 0 {
		return sockets{http: maxHTTPConnections}
	}
	room := max(limit-open-fileReserve, (limit-open)/4, 2*httpListeners)
	web := min(max(room/4/httpListeners, 1), maxHTTPConnections)
	return sockets{amqp: room - web*httpListeners, http: web}
}

// listenLimits are what AMQP listeners are told of a configuration.
func (s *Server) listenLimits(c *config.Config) listen.Limits {
	most := c.MaxConnections
	if s.sockets.amqp > 0 && (most == 0 || most > s.sockets.amqp) {
		most = s.sockets.amqp
	}
	return listen.Limits{Connections: most, Handshakes: c.MaxHandshakes, TLSHandshake: c.TLSTimeout, Header: c.HandshakeTimeout}
}

// warnOfFiles says where there are fewer files than a configuration has connections.
func (s *Server) warnOfFiles(c *config.Config) {
	if most := s.listenLimits(c).Connections; c.MaxConnections > most {
		_, limit := openFiles()
		s.Logger.Warn("max_connections is larger than the limit of open files allows", "max_connections", c.MaxConnections, "connections", most, "open_files", limit)
	}
}
