package session10

import (
	"maps"
	"testing"
)

func TestARequestNamesAURI(t *testing.T) {
	for _, test := range []struct {
		uri, path string
		query     map[string]any
		refusal   string
	}{
		{uri: "/queues/%7Ea%2fb", path: "/queues/~a%2Fb"},
		{uri: "/queues/a/../q?x#y?/", path: "/queues/q", query: map[string]any{"x": true}},
		{uri: "/b?&a=1&a=+%C3%BC&&c=&d=e=f", path: "/b", query: map[string]any{"a": " ü", "c": "", "d": "e=f"}},
		{uri: "/b?a=%4", path: "/b", query: map[string]any{"a": "%4"}},
		{uri: "/b?a=;b", path: "/b", query: map[string]any{"a": ";b"}},
		{uri: "/a b", refusal: "400 failed to normalize URI '/a b': invalid_uri \" \""},
		{uri: "/a#b#c", refusal: "400 failed to normalize URI '/a#b#c': invalid_uri \"#\""},
		{uri: "/€", refusal: "400 failed to normalize URI '/€': invalid_uri \"€\""},
		{uri: "/%zz b", refusal: "400 failed to normalize URI '/%zz b': invalid_uri \" \""},
		{uri: "/a?%zz", refusal: "400 failed to normalize URI '/a?%zz': invalid_percent_encoding <<\"%zz\">>"},
		{uri: "/a?b=%c3%bc%ff", refusal: "400 failed to dissect query 'b=%C3%BC%FF': invalid_input \"ÿ\""},
	} {
		got, err := parseRequested(test.uri)
		if err != nil || test.refusal != "" {
			if err == nil || err.Error() != test.refusal {
				t.Errorf("%s: %v, want %s", test.uri, err, test.refusal)
			}
			continue
		}
		if got.path != test.path || !maps.Equal(got.query, test.query) {
			t.Errorf("%s: %q %v, want %q %v", test.uri, got.path, got.query, test.path, test.query)
		}
	}
}
