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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/edge/listen"
	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/edge/shovel"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// Options say what to start.
type Options struct {
	DataDir string
	// FS is where the data directory is; nil: the operating system's file system. In any
	// other there is no lock, no way in for the command line, no limit of free disk and
	// no note of what was imported: such a directory belongs to this process alone.
	FS     vfs.FS
	Config config.Config
	// Definitions is JSON to import at start, before the files that Config names.
	Definitions []byte
	// AMQP and those that follow are addresses to listen at; an empty address or list
	// turns that one off. Those with TLS show the certificates of Config.
	AMQP, AMQPS     []string
	HTTP, HTTPS     string
	Prometheus      string
	PrometheusHTTPS string
	Version         string // of the program
	Logger          *slog.Logger
	// ConnectionLogger is for what concerns one connection, Audit for administrative
	// actions; nil: Logger.
	ConnectionLogger, Audit *slog.Logger
	// OnFatal is called once the node cannot go on: the disk failed. The process
	// is to end without a call of Stop, which would wait for that disk.
	OnFatal func(error)
	// LogLevel is the level from which lines are logged, SetLogLevel changes it for all of
	// them; nil: the log is not this node's to change.
	LogLevel    func() string
	SetLogLevel func(level string) error
	// OnStop is called when somebody asks the node to stop through the API.
	OnStop func()
}

// Server is a running node.
type Server struct {
	Options
	broker  *broker.Broker
	lock    *dirLock
	listen  *listen.Server
	tls     certificates
	shovels *shovel.Shovels

	stopc chan struct{}  // closed by Stop
	done  sync.WaitGroup // goroutines of the server's own
	fatal sync.Once

	config       atomic.Pointer[config.Config]    // what holds now: Options.Config, or what Reload made of it
	looking      sync.Mutex                       // held while memory and disk are looked at
	short        bool                             // there is little room on the disk; see looking
	memory, disk atomic.Pointer[config.Watermark] // as the API changed them; nil: the configuration's
	https        []*http.Server
	requests     requests
	sockets      sockets
	patience     time.Duration // how long clients may take to close when the node stops
	atStop       []func()      // what is let go of when all else has ended

	mu    sync.Mutex // guards addrs
	addrs Addresses
}

// Addresses are where a node listens; nil is nowhere.
type Addresses struct {
	AMQP, AMQPS     []net.Addr
	HTTP, HTTPS     net.Addr
	Prometheus      net.Addr
	PrometheusHTTPS net.Addr
}

// stopTimeout is what Server.patience is.
const stopTimeout = 10 * time.Second

// Start opens the data directory and listens. When it returns without an error
// the node serves clients.
func Start(o Options) (s *Server, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ConnectionLogger == nil {
		o.ConnectionLogger = o.Logger
	}
	if o.Audit == nil {
		o.Audit = o.Logger
	}
	o.Logger, o.ConnectionLogger, o.Audit = short(o.Logger), short(o.ConnectionLogger), short(o.Audit)
	s = &Server{Options: o, stopc: make(chan struct{}), patience: stopTimeout, sockets: shareSockets(openFiles())}
	s.requests.life, s.requests.cut = context.WithCancel(context.Background())
	s.config.Store(&o.Config)
	began := time.Now()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
			s = nil
		}
	}()
	defer bug.End(o.Logger, "the start") // before it: to stop is to wait
	if err = s.loadCertificates(); err != nil {
		return s, err
	}
	if !s.private() {
		if err = journal.MakeDirectory(store.OwnerOnly, o.DataDir); err != nil {
			return s, fmt.Errorf("data directory: %w", err)
		}
		if s.lock, err = lockDir(o.DataDir); err != nil {
			return s, err
		}
		tighten(o.DataDir, s.Logger)
		s.giveReserve()
	}
	s.short = shortOfRoom(s.room(), false)
	options := s.brokerOptions()
	if options.AuthBackends, err = s.authBackends(); err != nil {
		return s, err
	}
	if s.broker, err = broker.Open(options); err != nil {
		return s, err
	}
	if err = s.importDefinitions(); err != nil {
		return s, err
	}
	if err = s.firstStart(); err != nil {
		return s, err
	}
	if err = s.broker.EnsureClusterID(); err != nil {
		return s, err
	}
	s.shovels = shovel.Start(shovel.Options{Broker: s.broker, Logger: o.Logger, ClusterName: s.clusterName})
	s.warnOfFiles(&o.Config)
	s.listen = listen.New(listen.Options{
		Serve: s.serve091, Logger: o.ConnectionLogger, LikeRabbitMQ: o.Config.Strict, Proxied: o.Config.ProxyProtocol, Proxies: o.Config.Proxies, Limits: s.listenLimits(&o.Config),
	})
	if o.Config.ProxyProtocol && o.Config.Proxies == nil {
		s.Logger.Warn("PROXY headers are trusted only from this machine; name trusted proxies with proxy_protocol.trusted.1, .2, ...")
	}
	s.watchResources()
	s.watchCertificates()
	if err = s.startHTTP(); err != nil {
		return s, err
	}
	if err = s.startAMQP(); err != nil {
		return s, err
	}
	a := s.Addresses()
	// Those that are always there first: scripts read this line.
	said := []any{"amqp", a.AMQP, "http", a.HTTP, "prometheus", a.Prometheus}
	if len(a.AMQPS) > 0 {
		said = append(said, "amqps", a.AMQPS)
	}
	if a.HTTPS != nil {
		said = append(said, "https", a.HTTPS)
	}
	s.Logger.Info("Server startup complete", append(said, "data_dir", o.DataDir, "version", o.Version, "took", time.Since(began).Round(time.Millisecond))...)
	return s, nil
}

