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

// DL-4.3: the complaints come in RabbitMQ's order.
func TestDL_4_3_TheOrderOfComplaints(t *testing.T) {
	d := PolicyDecl{Name: "p", Pattern: "(", Priority: "x", ApplyTo: "bogus", Definition: Definition{"expires": int64(0), "max-length": int64(-1)}}
	_, err := d.check(false, false)
	if err == nil {
		t.Fatal("it is taken")
	}
	at := -1
	for _, what := range []string{"0 is not a valid queue expiry", "apply-to 'bogus'", "pattern should be", "priority should be"} {
		next := strings.Index(err.Error(), what)
		if next <= at {
			t.Fatalf("%q is at %d, behind %d: %s", what, next, at, err)
		}
		at = next
	}
}
