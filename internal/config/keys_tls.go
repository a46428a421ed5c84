package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tlsKeys are RabbitMQ's TLS options below a prefix, for the server's or the client's
// side of connections.
func tlsKeys(server bool, prefix string, field func(*Config) *TLS) []key {
	path := func(part func(*TLS) *string) value {
		return text(func(c *Config) *string { return part(field(c)) })
	}
	list := []key{
		{pattern: "cacertfile", value: path(func(t *TLS) *string { return &t.CACertFile })},
		{pattern: "certfile", value: path(func(t *TLS) *string { return &t.CertFile })},
		{pattern: "keyfile", value: path(func(t *TLS) *string { return &t.KeyFile })},
		{pattern: "password", secret: true, value: secretText(func(c *Config) *string { return &field(c).Password })},
		{pattern: "verify", value: word("verify_none", "verify_peer", func(c *Config) *bool { return &field(c).Verify })},
		{pattern: "fail_if_no_peer_cert", value: flag(func(c *Config) *bool { return &field(c).Require })},
		{pattern: "depth", value: depth(field)},
		{pattern: "versions.*", value: tlsVersions(field)},
		{pattern: "ciphers.*", value: tlsCiphers(field)},
		{pattern: "", value: noTLS(field)},
		{pattern: "crl_check", value: only("false", noRevocation)},
		{pattern: "cert", value: refused("the node reads certificates from files; use certfile")},
		{pattern: "cacerts.*", value: refused("the node reads certificates from files; use cacertfile")},
		{pattern: "key.*", secret: true, value: refused("the node reads keys from files; use keyfile")},
		{pattern: "psk_identity", value: refused("there are no pre-shared keys")},
		{pattern: "crl_sources.*", value: refused(noRevocation)},
		{pattern: "crl_sources.*.path", value: refused(noRevocation)},
		{pattern: "crl_sources.*.timeout", value: refused(noRevocation)},
		{pattern: "dh", idle: "key exchange uses elliptic curves only"},
		{pattern: "dhfile", idle: "key exchange uses elliptic curves only"},
		{pattern: "client_renegotiation", idle: "there is no renegotiation"},
		{pattern: "secure_renegotiate", idle: "there is no renegotiation"},
		{pattern: "honor_cipher_order", idle: "Go's crypto/tls chooses the order, safest and fastest first"},
		{pattern: "honor_ecc_order", idle: "Go's crypto/tls chooses the order, safest and fastest first"},
		{pattern: "reuse_session", idle: "sessions are resumed with tickets; their keys change daily"},
		{pattern: "reuse_sessions", idle: "sessions are resumed with tickets; their keys change daily"},
		{pattern: "log_alert", idle: "failed handshakes are always logged"},
		{pattern: "log_level", idle: "failed handshakes are always logged"},
		{pattern: "bypass_pem_cache", idle: "certificate files are read again when they change"},
	}
	for i := range list {
		list[i].pattern = strings.TrimSuffix(prefix+"."+list[i].pattern, ".")
		list[i].live = server
	}
	return list
}

// tlsVersion lists the supported versions of TLS.
var tlsVersion = []string{"tlsv1.2", "tlsv1.3"}

func tlsVersions(field func(*Config) *TLS) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			versions := &field(p.c).Versions
			switch value {
			case "tlsv1", "tlsv1.1", "sslv3":
				return "", fmt.Errorf("is insecure and not supported; use %s", strings.Join(tlsVersion, " or "))
			}
			if !slices.Contains(tlsVersion, value) {
				return "", fmt.Errorf("is not %s", strings.Join(tlsVersion, " or "))
			}
			if !slices.Contains(*versions, value) {
				*versions = append(*versions, value)
			}
			return "", nil
		},
		show: func(c *Config) []named { return numbered(field(c).Versions) },
	}
}

// tlsCiphers keeps the names unchecked; the package listen knows the ciphers.
func tlsCiphers(field func(*Config) *TLS) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			field(p.c).Ciphers = append(field(p.c).Ciphers, value)
			return "", nil
		},
		show: func(c *Config) []named { return numbered(field(c).Ciphers) },
	}
}

func numbered(list []string) (shown []named) {
	for i, s := range list {
		shown = append(shown, named{strconv.Itoa(i + 1), s})
	}
	return shown
}

func depth(field func(*Config) *TLS) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil {
				return "", errors.New("is not an integer from 0 to 255")
			}
			field(p.c).Depth = int(n)
			return "", nil
		},
		show: func(c *Config) []named {
			if d := field(c).Depth; d >= 0 {
				return one(strconv.Itoa(d))
			}
			return nil
		},
	}
}

const noRevocation = "the node reads no certificate revocation lists and would accept revoked certificates"

// noTLS is the key above the options, whose only value says that there are none.
func noTLS(field func(*Config) *TLS) value {
	return value{set: func(p *parser, _, value string) (string, error) {
		if value != "none" {
			return "", errors.New("is not none")
		}
		*field(p.c) = TLS{Depth: -1}
		return "", nil
	}}
}

// only is a key that the node can obey at one value alone, because it lacks the protection that any other would turn on.
// Accepting another would give a false sense of safety. The name of a flag may be written both ways.
func only(wanted, why string) value {
	return value{refuses: true, set: func(_ *parser, _, value string) (string, error) {
		on, err := boolean(value)
		if value == wanted || err == nil && strconv.FormatBool(on) == wanted {
			return "", nil
		}
		return "", fmt.Errorf("is not supported, only %s: %s", wanted, why)
	}}
}

// refused is a key that the node cannot obey and must not ignore.
func refused(why string) value {
	return value{refuses: true, set: func(*parser, string, string) (string, error) { return "", errors.New("is not supported: " + why) }}
}
