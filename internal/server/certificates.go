package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/edge/listen"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// certificates holds the certificates of each kind of listener; nil: no TLS.
type certificates struct {
	amqp, management, prometheus, web *listen.Credentials
}

// loadCertificates reads the certificates of the listeners that are on.
func (s *Server) loadCertificates() error {
	c := s.config.Load()
	_, management := c.ManagementListeners()
	for _, l := range []struct {
		on    bool
		what  string
		tls   config.TLS
		field **listen.Credentials
	}{
		{len(s.AMQPS) > 0, "AMQP listener with TLS", c.TLS, &s.tls.amqp},
		{s.HTTPS != "", "management listener with TLS", management.TLS, &s.tls.management},
		{s.PrometheusHTTPS != "", "metrics listener with TLS", c.PrometheusTLS.TLS, &s.tls.prometheus},
		{s.WebAMQPS != "", "listener for AMQP over WebSocket with TLS", c.WebAMQPTLS.TLS, &s.tls.web},
	} {
		if !l.on {
			continue
		}
		loaded, err := listen.LoadCredentials(listen.TLSOptions(l.tls), s.Logger)
		if err != nil {
			return fmt.Errorf("%s: %w", l.what, err)
		}
		*l.field = loaded
	}
	return nil
}

// reloadCertificates reads the files again. It logs unreadable files and keeps the previous certificates.
func (s *Server) reloadCertificates(c *config.Config) {
	_, management := c.ManagementListeners()
	for _, l := range []struct {
		what   string
		tls    config.TLS
		loaded *listen.Credentials
	}{
		{"amqps", c.TLS, s.tls.amqp}, {"management", management.TLS, s.tls.management}, {"prometheus", c.PrometheusTLS.TLS, s.tls.prometheus},
		{"web_amqp", c.WebAMQPTLS.TLS, s.tls.web},
	} {
		if l.loaded == nil {
			continue
		}
		if err := l.loaded.Reload(listen.TLSOptions(l.tls)); err != nil {
			s.Logger.Error("cannot use the new TLS files; the previous ones stay in use", "listener", l.what, "error", err)
		}
	}
}

const (
	// expiryCheck is how often certificates are checked.
	expiryCheck = 6 * time.Hour
	// expirySoon is the remaining time below which a certificate gets a warning.
	expirySoon = 30 * 24 * time.Hour
)

// watchCertificates warns of certificates that expire soon, now and every few hours.
func (s *Server) watchCertificates() {
	if s.tls == (certificates{}) {
		return
	}
	s.warnOfExpiry(time.Now())
	s.done.Go(bug.Guarded(s.Logger, "the watch over certificates", func() {
		tick := time.NewTicker(expiryCheck)
		defer tick.Stop()
		for {
			select {
			case <-s.stopc:
				return
			case now := <-tick.C:
				s.warnOfExpiry(now)
			}
		}
	}))
}

func (s *Server) warnOfExpiry(now time.Time) {
	warned := map[listen.Certificate]bool{}
	for _, c := range []*listen.Credentials{s.tls.amqp, s.tls.management, s.tls.prometheus, s.tls.web} {
		if c == nil {
			continue
		}
		for _, cert := range c.Certificates() {
			switch left := cert.NotAfter.Sub(now); {
			case warned[cert]:
			case left <= 0:
				s.Logger.Error("certificate has expired", "file", cert.File, "subject", cert.Subject, "not_after", cert.NotAfter)
			case left < expirySoon:
				s.Logger.Warn("certificate expires soon", "file", cert.File, "subject", cert.Subject, "not_after", cert.NotAfter, "days", int(left.Hours()/24))
			}
			warned[cert] = true
		}
	}
}

// expiries lists the certificates of each listener with TLS and their expiry, for the API's
// check.
func (s *Server) expiries() (all []api.Certificates) {
	a := s.Addresses()
	add := func(protocol string, c *listen.Credentials, addrs ...net.Addr) {
		for _, at := range addrs {
			if c == nil || at == nil {
				continue
			}
			host, port, _ := net.SplitHostPort(at.String())
			n, _ := strconv.Atoi(port)
			e := api.Certificates{Listener: api.Listener{Protocol: protocol, Host: host, Port: n, TLS: true}}
			for _, cert := range c.Certificates() {
				file, expiry := &e.CertFile, &e.CertExpires
				if cert.Authority {
					file, expiry = &e.CACertFile, &e.CACertExpires
				}
				*file = cert.File
				*expiry = append(*expiry, cert.NotAfter)
			}
			all = append(all, e)
		}
	}
	add("amqp/ssl", s.tls.amqp, a.AMQPS...)
	add("https", s.tls.management, a.HTTPS)
	add("https/prometheus", s.tls.prometheus, a.PrometheusHTTPS)
	add("https/web-amqp", s.tls.web, a.WebAMQPS)
	return all
}

// secured describes the TLS of a connection to its session; nil without TLS.
func secured(nc net.Conn, login config.CertLogin) *broker.TLS {
	if w, ok := nc.(*listen.WebSocket); ok {
		nc = w.Conn
	}
	c, ok := nc.(*tls.Conn)
	if !ok {
		return nil
	}
	state := c.ConnectionState()
	t := &broker.TLS{Protocol: protocolName(state.Version), Cipher: tls.CipherSuiteName(state.CipherSuite)}
	if len(state.VerifiedChains) == 0 {
		return t // an unverified certificate names no user
	}
	cert := state.PeerCertificates[0]
	t.Subject, t.Issuer = listen.SubjectName(cert), listen.IssuerName(cert)
	t.Validity = cert.NotBefore.UTC().Format(time.RFC3339) + " - " + cert.NotAfter.UTC().Format(time.RFC3339)
	t.User, _ = listen.CertLogin(login).User(cert)
	return t
}

// protocolName is RabbitMQ's name of a version of TLS.
func protocolName(version uint16) string {
	if version == tls.VersionTLS13 {
		return "tlsv1.3"
	}
	return "tlsv1.2"
}

// offered returns the mechanisms for a client: EXTERNAL only if its certificate names a user
// (BR-2.1).
func offered(mechanisms []string, t *broker.TLS) []string {
	if t != nil && t.User != "" || !slices.Contains(mechanisms, "EXTERNAL") {
		return mechanisms
	}
	return slices.DeleteFunc(slices.Clone(mechanisms), func(m string) bool { return m == "EXTERNAL" })
}
