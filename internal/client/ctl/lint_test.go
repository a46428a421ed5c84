package ctl_test

import (
	"strings"
	"testing"
)

// Findings are printed with what to do, and the exit code says whether one loses letters.
func TestLint(t *testing.T) {
	officeNode(t)
	for _, c := range []struct{ args, want string }{
		{"lint", "Nothing was found.\n"},
		{"lint --json", "[]\n"},
		{"lint -p nowhere", "Virtual host 'nowhere' does not exist\nexit 65\n"},
	} {
		if got := tool(t, append([]string{"bartleby"}, strings.Fields(c.args)...)...); got != c.want {
			t.Errorf("%s: %q, not %q", c.args, got, c.want)
		}
	}
	tool(t, "rabbitmqadmin", "declare", "queue", "name=cache", `arguments={"x-message-ttl":5}`)
	hint := "hint    queue 'cache' in vhost '/': messages vanish after 5 ms, and nobody sees which\n        give it a dead-letter exchange, if they matter. Rule: ttl-unseen\n"
	if got := tool(t, "bartleby", "lint"); got != hint {
		t.Errorf("%q", got)
	}
	tool(t, "rabbitmqadmin", "declare", "queue", "name=lost", `arguments={"x-dead-letter-exchange":"gone"}`)
	if got := tool(t, "bartleby", "lint"); !strings.HasPrefix(got, "error   queue 'lost' in vhost '/': its argument") || !strings.HasSuffix(got, hint+"exit 1\n") {
		t.Errorf("%q", got)
	}
	if got := tool(t, "bartleby", "lint", "--json"); !strings.HasPrefix(got, `[{"vhost":"/","kind":"queue","name":"lost"`) || !strings.HasSuffix(got, "]\nexit 1\n") {
		t.Errorf("%q", got)
	}
}
