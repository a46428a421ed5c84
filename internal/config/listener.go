package config

import (
	"net"
	"strings"
)

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

// NoAddress in the place of an address turns a listener off.
const NoAddress = "none"

// Address is where a program would have a node listen. What was Said wins over the
// configuration file, which wins over a value that is a default.
type Address struct {
	Value string // HOST:PORT, for AMQP several with commas between, or NoAddress
	Said  bool
}

// AMQPAddresses are where the node is to listen for AMQP without TLS; none: nowhere.
func (c *Config) AMQPAddresses(a Address) []string {
	switch {
	case !a.Said && c.AMQP != nil:
		return c.AMQP
	case a.Value == NoAddress:
		return nil
	}
	return strings.Split(a.Value, ",")
}

// Plain is where an HTTP server is to listen without TLS; "" is nowhere. Where the
// file speaks of its listener with TLS only that is all there is, as with RabbitMQ.
func (l Listener) Plain(secure SecureListener, a Address) string {
	switch {
	case !a.Said && l.Said():
		return l.Address(a.Value)
	case !a.Said && secure.Said(), a.Value == NoAddress:
		return ""
	}
	return a.Value
}

// SecureAddress is where an HTTP server is to listen with TLS; "" is nowhere.
func (l SecureListener) SecureAddress(byDefault string) string {
	if !l.Said() {
		return ""
	}
	return l.Address(byDefault)
}
