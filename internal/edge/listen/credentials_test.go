package listen

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/youmark/pkcs8"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/test/certificate"
)

const day = 24 * time.Hour

// secure has an authority, the files of a server that it signed, and options that name them.
func secure(t *testing.T) (*certificate.Authority, TLSOptions, string) {
	t.Helper()
	dir := t.TempDir()
	ca := certificate.NewAuthority(t, "ca")
	o := TLSOptions{CACertFile: ca.Write(t, dir), Depth: -1}
	o.CertFile, o.KeyFile = ca.Issue(t, "server", day, nil).Write(t, dir)
	return ca, o, dir
}

// startTLS listens with TLS; what is served is the protocol header, and the client's name.
func startTLS(t *testing.T, o TLSOptions) (s *Server, c *Credentials, addr string, log *logged) {
	t.Helper()
	s, _, log = start(t, Options{Protocols: speaking(func(nc net.Conn, first []byte, _ *Place) {
		name := ""
		if chains := nc.(*tls.Conn).ConnectionState().VerifiedChains; len(chains) > 0 {
			name = SubjectName(chains[0][0])
		}
		_, _ = nc.Write(append(first, name...))
	})})
	c, err := LoadCredentials(o, s.Logger)
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.ListenTLS("127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	return s, c, at.String(), log
}

// talk opens a connection and returns what it is answered, and the server's certificate.
func talk(addr string, c *tls.Config) (answer string, shown *x509.Certificate, err error) {
	nc, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addr, c)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(nc, amqp091.ProtocolHeader); err != nil {
		return "", nil, err
	}
	text, err := io.ReadAll(nc)
	return strings.TrimPrefix(string(text), amqp091.ProtocolHeader), nc.ConnectionState().PeerCertificates[0], err
}

// BR-1.14: which clients come in, by what the listener demands.
func TestPeerVerification(t *testing.T) {
	ca, o, _ := secure(t)
	stranger := certificate.NewAuthority(t, "ca") // of the same name
	pool := ca.Pool()
	good, forged := ca.Issue(t, "client", day, nil).TLS(), stranger.Issue(t, "client", day, nil).TLS()
	expired := ca.Issue(t, "client", -time.Minute, nil).TLS()
	forServers := ca.Issue(t, "client", day, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }).TLS()
	for _, tt := range []struct {
		name            string
		verify, require bool
		cert            *tls.Certificate
		want            string
		refused         bool
	}{
		{"none asked, none shown", false, false, nil, "", false},
		{"none asked, one shown", false, false, &forged, "", false},
		{"asked, none shown", true, false, nil, "", false},
		{"asked, a good one", true, false, &good, "CN=client", false},
		{"asked, a forged one", true, false, &forged, "", true},
		{"asked, one that has expired", true, false, &expired, "", true},
		{"asked, one for servers", true, false, &forServers, "", true},
		{"demanded, none shown", true, true, nil, "", true},
		{"demanded, a good one", true, true, &good, "CN=client", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := o
			o.Verify, o.Require = tt.verify, tt.require
			_, _, addr, _ := startTLS(t, o)
			c := &tls.Config{RootCAs: pool}
			if tt.cert != nil { // whatever authorities the server names
				c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tt.cert, nil }
			}
			got, _, err := talk(addr, c)
			if (err != nil) != tt.refused || got != tt.want {
				t.Errorf("got %q, %v; want %q, refused %v", got, err, tt.want, tt.refused)
			}
		})
	}
}

// Nobody talks a listener down to a version that is broken, or that is not wanted.
func TestVersions(t *testing.T) {
	ca, o, _ := secure(t)
	for _, tt := range []struct {
		versions []string
		client   uint16
		ok       bool
	}{
		{nil, tls.VersionTLS10, false}, {nil, tls.VersionTLS11, false}, {nil, tls.VersionTLS12, true}, {nil, tls.VersionTLS13, true},
		{[]string{"tlsv1.3"}, tls.VersionTLS12, false}, {[]string{"tlsv1.3"}, tls.VersionTLS13, true}, {[]string{"tlsv1.2"}, tls.VersionTLS13, false},
	} {
		o.Versions = tt.versions
		_, _, addr, _ := startTLS(t, o)
		_, _, err := talk(addr, &tls.Config{RootCAs: ca.Pool(), MinVersion: tt.client, MaxVersion: tt.client})
		if (err == nil) != tt.ok {
			t.Errorf("versions %v, client %x: %v, want ok %v", tt.versions, tt.client, err, tt.ok)
		}
	}
}

// A client that speaks AMQP to a listener with TLS is sent away, and the log says why.
func TestPlainClientAtTLS(t *testing.T) {
	_, o, _ := secure(t)
	_, _, addr, log := startTLS(t, o)
	nc := dial(t, addr)
	if _, err := io.WriteString(nc, amqp091.ProtocolHeader); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(nc)
	if !strings.Contains(log.String(), "TLS handshake failed") {
		t.Errorf("the log is %s", log)
	}
}

// Certificates with too many others between them and their root are refused.
func TestDepth(t *testing.T) {
	chain := func(n int) tls.ConnectionState {
		return tls.ConnectionState{PeerCertificates: make([]*x509.Certificate, 1), VerifiedChains: [][]*x509.Certificate{make([]*x509.Certificate, n)}}
	}
	for _, tt := range []struct {
		n, most int
		ok      bool
	}{{2, 0, true}, {3, 0, false}, {3, 1, true}, {9, -1, true}, {1, 0, true}} {
		if err := checkDepth(chain(tt.n), tt.most); (err == nil) != tt.ok {
			t.Errorf("a chain of %d, at most %d between: %v", tt.n, tt.most, err)
		}
	}
}

