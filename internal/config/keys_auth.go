package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// authKeys configure authentication and authorization.
var authKeys = []key{
	{pattern: "auth_mechanisms.*", live: true, value: value{
		set: func(p *parser, _, value string) (string, error) {
			mechanisms := []string{"PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS"}
			if !slices.Contains(mechanisms, value) {
				return "", fmt.Errorf("is not %s", strings.Join(mechanisms, " or "))
			}
			if list := &p.c.Auth.Mechanisms; !slices.Contains(*list, value) {
				*list = append(*list, value)
			}
			return "", nil
		},
		show: func(c *Config) []named { return numbered(c.Auth.Mechanisms) },
	}},
	{pattern: "auth_backends.*", value: value{set: func(p *parser, name, value string) (string, error) {
		return "", p.backend(name, value, value)
	}, show: func(c *Config) []named { return shownBackends(c, func(b AuthBackend) string { return both(b) }) }}},
	{pattern: "auth_backends.*.authn", value: value{set: func(p *parser, name, value string) (string, error) {
		return "", p.backend(name, value, "")
	}, show: func(c *Config) []named {
		return shownBackends(c, func(b AuthBackend) string { return half(b, b.Authn) })
	}}},
	{pattern: "auth_backends.*.authz", value: value{set: func(p *parser, name, value string) (string, error) {
		return "", p.backend(name, "", value)
	}, show: func(c *Config) []named {
		return shownBackends(c, func(b AuthBackend) string { return half(b, b.Authz) })
	}}},

	{pattern: "auth_http.http_method", value: word("get", "post", func(c *Config) *bool { return &c.Auth.HTTP.Post })},
	{pattern: "auth_http.user_path", value: text(func(c *Config) *string { return &c.Auth.HTTP.UserPath })},
	{pattern: "auth_http.vhost_path", value: text(func(c *Config) *string { return &c.Auth.HTTP.VHostPath })},
	{pattern: "auth_http.resource_path", value: text(func(c *Config) *string { return &c.Auth.HTTP.ResourcePath })},
	{pattern: "auth_http.topic_path", value: text(func(c *Config) *string { return &c.Auth.HTTP.TopicPath })},
	{pattern: "auth_http.request_timeout", value: milliseconds(1, func(c *Config) *time.Duration { return &c.Auth.HTTP.RequestTimeout })},
	{pattern: "auth_http.connection_timeout", value: milliseconds(0, func(c *Config) *time.Duration { return &c.Auth.HTTP.ConnectTimeout })},
	{pattern: "auth_http.authorization_failure_disclosure", value: flag(func(c *Config) *bool { return &c.Auth.HTTP.Disclose })},
	{pattern: "auth_http.ssl_options.sni", value: value{
		set: func(p *parser, _, value string) (string, error) {
			if value == "none" {
				value = ""
			}
			p.c.Auth.HTTP.ServerName = value
			return "", nil
		},
		show: func(c *Config) []named { return one(c.Auth.HTTP.ServerName) },
	}},
	{pattern: "auth_http.ssl_options.hostname_verification", idle: "host names are always verified with the certificate, wildcards included"},

	{pattern: "auth_cache.cached_backend", value: value{
		set: func(p *parser, _, value string) (string, error) {
			return "", p.cached(func(b *AuthBackend, name string) { b.Authn, b.Authz = name, name }, value)
		},
		show: func(c *Config) []named { return one(both(c.Auth.Cache.Backend)) },
	}},
	{pattern: "auth_cache.cached_backend.authn", value: value{
		set: func(p *parser, _, value string) (string, error) {
			return "", p.cached(func(b *AuthBackend, name string) { b.Authn = name }, value)
		},
		show: func(c *Config) []named { return one(half(c.Auth.Cache.Backend, c.Auth.Cache.Backend.Authn)) },
	}},
	{pattern: "auth_cache.cached_backend.authz", value: value{
		set: func(p *parser, _, value string) (string, error) {
			return "", p.cached(func(b *AuthBackend, name string) { b.Authz = name }, value)
		},
		show: func(c *Config) []named { return one(half(c.Auth.Cache.Backend, c.Auth.Cache.Backend.Authz)) },
	}},
	{pattern: "auth_cache.cache_ttl", value: milliseconds(0, func(c *Config) *time.Duration { return &c.Auth.Cache.TTL })},
	{pattern: "auth_cache.cache_refusals", value: flag(func(c *Config) *bool { return &c.Auth.Cache.Refusals })},

	{pattern: "ssl_cert_login_from", live: true, value: value{
		set: func(p *parser, _, value string) (string, error) {
			if value == "subject_alt_name" {
				value = "subject_alternative_name"
			}
			return oneOf([]string{"distinguished_name", "common_name", "subject_alternative_name"}, certLoginFrom).set(p, "", value)
		},
		show: func(c *Config) []named { return one(c.Auth.CertLogin.From) },
	}},
	{pattern: "ssl_cert_login_san_type", live: true, value: oneOf([]string{"dns", "ip", "email", "uri", "other_name"}, func(c *Config) *string { return &c.Auth.CertLogin.SANType })},
	{pattern: "ssl_cert_login_san_index", live: true, value: integer(0, 1000, 1, func(c *Config) *int { return &c.Auth.CertLogin.SANIndex })},

	{pattern: "anonymous_login_user", live: true, value: value{
		set: func(p *parser, _, value string) (string, error) {
			if value == "none" {
				value = ""
			}
			p.c.Auth.AnonymousUser = value
			return "", nil
		},
		show: func(c *Config) []named {
			if c.Auth.AnonymousUser == "" {
				return one("none")
			}
			return one(c.Auth.AnonymousUser)
		},
	}},
	{pattern: "anonymous_login_pass", live: true, secret: true, value: secretText(func(c *Config) *string { return &c.Auth.AnonymousPassword })},

	{pattern: "password_hashing_module", live: true, value: value{
		set: func(p *parser, _, value string) (string, error) {
			switch value {
			case "rabbit_password_hashing_sha256", "rabbit_password_hashing_sha512", "argon2id":
				p.c.Auth.Hashing = value
				return "", nil
			case "rabbit_password_hashing_md5":
				return "", errors.New("is not supported for new passwords; MD5 hashes can only be imported with definitions")
			}
			return "", errors.New("is not rabbit_password_hashing_sha256, rabbit_password_hashing_sha512 or argon2id")
		},
		show: func(c *Config) []named { return one(c.Auth.Hashing) },
	}},
	{pattern: "credential_validator.validation_backend", value: value{set: func(_ *parser, _, value string) (string, error) {
		switch value {
		case "rabbit_credential_validator_accept_everything", "rabbit_credential_validator_min_password_length", "rabbit_credential_validator_password_regexp":
			return "", nil // the keys below set the rule
		}
		return "", errors.New("is not rabbit_credential_validator_accept_everything, ..._min_password_length or ..._password_regexp")
	}}},
	{pattern: "credential_validator.min_length", live: true, value: orUnsaid(integer(1, 1000, 1, func(c *Config) *int { return &c.Auth.MinPassword }))},
	{pattern: "credential_validator.regexp", live: true, value: value{
		set: func(p *parser, _, value string) (string, error) {
			if value == "" {
				return "", errors.New("must not be empty")
			}
			if _, err := regexp.Compile(value); err != nil {
				return "", fmt.Errorf("is not a regular expression: %w", err)
			}
			p.c.Auth.PasswordPattern = value
			return "", nil
		},
		show: func(c *Config) []named { return one(c.Auth.PasswordPattern) },
	}},

	{pattern: "login_throttle.failures", live: true, value: integer(0, math.MaxInt32, 1, func(c *Config) *int { return &c.Auth.Throttle.Free })},
	{pattern: "login_throttle.max_delay", live: true, value: milliseconds(0, func(c *Config) *time.Duration { return &c.Auth.Throttle.Most })},
}

