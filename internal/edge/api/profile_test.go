package api_test

import (
	"strings"
	"testing"
)

// The profile of a virtual host is set when it is made, shown, and fixed while there are queues.
func TestProfileOfVHost(t *testing.T) {
	n := start(t)
	n.must("PUT", "/vhosts/ali", `{"profile":"apsaramq"}`)
	n.must("PUT", "/vhosts/ali", `{"description":"d"}`) // says nothing of it
	for path, want := range map[string]string{"/vhosts/ali": "apsaramq", "/vhosts/%2F": "rabbitmq"} {
		if got := n.must("GET", path, "").object(t)["profile"]; got != want {
			t.Errorf("%s has profile %v, want %s", path, got, want)
		}
	}
	n.must("PUT", "/queues/ali/q", `{"durable":true}`)
	for body, want := range map[string]string{
		`{"profile":"rabbitmq"}`: "the profile of vhost 'ali' is apsaramq and cannot change: it has 1 queues",
		`{"profile":"kafka"}`:    "kafka is not a valid profile",
	} {
		if a := n.do("PUT", "/vhosts/ali", body); a.status != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

// DL-22.4: the text with which a policy is refused.
func TestDL_22_4_PolicyRefused(t *testing.T) {
	n := start(t)
	n.must("PUT", "/vhosts/ali", `{"profile":"apsaramq"}`)
	a := n.do("PUT", "/policies/ali/p", `{"pattern":".*","definition":{"dead-letter-exchange":"x"}}`)
	if a.status != 400 || !strings.Contains(a.body, `Validation failed\n\ndead-letter-exchange cannot be set by a policy in vhost 'ali', whose profile is apsaramq\n`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Definitions say which virtual hosts have a profile that RabbitMQ does not know, and only of those.
func TestProfileInDefinitions(t *testing.T) {
	n := start(t)
	n.must("PUT", "/vhosts/ali", `{"profile":"apsaramq"}`)
	exported := n.must("GET", "/definitions", "")
	if strings.Count(exported.body, `"profile"`) != 1 {
		t.Errorf("exported: %s", exported.body)
	}
	again := start(t)
	again.must("POST", "/definitions", exported.body)
	if got := again.must("GET", "/vhosts/ali", "").object(t)["profile"]; got != "apsaramq" {
		t.Errorf("imported with profile %v", got)
	}
}
