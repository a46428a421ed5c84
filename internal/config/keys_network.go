package config

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// networkKeys say where a node listens, and how connections begin.
var networkKeys = []key{
	{pattern: "listeners.tcp", value: noListeners("listeners.tcp", func(c *Config) *[]string { return &c.AMQP })},
	{pattern: "listeners.tcp.*", value: listenerList(func(c *Config) *[]string { return &c.AMQP })},
	{pattern: "listeners.ssl", value: noListeners("listeners.ssl", func(c *Config) *[]string { return &c.AMQPS })},
	{pattern: "listeners.ssl.*", value: listenerList(func(c *Config) *[]string { return &c.AMQPS })},
	{pattern: "proxy_protocol", value: flag(func(c *Config) *bool { return &c.ProxyProtocol })},
	{pattern: "proxy_protocol.trusted.*", value: networks(func(c *Config) *[]netip.Prefix { return &c.Proxies })},

	{pattern: "prometheus.return_per_object_metrics", value: flag(func(c *Config) *bool { return &c.MetricsPerObject })},

	{pattern: "web_amqp.tcp.port", value: port(func(c *Config) *string { return &c.WebAMQP.Port })},
	{pattern: "web_amqp.tcp.ip", value: text(func(c *Config) *string { return &c.WebAMQP.Host })},
	{pattern: "web_amqp.ssl.port", value: port(func(c *Config) *string { return &c.WebAMQPTLS.Port })},
	{pattern: "web_amqp.ssl.ip", value: text(func(c *Config) *string { return &c.WebAMQPTLS.Host })},
	{pattern: "web_amqp.ws_path", value: webPath},
	{pattern: "web_amqp.allow_origins.*", value: origins},

	{pattern: "heartbeat", live: true, value: integer(0, 65535, time.Second, func(c *Config) *time.Duration { return &c.Heartbeat })},
	{pattern: "handshake_timeout", live: true, value: milliseconds(1, func(c *Config) *time.Duration { return &c.HandshakeTimeout })},
	{pattern: "ssl_handshake_timeout", live: true, value: milliseconds(1, func(c *Config) *time.Duration { return &c.TLSTimeout })},
	{pattern: "product.name", live: true, value: text(func(c *Config) *string { return &c.ProductName })},
	{pattern: "product.version", live: true, value: text(func(c *Config) *string { return &c.ProductVersion })},
	{pattern: "cluster_name", value: text(func(c *Config) *string { return &c.ClusterName })},
}

// webPath is the path of the only resource of a listener for WebSocket.
var webPath = value{
	set: func(p *parser, _, value string) (string, error) {
		if !strings.HasPrefix(value, "/") {
			return "", errors.New("does not begin with /")
		}
		p.c.WebAMQPPath = value
		return "", nil
	},
	show: func(c *Config) []named {
		if c.WebAMQPPath == "" {
			return nil
		}
		return one(c.WebAMQPPath)
	},
}

// origins are those of the pages that may connect.
var origins = value{
	set: func(p *parser, _, value string) (string, error) {
		p.c.WebAMQPOrigins = append(p.c.WebAMQPOrigins, value)
		return "", nil
	},
	show: func(c *Config) (shown []named) {
		for i, origin := range c.WebAMQPOrigins {
			shown = append(shown, named{strconv.Itoa(i + 1), origin})
		}
		return shown
	},
}

// noListeners is a key whose only value, none, turns its listeners off.
func noListeners(name string, field func(*Config) *[]string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			if value != "none" {
				return "", errors.New("is not none; set an address with " + name + ".default or " + name + ".1")
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
				// The first line replaces the addresses from the environment.
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

// networks reads an address or a network such as 192.0.2.0/24.
func networks(field func(*Config) *[]netip.Prefix) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			network, err := netip.ParsePrefix(value)
			if address, notOne := netip.ParseAddr(value); err != nil && notOne == nil {
				network, err = netip.PrefixFrom(address, address.BitLen()), nil
			}
			if err != nil || network.Addr().Is4In6() || network.Addr().Zone() != "" {
				return "", errors.New("is not an address or a network, such as 192.0.2.7 or 192.0.2.0/24")
			}
			*field(p.c) = append(*field(p.c), network.Masked())
			return "", nil
		},
		show: func(c *Config) (shown []named) {
			for i, network := range *field(c) {
				shown = append(shown, named{strconv.Itoa(i + 1), network.String()})
			}
			return shown
		},
	}
}
