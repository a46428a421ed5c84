package topology

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What RabbitMQ 4.3.6 says of patterns (DL-4.3), and of those that are only not to be had here.
func TestDL_4_3_PatternComplaints(t *testing.T) {
	for _, tt := range []struct {
		pattern, what string
		read          int
	}{
		{"(", "missing closing parenthesis", 1},
		{"((a)", "missing closing parenthesis", 4},
		{"a(b", "missing closing parenthesis", 3},
		{"[a", "missing terminating ] for character class", 2},
		{"x[", "missing terminating ] for character class", 2},
		{"[^]", "missing terminating ] for character class", 3},
		{"*", "quantifier does not follow a repeatable item", 1},
		{"a|*", "quantifier does not follow a repeatable item", 3},
		{`[(]\(*?(+)`, "quantifier does not follow a repeatable item", 9},
		{"+a", "quantifier does not follow a repeatable item", 1},
		{"a)", "unmatched closing parenthesis", 2},
		{")", "unmatched closing parenthesis", 1},
		{"(a)b)c", "unmatched closing parenthesis", 5},
		{"[z-a]", "range out of order in character class", 4},
		{"x[b-a]y", "range out of order in character class", 5},
		{`\`, `\\ at end of pattern`, 1},
		{"[[:foo:]]", "unknown POSIX class name", 8},
		{`\p{Foo}`, `unknown property after \\P or \\p`, 7},
		{"a{2,1}", "numbers out of order in {} quantifier", 5},
		{"a{99999}", "number too big in {} quantifier", 7},
	} {
		_, err := regexp.Compile(tt.pattern)
		want := invalidPattern + `{"` + tt.what + "\",\n" + strings.Repeat(" ", 54) + strconv.Itoa(tt.read) + "}"
		if err == nil || patternComplaint(tt.pattern, err) != want {
			t.Errorf("%s:\n got %s\nwant %s", tt.pattern, patternComplaint(tt.pattern, err), want)
		}
	}
	for _, pattern := range []string{"^(?!x)", "a{1001}", "a*+"} {
		_, err := regexp.Compile(pattern)
		if err == nil || !strings.HasPrefix(patternComplaint(pattern, err), invalidPattern+err.Error()+" (this broker") {
			t.Errorf("%s: %s, want Go's words", pattern, patternComplaint(pattern, err))
		}
	}
}
