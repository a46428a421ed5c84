package api_test

import (
	"strings"
	"testing"
)

// Who may see shovels sees their addresses as RabbitMQ shows them, without user, password and query. Who may set parameters reads them
// whole; only an administrator sets global ones.
func TestAddressesAreShownWithoutPasswords(t *testing.T) {
	n := start(t)
	for _, user := range []string{"monitoring", "policymaker"} {
		n.must("PUT", "/users/"+user, `{"password":"x","tags":"`+user+`"}`)
		n.must("PUT", "/permissions/%2F/"+user, `{"configure":"","write":"","read":""}`)
	}
	n.must("PUT", "/parameters/shovel/%2F/s", `{"value":{"src-uri":"amqp://ada:marker@localhost:1/v?password=marker","src-queue":"a",
		"dest-uri":["amqp://ada:marker@localhost:1","amqp:///v"],"dest-queue":"b"}}`)
	n.must("PUT", "/global-parameters/g", `{"value":{"up":["amqps://ada:marker@h/v"],"n":1}}`)
	const shovel = `{"dest-queue":"b","dest-uri":["amqp://localhost:1","amqp:///v"],"src-queue":"a","src-uri":"amqp://localhost:1/v"}`
	for _, c := range []struct {
		user, path string
		value      string // "": with the password
	}{
		{"monitoring:x", "/shovels/vhost/%2F/s", shovel},
		{"guest:guest", "/shovels/vhost/%2F/s", shovel},
		{"policymaker:x", "/parameters/shovel/%2F/s", ""},
		{"policymaker:x", "/global-parameters/g", `{"n":1,"up":["amqps://h/v"]}`},
		{"policymaker:x", "/global-parameters", `{"n":1,"up":["amqps://h/v"]}`},
		{"guest:guest", "/global-parameters/g", ""},
	} {
		n.user = c.user
		a := n.must("GET", c.path, "")
		if strings.Contains(a.body, "marker") != (c.value == "") || !strings.Contains(a.body, c.value) {
			t.Errorf("%s gets %s of %s", c.user, a.body, c.path)
		}
	}
}