func certLoginFrom(c *Config) *string { return &c.Auth.CertLogin.From }

// orUnsaid hides a value of 0.
func orUnsaid(v value) value {
	return value{set: v.set, show: func(c *Config) []named {
		if shown := v.show(c); len(shown) > 0 && shown[0].value != "0" {
			return shown
		}
		return nil
	}}
}

// backendName returns the backend that RabbitMQ's name means.
func backendName(name string) (string, error) {
	switch name {
	case "internal", "rabbit_auth_backend_internal":
		return InternalBackend, nil
	case "http", "rabbit_auth_backend_http":
		return HTTPBackend, nil
	case "cache", "rabbit_auth_backend_cache":
		return CacheBackend, nil
	}
	return "", errors.New("is not internal, http or cache; there are no other backends")
}

// backend sets one or both halves of the backend with a number. The first line about
// backends replaces the default.
func (p *parser) backend(number, authn, authz string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return errors.New("has no place: write a number into the key, as in auth_backends.1")
	}
	if p.backends == nil {
		p.backends = map[int]AuthBackend{}
	}
	b := p.backends[n]
	for _, half := range []struct {
		name  string
		field *string
	}{{authn, &b.Authn}, {authz, &b.Authz}} {
		if half.name == "" {
			continue
		}
		if *half.field, err = backendName(half.name); err != nil {
			return err
		}
	}
	p.backends[n] = b
	p.c.Auth.Backends = nil
	for _, n := range sortedKeys(p.backends) {
		b := p.backends[n]
		// As RabbitMQ does: a half that is not set equals the other.
		if b.Authn == "" {
			b.Authn = b.Authz
		}
		if b.Authz == "" {
			b.Authz = b.Authn
		}
		p.c.Auth.Backends = append(p.c.Auth.Backends, b)
	}
	return nil
}

func (p *parser) cached(set func(*AuthBackend, string), value string) error {
	name, err := backendName(value)
	if err == nil && name == CacheBackend {
		err = errors.New("cannot be cached by itself")
	}
	if err == nil {
		set(&p.c.Auth.Cache.Backend, name)
	}
	return err
}

func both(b AuthBackend) string {
	if b.Authn == b.Authz {
		return b.Authn
	}
	return ""
}

func half(b AuthBackend, name string) string {
	if b.Authn == b.Authz {
		return ""
	}
	return name
}

func shownBackends(c *Config, part func(AuthBackend) string) (shown []named) {
	for i, b := range c.Auth.Backends {
		if name := part(b); name != "" {
			shown = append(shown, named{strconv.Itoa(i + 1), name})
		}
	}
	return shown
}
