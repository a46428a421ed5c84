package config

import (
	"errors"
	"fmt"
	"slices"
)

// Check checks keys that depend on each other. Call it after all files are read.
func (c *Config) Check() error {
	var failed []error
	need := func(ok bool, text string, args ...any) {
		if !ok {
			failed = append(failed, fmt.Errorf(text, args...))
		}
	}
	_, management := c.ManagementListeners()
	for _, l := range []struct {
		wanted      bool
		tls         TLS
		what, where string
	}{
		{len(c.AMQPS) > 0, c.TLS, "listeners.ssl.*", "ssl_options"},
		{c.ManagementTLS.Said(), c.ManagementTLS.TLS, "management.ssl.port", "management.ssl"},
		{c.ManagementListenerTLS, management.TLS, "management.listener.ssl", "management.listener.ssl_opts"},
		{c.PrometheusTLS.Said(), c.PrometheusTLS.TLS, "prometheus.ssl.port", "prometheus.ssl"},
		{c.WebAMQPTLS.Said(), c.WebAMQPTLS.TLS, "web_amqp.ssl.port", "web_amqp.ssl"},
	} {
		if l.wanted {
			need(l.tls.CertFile != "" && l.tls.KeyFile != "", "%s: a listener with TLS needs %s.certfile and %s.keyfile", l.what, l.where, l.where)
		}
		need(!l.tls.Verify || l.tls.CACertFile != "", "%s.verify: verify_peer needs %s.cacertfile, the authorities whose certificates are trusted", l.where, l.where)
		need(!l.tls.Require || l.tls.Verify, "%s.fail_if_no_peer_cert: needs %s.verify = verify_peer", l.where, l.where)
	}
	if c.olderManagement() {
		other, said := "tcp", c.Management.Said()
		if c.ManagementListenerTLS {
			other, said = "ssl", c.ManagementTLS.Said()
		}
		need(!said, "management.listener: management.%s.* sets this listener too; keep one of them", other)
	}
	need(c.AMQP10 || !c.WebAMQP.Said() && !c.WebAMQPTLS.Said(), "web_amqp: the listener speaks AMQP 1.0 only, which amqp10.enabled = false turns off")
	if slices.Contains(c.Auth.Mechanisms, "EXTERNAL") {
		need(c.TLS.Verify, "auth_mechanisms: EXTERNAL needs ssl_options.verify = verify_peer: an unverified certificate proves nothing")
	}
	if slices.Contains(c.Auth.Mechanisms, "ANONYMOUS") {
		need(c.Auth.AnonymousUser != "", "auth_mechanisms: ANONYMOUS needs anonymous_login_user")
	}
	failed = append(failed, c.ApsaraMQ.check(), c.OpenAPI.check())
	return errors.Join(failed...)
}
