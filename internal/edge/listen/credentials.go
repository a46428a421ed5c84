package listen

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/youmark/pkcs8"
)

// TLSOptions say what a side of TLS connections shows and demands.
type TLSOptions struct {
	CACertFile string // PEM: who may sign the peer's certificate
	CertFile   string // PEM: the own certificate with those between it and its root
	KeyFile    string // PEM
	Password   string // of an encrypted key
	// Verify asks a client for a certificate, and one that it shows must be good.
	Verify bool
	// Require demands that it shows one.
	Require  bool
	Depth    int      // certificates between the peer's and its root at most; -1: no limit
	Versions []string // tlsv1.2, tlsv1.3; nil: both
	Ciphers  []string // of TLS 1.2, by OpenSSL's or the registered names; nil: Go's choice
}

// lookEvery is how often a handshake looks whether the files have changed.
const lookEvery = time.Second

// Credentials are the certificates of a server, as its files have them now: files that
// change are read anew by the next handshake, and Reload reads them at once. Files
// that cannot be used are logged and leave what was there before.
type Credentials struct {
	logger  *slog.Logger
	current atomic.Pointer[loaded]

	mu     sync.Mutex // guards what follows, and readings
	look   time.Time  // when to look at the files again
	failed string     // what was wrong at the last look, so that it is logged once
}

// loaded is one reading of the files.
type loaded struct {
	options TLSOptions
	stamps  [3]stamp
	config  *tls.Config
	certs   []Certificate
}

// stamp tells whether a file is still the same.
type stamp struct {
	info os.FileInfo // nil: there is none, or it cannot be looked at
}

func stampOf(path string) stamp {
	if path == "" {
		return stamp{}
	}
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info}
}

func (s stamp) same(other stamp) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil
	}
	return os.SameFile(s.info, other.info) && s.info.ModTime().Equal(other.info.ModTime()) && s.info.Size() == other.info.Size()
}

// Certificate is one of the files' certificates, for those who watch its end.
type Certificate struct {
	File      string
	Subject   string
	Authority bool // it is there to verify others
	NotAfter  time.Time
}

// LoadCredentials reads the files. Names of ciphers that are not spoken are logged, as
// long as one is.
func LoadCredentials(o TLSOptions, logger *slog.Logger) (*Credentials, error) {
	c := &Credentials{logger: logger}
	if err := c.Reload(o); err != nil {
		return nil, err
	}
	return c, nil
}

// CheckTLS says whether the files could be used.
func CheckTLS(o TLSOptions) error {
	_, _, err := load(o)
	return err
}

// Reload reads the files that o names. An error leaves all as it was.
func (c *Credentials) Reload(o TLSOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, skipped, err := load(o)
	if err != nil {
		return err
	}
	if len(skipped) > 0 {
		c.logger.Warn("ignoring unsupported ciphers", "ciphers", skipped)
	}
	c.current.Store(next)
	c.look, c.failed = time.Now().Add(lookEvery), ""
	return nil
}

// Config is for listeners: each handshake uses what was read last.
func (c *Credentials) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c.refresh(time.Now())
			now := c.current.Load().config
			if len(protocols) == 0 {
				return now, nil
			}
			now = now.Clone()
			now.NextProtos = protocols
			return now, nil
		},
	}
}

// refresh reads the files again if they have changed.
func (c *Credentials) refresh(now time.Time) {
	if !c.mu.TryLock() {
		return // another handshake does
	}
	defer c.mu.Unlock()
	if now.Before(c.look) {
		return
	}
	c.look = now.Add(lookEvery)
	had := c.current.Load()
	changed := false
	for i, path := range had.options.files() {
		changed = changed || !stampOf(path).same(had.stamps[i])
	}
	if !changed {
		return
	}
	next, _, err := load(had.options)
	if err != nil {
		// Files are often replaced one after the other: key and certificate may not fit for a moment.
		if text := err.Error(); text != c.failed {
			c.failed = text
			c.logger.Error("cannot use the changed TLS files; the previous ones stay in use", "error", err)
		}
		return
	}
	c.failed = ""
	c.current.Store(next)
	c.logger.Info("TLS files have changed and were reloaded", "certfile", had.options.CertFile, "not_after", next.certs[0].NotAfter)
}

// Certificates are those read last, the own one first.
func (c *Credentials) Certificates() []Certificate { return c.current.Load().certs }

func (o *TLSOptions) files() [3]string { return [3]string{o.CertFile, o.KeyFile, o.CACertFile} }

