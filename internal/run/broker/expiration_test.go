package broker

import (
	"strconv"
	"testing"
)

// The property is read as RabbitMQ reads it (DL-8.3).
func TestDL_8_3_Expiration(t *testing.T) {
	for _, tc := range []struct {
		text   string
		ttl    int64
		reason string
	}{
		{"0", 0, ""},
		{"+5", 5, ""},
		{"007", 7, ""},
		{"315360000000", 315360000000, ""},
		{"315360000001", 0, "{value_too_large,315360000001}"},
		{"99999999999999999999", 0, "{value_too_large,99999999999999999999}"},
		{"-1", 0, "{value_negative,-1}"},
		{"", 0, "no_integer"},
		{"x", 0, "no_integer"},
		{" 1", 0, "no_integer"},
		{"+", 0, "no_integer"},
		{"10s", 0, `{leftover_string,"s"}`},
		{"1.5", 0, `{leftover_string,".5"}`},
		{"10 ", 0, `{leftover_string," "}`},
		{"1e3", 0, `{leftover_string,"e3"}`},
	} {
		ttl, reason := parseExpiration(tc.text, 0)
		if ttl != tc.ttl || reason != tc.reason {
			t.Errorf("%q: %d, %q; want %d, %q", tc.text, ttl, reason, tc.ttl, tc.reason)
		}
	}
}

// Accepted values are within bounds and read the same once normalised.
func FuzzParseExpiration(f *testing.F) {
	f.Add("+0060000")
	f.Add("-0")
	f.Fuzz(func(t *testing.T, text string) {
		ttl, reason := parseExpiration(text, 0)
		if reason != "" {
			return
		}
		if ttl < 0 || ttl > maxTTL {
			t.Fatalf("%q is %d", text, ttl)
		}
		if again, reason := parseExpiration(strconv.FormatInt(ttl, 10), 0); again != ttl || reason != "" {
			t.Fatalf("%q reads %d, then %d %s", text, ttl, again, reason)
		}
	})
}
