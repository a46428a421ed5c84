package ctl_test

import (
	"strings"
	"testing"
)

// What rabbitmqadmin prints is what RabbitMQ's own prints (test/rabbitmqadmin/testdata).
func TestAdminPublishesAndGets(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	for _, step := range []struct {
		args string
		want string
	}{
		{"declare queue name=q", "queue declared\n"},
		{"publish routing_key=q payload=hello", "Message published\n"},
		{"publish routing_key=none payload=lost", "Message published but NOT routed\n"},
		{`publish exchange=amq.default routing_key=q payload=second properties={"delivery_mode":2}`, "Message published\n"},
		{"get queue=q", `
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| routing_key | exchange | message_count | payload | payload_bytes | payload_encoding | redelivered |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| q           |          | 1             | hello   | 5             | string           | False       |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
`},
		{"get queue=q ackmode=ack_requeue_false count=2", `
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| routing_key | exchange | message_count | payload | payload_bytes | payload_encoding | redelivered |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| q           |          | 1             | hello   | 5             | string           | True        |
| q           |          | 0             | second  | 6             | string           | False       |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
`},
		{"get queue=q", "No items\n"},
		{"get", "ERROR: mandatory argument \"queue\" required\n"},
		{"get queue=q colour=red", "ERROR: Argument \"colour\" not recognised\n"},
		{"get queue=q count=many", "ERROR: count \"many\" is not a number\n"},
		{"publish routing_key=q properties={", "ERROR: Could not parse JSON:\n  {\n"},
	} {
		got := tool(t, append([]string{"rabbitmqadmin"}, strings.Fields(step.args)...)...)
		if want := strings.TrimPrefix(step.want, "\n"); !strings.Contains(got, want) {
			t.Errorf("rabbitmqadmin %s\n%swant\n%s", step.args, got, want)
		}
	}
}
