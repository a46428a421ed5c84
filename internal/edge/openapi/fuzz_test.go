package openapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whatever comes is refused or understood, and what was understood is written again as
// the same parameters.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{"", "a=1&b=2", "a=%20+%2B", "a", "=", "a=1&a=2", "a;b", "%zz", "Action=ListQueues&Signature=x%3D"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := parameters{}
		if p.add(text) != nil {
			return
		}
		again := parameters{}
		if err := again.add(canonicalQuery(p, "")); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if len(again) != len(p) {
			t.Fatalf("%q: %q and %q", text, p, again)
		}
		for name, value := range p {
			if again[name] != value {
				t.Errorf("%q: %q is %q and %q", text, name, value, again[name])
			}
		}
	})
}

// No header is too odd to be read.
func FuzzAuthorization(f *testing.F) {
	f.Add("ACS3-HMAC-SHA256 Credential=id,SignedHeaders=host;x-acs-action,Signature=00", "x")
	f.Add("ACS3-HMAC-SHA256 Credential=,SignedHeaders=;,Signature=", "")
	f.Add("ACS3-", ",,=")
	f.Fuzz(func(t *testing.T, header, value string) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header[nonceHeader] = []string{value, value}
		s, err := acs3Signature(r, header, nil)
		if err == nil && (s.key == "" || s.given == "" || s.action == "") {
			t.Errorf("%q: %+v", header, s)
		}
		if a, ok := parseAuthorization(header); ok {
			_, _ = canonicalRequest(r, a.headers, "")
		}
	})
}

// What is read of a headers exchange's attributes is shown so that it is read again.
func FuzzMatch(f *testing.F) {
	for _, seed := range []string{"", "x-match:all;type:report;format:pdf", "a:b:c", ";", ":", "a:;b:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, argument string) {
		table, err := parseMatch(argument)
		if err != nil {
			return
		}
		if shown := showMatch(table); shown != strings.TrimSuffix(argument, ";") {
			t.Errorf("%q is shown as %q", argument, shown)
		}
	})
}
