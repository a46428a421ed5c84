package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"bartleby.mq/internal/metrics"
)

// Limits of the HTTP servers against clients that send or read nothing.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// startHTTP listens for the management API and for metrics, where they are on.
func (s *Server) startHTTP() (err error) {
	if s.HTTP != "" {
		l, err := net.Listen("tcp", s.HTTP)
		if err != nil {
			return fmt.Errorf("management listener: %w", err)
		}
		token, err := s.writeAccess(l.Addr())
		if err != nil {
			_ = l.Close()
			return err
		}
		s.listensAt(&s.addrs.HTTP, l)
		s.serveHTTP(l, s.managementAPI(token))
	}
	if s.Prometheus != "" {
		l, err := net.Listen("tcp", s.Prometheus)
		if err != nil {
			return fmt.Errorf("metrics listener: %w", err)
		}
		s.listensAt(&s.addrs.Prometheus, l)
		s.serveHTTP(l, metrics.Handler(metrics.Options{
			Broker: s.broker, Version: s.Version, ProductVersion: s.Config.ProductVersion, ClusterName: s.clusterName(), Node: s.nodeStatus,
		}))
	}
	return nil
}

func (s *Server) listensAt(field *net.Addr, l net.Listener) {
	s.mu.Lock()
	*field = l.Addr()
	s.mu.Unlock()
}

func (s *Server) clusterName() string {
	if s.Config.ClusterName != "" {
		return s.Config.ClusterName
	}
	return s.Config.NodeName
}

func (s *Server) serveHTTP(l net.Listener, h http.Handler) {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	s.https = append(s.https, server)
	s.done.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.Logger.Error("HTTP listener ended", "listener", l.Addr().String(), "error", err)
		}
	})
}

// stopHTTP waits for requests under way, and cuts them when ctx ends.
func (s *Server) stopHTTP(ctx context.Context, h *http.Server) error {
	if err := h.Shutdown(ctx); err == nil {
		return nil
	}
	return h.Close()
}
