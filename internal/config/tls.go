package config

// TLS configures one side of TLS connections. Paths are as written, relative to the
// directory in which the node was started.
type TLS struct {
	CACertFile string // cacertfile: PEM, the authorities for the peer's certificate
	CertFile   string // certfile: PEM, the own certificate with the intermediate ones
	KeyFile    string // keyfile: PEM
	Password   string // password of an encrypted key
	// Verify is verify = verify_peer: the peer's certificate must be valid. A server then
	// requests one.
	Verify bool
	// Require is fail_if_no_peer_cert: the peer must send a certificate.
	Require  bool
	Depth    int      // depth: the maximal number of intermediate certificates; -1: no limit
	Versions []string // versions.*: tlsv1.2, tlsv1.3; nil: both
	Ciphers  []string // ciphers.*: of TLS 1.2, by OpenSSL's or the registered names; nil: Go's choice
}

// Said says whether TLS is configured at all.
func (t TLS) Said() bool { return t.CertFile != "" || t.KeyFile != "" }

// SecureListener is an HTTP listener with TLS.
type SecureListener struct {
	Listener
	TLS TLS
}
