package config

// TLS is what one side of TLS connections is told. Paths are as written, relative to
// the directory the node was started in.
type TLS struct {
	CACertFile string // cacertfile: PEM, who may sign the peer's certificate
	CertFile   string // certfile: PEM, the own certificate with those between it and its root
	KeyFile    string // keyfile: PEM
	Password   string // password of an encrypted key
	// Verify is verify = verify_peer: a certificate that the peer shows must be good.
	// On a server this asks for one.
	Verify bool
	// Require is fail_if_no_peer_cert: and it must show one.
	Require  bool
	Depth    int      // depth: certificates between the peer's and its root at most; -1: no limit
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