func load(o TLSOptions) (l *loaded, skipped []string, err error) {
	l = &loaded{options: o}
	for i, path := range o.files() {
		l.stamps[i] = stampOf(path) // before reading: a change while reading is seen later
	}
	cert, err := loadPair(o)
	if err != nil {
		return nil, nil, err
	}
	l.certs = append(l.certs, Certificate{File: o.CertFile, Subject: SubjectName(cert.Leaf), NotAfter: cert.Leaf.NotAfter})
	l.config = &tls.Config{Certificates: []tls.Certificate{cert}}
	if l.config.MinVersion, l.config.MaxVersion, err = versionRange(o.Versions); err != nil {
		return nil, nil, err
	}
	if l.config.CipherSuites, skipped, err = cipherSuites(o.Ciphers); err != nil {
		return nil, nil, err
	}
	if !o.Verify {
		return l, skipped, nil
	}
	pool, authorities, err := loadAuthorities(o.CACertFile)
	if err != nil {
		return nil, nil, err
	}
	l.certs = append(l.certs, authorities...)
	l.config.ClientCAs, l.config.ClientAuth = pool, tls.VerifyClientCertIfGiven
	if o.Require {
		l.config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	l.config.VerifyConnection = func(state tls.ConnectionState) error { return checkDepth(state, o.Depth) }
	return l, skipped, nil
}

// loadPair reads certificate and key, which may be encrypted.
func loadPair(o TLSOptions) (tls.Certificate, error) {
	certs, err := os.ReadFile(o.CertFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := os.ReadFile(o.KeyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	if key, err = decryptKey(key, o.Password); err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", o.KeyFile, err)
	}
	pair, err := tls.X509KeyPair(certs, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", o.CertFile, o.KeyFile, err)
	}
	return pair, nil
}

// decryptKey turns the encrypted key in a PEM file into a plain one. Others are left alone.
func decryptKey(text []byte, password string) ([]byte, error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return text, nil
		}
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY":
			if password == "" {
				return nil, errors.New("the key is encrypted, and no password is configured")
			}
			key, _, err := pkcs8.ParsePrivateKey(block.Bytes, []byte(password))
			if err != nil {
				return nil, errors.New("the configured password does not decrypt the key")
			}
			der, err := x509.MarshalPKCS8PrivateKey(key)
			if err != nil {
				return nil, err
			}
			return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
		case block.Headers["DEK-Info"] != "":
			return nil, errors.New(`the key is encrypted in OpenSSL's old format; convert it with "openssl pkcs8 -topk8"`)
		}
	}
}

// loadAuthorities reads those whose signatures count.
func loadAuthorities(path string) (*x509.CertPool, []Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	var list []Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		pool.AddCert(cert)
		list = append(list, Certificate{File: path, Subject: SubjectName(cert), Authority: true, NotAfter: cert.NotAfter})
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("%s contains no certificate", path)
	}
	return pool, list, nil
}

// checkDepth refuses clients whose chains are all too long.
func checkDepth(state tls.ConnectionState, most int) error {
	if most < 0 || len(state.PeerCertificates) == 0 {
		return nil
	}
	for _, chain := range state.VerifiedChains {
		if len(chain)-2 <= most {
			return nil
		}
	}
	return fmt.Errorf("more than %d certificates between the client's and its root", most)
}

func versionRange(names []string) (least, most uint16, err error) {
	if len(names) == 0 {
		return tls.VersionTLS12, tls.VersionTLS13, nil
	}
	for _, name := range names {
		v, known := map[string]uint16{"tlsv1.2": tls.VersionTLS12, "tlsv1.3": tls.VersionTLS13}[name]
		if !known {
			return 0, 0, fmt.Errorf("unknown TLS version %s; use tlsv1.2 or tlsv1.3", name)
		}
		if least == 0 || v < least {
			least = v
		}
		most = max(most, v)
	}
	return least, most, nil
}

// openSSLNames are the suites of TLS 1.2 that are spoken, by OpenSSL's names.
var openSSLNames = map[string]uint16{
	"ECDHE-ECDSA-AES128-GCM-SHA256": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-RSA-AES128-GCM-SHA256":   tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-ECDSA-AES256-GCM-SHA384": tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-RSA-AES256-GCM-SHA384":   tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-ECDSA-CHACHA20-POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	"ECDHE-RSA-CHACHA20-POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// cipherSuites finds the suites by their names. Those of TLS 1.3 are always spoken and
// need no choice.
func cipherSuites(names []string) (suites []uint16, skipped []string, err error) {
	byName := map[string]uint16{}
	always := map[string]bool{}
	for _, s := range tls.CipherSuites() {
		byName[s.Name] = s.ID
		always[s.Name] = s.SupportedVersions[0] == tls.VersionTLS13
	}
	good := 0
	for _, name := range names {
		id, known := openSSLNames[name]
		if !known {
			id, known = byName[name]
		}
		switch {
		case !known:
			skipped = append(skipped, name)
		case always[name]:
			good++
		default:
			good++
			suites = append(suites, id)
		}
	}
	if len(names) > 0 && good == 0 {
		return nil, nil, fmt.Errorf("none of the ciphers %v is supported", names)
	}
	return suites, skipped, nil
}
