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
	// maxHTTPConnections is how many connections an HTTP listener has at once. Idle ones, with TLS,
	// take some 50 MB then. Nobody needs so many: what is beyond it is an attack, or was forgotten.
	maxHTTPConnections = 1000
	// httpWriteTimeout is how long a client may accept nothing of what it is sent; it accepts it in
	// pieces of httpWritePiece bytes.
	httpWriteTimeout = time.Minute
	httpWritePiece   = 64 << 10
	// crowdedPause is between two lines of the log about a listener that has too many.
	crowdedPause = 10 * time.Second
)

// crowd is a listener that bounds the connections there are. One that comes when there is no room
// takes the place of the one that has been of no use for longest: none of its requests that is under
// way is known to be of somebody who may ask. So whoever opens many and says nothing, or little, or
// who guesses passwords, pushes out their own, and one with a password is served meanwhile. Where
// all are of use the new one is closed.
type crowd struct {
	net.Listener
	most int
	log  *slog.Logger

	mu     sync.Mutex // guards what follows, and what guests say they are guarded by
	guests map[*guest]struct{}
	idle   *list.List // of *guest: those that are of no use now, the one that came or was of use longest ago first
	logged time.Time
}

func newCrowd(l net.Listener, most int, log *slog.Logger) *crowd {
	return &crowd{Listener: l, most: most, log: log, guests: map[*guest]struct{}{}, idle: list.New()}
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	of *crowd

	useful int           // requests under way of somebody known; guarded by of.mu
	place  *list.Element // in of.idle; nil: it is of use, or closed; guarded by of.mu
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

// enter makes a guest of a connection, and returns which one has to go for it: perhaps itself.
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

// tell logs that there are too many, now and then. REQUIRES: mu is held.
func (c *crowd) tell(nc net.Conn) {
	if now := time.Now(); now.Sub(c.logged) > crowdedPause {
		c.logged = now
		c.log.Warn("too many HTTP connections; closing those idle longest", "listener", c.Addr().String(), "peer", nc.RemoteAddr().String(), "limit", c.most)
	}
}

// forget takes a guest out of the count. REQUIRES: mu is held.
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

// Write implements net.Conn. A client that accepts nothing does not keep it for ever.
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

// begin notes that a request of somebody known is under way.
func (g *guest) begin() {
	c := g.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.useful++; g.place != nil {
		c.idle.Remove(g.place)
		g.place = nil
	}
}

// end is the end of what begin has noted.
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
	known bool // whoever asks may
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

// visiting is h, whose requests may be known.
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

// known notes that whoever makes a request may do so: its connection is not closed for another.
func known(ctx context.Context) {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok && !v.known {
		v.known = true
		v.guest.begin()
	}
}
