package main

import (
	"strings"
	"testing"
)

func TestATailKeepsTheEnd(t *testing.T) {
	out := &tail{max: 5}
	for _, s := range []string{"ab", "cd", "efgh", ""} {
		if n, err := out.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", s, n, err)
		}
	}
	if got, want := out.String(), "[3 bytes left out]\ndefgh"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := cap(out.text); got > 4*out.max {
		t.Errorf("%d bytes are held for %d", got, out.max)
	}
	whole := &tail{max: 5}
	_, _ = whole.Write([]byte(strings.Repeat("x", 5)))
	if got := whole.String(); got != "xxxxx" {
		t.Errorf("%q, want what was written", got)
	}
}
