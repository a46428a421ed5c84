// Package api is the management HTTP API: RabbitMQ's resources, so that its tools work,
// and a few resources of our own below the same prefix.
//
// The server uses its handler. A handler translates requests into operations of package
// broker, and their results into RabbitMQ's JSON, including its error texts. It owns only
// the history of counters from which it computes rates, and the console's sessions. It never opens a listener, sets
// time limits or serves files: the server and the console do.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
	"bartleby.mq/internal/run/share"
)

// Options configure the API. Broker is required; the zero value of every other
// field is usable.
type Options struct {
	Broker *broker.Broker
	Logger *slog.Logger
	// NodeName is the node's name; empty: the broker's name.
	NodeName string
	// ClusterName is shown until a cluster_name parameter is set; empty: the node's name.
	ClusterName string
	// Product and ProductVersion identify the server; Version is the compatible version of
	// RabbitMQ, which tools compare (BR-15.14).
	Product, ProductVersion, Version string
	// Stop stops the server in order; nil refuses.
	Stop func()
	// StopApp closes all listeners and the broker, but leaves the process, for the operator to start the application again; nil
	// refuses.
	StopApp func()
	// SetAlarm raises an alarm until it is taken back, whatever the resources say; nil refuses.
	SetAlarm func(a broker.Alarm, on bool)
	// Listeners lists the server's listeners; nil: none.
	Listeners func() []Listener
	// SetMemoryWatermark changes the memory limit; nil refuses. The limit is a fraction of the
	// machine's memory, or bytes if the fraction is 0.
	SetMemoryWatermark func(fraction float64, bytes int64) error
	// SetDiskFreeLimit changes the limit of free disk in the same way; nil refuses. The
	// fraction, of the machine's memory, may be above 1.
	SetDiskFreeLimit func(fraction float64, bytes int64) error
	// LogLevel returns the log level, SetLogLevel changes it; nil refuses.
	LogLevel    func() string
	SetLogLevel func(level string) error
	// Certificates lists the certificates of listeners with TLS; nil: none.
	Certificates func() []Certificates
	// Settings lists the configuration in force, as lines of a configuration file with
	// secrets masked; nil: unknown.
	Settings func() []string
	// Audit logs each request that changes something, with its user and result; nil: none.
	Audit *slog.Logger
	// Limits returns the node's resources; nil: unknown.
	Limits func() NodeLimits
	// Shovels runs shovels; nil: none.
	Shovels Shovels
	// Office is the Dead Letter Office; nil: its resources do not exist.
	Office *office.Office
	// MaxBody is the maximal size of a request's body, in bytes; 0: 20,000,000, as in RabbitMQ.
	MaxBody int64
	// NoBasicAuth: no password opens the API, neither in a request nor at the console; the control socket still does.
	NoBasicAuth bool
	// KeepOperatorPolicies: requests cannot change operator policies; those of the control socket can.
	KeepOperatorPolicies bool
	// HideAllow leaves the header Allow out of answers.
	HideAllow bool
	// SessionLife is how long a login at the console lasts, also if it is in use; 0, or more: 12 hours.
	SessionLife time.Duration
	// Known, if not nil, is called with the context of each request when its user is authenticated, and says whether there is room for a request
	// of the user.
	Known func(ctx context.Context, user string) bool
}

// Listener is a socket the server accepts connections on.
type Listener struct {
	Protocol string // "amqp", "amqp/ssl", "http", "http/prometheus"
	Host     string
	Port     int
	TLS      bool
}

// Certificates are the certificate files of a listener with TLS, and the expiry of each
// certificate in them.
type Certificates struct {
	Listener
	CertFile, CACertFile       string
	CertExpires, CACertExpires []time.Time
}

// NodeLimits are the node's resources and their limits, in bytes; 0 is unknown.
type NodeLimits struct {
	MemoryUsed, MemoryLimit int64
	DiskFree, DiskFreeLimit int64
	FilesUsed, FilesLimit   int
	Sockets                 int
	MaxConnections          int // 0: no limit
}

const defaultMaxBody = 20_000_000

// server answers requests. It is safe for use by many goroutines.
type server struct {
	Options
	b        *broker.Broker
	table    *routeTable
	history  history
	watched  watched
	sessions sessions
	// plainBodies and largeBodies have the bodies in memory: see request.waitForRoom. imports has the imports of letters that are
	// under way, watchers the requests that watch jobs. They are shared by user.
	plainBodies, largeBodies, imports, watchers *share.Room[string]

	reads    *share.Turns[string]     // see route.readsAll
	imported atomic.Pointer[[32]byte] // the checksum of the last import
	checks   *share.Turns[string]     // the dry runs of definitions: each has a broker of its own
}

