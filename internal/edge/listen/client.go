package listen

import (
	"crypto/tls"
	"crypto/x509"
)

// ClientTLS is for connections that the node makes: to a service that it asks. name is
// whose certificate is wanted; "": the host's.
func ClientTLS(o TLSOptions, name string) (*tls.Config, error) {
	var c tls.Config
	var err error
	c.ServerName = name
	if c.MinVersion, c.MaxVersion, err = versionRange(o.Versions); err != nil {
		return nil, err
	}
	if c.CipherSuites, _, err = cipherSuites(o.Ciphers); err != nil {
		return nil, err
	}
	if o.CACertFile != "" {
		if c.RootCAs, _, err = loadAuthorities(o.CACertFile); err != nil {
			return nil, err
		}
	} else if c.RootCAs, err = x509.SystemCertPool(); err != nil {
		return nil, err
	}
	if o.CertFile != "" || o.KeyFile != "" {
		pair, err := loadPair(o)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	c.InsecureSkipVerify = !o.Verify // by verify = verify_none, which whoever writes it must mean
	c.VerifyConnection = func(state tls.ConnectionState) error { return checkDepth(state, o.Depth) }
	return &c, nil
}
