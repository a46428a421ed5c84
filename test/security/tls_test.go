package security

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/certificate"
)

const day = 24 * time.Hour

// files are the lines that give a listener its certificates.
func files(t *testing.T, ca *certificate.Authority, prefix string, lasts time.Duration) string {
	t.Helper()
	dir := t.TempDir()
	cert, key := ca.Issue(t, "server", lasts, nil).Write(t, dir)
	return prefix + ".cacertfile = " + ca.Write(t, dir) + "\n" + prefix + ".certfile = " + cert + "\n" + prefix + ".keyfile = " + key + "\n"
}

// external is the mechanism EXTERNAL, with a response that claims to be somebody.
type external struct{ claim string }

func (external) Mechanism() string  { return "EXTERNAL" }
func (e external) Response() string { return e.claim }

// named makes a certificate for a client.
func named(t *testing.T, ca *certificate.Authority, name pkix.Name) *tls.Config {
	t.Helper()
	pair := ca.Issue(t, "", day, func(c *x509.Certificate) { c.Subject = name }).TLS()
	return &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
}

// BR-1.14, BR-2.3: a client is whom its certificate names, and nobody else.
func TestExternal(t *testing.T) {
	t.Parallel()
	ca, stranger := certificate.NewAuthority(t, "ca"), certificate.NewAuthority(t, "ca")
	n := start(t, files(t, ca, "ssl_options", day)+`
		ssl_options.verify = verify_peer
		auth_mechanisms.1 = PLAIN
		auth_mechanisms.2 = EXTERNAL
		handshake_timeout = 1000
	`)
	for _, u := range []string{"CN=ada,O=Acme", "ada", "CN=x\\,CN=root", "CN=root"} {
		n.user(u, "")
		n.permit(u, "/", ".*", ".*", ".*")
	}
	with := func(c *tls.Config) *tls.Config {
		if c == nil {
			c = &tls.Config{}
		}
		c.RootCAs = ca.Pool()
		return c
	}
	acme := pkix.Name{CommonName: "ada", Organization: []string{"Acme"}}
	for _, tt := range []struct {
		name   string
		client *tls.Config
		claim  string
		user   string // "": refused
	}{
		{"a certificate", named(t, ca, acme), "", "CN=ada,O=Acme"},
		{"a certificate, and a claim to be another", named(t, ca, acme), "CN=root", "CN=ada,O=Acme"},
		{"no certificate", nil, "CN=root", ""},
		{"a certificate of a stranger", named(t, stranger, acme), "", ""},
		{"a certificate of somebody there is not", named(t, ca, pkix.Name{CommonName: "eve"}), "", ""},
		{"a name that looks like two", named(t, ca, pkix.Name{CommonName: "x,CN=root"}), "", "CN=x\\,CN=root"},
		{"a certificate without a name", named(t, ca, pkix.Name{}), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // refusals take their time (BR-2.5)
			c, err := n.dialTLS(with(tt.client), external{tt.claim})
			if tt.user == "" {
				if err == nil {
					_ = c.Close()
					t.Error("it is let in")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			var list []struct {
				User    string
				Subject string `json:"peer_cert_subject"`
				SSL     bool
			}
			if err := json.Unmarshal([]byte(n.must("GET", "/connections", nil)), &list); err != nil {
				t.Fatal(err)
			}
			found := false
			for _, c := range list {
				found = found || c.User == tt.user
				if c.Subject != c.User || !c.SSL {
					t.Errorf("there is a connection of %+v", c)
				}
			}
			if !found {
				t.Errorf("connections are %+v, want one of %s", list, tt.user)
			}
		})
	}
}

// Without a certificate there is nobody to be, and without TLS no certificate; passwords
// go on.
func TestExternalWithoutCertificate(t *testing.T) {
	t.Parallel()
	ca := certificate.NewAuthority(t, "ca")
	n := start(t, files(t, ca, "ssl_options", day)+"ssl_options.verify = verify_peer\nauth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = EXTERNAL\nhandshake_timeout = 1000\n")
	c, err := amqp.DialConfig("amqp://"+n.s.Addresses().AMQP[0].String()+"/", amqp.Config{SASL: []amqp.Authentication{external{"CN=root"}}})
	if err == nil {
		_ = c.Close()
		t.Error("EXTERNAL without TLS is let in")
	}
	if c, err = n.dialTLS(&tls.Config{RootCAs: ca.Pool()}, &amqp.PlainAuth{Username: "guest", Password: "guest"}); err != nil {
		t.Fatal("PLAIN with TLS: ", err)
	}
	_ = c.Close()
}

// The management API with TLS: nothing answers without, but the command line's control socket,
// which takes no passwords.
func TestManagementWithTLS(t *testing.T) {
	t.Parallel()
	ca := certificate.NewAuthority(t, "ca")
	n := start(t, files(t, ca, "management.ssl", day)+"management.ssl.port = 15671\n")
	a := n.s.Addresses()
	if a.HTTP != nil {
		t.Errorf("there is a listener without TLS at %s", a.HTTP)
	}
	for _, version := range []uint16{tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		c := http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: version, MaxVersion: version},
		}}
		r, _ := http.NewRequest("GET", "https://"+a.HTTPS.String()+"/api/health/checks/certificate-expiration/1/weeks", nil)
		r.SetBasicAuth("guest", "guest")
		answer, err := c.Do(r)
		if version == tls.VersionTLS11 {
			if err == nil {
				t.Error("TLS 1.1 is spoken")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), `"reason":"Certificates expiring"`) {
			t.Errorf("a certificate that lasts a day, asked for a week: %d %s", answer.StatusCode, body)
		}
	}
	if !strings.Contains(n.log.String(), "certificate expires soon") {
		t.Error("the log does not warn of the certificate")
	}
	answer, err := client.Get("http://" + a.HTTPS.String() + "/api/overview")
	if err == nil {
		_ = answer.Body.Close()
		if answer.StatusCode < 400 {
			t.Errorf("the listener with TLS answers without: %s", answer.Status)
		}
	}
}

