package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tlsKeys are RabbitMQ's TLS options below a prefix, for a server's side of
// connections or a client's.
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
		{pattern: "crl_check", value: value{set: onlyFalse("certificate revocation lists are not read, and certificates that are revoked would be let in")}},
		{pattern: "cert", value: refused("certificates are read from files: certfile")},
		{pattern: "cacerts.**", value: refused("certificates are read from files: cacertfile")},
		{pattern: "key.**", value: refused("keys are read from files: keyfile")},
		{pattern: "psk_identity", value: refused("pre-shared keys are not spoken here")},
		{pattern: "crl_sources.**", value: refused("certificate revocation lists are not read")},
		{pattern: "dh", idle: "key exchanges are by elliptic curves only"},
		{pattern: "dhfile", idle: "key exchanges are by elliptic curves only"},
		{pattern: "client_renegotiation", idle: "there is no renegotiation"},
		{pattern: "secure_renegotiate", idle: "there is no renegotiation"},
		{pattern: "honor_cipher_order", idle: "the order is that of crypto/tls, safest and fastest first"},
		{pattern: "honor_ecc_order", idle: "the order is that of crypto/tls, safest and fastest first"},
		{pattern: "reuse_session", idle: "sessions are resumed by tickets, whose keys change daily"},
		{pattern: "reuse_sessions", idle: "sessions are resumed by tickets, whose keys change daily"},
		{pattern: "log_alert", idle: "what goes wrong in a handshake is always logged"},
		{pattern: "log_level", idle: "what goes wrong in a handshake is always logged"},
		{pattern: "bypass_pem_cache", idle: "files are read anew when they change"},
	}
	for i := range list {
		list[i].pattern = prefix + "." + list[i].pattern
		list[i].live = server
	}
	return list
}

// tlsVersion are the versions that are safe to speak.
var tlsVersion = []string{"tlsv1.2", "tlsv1.3"}

func tlsVersions(field func(*Config) *TLS) value {
	return value{
		set: func(p *parser, _, value string) (string, error) {
			versions := &field(p.c).Versions
			switch value {
			case "tlsv1", "tlsv1.1", "sslv3":
				return "", fmt.Errorf("%s is broken and not spoken here; it must be %s", value, strings.Join(tlsVersion, " or "))
			}
			if !slices.Contains(tlsVersion, value) {
				return "", fmt.Errorf("it must be %s", strings.Join(tlsVersion, " or "))
			}
			if !slices.Contains(*versions, value) {
				*versions = append(*versions, value)
			}
			return "", nil
		},
		show: func(c *Config) []named { return numbered(field(c).Versions) },
	}
}

// tlsCiphers keeps the names; whoever makes connections knows them.
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
				return "", errors.New("it must be an integer from 0 to 255")
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

// onlyFalse is a flag that may be off only: what it would turn on is not there, and
// whoever asks for it must not believe that it is.
func onlyFalse(why string) func(*parser, string, string) (string, error) {
	return func(_ *parser, _, value string) (string, error) {
		if on, err := boolean(value); err == nil && !on {
			return "", nil
		}
		return "", errors.New(why)
	}
}

// refused is a key that cannot be obeyed, and that a node must not ignore.
func refused(why string) value {
	return value{set: func(*parser, string, string) (string, error) { return "", errors.New(why) }}
}
