package config

import (
	"net"
	"strings"
)

// Listener is the address of an HTTP server. Both fields empty means not set.
type Listener struct {
	Host string
	Port string
}

// Said says whether the configuration sets the listener.
func (l Listener) Said() bool { return l != Listener{} }

// Address is HOST:PORT. Without a host it means all interfaces, as in RabbitMQ; without a
// port it has the default port.
func (l Listener) Address(byDefault string) string {
	port := l.Port
	if port == "" {
		if _, p, err := net.SplitHostPort(byDefault); err == nil {
			port = p
		}
	}
	return net.JoinHostPort(l.Host, port)
}

// NoAddress instead of an address turns a listener off.
const NoAddress = "none"

// Address is an address from the command line. If it was Said, it wins over the
// configuration file; otherwise it is only a default.
type Address struct {
	Value string // HOST:PORT, for AMQP several with commas between, or NoAddress
	Said  bool
}

// AMQPAddresses are the addresses for AMQP without TLS; none: no listener.
func (c *Config) AMQPAddresses(a Address) []string {
	switch {
	case !a.Said && c.AMQP != nil:
		return c.AMQP
	case a.Value == NoAddress:
		return nil
	}
	return strings.Split(a.Value, ",")
}

// Plain is the address of an HTTP server without TLS; "" means no listener. If the file
// sets only the listener with TLS, there is no other, as in RabbitMQ.
func (l Listener) Plain(secure SecureListener, a Address) string {
	switch {
	case !a.Said && l.Port == NoAddress:
		return ""
	case !a.Said && l.Said():
		return l.Address(a.Value)
	case !a.Said && secure.Said(), a.Value == NoAddress:
		return ""
	}
	return a.Value
}

// WebAMQPAddress is the address for AMQP over WebSocket without TLS; "" means no listener.
func (c *Config) WebAMQPAddress() string {
	if !c.WebAMQP.Said() {
		return ""
	}
	return c.WebAMQP.Address(":15678")
}

// Said says whether the configuration sets the listener, or the certificate for it: without a port it has the default port, as in
// RabbitMQ.
func (l SecureListener) Said() bool { return l.Listener.Said() || l.TLS.Said() }

// ManagementListeners are the listeners of the management API, without TLS and with, where either way to write them counts.
func (c *Config) ManagementListeners() (plain Listener, secure SecureListener) {
	plain, secure = c.Management, c.ManagementTLS
	older := c.ManagementListener
	switch {
	case !c.olderManagement():
	case c.ManagementListenerTLS:
		if secure = older; secure.Port == "" {
			secure.Port = "15672"
		}
		if !older.TLS.Said() {
			// As in RabbitMQ: the certificate of the AMQP listeners, without their rules for clients.
			secure.TLS = c.TLS
			secure.TLS.Verify, secure.TLS.Require = false, false
		}
	default:
		plain = older.Listener
	}
	return plain, secure
}

// olderManagement says whether management.listener.* is set.
func (c *Config) olderManagement() bool {
	return c.ManagementListenerTLS || c.ManagementListener.Said()
}

// ManagementAddresses are the addresses of the management API, without TLS and with; "" means no listener.
func (c *Config) ManagementAddresses(a Address) (plain, secure string) {
	p, s := c.ManagementListeners()
	return p.Plain(s, a), s.SecureAddress(":15671")
}

// SecureAddress is the address of an HTTP server with TLS; "" means no listener.
func (l SecureListener) SecureAddress(byDefault string) string {
	if !l.Said() {
		return ""
	}
	return l.Address(byDefault)
}
