package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxHTTPConnections is the number of concurrent connections of an HTTP listener. With TLS, idle
	// ones then take some 50 MB. No user needs this many: more are an attack, or leaked.
	maxHTTPConnections = 1000
	// httpWriteTimeout is how long a client may take to accept the next httpWritePiece bytes.
	httpWriteTimeout = time.Minute
	httpWritePiece   = 64 << 10
	// crowdedPause is the time between two log lines about a listener with too many connections.
	crowdedPause = 10 * time.Second
)

// crowd is a listener that limits its connections. At the limit a new connection replaces the one
// that has been useless longest. A connection is useful while it has a running request of an
// authenticated user. So a client that opens many connections, sends little, or guesses passwords
// pushes out its own connections, and clients with a password are served meanwhile. If all are
// useful, the new one is closed.
type crowd struct {
	net.Listener
	most int
	log  *slog.Logger

	mu     sync.Mutex // guards what follows, and fields of guests
	guests map[*guest]struct{}
	idle   *list.List // of *guest: the useless connections, the one useless longest first
	logged time.Time
}

func newCrowd(l net.Listener, most int, log *slog.Logger) *crowd {
	return &crowd{Listener: l, most: most, log: log, guests: map[*guest]struct{}{}, idle: list.New()}
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	of *crowd

	useful int           // running requests of authenticated users; guarded by of.mu
	place  *list.Element // in of.idle; nil: it is useful, or closed; guarded by of.mu
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		nc, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g, out := c.enter(nc)
		if out != nil {
			_ = out.Close()
		}
		if g != nil {
			return g, nil
		}
	}
}

// enter makes a guest of a connection, and returns the connection to close for it, which may be itself.
func (c *crowd) enter(nc net.Conn) (g *guest, out net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.guests) >= c.most {
		c.tell(nc)
		longest := c.idle.Front()
		if longest == nil {
			return nil, nc
		}
		old := longest.Value.(*guest)
		c.forget(old)
		out = old.Conn
	}
	g = &guest{Conn: nc, of: c}
	c.guests[g] = struct{}{}
	g.place = c.idle.PushBack(g)
	return g, out
}

// tell logs that there are too many connections, but not too often. REQUIRES: mu is held.
func (c *crowd) tell(nc net.Conn) {
	if now := time.Now(); now.Sub(c.logged) > crowdedPause {
		c.logged = now
		c.log.Warn("too many HTTP connections; closing those idle longest", "listener", c.Addr().String(), "peer", nc.RemoteAddr().String(), "limit", c.most)
	}
}

// forget removes a guest. REQUIRES: mu is held.
func (c *crowd) forget(g *guest) {
	delete(c.guests, g)
	if g.place != nil {
		c.idle.Remove(g.place)
		g.place = nil
	}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.of.mu.Lock()
	g.of.forget(g)
	g.of.mu.Unlock()
	return g.Conn.Close()
}

// Write implements net.Conn. It does not wait forever for a client that accepts nothing.
func (g *guest) Write(b []byte) (n int, err error) {
	for {
		piece := b[n:min(len(b), n+httpWritePiece)]
		_ = g.SetWriteDeadline(time.Now().Add(httpWriteTimeout))
		k, err := g.Conn.Write(piece)
		if n += k; err != nil || n == len(b) {
			return n, err
		}
	}
}

// begin notes that a request of an authenticated user is running.
func (g *guest) begin() {
	c := g.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.useful++; g.place != nil {
		c.idle.Remove(g.place)
		g.place = nil
	}
}

// end notes the end of such a request.
func (g *guest) end() {
	c := g.of
	c.mu.Lock()
	defer c.mu.Unlock()
	g.useful--
	if _, open := c.guests[g]; open && g.useful == 0 {
		g.place = c.idle.PushBack(g)
	}
}

// guestKey marks the context of a connection with its guest, visitKey that of a request with its visit.
type (
	guestKey struct{}
	visitKey struct{}
)

// visit is one request.
type visit struct {
	guest *guest
	known bool // the user is authenticated
}

// withGuest is a http.Server's ConnContext.
func withGuest(ctx context.Context, nc net.Conn) context.Context {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	if g, ok := nc.(*guest); ok {
		return context.WithValue(ctx, guestKey{}, g)
	}
	return ctx
}

// visiting wraps h, so that its requests can be marked by known.
func visiting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, ok := r.Context().Value(guestKey{}).(*guest)
		if !ok {
			h.ServeHTTP(w, r)
			return
		}
		v := &visit{guest: g}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v))) // a panic of it ends the process
		if v.known {
			g.end()
		}
	})
}

// known marks a request as authenticated: its connection is not closed for another one.
func known(ctx context.Context) {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok && !v.known {
		v.known = true
		v.guest.begin()
	}
}
