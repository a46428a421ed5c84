package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/controlsocket"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/edge/listen"
	"bartleby.mq/internal/edge/metrics"
	"bartleby.mq/internal/safety/bug"
)

// Limits of the HTTP servers against clients that send or read nothing.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10

	// maxStreams is the number of concurrent requests on an HTTP/2 connection. The number of connections is limited, so one
	// connection must not carry hundreds of requests.
	maxStreams = 8
	// streamWindow is how many bytes of bodies an HTTP/2 connection may send before a handler reads them, streamFrame how
	// many in one frame.
	streamWindow = 128 << 10
	streamFrame  = 16 << 10
)

// startHTTP listens for the management API, the command line and metrics.
func (s *Server) startHTTP() error {
	if err := s.startManagement(); err != nil {
		return err
	}
	h := s.metricsPath(metrics.Handler(metrics.Options{
		Broker: s.broker, Version: s.Version, ProductVersion: s.Config.ProductVersion, ClusterName: s.clusterName(), Node: s.nodeStatus, Jobs: s.office.Jobs, Logger: s.Logger,
		PerObject: s.Config.MetricsPerObject,
	}))
	for _, l := range []struct {
		addr  string
		tls   *listen.Credentials
		field *net.Addr
		most  int
	}{
		{s.Prometheus, nil, &s.addrs.Prometheus, s.Config.MaxHTTP.Prometheus},
		{s.PrometheusHTTPS, s.tls.prometheus, &s.addrs.PrometheusHTTPS, s.Config.MaxHTTP.PrometheusTLS},
	} {
		if l.addr == "" {
			continue
		}
		socket, err := net.Listen("tcp", l.addr)
		if err != nil {
			return fmt.Errorf("metrics listener: %w", err)
		}
		s.serveHTTP(socket, l.tls, l.field, l.most, h)
	}
	return nil
}

// startManagement listens for the management API, and opens the control socket for the command
// line, which needs no listener of the API.
func (s *Server) startManagement() error {
	h := s.managementAPI()
	web := s.dressed(h)
	if s.HTTP != "" {
		socket, err := net.Listen("tcp", s.HTTP)
		if err != nil {
			return fmt.Errorf("management listener: %w", err)
		}
		s.serveHTTP(socket, nil, &s.addrs.HTTP, s.Config.MaxHTTP.Management, web)
	}
	if s.HTTPS != "" {
		socket, err := net.Listen("tcp", s.HTTPS)
		if err != nil {
			return fmt.Errorf("management listener with TLS: %w", err)
		}
		s.serveHTTP(socket, s.tls.management, &s.addrs.HTTPS, s.Config.MaxHTTP.ManagementTLS, web)
	}
	s.openDoor(h)
	return nil
}

// openDoor opens the control socket for the operator's command line. A private file system
// needs none. If the socket cannot be opened, for example because the file system has no
// sockets, the node runs without it.
func (s *Server) openDoor(h http.Handler) {
	if s.private() {
		return
	}
	l, err := controlsocket.Listen(s.DataDir)
	if err != nil {
		s.Logger.Warn("no control socket: the command line needs --url and a user", "data_dir", s.DataDir, "error", err)
		return
	}
	s.serveHTTP(l, nil, new(net.Addr), 0, api.Local(h))
}

func (s *Server) clusterName() string {
	if s.Config.ClusterName != "" {
		return s.Config.ClusterName
	}
	return s.Config.NodeName
}

// serveHTTP serves requests on a listener, with TLS if there are credentials, and records
// its address. most is the configured limit of connections; 0: none but the node's own.
func (s *Server) serveHTTP(l net.Listener, secure *listen.Credentials, field *net.Addr, most int, h http.Handler) {
	s.mu.Lock()
	*field = l.Addr()
	s.mu.Unlock()
	server := s.httpServer(h)
	if most == 0 || most > s.sockets.http {
		most = s.sockets.http
	}
	l = newCrowd(l, most, s.ConnectionLogger)
	if secure != nil {
		l = tls.NewListener(l, secure.Config("h2", "http/1.1"))
	}
	s.https = append(s.https, server)
	s.done.Go(bug.Guarded(s.Logger, "an HTTP listener", func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.Logger.Error("HTTP listener ended", "listener", l.Addr().String(), "error", err)
		}
	}))
}

// httpServer serves requests with h.
func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: s.mortal(visiting(h)), ConnContext: withGuest, BaseContext: func(net.Listener) context.Context { return s.requests.life }, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: streamFrame, MaxReceiveBufferPerConnection: streamWindow, MaxReceiveBufferPerStream: streamWindow},
		ErrorLog: slog.NewLogLogger(s.ConnectionLogger.Handler(), slog.LevelDebug),
	}
}

// requests tracks running HTTP requests. They read the broker's data, so the broker is closed only after they have ended.
type requests struct {
	life context.Context // of all of them
	cut  context.CancelFunc

	mu      sync.Mutex // guards what follows
	over    bool       // no further request may begin
	running map[*http.Request]time.Time
	ended   chan struct{} // closed when it is over and none is running
}

func (r *requests) init() {
	r.life, r.cut = context.WithCancel(context.Background())
	r.running, r.ended = map[*http.Request]time.Time{}, make(chan struct{})
}

func (r *requests) begin(q *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.running[q] = time.Now()
	}
	return !r.over
}

func (r *requests) done(q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.running, q); r.over && len(r.running) == 0 {
		close(r.ended)
	}
}

// end refuses further requests and cancels the contexts of running ones.
func (r *requests) end() {
	r.mu.Lock()
	r.over = true
	if len(r.running) == 0 {
		close(r.ended)
	}
	r.mu.Unlock()
	r.cut()
}

// wait waits until all have ended, for as long as patience after they were cut, and logs those that have not.
func (r *requests) wait(patience time.Duration, log *slog.Logger) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-r.ended:
		return nil
	case <-late.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for q, began := range r.running {
		log.Error("a request did not end with the node", "method", q.Method, "resource", resource(q.URL.Path), "peer", q.RemoteAddr, "took", time.Since(began))
	}
	if n := len(r.running); n > 0 {
		return fmt.Errorf("%w: %d", errRequestsLeft, n)
	}
	return nil
}

// errRequestsLeft is the error of a stop that does not wait any longer.
var errRequestsLeft = errors.New("requests over HTTP did not end: the node is left as a kill leaves it")

// resource is the beginning of a path, as /api/office/letters: what follows may be a secret.
func resource(path string) string {
	parts := strings.SplitN(path, "/", 5)
	return strings.Join(parts[:min(len(parts), 4)], "/")
}

// mortal wraps h so that a panic ends the process; net/http would recover and continue. It ignores a request
// that was read after its connection was cut, because the broker may be closed.
func (s *Server) mortal(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.requests.begin(r) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer s.requests.done(r)
		defer bug.End(s.Logger, "a request over HTTP")
		h.ServeHTTP(w, r)
	})
}

// stopHTTP accepts no further request, gives running ones time until ctx ends, and then cuts them. A handler whose
// client was cut may continue for a while, so the caller waits for requests.
func (s *Server) stopHTTP(ctx context.Context) (failed error) {
	for _, h := range s.https {
		if h.Shutdown(ctx) != nil {
			failed = errors.Join(failed, h.Close())
		}
	}
	s.requests.end()
	return failed
}
