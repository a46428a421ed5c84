package config

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
)

// webKeys are those of the management API and of the metrics: where they are served, and to whom.
var webKeys = slices.Concat([]key{
	{pattern: "management.tcp.port", value: port(func(c *Config) *string { return &c.Management.Port })},
	{pattern: "management.tcp.ip", value: text(func(c *Config) *string { return &c.Management.Host })},
	{pattern: "management.tcp.max_connections", value: maxHTTP(func(c *Config) *int { return &c.MaxHTTP.Management })},
	{pattern: "management.ssl.port", value: port(func(c *Config) *string { return &c.ManagementTLS.Port })},
	{pattern: "management.ssl.ip", value: text(func(c *Config) *string { return &c.ManagementTLS.Host })},
	{pattern: "management.ssl.max_connections", value: maxHTTP(func(c *Config) *int { return &c.MaxHTTP.ManagementTLS })},
	{pattern: "management.listener.port", value: port(func(c *Config) *string { return &c.ManagementListener.Port })},
	{pattern: "management.listener.ip", value: text(func(c *Config) *string { return &c.ManagementListener.Host })},
	{pattern: "management.listener.ssl", value: flag(func(c *Config) *bool { return &c.ManagementListenerTLS })},
	{pattern: "management.path_prefix", value: path(func(c *Config) *string { return &c.ManagementPrefix })},
	{pattern: "management.disable_basic_auth", value: flag(func(c *Config) *bool { return &c.NoBasicAuth })},
	{pattern: "management.restrictions.operator_policy_changes.disabled", value: flag(func(c *Config) *bool { return &c.KeepOperatorPolicies })},
	{pattern: "management.login_session_timeout", value: ifSaid(1, maxMinutes, time.Minute, func(c *Config) *time.Duration { return &c.SessionLife })},
	{pattern: "management.http.max_body_size", value: integer(1, math.MaxInt32, 1, func(c *Config) *int64 { return &c.MaxHTTPBody })},
	{pattern: "management.http.hide_allow_header", value: flag(func(c *Config) *bool { return &c.HideAllow })},

	{pattern: "prometheus.tcp.port", value: port(func(c *Config) *string { return &c.Prometheus.Port })},
	{pattern: "prometheus.tcp.ip", value: text(func(c *Config) *string { return &c.Prometheus.Host })},
	{pattern: "prometheus.tcp.max_connections", value: maxHTTP(func(c *Config) *int { return &c.MaxHTTP.Prometheus })},
	{pattern: "prometheus.tcp.listener", value: prometheusListener},
	{pattern: "prometheus.ssl.port", value: port(func(c *Config) *string { return &c.PrometheusTLS.Port })},
	{pattern: "prometheus.ssl.ip", value: text(func(c *Config) *string { return &c.PrometheusTLS.Host })},
	{pattern: "prometheus.ssl.max_connections", value: maxHTTP(func(c *Config) *int { return &c.MaxHTTP.PrometheusTLS })},
	{pattern: "prometheus.path", value: path(func(c *Config) *string { return &c.PrometheusPath })},
	{pattern: "prometheus.return_per_object_metrics", value: flag(func(c *Config) *bool { return &c.MetricsPerObject })},
	{pattern: "prometheus.authentication.enabled", value: flag(func(c *Config) *bool { return &c.PrometheusLogin })},
}, headers())

const maxMinutes = math.MaxInt64 / int64(time.Minute)

// MaxHTTP are the limits of connections of HTTP listeners; 0: none but the node's own.
type MaxHTTP struct{ Management, ManagementTLS, Prometheus, PrometheusTLS int }

func maxHTTP(field func(*Config) *int) value { return orWord("infinity", 0, math.MaxInt32, 1, field) }

// headers are the headers of all answers of the management listeners, each with the key that sets it.
func headers() (keys []key) {
	for _, h := range []struct{ key, header string }{
		{"management.hsts.policy", "Strict-Transport-Security"},
		{"management.headers.content_type_options", "X-Content-Type-Options"},
		{"management.headers.frame_options", "X-Frame-Options"},
		{"management.headers.referrer_policy", "Referrer-Policy"},
		{"management.headers.xss_protection", "X-XSS-Protection"},
	} {
		keys = append(keys, key{pattern: h.key, value: value{
			set: func(p *parser, _, value string) (string, error) {
				if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
					return "", errors.New("has characters that a header cannot have")
				}
				if p.c.Headers == nil {
					p.c.Headers = map[string]string{}
				}
				p.c.Headers[h.header] = value
				return "", nil
			},
			show: func(c *Config) []named { return one(c.Headers[h.header]) },
		}})
	}
	return keys
}

// path is a path below which something is served, without a slash at its end; "" is the root, or the default.
func path(field func(*Config) *string) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			value = strings.TrimRight(value, "/")
			if value != "" && value[0] != '/' {
				value = "/" + value // as RabbitMQ does
			}
			if strings.ContainsFunc(value, notOfPath) || value != "" && slices.ContainsFunc(strings.Split(value[1:], "/"), notSegment) {
				return "", errors.New("is not a path such as /metrics, of letters, digits and . _ - ~")
			}
			*field(p.c) = value
			return "", nil
		},
		show: func(c *Config) []named { return one(*field(c)) },
	}
}

func notOfPath(r rune) bool { return notOfKeyID(r) && r != '/' && r != '~' }

func notSegment(s string) bool { return s == "" || s == "." || s == ".." }

// prometheusListener is an address, or none.
var prometheusListener = value{
	set: func(p *parser, _, value string) (string, error) {
		if value == NoAddress {
			p.c.Prometheus = Listener{Port: NoAddress}
			return "", nil
		}
		host, port, err := hostPort(value)
		if err == nil {
			p.c.Prometheus = Listener{host, port}
		}
		return "", err
	},
	show: func(c *Config) []named {
		if c.Prometheus.Port == NoAddress {
			return one(NoAddress)
		}
		return nil
	},
}
