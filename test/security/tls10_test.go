package security

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"testing"

	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/certificate"
)

// BR-1.14, BR-2.3: a client of AMQP 1.0 is whom its certificate names, by the part of it that ssl_cert_login_from says, and nobody
// else. The API shows its TLS.
func TestExternalOverAMQP10(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, from, user string }{
		{"default", "", "CN=ada,O=Acme"},
		{"distinguished name", "ssl_cert_login_from = distinguished_name\n", "CN=ada,O=Acme"},
		{"common name", "ssl_cert_login_from = common_name\n", "ada"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ca := certificate.NewAuthority(t, "ca")
			n := start(t, files(t, ca, "ssl_options", day)+"ssl_options.verify = verify_peer\nauth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = EXTERNAL\n"+tt.from)
			for _, u := range []string{tt.user, "CN=root"} {
				n.user(u, "")
				n.permit(u, "/", ".*", ".*", ".*")
			}
			with := func(c *tls.Config) *tls.Config {
				c.RootCAs = ca.Pool()
				return c
			}
			acme := n.dial10(t, with(named(t, ca, pkix.Name{CommonName: "ada", Organization: []string{"Acme"}})))
			if code := acme.login10("EXTERNAL", []byte("CN=root")); code != 0 { // the claim to be another changes nothing
				t.Fatalf("it is not let in: %d", code)
			}
			if why := acme.open10("vhost:/"); why != "" {
				t.Fatal(why)
			}
			var list []struct {
				User, Protocol string
				Mechanism      string `json:"auth_mechanism"`
				Subject        string `json:"peer_cert_subject"`
				SSL            bool
			}
			if err := json.Unmarshal([]byte(n.must("GET", "/connections", nil)), &list); err != nil {
				t.Fatal(err)
			}
			if len(list) != 1 || list[0].User != tt.user || list[0].Protocol != "AMQP 1-0" || list[0].Mechanism != "EXTERNAL" || list[0].Subject != "CN=ada,O=Acme" || !list[0].SSL {
				t.Errorf("the connections are %+v, want one of %s", list, tt.user)
			}
			if n.dial10(t, with(&tls.Config{})).login10("EXTERNAL", nil) == 0 {
				t.Error("a client without a certificate is let in")
			}
			if n.dial10(t, with(named(t, ca, pkix.Name{CommonName: "eve"}))).login10("EXTERNAL", nil) == 0 {
				t.Error("a certificate of somebody whom there is not is let in")
			}
			if code := n.dial10(t, with(&tls.Config{})).login10("PLAIN", amqp10.AppendPlain(nil, "", "guest", "guest")); code != 0 {
				t.Errorf("a password over TLS is not let in: %d", code)
			}
		})
	}
}