// Files that change are used from the next handshake on; those that cannot be used
// leave what was there.
func TestFilesThatChange(t *testing.T) {
	ca, o, dir := secure(t)
	_, c, addr, log := startTLS(t, o)
	subject := func() string {
		t.Helper()
		c.mu.Lock()
		c.look = time.Time{} // now
		c.mu.Unlock()
		_, cert, err := talk(addr, &tls.Config{RootCAs: ca.Pool()})
		if err != nil {
			t.Fatal(err)
		}
		return cert.Subject.CommonName
	}
	if got := subject(); got != "server" {
		t.Errorf("shown is %s", got)
	}
	later := func(path string) { // than whatever the file system tells apart
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	ca.Issue(t, "renewed", day, nil).Write(t, dir)
	later(o.CertFile)
	if got := subject(); got != "renewed" {
		t.Errorf("after a change %s is shown", got)
	}
	if err := os.WriteFile(o.KeyFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := subject(); got != "renewed" {
			t.Errorf("with a broken key %s is shown", got)
		}
	}
	if n := strings.Count(log.String(), "cannot use"); n != 1 {
		t.Errorf("%d lines about the broken key, want 1: %s", n, log)
	}
	if err := c.Reload(o); err == nil {
		t.Error("a broken key was loaded")
	}
	pair := ca.Issue(t, "again", day, nil)
	pair.Write(t, dir)
	if err := c.Reload(o); err != nil {
		t.Fatal(err)
	}
	if got := subject(); got != "again" {
		t.Errorf("after Reload %s is shown", got)
	}
	if certs := c.Certificates(); len(certs) != 1 || certs[0].Subject != "CN=again" || !certs[0].NotAfter.Equal(pair.Cert.NotAfter) {
		t.Errorf("certificates are %+v", certs)
	}
}

// What cannot be used is told with the file's name.
func TestFilesThatCannotBeUsed(t *testing.T) {
	_, good, dir := secure(t)
	other := t.TempDir()
	_, strange := certificate.NewAuthority(t, "x").Issue(t, "x", day, nil).Write(t, other)
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*TLSOptions){
		"nowhere.pem":                 func(o *TLSOptions) { o.CertFile = "nowhere.pem" },
		"private key does not match":  func(o *TLSOptions) { o.KeyFile = strange },
		"contains no certificate":     func(o *TLSOptions) { o.Verify, o.CACertFile = true, empty },
		"none of the ciphers":         func(o *TLSOptions) { o.Ciphers = []string{"RC4-MD5"} },
		"unknown TLS version":         func(o *TLSOptions) { o.Versions = []string{"tlsv1"} },
		"failed to find any PEM data": func(o *TLSOptions) { o.CertFile = empty },
	} {
		o := good
		change(&o)
		if _, err := LoadCredentials(o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Ciphers are chosen by OpenSSL's names; those that are not spoken are left out.
func TestCiphers(t *testing.T) {
	suites, skipped, err := cipherSuites([]string{"ECDHE-RSA-AES256-GCM-SHA384", "DHE-RSA-AES256-SHA", "TLS_AES_128_GCM_SHA256"})
	if err != nil || len(suites) != 1 || suites[0] != tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 || len(skipped) != 1 {
		t.Errorf("got %v, %v, %v", suites, skipped, err)
	}
}

// A key may be encrypted.
func TestEncryptedKey(t *testing.T) {
	ca, o, dir := secure(t)
	pair := ca.Issue(t, "server", day, nil)
	o.CertFile, o.KeyFile = pair.Write(t, dir)
	der, err := pkcs8.MarshalPrivateKey(pair.Key, []byte("open"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	for password, ok := range map[string]bool{"open": true, "shut": false, "": false} {
		o.Password = password
		if err := CheckTLS(o); (err == nil) != ok {
			t.Errorf("password %q: %v", password, err)
		} else if err != nil && password != "" && strings.Contains(err.Error(), password) {
			t.Errorf("the error has the password: %v", err)
		}
	}
}

// A session that is resumed is of the same client, and no more of one that was verified
// by an authority that is not trusted any longer.
func TestResumption(t *testing.T) {
	ca, o, dir := secure(t)
	o.Verify, o.Require = true, true
	_, c, addr, _ := startTLS(t, o)
	cert := ca.Issue(t, "client", day, nil).TLS()
	client := &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{cert}, ClientSessionCache: tls.NewLRUClientSessionCache(4), Rand: rand.Reader}
	for range 3 {
		if got, _, err := talk(addr, client); err != nil || got != "CN=client" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	next := certificate.NewAuthority(t, "next")
	o.CACertFile = next.Write(t, dir)
	if err := c.Reload(o); err != nil {
		t.Fatal(err)
	}
	if got, _, err := talk(addr, client); err == nil {
		t.Errorf("a client of the old authority came in as %q", got)
	}
}

// Every limit of the handshake ends what does not come to an end.
func TestSilentTLSClient(t *testing.T) {
	_, o, _ := secure(t)
	s, _, addr, log := startTLS(t, o)
	s.SetLimits(Limits{TLSHandshake: 50 * time.Millisecond})
	nc := dial(t, addr)
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a client that says nothing gets %v, want the end", err)
	}
	if !strings.Contains(log.String(), "TLS handshake failed") {
		t.Errorf("the log is %s", log)
	}
}
