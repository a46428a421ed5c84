package api

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"

	"bartleby.mq/internal/core/auth"
)

// from is the address that a login comes from. A request from this machine that names another host counts as one from elsewhere:
// a page in a browser here whose name its owner has pointed at this machine (DNS rebinding) must not log in as guest.
func (r *request) from() net.IP {
	ip := peerIP(r.Request)
	if ip.IsLoopback() && !r.s.isOurs(r.Host) {
		return net.IPv4zero
	}
	return ip
}

// isOurs says whether a Host is a name or an address that nobody can point here from elsewhere: a loopback address, localhost, or the
// name of this machine or node. Browsers always say one.
func (s *server) isOurs(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	_, node, _ := strings.Cut(s.NodeName, "@")
	machine := hostname()
	first, _, _ := strings.Cut(machine, ".")
	switch host {
	case "", "localhost", strings.ToLower(node), machine, first:
		return true
	}
	return strings.HasSuffix(host, ".localhost")
}

var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname() // without one there is one name less
	return strings.ToLower(name)
})

// foreignHost is the answer to a login that was refused for its Host alone; nil if it was not.
func (r *request) foreignHost(err error) *failure {
	var refused *auth.LoginError
	if !errors.As(err, &refused) || refused.Reason != auth.LoopbackOnly || !peerIP(r.Request).IsLoopback() {
		return nil
	}
	return &failure{http.StatusUnauthorized, "not_authorized", "User can only log in via localhost. The request comes from this machine, but for the Host '" + r.Host +
		"': name the node by 127.0.0.1, localhost or the machine's own name."}
}
