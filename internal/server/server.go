// Package server assembles a node from configuration, data directory, broker, AMQP
// listeners, management API and metrics. It starts them in order and stops them in
// reverse order. The command bartleby and the root package call it.
//
// A Server owns everything that it started. It never decides about messages. Besides
// assembling the node it watches memory and disk, and raises the broker's alarms (BR-13).
//
// Goroutines: the watch over resources, and one for each HTTP server. Stop waits
// for all of them.
package server

import (
	"cmp"
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
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/edge/listen"
	"bartleby.mq/internal/edge/session091"
	"bartleby.mq/internal/edge/session10"
	"bartleby.mq/internal/edge/shovel"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
	"bartleby.mq/internal/safety/bug"
)

// Options say what to start.
type Options struct {
	DataDir string
	// FS is the file system of the data directory; nil: the operating system's. In any other
	// file system there is no lock, no control socket, no limit of free disk and no record
	// of imports, because the directory belongs to this process alone.
	FS     vfs.FS
	Config config.Config
	// Definitions is JSON to import at start, before the files that Config names.
	Definitions []byte
	// AMQP, AMQPS, HTTP, HTTPS, Prometheus and PrometheusHTTPS are addresses to listen on;
	// an empty address or list turns a listener off. TLS uses the certificates of Config.
	AMQP, AMQPS     []string
	HTTP, HTTPS     string
	Prometheus      string
	PrometheusHTTPS string
	// WebAMQP and WebAMQPS are those for AMQP 1.0 over WebSocket, without TLS and with; "": none.
	WebAMQP, WebAMQPS string
	Version           string // of the program
	// ResetClock sets the queues' clock to the system's, once: see broker.Options.
	ResetClock bool
	Logger     *slog.Logger
	// ConnectionLogger logs events of single connections, Audit administrative actions;
	// nil: Logger.
	ConnectionLogger, Audit *slog.Logger
	// OnFatal is called when the disk has failed and the node cannot continue. The process
	// should end without a call of Stop, which would wait for that disk.
	OnFatal func(error)
	// LogLevel returns the log level, SetLogLevel changes it for all outputs; nil: the node
	// cannot change the log.
	LogLevel    func() string
	SetLogLevel func(level string) error
	// OnStop is called when a request to the API stops the node.
	OnStop func()
	// OnStopApp is called when the control socket asks for the application's stop: see StopApp. nil: it cannot be stopped so.
	OnStopApp func()
}

// Server is a running node.
type Server struct {
	Options
	broker  *broker.Broker
	lock    *dirLock
	listen  *listen.Server
	tls     certificates
	shovels *shovel.Shovels
	office  *office.Office
	api     api.Handler

	stopc chan struct{}  // closed by Stop
	done  sync.WaitGroup // goroutines of the server's own
	fatal sync.Once

	config          atomic.Pointer[config.Config]    // in force: Options.Config, or the result of Reload
	looking         sync.Mutex                       // held while memory and disk are checked
	clockAhead      bool                             // the log says that the queues' clock is ahead of the system's; guarded by looking
	short           bool                             // there is little free disk space; guarded by looking
	byHand          broker.Alarm                     // alarms that an operator has raised; guarded by looking
	memory, disk    atomic.Pointer[config.Watermark] // as the API changed them; nil: the configuration's
	https           []*http.Server
	requests        requests
	sockets         sockets
	patience        time.Duration // how long clients may take to close when the node stops
	requestPatience time.Duration // how long requests may go on when they were cut
	atStop          []func()      // called when everything else has ended

	mu    sync.Mutex // guards addrs
	addrs Addresses
}

// Addresses are the addresses of a node's listeners; nil: none.
type Addresses struct {
	AMQP, AMQPS       []net.Addr
	HTTP, HTTPS       net.Addr
	Prometheus        net.Addr
	PrometheusHTTPS   net.Addr
	WebAMQP, WebAMQPS net.Addr
}

// stopTimeout is what Server.patience is.
const stopTimeout = 10 * time.Second

// requestTimeout is what Server.requestPatience is. Each request looks at its context, or has bounds of its own, well within it.
const requestTimeout = 10 * time.Second

// Start opens the data directory and listens. When it returns without an error
// the node serves clients.
func Start(o Options) (s *Server, err error) { return start(o, nil) }

