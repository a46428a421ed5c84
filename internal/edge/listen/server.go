// Package listen takes connections from the network: it owns the listening sockets
// and the certificates, reads a PROXY header and shakes hands by TLS where it is to,
// looks at the first eight bytes of each connection to see which protocol it speaks,
// hands it to the session that speaks it, and ends them in order.
//
// It knows sockets, TLS and protocol headers, and nothing of what is said after the
// header. It does not own the broker: whoever does calls StopAccepting, tells the
// sessions to end, and then Wait. HTTP servers take their certificates from here, and
// their connections themselves.
//
// Goroutines: one accepts for each listening socket, one runs each session, and then waits for
// its client to close the socket. The Server owns them all; after Wait has returned there are none.
package listen

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"bartleby.mq/internal/safety/bug"
)

// Options configure a Server.
type Options struct {
	// Protocols are those that are spoken here.
	Protocols []Protocol
	Logger    *slog.Logger
	// LikeRabbitMQ answers clients that speak something else as RabbitMQ does, with
	// the header of AMQP 1.0, although that is not spoken here (BR-1.2).
	LikeRabbitMQ bool
	// Proxied connections begin with a PROXY header; all do, or none.
	Proxied bool
	// Proxies are those whose headers tell the truth; others are refused. nil: LoopbackProxies, and
	// others are heard, as RabbitMQ hears them, but for what they say of their clients.
	Proxies []netip.Prefix
	// Limits hold until SetLimits changes them.
	Limits Limits
}

// Protocol is one that clients may speak.
type Protocol struct {
	Name string // for the log
	// Headers are the first eight bytes of a client that speaks it, in each of their forms.
	Headers []string
	// Web says that it is spoken over WebSocket too.
	Web bool
	// Serve speaks it with one client until the connection ends. nc is a *tls.Conn where it came in by TLS, and a *WebSocket around
	// that or the socket where the client speaks WebSocket. first is what was read already: the protocol header. It says of the place
	// whose client is let in, or waits and may make room. leaves says that the client has closed the connection and is to close its
	// socket: nothing of ours is said any more.
	Serve func(nc net.Conn, first []byte, p *Place) (leaves bool)
}

// Limits bound what clients may hold of a node before and after they are let in. The
// zero value of each is none, but for the times, which have defaults.
type Limits struct {
	// Connections limits the connections open at once. What comes beyond it is closed
	// without a word (BR-3.7), unless another makes room.
	Connections int
	// Handshakes limits those from one address that are not let in yet, likewise. An IPv6
	// address is its network of 64 bits.
	Handshakes int
	// TLSHandshake is how long a client may take for the handshake of TLS; 0: 5 s.
	TLSHandshake time.Duration
	// Header is how long it may take to say which protocol it speaks; 0: 10 s.
	Header time.Duration
}

// Server is any number of listening sockets and the connections that came from them.
type Server struct {
	Options
	stopc     chan struct{} // closed by StopAccepting
	accepting sync.WaitGroup
	sessions  sync.WaitGroup

	mu        sync.Mutex // guards what follows
	limits    Limits
	stopped   bool
	listeners []net.Listener
	open      map[net.Conn]struct{}
	leaving   list.List // of *leaver, those first that have left first
	strangers map[netip.Prefix]*strangers
	waiting   waiting // of all addresses
}

// New returns a Server that listens nowhere yet.
func New(o Options) *Server {
	s := &Server{Options: o, stopc: make(chan struct{}), open: map[net.Conn]struct{}{}, strangers: map[netip.Prefix]*strangers{}}
	s.SetLimits(o.Limits)
	return s
}

