package server

import (
	"fmt"
	"regexp"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/edge/listen"
	"bartleby.mq/internal/run/admission"
	"bartleby.mq/internal/run/broker"
)

// authBackends makes the configured chain of backends; nil if it is only the node's own
// accounts.
func (s *Server) authBackends() ([]broker.AuthBackend, error) {
	c := s.Config.Auth
	made := map[string]admission.Backend{config.InternalBackend: nil}
	find := func(name string) (admission.Backend, error) {
		if b, ok := made[name]; ok {
			return b, nil
		}
		var err error
		switch name {
		case config.HTTPBackend:
			made[name], err = s.httpBackend(c.HTTP)
		default:
			err = fmt.Errorf("unknown backend %q", name)
		}
		return made[name], err
	}
	var chain []broker.AuthBackend
	for _, b := range c.Backends {
		if b.Authn == config.CacheBackend || b.Authz == config.CacheBackend {
			cached, err := cachedBackend(c.Cache, find)
			if err != nil {
				return nil, err
			}
			made[config.CacheBackend] = cached
		}
		authn, err := find(b.Authn)
		if err != nil {
			return nil, err
		}
		authz, err := find(b.Authz)
		if err != nil {
			return nil, err
		}
		chain = append(chain, broker.AuthBackend{Authn: authn, Authz: authz})
	}
	if len(chain) == 1 && chain[0] == (broker.AuthBackend{}) {
		return nil, nil
	}
	return chain, nil
}

// cachedBackend makes a cache in front of other backends; nil for the node's own accounts,
// which need no cache.
func cachedBackend(c config.AuthCache, find func(string) (admission.Backend, error)) (admission.Backend, error) {
	b := c.Backend
	if b.Authn == "" && b.Authz == "" {
		b = config.AuthBackend{Authn: config.InternalBackend, Authz: config.InternalBackend} // as RabbitMQ
	}
	if b.Authn == "" {
		b.Authn = b.Authz
	}
	if b.Authz == "" {
		b.Authz = b.Authn
	}
	login, err := find(b.Authn)
	if err != nil {
		return nil, err
	}
	allow, err := find(b.Authz)
	switch {
	case err != nil:
		return nil, err
	case login == nil && allow == nil:
		return nil, nil
	case login == nil || allow == nil:
		return nil, fmt.Errorf("auth_cache.cached_backend: the internal backend cannot be one half of a cache")
	}
	return admission.NewCache(login, allow, c.TTL, c.Refusals), nil
}

func (s *Server) httpBackend(c config.AuthHTTP) (admission.Backend, error) {
	secure, err := listen.ClientTLS(listen.TLSOptions(c.TLS), c.ServerName)
	if err != nil {
		return nil, fmt.Errorf("auth_http.ssl_options: %w", err)
	}
	h, err := admission.NewHTTP(admission.HTTPOptions{
		UserPath: c.UserPath, VHostPath: c.VHostPath, ResourcePath: c.ResourcePath, TopicPath: c.TopicPath,
		Post: c.Post, Timeout: c.RequestTimeout, ConnectTimeout: c.ConnectTimeout, Disclose: c.Disclose, TLS: secure,
	})
	if err != nil {
		return nil, err // without a typed nil in it
	}
	s.atStop = append(s.atStop, h.Close)
	return h, nil
}

// accountRules are the broker's options for logins and passwords.
func accountRules(c *config.Config) broker.AccountRules {
	r := broker.AccountRules{
		Hashing: auth.Algorithm(c.Auth.Hashing), MinPassword: c.Auth.MinPassword, MaxChannels: int64(c.MaxNodeChannels),
		Throttle: admission.ThrottleLimits{Free: c.Auth.Throttle.Free, Most: c.Auth.Throttle.Most},
	}
	if c.Auth.PasswordPattern != "" {
		r.PasswordPattern = regexp.MustCompile(c.Auth.PasswordPattern) // config has compiled it before
	}
	return r
}