// Handler answers the requests for everything below /api, and keeps histories of a day.
type Handler interface {
	http.Handler
	// Sample takes a sample of what has a history of a day: the totals of the overview, and queues whose curves somebody has
	// drawn within a day. Whoever owns the handler calls it once in SampleEvery.
	Sample(now time.Time)
	// Guard lets requests through to another handler if their user may monitor the node.
	Guard(realm string, next http.Handler) http.Handler
}

// New returns the handler.
func New(o Options) Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.NodeName == "" {
		o.NodeName = o.Broker.NodeName
	}
	if o.ClusterName == "" {
		o.ClusterName = o.NodeName
	}
	if o.Product == "" {
		o.Product = "Bartleby"
	}
	if o.Version == "" {
		o.Version = "4.3.6"
	}
	if o.ProductVersion == "" {
		o.ProductVersion = o.Version
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.Audit == nil {
		o.Audit = slog.New(slog.DiscardHandler)
	}
	if o.Known == nil {
		o.Known = func(context.Context, string) bool { return true }
	}
	s := &server{Options: o, b: o.Broker, plainBodies: share.NewRoom[string](plainBodies), largeBodies: share.NewRoom[string](largeBodies), reads: share.NewTurns[string](runtime.GOMAXPROCS(0)), imports: share.NewRoom[string](imports), watchers: share.NewRoom[string](maxWatchers), checks: share.NewTurns[string](1)}
	s.history.tellsStart = !s.b.Strict
	if o.SessionLife > 0 {
		s.sessions.life = min(o.SessionLife, sessionLife)
	}
	s.table = newRouteTable(s.routes())
	return s
}

// Local wraps a handler from New for the control socket: its requests come from the node's
// operator and need no password.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), localKey{}, true)))
	})
}

// localKey marks the context of a request that came through Local.
type localKey struct{}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	started := time.Now()
	out := &responder{ResponseWriter: w}
	s.serve(out, hr)
	s.Logger.Debug("management request", "method", hr.Method, "route", out.route, "status", out.status, "took", time.Since(started))
}

func (s *server) serve(out *responder, hr *http.Request) {
	h := out.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	segments, ok := splitPath(hr.URL.EscapedPath())
	if !ok {
		out.fail(notFound)
		return
	}
	methods, params := s.table.find(segments)
	if methods == nil {
		s.unknown(out, hr.Method)
		return
	}
	if !s.HideAllow {
		h.Set("Allow", methods.allow)
	}
	if hr.Method == http.MethodOptions {
		out.status = http.StatusOK
		out.WriteHeader(out.status)
		return
	}
	rt, ok := methods.byName[hr.Method]
	if !ok && hr.Method == http.MethodHead {
		rt, ok = methods.byName[http.MethodGet]
	}
	if !ok {
		out.status = http.StatusMethodNotAllowed
		out.WriteHeader(out.status)
		return
	}
	out.route = rt.pattern // paths may hold a password
	r := &request{Request: hr, s: s, params: params, rt: rt, points: maxAllPoints}
	r.serve(out)
	s.audit(r, out)
}

// handle calls the route's handler. What grows with all that is declared is read by as many at a time as there are processors, whose users
// take turns.
func (r *request) handle() (any, error) {
	if !r.rt.readsAll() {
		return r.rt.handle(r)
	}
	if !r.s.reads.Begin(r.user, r.Context().Done(), nil) {
		return nil, nobodyWaits
	}
	defer r.s.reads.End()
	return r.rt.handle(r)
}

// unknown answers a request for what there is not. RabbitMQ looks for a file of its page there, which can only be read.
func (s *server) unknown(out *responder, method string) {
	switch {
	case !s.b.Strict || method == http.MethodGet || method == http.MethodHead:
		out.fail(notFound)
	case method == http.MethodOptions:
		out.begin(http.StatusOK)
	default:
		out.begin(http.StatusMethodNotAllowed)
	}
}

// serve answers a request whose route is known.
func (r *request) serve(out *responder) {
	s, hr := r.s, r.Request
	if err := r.admit(); err != nil {
		if err == wrongPassword || err == noCredentials {
			out.Header().Set("WWW-Authenticate", `Basic realm="RabbitMQ Management"`)
		}
		out.fail(err)
		return
	}
	if r.rt.access != open && !s.Known(hr.Context(), r.user) {
		out.fail(noRoom)
		return
	}
	defer r.leaveRoom()
	if err := r.readBody(out); err != nil {
		out.fail(asFailure(err))
		return
	}
	answer, err := r.handle()
	if err != nil {
		f := asFailure(err)
		if f.status >= http.StatusInternalServerError && f != nobodyWaits && f != crashed {
			s.Logger.Error("management request failed", "method", hr.Method, "path", hr.URL.Path, "error", err)
		}
		out.fail(f)
		return
	}
	out.answer(r, answer)
}