// start is Start on a directory whose lock is held, or is to be taken if lock is nil. It takes over the lock.
func start(o Options, lock *dirLock) (s *Server, err error) {
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
	s = &Server{Options: o, lock: lock, stopc: make(chan struct{}), patience: stopTimeout, requestPatience: requestTimeout, sockets: shareSockets(openFiles())}
	s.requests.init()
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
		if s.lock == nil {
			if s.lock, err = lockDir(o.DataDir); err != nil {
				return s, err
			}
		}
		if markUp(o.DataDir) {
			s.Logger.Warn("the last node on this data directory was not stopped in order; it recovers what is on disk", "data_dir", o.DataDir)
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
	if s.office, err = office.New(office.Options{Broker: s.broker, Logger: o.Logger, Failpoint: s.broker.Failpoint, WebhooksLocal: o.Config.WebhooksAllowLocal, Version: o.Version}); err != nil {
		return s, err
	}
	s.shovels = shovel.Start(shovel.Options{Broker: s.broker, Logger: o.Logger, ClusterName: s.clusterName})
	s.warnOfFiles(&o.Config)
	s.listen = listen.New(listen.Options{
		Protocols: s.protocols(), Logger: o.ConnectionLogger, LikeRabbitMQ: o.Config.Strict, Proxied: o.Config.ProxyProtocol, Proxies: o.Config.Proxies, Limits: s.listenLimits(&o.Config),
	})
	if o.Config.ProxyProtocol && o.Config.Proxies == nil {
		s.Logger.Warn("PROXY headers are trusted only from this machine; name trusted proxies with proxy_protocol.trusted.1, .2, ...")
	}
	s.makeAPI()
	s.watchResources()
	s.watchCertificates()
	if err = s.startHTTP(); err != nil {
		return s, err
	}
	if err = s.startAMQP(); err != nil {
		return s, err
	}
	a := s.Addresses()
	// The usual listeners come first, because scripts read this line.
	said := []any{"amqp", a.AMQP, "http", orNone(a.HTTP), "prometheus", orNone(a.Prometheus)}
	if len(a.AMQPS) > 0 {
		said = append(said, "amqps", a.AMQPS)
	}
	if a.HTTPS != nil {
		said = append(said, "https", a.HTTPS)
	}
	if open := a.open(); len(open) > 0 {
		s.Logger.Info("listeners that other machines can reach", "addresses", open)
	}
	s.Logger.Info("Server startup complete", append(said, "data_dir", o.DataDir, "version", o.Version, "took", time.Since(began).Round(time.Millisecond))...)
	return s, nil
}

// private says whether the data directory is in a file system of this process's own.
func (s *Server) private() bool { return s.FS != nil }

// Addresses returns the addresses of the node's listeners.
func (s *Server) Addresses() Addresses {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.addrs
	a.AMQP, a.AMQPS = slices.Clone(a.AMQP), slices.Clone(a.AMQPS)
	return a
}

// open lists the addresses that are not of this machine alone.
func (a *Addresses) open() (open []net.Addr) {
	for _, at := range slices.Concat(a.AMQP, a.AMQPS, []net.Addr{a.HTTP, a.HTTPS, a.Prometheus, a.PrometheusHTTPS, a.WebAMQP, a.WebAMQPS}) {
		if tcp, is := at.(*net.TCPAddr); is && !tcp.IP.IsLoopback() {
			open = append(open, at)
		}
	}
	return open
}

// orNone is an address as the configuration writes it where there is no listener.
func orNone(a net.Addr) any {
	if a == nil {
		return "none"
	}
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
	return s.startWebAMQP()
}

// startWebAMQP listens for clients of AMQP 1.0 over WebSocket.
func (s *Server) startWebAMQP() error {
	web := &listen.Web{Path: s.Config.WebAMQPPath, Origins: s.Config.WebAMQPOrigins}
	for _, l := range []struct {
		addr  string
		tls   *listen.Credentials
		field *net.Addr
	}{{s.WebAMQP, nil, &s.addrs.WebAMQP}, {s.WebAMQPS, s.tls.web, &s.addrs.WebAMQPS}} {
		if l.addr == "" {
			continue
		}
		at, err := s.listen.ListenWeb(l.addr, web, l.tls)
		if err != nil {
			return err
		}
		s.mu.Lock()
		*l.field = at
		s.mu.Unlock()
		s.Logger.Info("started listener for AMQP over WebSocket", "address", at.String(), "tls", l.tls != nil)
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
		ResetClock: s.ResetClock, Dir: s.DataDir, FS: s.FS, Logger: s.Logger, NodeName: c.NodeName, Strict: c.Strict,
		Topology: topology.Options{
			DenyTransientNonExclusive: !c.Permit[config.TransientQueues],
			DenyQueueMasterLocator:    !c.Permit[config.QueueMasterLocator],
			ClassicAtLeastOnce:        c.ClassicAtLeastOnce,
			DefaultQueueType:          topology.QueueType(c.DefaultQueueType),
			DefaultProfile:            deadletter.Profile(c.Profile),
		},
		Events:        broker.EventExchange{Enabled: c.EventsEnabled(), VHost: message.VHost(c.EventsVHost())},
		ApsaraMQ:      apsara(&c.ApsaraMQ),
		LoopbackUsers: c.LoopbackUsers, AccountRules: accountRules(&c), ConsumerTimeout: timeout, MaxMessageSize: c.MaxMessageSize,
		GlobalQos: c.Permit[config.GlobalQos], SettleExchange: c.SettleExchange, CountNack: c.CountNack, ResetOnDeadLetter: c.ResetOnDeadLetter,
		LostAndFound: c.FindsLost(), LostAndFoundStrict: c.LostAndFound != nil && c.FindsLost(),
		StripCC: c.StripCC, TrustClientDeath: c.TrustClientDeath, RetryHeld: c.RetryHeld,
		Storage: s.storage(), Short: s.short,
		OnFatal: func(err error) {
			s.fatal.Do(func() {
				why := "the disk failed, the node stops"
				if errors.Is(err, broker.ErrLaterRelease) {
					why = "the node stops"
				}
				s.Logger.Error(why, "data_dir", s.DataDir, "error", err)
				if s.OnFatal != nil {
					s.OnFatal(err)
				}
			})
		},
	}
	forCrashTests(&o)
	return o
}

// apsara returns the broker's options for the profile apsaramq.
func apsara(c *config.ApsaraMQ) broker.ApsaraMQ {
	return broker.ApsaraMQ{
		MaxRedeliveries: c.MaxRedeliveries, ResetRedeliveries: c.ResetRedeliveries, ConsumerTimeout: c.ConsumerTimeout,
		LimitReason: c.LimitReason, ExpireDead: c.DLQTTL, MaxHops: c.MaxHops, MaxDelay: c.MaxDelay, MaxRetention: c.MaxRetention,
		MaxMessageSize: c.MaxMessageSize, Priorities: c.Priorities, ErrorStyle: c.ErrorStyle, ErrorHelp: c.ErrorHelp,
	}
}

// firstStart makes the first virtual host and user of a node that was never started (BR-18.1), unless definitions have
// made users. A node that has had its first start gets no default user: whoever has lost all users, or deleted them, must
// not find everybody's password in force again.
func (s *Server) firstStart() error {
	started, err := s.broker.Started()
	if err != nil {
		return err
	}
	if err := s.makeFirst(started); err != nil || started {
		return err
	}
	return s.broker.SetStarted()
}

func (s *Server) makeFirst(started bool) error {
	f := s.Config.FirstStart
	users, known := 0, false
	s.broker.Read(func(_ *topology.State, u *auth.Users) {
		users = len(u.List())
		_, known = u.User(f.User)
	})
	if users > 0 {
		if f.User != config.Default().FirstStart.User && !known {
			s.Logger.Warn("default_user has no effect: there are users already, from definitions or an earlier start", "user", f.User)
		}
		return nil
	}
	if started {
		s.Logger.Error("there are no users, so nobody can log in; this is no first start, so the default user is not made. To make one, run: bartleby add_user NAME, bartleby set_user_tags NAME administrator",
			"data_dir", s.DataDir)
		return nil
	}
	s.Logger.Info("first start", "vhost", f.VHost, "user", f.User)
	return s.broker.CreateDefault(broker.Default{
		VHost: message.VHost(f.VHost), User: f.User, Password: f.Password, Tags: f.Tags,
		Configure: f.Configure, Write: f.Write, Read: f.Read,
	})
}

// protocols are those that clients may speak.
func (s *Server) protocols() []listen.Protocol {
	list := []listen.Protocol{{Name: "AMQP 0-9-1", Headers: session091.Headers, Serve: s.serve091}}
	if s.Config.AMQP10 {
		list = append(list, listen.Protocol{Name: "AMQP 1.0", Headers: session10.Headers, Web: true, Serve: s.serve10})
	}
	return list
}

func (s *Server) serve091(nc net.Conn, first []byte, place *listen.Place) (leaves bool) {
	c := s.config.Load()
	secure := secured(nc, c.Auth.CertLogin)
	return session091.Serve(nc, first, session091.Options{
		Broker: s.broker, Logger: s.ConnectionLogger, ChannelMax: cmp.Or(c.ChannelMax, session091.NoChannelMax), FrameMax: cmp.Or(c.FrameMax, session091.NoFrameMax), Heartbeat: heartbeat(c),
		Mechanisms: offered(c.Auth.Mechanisms, secure), Anonymous: auth.Credentials{User: c.Auth.AnonymousUser, Password: c.Auth.AnonymousPassword},
		Product: c.ProductName, Version: c.ProductVersion, Release: s.Version, MaxChannelConsumers: c.MaxChannelConsumers,
		TLS: secure, HandshakeTimeout: c.HandshakeTimeout, Opened: place.Opened, Stands: stands(place),
	})
}

func (s *Server) serve10(nc net.Conn, first []byte, place *listen.Place) (leaves bool) {
	c := s.config.Load()
	secure := secured(nc, c.Auth.CertLogin)
	_, web := nc.(*listen.WebSocket)
	return session10.Serve(nc, first, session10.Options{
		Web:    web,
		Broker: s.broker, Logger: s.ConnectionLogger, SessionMax: c.SessionMax, LinkMax: c.LinkMax, FrameMax: cmp.Or(c.FrameMax, uint32(max(c.MaxMessageSize, minFrameMax))), IdleTimeout: heartbeat(c),
		Mechanisms: offered(c.Auth.Mechanisms, secure), Anonymous: auth.Credentials{User: c.Auth.AnonymousUser, Password: c.Auth.AnonymousPassword},
		Product: c.ProductName, Version: c.ProductVersion, Release: s.Version, Strict: c.Strict,
		TLS: secure, HandshakeTimeout: c.HandshakeTimeout, Opened: place.Opened, Stands: stands(place),
	})
}

// minFrameMax is the least frame_max of AMQP 1.0 where there is no limit: then a frame may be as large as a message.
const minFrameMax = 128 << 10

// heartbeat is the configured one for a session, to which 0 is the default.
func heartbeat(c *config.Config) time.Duration {
	if c.Heartbeat == 0 {
		return -1
	}
	return c.Heartbeat
}

// stands tells the place of a client how far its login is.
func stands(place *listen.Place) func(broker.Standing) {
	return func(to broker.Standing) {
		switch to {
		case broker.Undecided:
			place.Needed()
		case broker.PutOff:
			place.PutOff()
		case broker.Refused:
			place.Refused()
		}
	}
}

// Stop stops the node in order: it accepts no new clients, closes connections, waits for
// their sessions, writes the remaining data and closes the directory (BR-14.4). If requests over HTTP go on although they were cut, it returns
// an error and leaves the directory to the process, which has to end.
func (s *Server) Stop() error {
	defer bug.End(s.Logger, "the stop")
	failed := s.halt()
	if s.lock != nil && !errors.Is(failed, errRequestsLeft) {
		if failed == nil {
			markStopped(s.DataDir)
		}
		failed = errors.Join(failed, s.lock.release())
	}
	return failed
}

// halt stops everything but the hold on the data directory.
func (s *Server) halt() error {
	close(s.stopc)
	if s.listen != nil {
		s.listen.StopAccepting()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	if s.shovels != nil {
		s.shovels.Stop()
	}
	if s.office != nil {
		s.office.Jobs.Close() // requests that watch a job end
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
	// After sessions were cut: a request may wait for one.
	if err := s.requests.wait(s.requestPatience, s.Logger); err != nil {
		return errors.Join(failed, err) // they use the broker: it stays open until the process ends
	}
	s.done.Wait()
	if s.office != nil {
		s.office.Close()
	}
	if s.broker != nil {
		within, done := context.WithTimeout(context.Background(), s.patience) // clients may have taken all of ctx's time
		s.broker.CheckpointWithin(within)                                     // the next start has less to read
		done()
		failed = errors.Join(failed, s.broker.Close())
	}
	for _, f := range s.atStop {
		f()
	}
	return failed
}
