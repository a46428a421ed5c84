package listen

import (
	"net"
	"time"
)

// leaver is a connection that is over for both sides: its client has closed it, has our answer, and is to close the socket. It holds
// the socket, what TLS and WebSocket keep of it, and a goroutine, but no place among the connections.
type leaver struct {
	raw   net.Conn
	since time.Time
}

const (
	// patience is how long a client may take to close its socket, as long as RabbitMQ waits, and stopPatience how long if the
	// node stops.
	patience     = 30 * time.Second
	stopPatience = time.Second
	// maxLeaving is how many may take so long at once: beyond it the one that has had the longest is closed.
	maxLeaving = 1 << 10
	// lastBytes is how many bytes are read of what a client has sent after its close.
	lastBytes = 1 << 20
	// leavingRead is how many bytes a read of them gets.
	leavingRead = 512
)

// endBy sets until when, counted from when it began to leave, the client may close its socket.
func (l *leaver) endBy(patience time.Duration) { _ = l.raw.SetReadDeadline(l.since.Add(patience)) }

// leave waits for the client of nc to close its socket, within limits. What it sends meanwhile is read: a socket that is closed with
// bytes unread is reset, and the client might not see our answer. raw is the socket below nc.
func (s *Server) leave(raw, nc net.Conn) {
	l := &leaver{raw: raw, since: time.Now()}
	s.mu.Lock()
	delete(s.open, raw)
	if s.leaving.Len() >= maxLeaving {
		s.hurry()
	}
	e := s.leaving.PushBack(l)
	if s.stopped {
		l.endBy(stopPatience)
	} else {
		l.endBy(patience)
	}
	s.mu.Unlock()
	b := make([]byte, leavingRead)
	for rest, err := lastBytes, error(nil); rest > 0 && err == nil; {
		var n int
		n, err = nc.Read(b)
		rest -= n
	}
	s.mu.Lock()
	s.leaving.Remove(e) // does nothing if hurry has
	s.mu.Unlock()
}

// hurry closes the socket that has been left for the longest, if there is one. REQUIRES: s.mu is held.
func (s *Server) hurry() bool {
	e := s.leaving.Front()
	if e == nil {
		return false
	}
	s.leaving.Remove(e)
	_ = e.Value.(*leaver).raw.Close() // its goroutine finds out
	return true
}
