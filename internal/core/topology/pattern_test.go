package topology

import (
	"errors"
	"strings"
	"testing"
)

func TestPatternsAreBounded(t *testing.T) {
	for name, pattern := range map[string]string{
		"long":                strings.Repeat("a", maxPattern+1),
		"repetition":          strings.Repeat("a{1000}", 500),
		"one too many":        strings.Repeat("a{1000}", 5),
		"nested repetition":   "((abcdefgh){10}){60}",
		"repetition of texts": "(?:" + strings.Repeat("x", 500) + "){9}",
		"open repetition":     strings.Repeat("a{1000,}", 5),
		"classes":             strings.Repeat(`\pL`, 1000),
		"long and broken":     strings.Repeat("(", maxPattern+1),
	} {
		re, err := CompilePattern(pattern)
		var tooLarge *PatternTooLarge
		if re != nil || !errors.As(err, &tooLarge) {
			t.Errorf("%s: %v, want that it is too large", name, err)
		}
	}
	for _, pattern := range []string{
		"", ".*", "^amq\\.", "^(orders|invoices)$", "^.{0,255}$", `^\p{L}{1,255}$`, "a{1000}", "(?i)^[a-z0-9._-]{1,255}$", strings.Repeat("name|", 800),
	} {
		if _, err := CompilePattern(pattern); err != nil {
			t.Errorf("%.40s: %v", pattern, err)
		}
	}
}

// DL-4.3: all that is wrong with a policy is said.
func TestDL_4_3_ThePatternOfAPolicyIsBounded(t *testing.T) {
	d := PolicyDecl{Name: "p", Pattern: strings.Repeat("a{1000}", 100), Priority: "high", Definition: Definition{"max-length": int64(1)}}
	for _, operator := range []bool{false, true} {
		_, err := d.check(operator, false)
		if err == nil || !strings.Contains(err.Error(), "Validation failed") || !strings.Contains(err.Error(), "\npattern is too large: ") || !strings.Contains(err.Error(), "priority") {
			t.Errorf("the complaint is %v", err)
		}
	}
}
