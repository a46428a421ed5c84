package config

import "net"

// Listener is where an HTTP server listens. Both fields empty means not said.
type Listener struct {
	Host string
	Port string
}

// Said says whether the configuration names the listener at all.
func (l Listener) Said() bool { return l != Listener{} }

// Address is HOST:PORT. Where a port alone is said it is that of every interface,
// as with RabbitMQ; where a host alone is said the port is that of the default.
func (l Listener) Address(byDefault string) string {
	port := l.Port
	if port == "" {
		if _, p, err := net.SplitHostPort(byDefault); err == nil {
			port = p
		}
	}
	return net.JoinHostPort(l.Host, port)
}
