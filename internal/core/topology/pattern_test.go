package topology

import (
	"strings"
	"testing"
)

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
