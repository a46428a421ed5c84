// Package server puts a node together: configuration, data directory, broker,
// AMQP listeners, management API and metrics; it starts them in order and stops
// them in the reverse.
//
// A Server owns everything it started. It decides nothing about messages; its one
// job beside composition is to watch memory and disk, and to raise the broker's
// alarms (BR-13).
//
// Goroutines: the watch over resources, and one for each HTTP server. Stop waits
// for all of them.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/auth"
	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/config"
	"bartleby.mq/internal/listen"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/session091"
	"bartleby.mq/internal/topology"
)

// Options say what to start.
type Options struct {
	DataDir string
	Config  config.Config
	// AMQP, HTTP and Prometheus are addresses to listen at; an empty HTTP or
	// Prometheus address, and an empty list, turn that one off.
	AMQP       []string
	HTTP       string
	Prometheus string
	Version    string // of the program
	Logger     *slog.Logger
	// OnFatal is called once the node cannot go on: the disk failed. The process
	// is to end without a call of Stop, which would wait for that disk.
	OnFatal func(error)
	// OnStop is called when somebody asks the node to stop through the API.
	OnStop func()
}

// Server is a running node.
type Server struct {
	Options
	broker *broker.Broker
	lock   *dirLock
	listen *listen.Server

	stopc chan struct{}  // closed by Stop
	done  sync.WaitGroup // goroutines of the server's own
	fatal sync.Once

	memory atomic.Pointer[config.Watermark] // as the API changed it; nil: the configuration's
	https  []*http.Server

	mu    sync.Mutex // guards addrs
	addrs Addresses
}

// Addresses are where a node listens.
type Addresses struct {
	AMQP       []net.Addr
	HTTP       net.Addr // nil if off
	Prometheus net.Addr // nil if off
}

// stopTimeout is how long clients may take to close when the node stops.
const stopTimeout = 10 * time.Second

// Start opens the data directory and listens. When it returns without an error
// the node serves clients.
func Start(o Options) (s *Server, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s = &Server{Options: o, stopc: make(chan struct{})}
	began := time.Now()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
			s = nil
		}
	}()
	if err = os.MkdirAll(o.DataDir, 0o755); err != nil {
		return s, fmt.Errorf("data directory: %w", err)
	}
	if s.lock, err = lockDir(o.DataDir); err != nil {
		return s, err
	}
	if s.broker, err = broker.Open(s.brokerOptions()); err != nil {
		return s, err
	}
	if err = s.importDefinitions(); err != nil {
		return s, err
	}
	if err = s.firstStart(); err != nil {
		return s, err
	}
	s.listen = listen.New(listen.Options{Serve: s.serve091, Logger: o.Logger, LikeRabbitMQ: o.Config.Strict, MaxConnections: o.Config.MaxConnections})
	s.watchResources()
	if err = s.startHTTP(); err != nil {
		return s, err
	}
	for _, addr := range o.AMQP {
		at, err := s.listen.Listen(addr)
		if err != nil {
			return s, err
		}
		s.mu.Lock()
		s.addrs.AMQP = append(s.addrs.AMQP, at)
		s.mu.Unlock()
	}
	a := s.Addresses()
	s.Logger.Info("Server startup complete", "amqp", a.AMQP, "http", a.HTTP, "prometheus", a.Prometheus,
		"data_dir", o.DataDir, "version", o.Version, "took", time.Since(began).Round(time.Millisecond))
	return s, nil
}

// Addresses is where the node listens.
func (s *Server) Addresses() Addresses {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.addrs
	a.AMQP = slices.Clone(a.AMQP)
	return a
}

// Broker is the node's broker.
func (s *Server) Broker() *broker.Broker { return s.broker }

func (s *Server) brokerOptions() broker.Options {
	c := s.Config
	timeout := c.ConsumerTimeout
	if timeout == 0 {
		timeout = -1 // to the broker 0 is the default
	}
	o := broker.Options{
		Dir: s.DataDir, Logger: s.Logger, NodeName: c.NodeName, Strict: c.Strict,
		Topology: topology.Options{
			DenyTransientNonExclusive: !c.Permit[config.TransientQueues],
			DenyQueueMasterLocator:    !c.Permit[config.QueueMasterLocator],
			ClassicAtLeastOnce:        c.ClassicAtLeastOnce,
			DefaultQueueType:          topology.QueueType(c.DefaultQueueType),
		},
		LoopbackUsers: c.LoopbackUsers, ConsumerTimeout: timeout, MaxMessageSize: c.MaxMessageSize,
		GlobalQos: c.Permit[config.GlobalQos], CountNack: c.CountNack, ResetOnDeadLetter: c.ResetOnDeadLetter,
		StripCC: c.StripCC, TrustClientDeath: c.TrustClientDeath, RetryHeld: c.RetryHeld,
		OnFatal: func(err error) {
			s.fatal.Do(func() {
				s.Logger.Error("the disk failed, the node cannot go on", "data_dir", s.DataDir, "error", err)
				if s.OnFatal != nil {
					s.OnFatal(err)
				}
			})
		},
	}
	forCrashTests(&o)
	return o
}

// firstStart makes the virtual host and the user that an empty node begins with
// (BR-18.1), unless definitions have brought users of their own. A node without
// any user is empty too: nobody could ever enter it.
func (s *Server) firstStart() error {
	users := 0
	s.broker.Read(func(_ *topology.State, u *auth.Users) { users = len(u.List()) })
	if users > 0 {
		return nil
	}
	f := s.Config.FirstStart
	s.Logger.Info("first start", "vhost", f.VHost, "user", f.User)
	return s.broker.CreateDefault(broker.Default{
		VHost: message.VHost(f.VHost), User: f.User, Password: f.Password, Tags: f.Tags,
		Configure: f.Configure, Write: f.Write, Read: f.Read,
	})
}

func (s *Server) serve091(nc net.Conn, first []byte) {
	c := s.Config
	heartbeat := c.Heartbeat
	if heartbeat == 0 {
		heartbeat = -1 // to the session 0 is the default
	}
	session091.Serve(nc, first, session091.Options{
		Broker: s.broker, Logger: s.Logger, ChannelMax: c.ChannelMax, FrameMax: c.FrameMax, Heartbeat: heartbeat,
		Mechanisms: c.Mechanisms, Product: c.ProductName, Version: c.ProductVersion, Release: s.Version, MaxChannelConsumers: c.MaxChannelConsumers,
	})
}

// Stop ends the node in order: nobody new is let in, clients are told, their
// sessions end, then what they left is written and the directory closed (BR-14.4).
func (s *Server) Stop() error {
	close(s.stopc)
	if s.listen != nil {
		s.listen.StopAccepting()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.broker != nil {
		s.broker.Drain()
	}
	var failed error
	for _, h := range s.https {
		failed = errors.Join(failed, s.stopHTTP(ctx, h))
	}
	if s.listen != nil {
		if cut := s.listen.Wait(ctx); cut > 0 {
			s.Logger.Warn("connections cut, their clients did not close in time", "connections", cut)
		}
	}
	s.done.Wait()
	if s.broker != nil {
		failed = errors.Join(failed, s.broker.Close())
	}
	s.removeAccess()
	if s.lock != nil {
		failed = errors.Join(failed, s.lock.release())
	}
	return failed
}