// private says whether the data directory is in a file system of this process's own.
func (s *Server) private() bool { return s.FS != nil }

// Addresses is where the node listens.
func (s *Server) Addresses() Addresses {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.addrs
	a.AMQP, a.AMQPS = slices.Clone(a.AMQP), slices.Clone(a.AMQPS)
	return a
}

// startAMQP listens for AMQP clients, with TLS and without. The lines it logs are
// RabbitMQ's: Testcontainers waits for the second one.
func (s *Server) startAMQP() error {
	for _, addr := range s.AMQP {
		at, err := s.listen.Listen(addr)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.addrs.AMQP = append(s.addrs.AMQP, at)
		s.mu.Unlock()
		s.Logger.Info("started TCP listener on " + at.String())
	}
	for _, addr := range s.AMQPS {
		at, err := s.listen.ListenTLS(addr, s.tls.amqp)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.addrs.AMQPS = append(s.addrs.AMQPS, at)
		s.mu.Unlock()
		s.Logger.Info("started TLS (SSL) listener on " + at.String())
	}
	return nil
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
		Dir: s.DataDir, FS: s.FS, Logger: s.Logger, NodeName: c.NodeName, Strict: c.Strict,
		Topology: topology.Options{
			DenyTransientNonExclusive: !c.Permit[config.TransientQueues],
			DenyQueueMasterLocator:    !c.Permit[config.QueueMasterLocator],
			ClassicAtLeastOnce:        c.ClassicAtLeastOnce,
			DefaultQueueType:          topology.QueueType(c.DefaultQueueType),
			DefaultProfile:            deadletter.Profile(c.Profile),
		},
		ApsaraMQ:      apsara(&c.ApsaraMQ),
		LoopbackUsers: c.LoopbackUsers, AccountRules: accountRules(&c), ConsumerTimeout: timeout, MaxMessageSize: c.MaxMessageSize,
		GlobalQos: c.Permit[config.GlobalQos], CountNack: c.CountNack, ResetOnDeadLetter: c.ResetOnDeadLetter,
		StripCC: c.StripCC, TrustClientDeath: c.TrustClientDeath, RetryHeld: c.RetryHeld,
		Storage: s.storage(), Short: s.short,
		OnFatal: func(err error) {
			s.fatal.Do(func() {
				s.Logger.Error("the disk failed, the node stops", "data_dir", s.DataDir, "error", err)
				if s.OnFatal != nil {
					s.OnFatal(err)
				}
			})
		},
	}
	forCrashTests(&o)
	return o
}

// apsara is what the broker is told of the profile apsaramq.
func apsara(c *config.ApsaraMQ) broker.ApsaraMQ {
	return broker.ApsaraMQ{
		MaxRedeliveries: c.MaxRedeliveries, ResetRedeliveries: c.ResetRedeliveries, ConsumerTimeout: c.ConsumerTimeout,
		LimitReason: c.LimitReason, ExpireDead: c.DLQTTL, MaxHops: c.MaxHops, MaxDelay: c.MaxDelay, MaxRetention: c.MaxRetention,
		MaxMessageSize: c.MaxMessageSize, Priorities: c.Priorities, ErrorStyle: c.ErrorStyle, ErrorHelp: c.ErrorHelp,
	}
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

func (s *Server) serve091(nc net.Conn, first []byte, place *listen.Place) {
	c := s.config.Load()
	heartbeat := c.Heartbeat
	if heartbeat == 0 {
		heartbeat = -1 // to the session 0 is the default
	}
	secure := secured(nc, c.Auth.CertLogin)
	session091.Serve(nc, first, session091.Options{
		Broker: s.broker, Logger: s.ConnectionLogger, ChannelMax: c.ChannelMax, FrameMax: c.FrameMax, Heartbeat: heartbeat,
		Mechanisms: offered(c.Auth.Mechanisms, secure), Anonymous: auth.Credentials{User: c.Auth.AnonymousUser, Password: c.Auth.AnonymousPassword},
		Product: c.ProductName, Version: c.ProductVersion, Release: s.Version, MaxChannelConsumers: c.MaxChannelConsumers,
		TLS: secure, HandshakeTimeout: c.HandshakeTimeout, Opened: place.Opened,
		Stands: func(to broker.Standing) {
			switch to {
			case broker.Undecided:
				place.Needed()
			case broker.PutOff:
				place.PutOff()
			case broker.Refused:
				place.Refused()
			}
		},
	})
}

// Stop ends the node in order: nobody new is let in, clients are told, their
// sessions end, then what they left is written and the directory closed (BR-14.4).
func (s *Server) Stop() error {
	defer bug.End(s.Logger, "the stop")
	close(s.stopc)
	if s.listen != nil {
		s.listen.StopAccepting()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	if s.shovels != nil {
		s.shovels.Stop()
	}
	if s.broker != nil {
		s.broker.Drain()
	}
	failed := s.stopHTTP(ctx)
	if s.listen != nil {
		if cut := s.listen.Wait(ctx); cut > 0 {
			s.Logger.Warn("closed connections whose clients did not close in time", "connections", cut)
		}
	}
	s.requests.under.Wait() // after sessions were cut: a request may wait for one
	s.done.Wait()
	if s.broker != nil {
		failed = errors.Join(failed, s.broker.Close())
	}
	for _, f := range s.atStop {
		f()
	}
	if s.lock != nil {
		failed = errors.Join(failed, s.lock.release())
	}
	return failed
}
