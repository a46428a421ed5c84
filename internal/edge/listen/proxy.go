package listen

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/pires/go-proxyproto"
)

// proxied is a connection that came through a proxy, with the addresses that its PROXY
// header tells of if the proxy is believed.
type proxied struct {
	net.Conn
	rest          []byte // read with the header, and not yet by the session
	remote, local net.Addr
}

// LoopbackProxies are those on the node's own machine.
var LoopbackProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// believed says whether what the peer of a socket tells of a client is taken for true. Who may
// claim to be a client on this machine is on it.
func believed(trusted []netip.Prefix, socket, client net.Addr) bool {
	from, about := addressOf(socket), addressOf(client)
	if about.IsLoopback() && !from.IsLoopback() {
		return false
	}
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(from) })
}

// addressOf is without its port; the zero Addr if there is none.
func addressOf(a net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(a.String())
	return at.Addr().Unmap().WithZone("")
}

// readProxyHeader reads the PROXY header, version 1 or 2, that must stand before all
// else. Its addresses count if it comes from a trusted proxy, and otherwise those of the
// socket do. The caller has set a deadline.
func readProxyHeader(nc net.Conn, trusted []netip.Prefix) (net.Conn, error) {
	const buffer = 256 // a header without extensions; what is read beyond it is kept
	r := bufio.NewReaderSize(nc, buffer)
	h, err := proxyproto.Read(r)
	if err != nil {
		return nil, err
	}
	p := &proxied{Conn: nc, remote: nc.RemoteAddr(), local: nc.LocalAddr()}
	switch {
	case h.Command.IsLocal(), h.TransportProtocol.IsUnspec():
		// The proxy itself, asking for its own sake.
	default:
		from, to, tcp := h.TCPAddrs()
		if !tcp || from == nil || to == nil {
			return nil, fmt.Errorf("the header describes %v, which is not a TCP connection", h.TransportProtocol)
		}
		if believed(trusted, nc.RemoteAddr(), from) {
			p.remote, p.local = from, to
		}
	}
	if n := r.Buffered(); n > 0 {
		p.rest, _ = r.Peek(n)
	}
	return p, nil
}

// Read implements net.Conn.
func (p *proxied) Read(b []byte) (int, error) {
	if len(p.rest) > 0 {
		n := copy(b, p.rest)
		if p.rest = p.rest[n:]; len(p.rest) == 0 {
			p.rest = nil
		}
		return n, nil
	}
	return p.Conn.Read(b)
}

// RemoteAddr is the client's address, as a trusted proxy says.
func (p *proxied) RemoteAddr() net.Addr { return p.remote }

// LocalAddr is where the client connected to, as a trusted proxy says.
func (p *proxied) LocalAddr() net.Addr { return p.local }

// SyscallConn implements syscall.Conn: a session writes to the socket itself. It does not
// read from it so, which would miss rest.
func (p *proxied) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := p.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite ends what is sent, and leaves what is read.
func (p *proxied) CloseWrite() error {
	if c, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
