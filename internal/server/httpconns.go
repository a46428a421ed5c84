package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"bartleby.mq/internal/run/share"
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

// crowd is a listener that limits its connections, and shares them. A connection is useful while it has a running request of an authenticated
// user. Useful ones are shared by user, and may take all places but an eighth: of who has most the last one is closed, if somebody comes who has
// fewer. All others, the useless ones, are shared by address: at the limit a new connection replaces the one that has been useless longest, of
// the address that has most. So a client that opens many connections, sends little, guesses passwords, or logs in and sends its bodies slowly
// pushes out its own connections, and others are served meanwhile.
//
//	Invariant: len(guests) = idle.Len() + len(useful) <= most; idle has room for most - len(useful).
type crowd struct {
	net.Listener
	most int
	log  *slog.Logger

	mu     sync.Mutex // guards what follows, and fields of guests
	guests map[*guest]struct{}
	idle   *share.Shelf[netip.Prefix, *guest] // the useless connections
	known  *share.Room[string]                // the places of useful ones, by user
	useful map[*share.Place[string]]*guest
	logged time.Time
}

func newCrowd(l net.Listener, most int, log *slog.Logger) *crowd {
	return &crowd{
		Listener: l, most: most, log: log, guests: map[*guest]struct{}{}, idle: share.NewShelf[netip.Prefix, *guest](int64(most)),
		known: share.NewRoom[string](max(most-max(most/8, 1), 1)), useful: map[*share.Place[string]]*guest{},
	}
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	of *crowd

	requests int                  // running ones of authenticated users; guarded by of.mu
	place    *share.Place[string] // of the user of the first of them; nil: it is useless, or closed; guarded by of.mu
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
	g = &guest{Conn: nc, of: c}
	c.guests[g] = struct{}{}
	for _, old := range c.idle.Put(g.network(), g, 1) { // one, if all places are taken
		c.tell(nc)
		c.forget(old)
		if out = old.Conn; old == g {
			return nil, out
		}
	}
	return g, out
}

func (g *guest) network() netip.Prefix { return share.Network(g.RemoteAddr().String()) }

// tell logs that there are too many connections, but not too often. REQUIRES: mu is held.
func (c *crowd) tell(nc net.Conn) {
	if now := time.Now(); now.Sub(c.logged) > crowdedPause {
		c.logged = now
		c.log.Warn("too many HTTP connections; closing those idle longest", "listener", c.Addr().String(), "peer", nc.RemoteAddr().String(), "limit", c.most)
	}
}

// forget removes a guest, once or more often. REQUIRES: mu is held.
func (c *crowd) forget(g *guest) {
	delete(c.guests, g)
	c.idle.Remove(g)
	c.leave(g)
}

// leave gives the place of a useful guest back. REQUIRES: mu is held.
func (c *crowd) leave(g *guest) {
	if g.place != nil {
		g.place.Leave()
		delete(c.useful, g.place)
		g.place = nil
		c.idle.Resize(int64(c.most - len(c.useful)))
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

// begin notes that a request of an authenticated user is running. If it is the only one of its connection, the connection needs a place of the
// user's, for which another's connection may be closed. It says whether there is one.
func (g *guest) begin(user string) bool {
	ok, out := g.of.let(g, user)
	if out != nil {
		_ = out.Close() // its request ends with an error
	}
	return ok
}

// let is begin, and returns the connection to close.
func (c *crowd) let(g *guest, user string) (ok bool, out net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.guests[g]; open && g.requests == 0 {
		p := c.known.Enter(user)
		if p == nil {
			return false, nil
		}
		if before := p.Before(); before != nil {
			old := c.useful[before]
			c.forget(old)
			out = old.Conn
		}
		g.place, c.useful[p] = p, g
		c.idle.Remove(g)
		c.idle.Resize(int64(c.most - len(c.useful)))
	}
	g.requests++
	return true, out
}

// end notes the end of such a request.
func (g *guest) end() {
	c := g.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.requests--; g.requests > 0 {
		return
	}
	c.leave(g)
	if _, open := c.guests[g]; open {
		c.idle.Put(g.network(), g, 1) // there is room
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

// known marks a request as one of an authenticated user: its connection is closed for nobody but users who have fewer. It says whether there is room.
func known(ctx context.Context, user string) bool {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if ok && !v.known {
		v.known = v.guest.begin(user)
		return v.known
	}
	return true
}
