package config

import (
	"errors"
	"strconv"
	"time"
)

// networkKeys say where a node listens, and how connections begin.
var networkKeys = []key{
	{pattern: "listeners.tcp", value: noListeners("listeners.tcp", func(c *Config) *[]string { return &c.AMQP })},
	{pattern: "listeners.tcp.*", value: listenerList(func(c *Config) *[]string { return &c.AMQP })},
	{pattern: "listeners.ssl", value: noListeners("listeners.ssl", func(c *Config) *[]string { return &c.AMQPS })},
	{pattern: "listeners.ssl.*", value: listenerList(func(c *Config) *[]string { return &c.AMQPS })},
	{pattern: "proxy_protocol", value: flag(func(c *Config) *bool { return &c.ProxyProtocol })},

	{pattern: "management.tcp.port", value: port(func(c *Config) *string { return &c.Management.Port })},
	{pattern: "management.tcp.ip", value: text(func(c *Config) *string { return &c.Management.Host })},
	{pattern: "management.ssl.port", value: port(func(c *Config) *string { return &c.ManagementTLS.Port })},
	{pattern: "management.ssl.ip", value: text(func(c *Config) *string { return &c.ManagementTLS.Host })},
	{pattern: "prometheus.tcp.port", value: port(func(c *Config) *string { return &c.Prometheus.Port })},
	{pattern: "prometheus.tcp.ip", value: text(func(c *Config) *string { return &c.Prometheus.Host })},
	{pattern: "prometheus.ssl.port", value: port(func(c *Config) *string { return &c.PrometheusTLS.Port })},
	{pattern: "prometheus.ssl.ip", value: text(func(c *Config) *string { return &c.PrometheusTLS.Host })},

	{pattern: "heartbeat", live: true, value: integer(0, 65535, time.Second, func(c *Config) *time.Duration { return &c.Heartbeat })},
	{pattern: "handshake_timeout", live: true, value: milliseconds(1, func(c *Config) *time.Duration { return &c.HandshakeTimeout })},
	{pattern: "ssl_handshake_timeout", live: true, value: milliseconds(1, func(c *Config) *time.Duration { return &c.TLSTimeout })},
	{pattern: "product.name", live: true, value: text(func(c *Config) *string { return &c.ProductName })},
	{pattern: "product.version", live: true, value: text(func(c *Config) *string { return &c.ProductVersion })},
	{pattern: "cluster_name", value: text(func(c *Config) *string { return &c.ClusterName })},
}

// noListeners is the word by which there are none.
func noListeners(name string, field func(*Config) *[]string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if value != "none" {
				return "", errors.New("it must be none; addresses go to " + name + ".default or " + name + ".1")
			}
			*field(p.c) = []string{}
			return "", nil
		},
		show: func(c *Config) []named {
			if list := *field(c); list != nil && len(list) == 0 {
				return one("none")
			}
			return nil
		},
	}
}

func listenerList(field func(*Config) *[]string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if value == "none" {
				return "", nil
			}
			address, err := listenAddress(value)
			if err == nil {
				// The first one replaces what the environment says.
				list := field(p.c)
				if !p.listed[list] {
					p.listed[list], *list = true, nil
				}
				*list = append(*list, address)
			}
			return "", err
		},
		show: func(c *Config) (shown []named) {
			for i, address := range *field(c) {
				shown = append(shown, named{strconv.Itoa(i + 1), shownAddress(address)})
			}
			return shown
		},
	}
}
