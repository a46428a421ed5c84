package listen

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/url"
	"slices"
	"testing"

	"bartleby.mq/test/certificate"
)

// encoded is a subject in which each text has the encoding of its tag.
func encoded(t *testing.T, parts ...[]attribute) []byte {
	t.Helper()
	var sets []attributeSET
	for _, p := range parts {
		sets = append(sets, p)
	}
	der, err := asn1.Marshal(sets)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func part(id asn1.ObjectIdentifier, tag int, text string) attribute {
	return attribute{id, asn1.RawValue{Class: asn1.ClassUniversal, Tag: tag, Bytes: []byte(text)}}
}

var (
	idCN = asn1.ObjectIdentifier{2, 5, 4, 3}
	idO  = asn1.ObjectIdentifier{2, 5, 4, 10}
	idDC = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}
)

// BR-2.3: the distinguished name as RabbitMQ 4.3.6 writes it, last part first.
func TestDistinguishedName(t *testing.T) {
	const utf8, printable, teletex, ia5, bmp = 12, 19, 20, 22, 30
	for _, tt := range []struct {
		subject []byte
		want    string
	}{
		{encoded(t, []attribute{part(idO, utf8, "Acme")}, []attribute{part(idCN, utf8, "client")}), "CN=client,O=Acme"},
		{encoded(t, []attribute{part(idDC, ia5, "org")}, []attribute{part(idDC, ia5, "acme")}), "DC=acme,DC=org"},
		{encoded(t, []attribute{part(idCN, printable, "a"), part(idO, printable, "b")}), "CN=a+O=b"},
		{encoded(t, []attribute{part(idCN, utf8, `a,b+c"d\e<f>g;h`)}), `CN=a\,b\+c\"d\\e\<f\>g\;h`},
		{encoded(t, []attribute{part(idCN, utf8, " # ")}), `CN=\ #\ `},
		{encoded(t, []attribute{part(idCN, utf8, "#x")}), `CN=\#x`},
		{encoded(t, []attribute{part(idCN, utf8, "ü~\x00")}), `CN=\C3\BC\7E\00`},
		{encoded(t, []attribute{part(idCN, teletex, "\xfc")}), `CN=\C3\BC`},
		{encoded(t, []attribute{part(idCN, bmp, "\x00\xfc")}), `CN=\C3\BC`},
		{encoded(t, []attribute{part(asn1.ObjectIdentifier{1, 2, 3}, utf8, "x")}), "1.2.3=x"},
		{encoded(t), ""},
	} {
		cert := &x509.Certificate{RawSubject: tt.subject}
		got, ok := CertLogin{From: "distinguished_name"}.User(cert)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("got %q, %v; want %q", got, ok, tt.want)
		}
	}
}

func TestCommonName(t *testing.T) {
	for _, tt := range []struct {
		subject []byte
		want    string
	}{
		{encoded(t, []attribute{part(idCN, 12, "a,b")}, []attribute{part(idO, 12, "o")}), "a,b"},
		{encoded(t, []attribute{part(idCN, 12, "a")}, []attribute{part(idCN, 12, "b")}), "a,b"},
		{encoded(t, []attribute{part(idO, 12, "o")}), ""},
	} {
		if got, ok := (CertLogin{From: "common_name"}).User(&x509.Certificate{RawSubject: tt.subject}); got != tt.want || ok != (tt.want != "") {
			t.Errorf("got %q, %v; want %q", got, ok, tt.want)
		}
	}
}

func TestAlternativeName(t *testing.T) {
	uri, err := url.Parse("spiffe://acme/a%20b")
	if err != nil {
		t.Fatal(err)
	}
	cert := certificate.NewAuthority(t, "ca").Issue(t, "client", day, func(c *x509.Certificate) {
		c.DNSNames, c.EmailAddresses = []string{"one.example", "two.example"}, []string{"a@example"}
		c.IPAddresses, c.URIs = []net.IP{net.IPv4(10, 0, 0, 1)}, []*url.URL{uri}
	}).Cert
	for _, tt := range []struct {
		kind  string
		index int
		want  string
	}{
		{"dns", 0, "one.example"}, {"dns", 1, "two.example"}, {"dns", 2, ""}, {"email", 0, "a@example"}, {"ip", 0, "10.0.0.1"},
		{"uri", 0, "spiffe://acme/a%20b"}, {"other_name", 0, ""}, {"bogus", 0, ""},
	} {
		got, ok := CertLogin{"subject_alternative_name", tt.kind, tt.index}.User(cert)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s %d: got %q, %v; want %q", tt.kind, tt.index, got, ok, tt.want)
		}
	}
	marshal := func(v any) []byte {
		der, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	tagged := func(content ...[]byte) []byte {
		return marshal(asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true, Bytes: slices.Concat(content...)})
	}
	text := marshal(asn1.RawValue{Tag: 12, Bytes: []byte("u@acme")})
	name := tagged(marshal(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 20, 2, 3}), tagged(text))
	list, err := asn1.Marshal([]asn1.RawValue{{FullBytes: name}})
	if err != nil {
		t.Fatal(err)
	}
	upn := &x509.Certificate{Extensions: []pkix.Extension{{Id: subjectAltName, Value: list}}}
	if got, _ := (CertLogin{"subject_alternative_name", "other_name", 0}).User(upn); got != "u@acme" {
		t.Errorf("other_name: got %q", got)
	}
}

// No name panics, and what is written has nothing in it that a log or a name ends at.
func FuzzCertName(f *testing.F) {
	f.Add([]byte("0\x0f1\x0d0\x0b\x06\x03U\x04\x03\x0c\x04test"), []byte("0\x06\x82\x04a.bc"))
	f.Fuzz(func(t *testing.T, name, alternative []byte) {
		cert := &x509.Certificate{RawSubject: name, Extensions: []pkix.Extension{{Id: subjectAltName, Value: alternative}}}
		for _, r := range SubjectName(cert) {
			if r < ' ' || r >= 127 {
				t.Fatalf("%q is in the name", r)
			}
		}
		for _, from := range []string{"common_name", "subject_alternative_name"} {
			for kind := range sanTags {
				_, _ = CertLogin{from, kind, 0}.User(cert)
			}
		}
	})
}
