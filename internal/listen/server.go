// Package listen takes connections from the network: it owns the listening
// sockets, looks at the first eight bytes of each connection to see which protocol
// it speaks, hands it to the session that speaks it, and ends them in order.
//
// It knows protocol headers and sockets, and nothing of what is said after the
// header. It does not own the broker: whoever does calls StopAccepting, tells the
// sessions to end, and then Wait.
//
// Goroutines: one accepts for each listening socket, one runs each session. The
// Server owns them all; after Wait has returned there are none.
package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a Server.
type Options struct {
	// Serve speaks AMQP 0-9-1 with one client until the connection ends, and
	// closes nc. first is what was read already: the protocol header.
	Serve  func(nc net.Conn, first []byte)
	Logger *slog.Logger
	// LikeRabbitMQ answers clients that speak something else as RabbitMQ does, with
	// the header of AMQP 1.0, although that is not spoken here (BR-1.2).
	LikeRabbitMQ bool
	// MaxConnections limits the connections open at once; 0 is no limit. What
	// comes beyond it is closed without a word.
	MaxConnections int
}

// Server is any number of listening sockets and the connections that came from them.
type Server struct {
	Options
	stopc     chan struct{} // closed by StopAccepting
	accepting sync.WaitGroup
	sessions  sync.WaitGroup

	mu        sync.Mutex // guards what follows
	stopped   bool
	listeners []net.Listener
	open      map[net.Conn]struct{}

	panics atomic.Uint64
}

// New returns a Server that listens nowhere yet.
func New(o Options) *Server {
	return &Server{Options: o, stopc: make(chan struct{}), open: map[net.Conn]struct{}{}}
}

// Listen begins to take connections at a TCP address and returns the address it
// got, which differs where the port asked for was 0.
func (s *Server) Listen(addr string) (net.Addr, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("AMQP listener: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = l.Close()
		return nil, fmt.Errorf("AMQP listener %s: %w", addr, net.ErrClosed)
	}
	s.listeners = append(s.listeners, l)
	s.accepting.Go(func() { s.accept(l) })
	return l.Addr(), nil
}

const (
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = time.Second
)

// accept takes connections until the listener is closed. Other errors pass: they
// come from clients that are gone already, or from a process that has too many
// files open and will have fewer.
func (s *Server) accept(l net.Listener) {
	backoff := firstBackoff
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			backoff = firstBackoff
			s.take(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			s.Logger.Warn("cannot accept a connection", "listener", l.Addr().String(), "error", err, "retry_in", backoff)
			select {
			case <-s.stopc:
				return
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, maxBackoff)
		}
	}
}

// take starts the session of a connection, unless there are too many.
func (s *Server) take(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = nc.Close()
		return
	}
	if s.MaxConnections > 0 && len(s.open) >= s.MaxConnections {
		s.Logger.Warn("connection refused", "peer", nc.RemoteAddr().String(), "reason", "connection limit", "limit", s.MaxConnections)
		_ = nc.Close() // the client sees it no sooner than whoever reads the log
		return
	}
	s.open[nc] = struct{}{}
	s.sessions.Go(func() { s.session(nc) })
}

// session runs one connection from its first byte to its last.
func (s *Server) session(nc net.Conn) {
	defer func() {
		_ = nc.Close()
		s.mu.Lock()
		delete(s.open, nc)
		s.mu.Unlock()
	}()
	defer s.contain(nc)
	first, ok := s.sniff(nc)
	if ok {
		s.Serve(nc, first)
	}
}

// Connections is how many connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Panics is how many connections were ended by a mistake of ours.
func (s *Server) Panics() uint64 { return s.panics.Load() }

// StopAccepting closes the listening sockets. Connections that are open stay.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopc)
		for _, l := range s.listeners {
			_ = l.Close()
		}
	}
	s.mu.Unlock()
	s.accepting.Wait()
}

// Wait returns when every session has ended. When ctx is done first, it cuts the
// connections that are left and returns how many those were, after their sessions
// have ended too.
func (s *Server) Wait(ctx context.Context) (cut int) {
	ended := make(chan struct{})
	go func() { // ends with the sessions, which the end of this function waits for
		s.sessions.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return 0
	case <-ctx.Done():
	}
	s.mu.Lock()
	for nc := range s.open {
		_ = nc.Close()
		cut++
	}
	s.mu.Unlock()
	<-ended
	return cut
}