// SetLimits changes the limits. Connections there are stay.
func (s *Server) SetLimits(l Limits) {
	if l.TLSHandshake == 0 {
		l.TLSHandshake = defaultTLSHandshake
	}
	if l.Header == 0 {
		l.Header = defaultHeader
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

func (s *Server) currentLimits() Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// Listen begins to take connections at a TCP address and returns the address it
// got, which differs where the port asked for was 0.
func (s *Server) Listen(addr string) (net.Addr, error) { return s.listen(addr, door{}) }

// ListenTLS is Listen for clients that speak TLS first (BR-1.14).
func (s *Server) ListenTLS(addr string, c *Credentials) (net.Addr, error) {
	return s.listen(addr, door{secure: c.Config()})
}

// ListenWeb is Listen for clients that speak WebSocket first, and TLS before that unless c is nil.
func (s *Server) ListenWeb(addr string, web *Web, c *Credentials) (net.Addr, error) {
	d := door{web: web}
	if c != nil {
		d.secure = c.Config("http/1.1")
	}
	return s.listen(addr, d)
}

// door is what the clients of a listener speak before AMQP; nil: not that.
type door struct {
	secure *tls.Config
	web    *Web
}

func (s *Server) listen(addr string, d door) (net.Addr, error) {
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
	s.accepting.Go(bug.Guarded(s.Logger, "accepting connections", func() { s.accept(l, d) }))
	return l.Addr(), nil
}

const (
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = time.Second
)

// accept takes connections until the listener is closed. Other errors pass: they
// come from clients that are gone already, or from a process that has too many
// files open and will have fewer.
func (s *Server) accept(l net.Listener, d door) {
	backoff := firstBackoff
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			backoff = firstBackoff
			s.take(nc, d)
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
func (s *Server) take(nc net.Conn, d door) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = nc.Close()
		return
	}
	if most := s.limits.Connections; most > 0 && len(s.open)+s.leaving.Len() >= most && !s.hurry() && !s.makeRoom(&s.waiting) {
		s.Logger.Warn("connection refused", "peer", nc.RemoteAddr().String(), "reason", "connection limit", "limit", most)
		_ = nc.Close() // the client sees it no sooner than whoever reads the log
		return
	}
	s.open[nc] = struct{}{}
	s.sessions.Go(bug.Guarded(s.Logger, "a connection", func() { s.session(nc, d) }))
}

// entry is the function that session is.
const entry = "bartleby.mq/internal/edge/listen.(*Server).session"

// session runs one connection from its first byte to its last.
func (s *Server) session(raw net.Conn, d door) {
	nc := raw
	defer func() {
		_ = nc.Close()
		s.mu.Lock()
		delete(s.open, raw)
		s.mu.Unlock()
	}()
	log := s.Logger.With("peer", raw.RemoteAddr().String())
	defer bug.Contain(log, entry, nil)
	limits := s.currentLimits()
	place, ok := s.admit(raw, nc.RemoteAddr())
	defer func() { place.Opened() }()
	defer bug.Contain(log, entry, nil) // before it: Opened takes a lock
	if !ok {
		return
	}
	_ = nc.SetDeadline(time.Now().Add(limits.Header))
	if s.Proxied {
		trusted := s.Proxies
		if trusted == nil {
			trusted = LoopbackProxies
		} else if !believed(trusted, nc.RemoteAddr(), nc.RemoteAddr()) {
			s.Logger.Warn("connection refused", "peer", nc.RemoteAddr().String(), "reason", "not a trusted proxy")
			return
		}
		through, err := readProxyHeader(nc, trusted)
		if err != nil {
			s.Logger.Warn("connection refused", "peer", nc.RemoteAddr().String(), "reason", "no PROXY header", "error", err)
			return
		}
		nc = through
		place.Opened() // it counts as the client's from here on
		if place, ok = s.admit(raw, nc.RemoteAddr()); !ok {
			return
		}
	}
	if d.secure != nil {
		if nc, ok = s.shakeHands(nc, d.secure, limits.TLSHandshake); !ok {
			return
		}
	}
	if d.web != nil {
		over, ok := s.upgrade(nc, d.web, limits.Header)
		if !ok {
			return
		}
		nc = over
	}
	_ = nc.SetDeadline(time.Time{})
	if first, spoken := s.sniff(nc, d.web != nil, limits.Header); spoken != nil && spoken.Serve(nc, first, place) {
		place.Opened()
		s.leave(raw, nc)
	}
}

// shakeHands speaks TLS with a client from here on.
func (s *Server) shakeHands(nc net.Conn, secure *tls.Config, timeout time.Duration) (net.Conn, bool) {
	_ = nc.SetDeadline(time.Now().Add(timeout))
	raw := &alertReader{Conn: nc}
	client := tls.Server(raw, secure)
	if err := client.Handshake(); err != nil {
		if !errors.Is(err, io.EOF) { // a health check opens and closes
			s.Logger.Warn("TLS handshake failed", "peer", nc.RemoteAddr().String(), "error", raw.explain(err))
		}
		return nc, false
	}
	raw.done = true
	return client, true
}

// Connections is how many connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// StopAccepting closes the listening sockets. Connections that are open stay.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopc)
		for _, l := range s.listeners {
			_ = l.Close()
		}
		for e := s.leaving.Front(); e != nil; e = e.Next() {
			e.Value.(*leaver).endBy(stopPatience)
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
	go bug.Guarded(s.Logger, "the end of the sessions", func() { // ends with the sessions, which the end of this function waits for
		s.sessions.Wait()
		close(ended)
	})()
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
	for e := s.leaving.Front(); e != nil; e = e.Next() { // they have said all that they had to say
		_ = e.Value.(*leaver).raw.Close()
	}
	s.mu.Unlock()
	<-ended
	return cut
}