// What changes in the files and in the configuration holds for the next connection, and
// connections there are stay.
func TestReload(t *testing.T) {
	t.Parallel()
	ca, next := certificate.NewAuthority(t, "ca"), certificate.NewAuthority(t, "next")
	n := start(t, files(t, ca, "ssl_options", day))
	guest := &amqp.PlainAuth{Username: "guest", Password: "guest"}
	old, err := n.dialTLS(&tls.Config{RootCAs: ca.Pool()}, guest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	if err := n.s.Reload(configured(t, files(t, next, "ssl_options", day)+"max_connections = 1\ncluster_name = other\n")); err != nil {
		t.Fatal(err)
	}
	if c, err := n.dialTLS(&tls.Config{RootCAs: next.Pool()}, guest); err == nil {
		_ = c.Close()
		t.Error("the new limit does not hold")
	}
	if _, err := old.Channel(); err != nil {
		t.Error("the old connection: ", err)
	}
	if err := n.s.Reload(configured(t, files(t, next, "ssl_options", day))); err != nil {
		t.Fatal(err)
	}
	c, err := n.dialTLS(&tls.Config{RootCAs: next.Pool()}, guest)
	if err != nil {
		t.Fatal("with the new authority: ", err)
	}
	_ = c.Close()
	for _, want := range []string{"setting=\"max_connections = 1\"", "configuration needs a restart", "cluster_name = other"} {
		if !strings.Contains(n.log.String(), want) {
			t.Errorf("the log has no %s", want)
		}
	}
	if err := n.s.Reload(configured(t, "ssl_options.certfile = nowhere\nssl_options.keyfile = nowhere\n")); err != nil {
		t.Fatal(err)
	}
	if c, err = n.dialTLS(&tls.Config{RootCAs: next.Pool()}, guest); err != nil {
		t.Fatal("after files that are not there: ", err)
	}
	_ = c.Close()
	if !strings.Contains(n.log.String(), "cannot use the new TLS files") {
		t.Error("the log does not tell of the files")
	}
}
