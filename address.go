package bartleby

import (
	"net"
	"net/url"
	"strconv"
)

// AMQP is HOST:PORT of the first listener for AMQP without TLS; "" if there is none.
func (b *Broker) AMQP() string { return reachable(first(b.server.Addresses().AMQP)) }

// AMQPS is HOST:PORT of the first listener for AMQP with TLS; "" if there is none.
func (b *Broker) AMQPS() string { return reachable(first(b.server.Addresses().AMQPS)) }

// HTTP is HOST:PORT of the management API without TLS; "" if it is not there.
func (b *Broker) HTTP() string { return reachable(b.server.Addresses().HTTP) }

// Prometheus is HOST:PORT of the metrics without TLS; "" if they are not there.
func (b *Broker) Prometheus() string { return reachable(b.server.Addresses().Prometheus) }

// URL is what AMQP clients dial: with the user, the password and the virtual host that
// an empty broker begins with. "" if there is no listener.
func (b *Broker) URL() string {
	f := b.config.FirstStart
	return b.URLFor(f.User, f.Password, f.VHost)
}

// URLFor is what AMQP clients dial as another user, or for another virtual host.
func (b *Broker) URLFor(user, password, vhost string) string {
	scheme, host := "amqp", b.AMQP()
	if host == "" {
		scheme, host = "amqps", b.AMQPS()
	}
	if host == "" {
		return ""
	}
	u := url.URL{Scheme: scheme, User: url.UserPassword(user, password), Host: host, Path: "/" + vhost, RawPath: "/" + url.PathEscape(vhost)}
	return u.String()
}

// ManagementURL is where the management API begins, without a user: the paths below it
// start with /api. "" if it is not there.
func (b *Broker) ManagementURL() string { return httpURL(b.HTTP()) }

// MetricsURL is what Prometheus scrapes. "" if it is not there.
func (b *Broker) MetricsURL() string {
	base := httpURL(b.Prometheus())
	if base == "" {
		return ""
	}
	return base + "/metrics"
}

func httpURL(host string) string {
	if host == "" {
		return ""
	}
	return "http://" + host
}

func first(all []net.Addr) net.Addr {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// reachable is where this machine reaches a listener; one of every interface is
// reached by loopback.
func reachable(at net.Addr) string {
	tcp, ok := at.(*net.TCPAddr)
	switch {
	case at == nil:
		return ""
	case ok && tcp.IP.IsUnspecified():
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return at.String()
}
