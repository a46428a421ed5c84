package ctl_test

import (
	"regexp"
	"strings"
	"testing"
)

// The breaker of a queue is shown and closed.
func TestDLQBreaker(t *testing.T) {
	officeNode(t)
	ours := func(args ...string) string {
		return tool(t, append([]string{"bartleby", "dlq", "breaker"}, args...)...)
	}
	expect := func(got, want string) {
		t.Helper()
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	expect(ours("orders"), "queue 'orders' in vhost '/' has no breaker: no policy sets dead-letter-breaker for it\nexit 65\n$")
	expect(ours("orders", "close"), "queue 'orders' in vhost '/' has no breaker.*\nexit 65\n$")
	expect(ours("none"), "no queue 'none' in vhost '/'\nexit 65\n$")
	expect(ours("none", "close"), "no queue 'none' in vhost '/'\nexit 65\n$")
	expect(ours("orders", "open"), "'open' must be close")
	tool(t, "bartleby", "set_policy", "breaks", "^orders$", `{"dead-letter-breaker":{"deaths":2,"percent":50,"window":3600000}}`)
	if got := ours("orders"); got != "closed\n" {
		t.Error(got)
	}
	for range 2 {
		tool(t, "rabbitmqadmin", "publish", "routing_key=orders", "payload=m")
		tool(t, "rabbitmqadmin", "get", "queue=orders", "ackmode=reject_requeue_false")
	}
	expect(ours("orders"), `^open until 20\S+: 2 of 2 deliveries that ended within 1h0m0s died\nexit 1\n$`)
	expect(ours("orders", "--json"), `^\{"state":"open","until_ms":\d+,"why":"2 of 2 [^"]*"\}\nexit 1\n$`)
	expect(ours("orders", "close"), "^The breaker of queue 'orders' in vhost '/' is closed. It was open.\n$")
	expect(ours("orders", "close"), "was closed already")
	if got := ours("orders", "--json"); !strings.Contains(got, `"state":"closed","until_ms":null`) {
		t.Error(got)
	}
}
