package ctl_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"bartleby.mq/internal/client/ctl"
)

// tool runs a command line: the name of a tool of RabbitMQ's, and its arguments. The
// result is what it printed and, if it failed, its exit code.
func tool(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := ctl.Command(args[0])
	root.SetArgs(args[1:])
	root.SetOut(&out)
	root.SetErr(&out)
	if code := ctl.Execute(context.Background(), root); code != 0 {
		fmt.Fprintf(&out, "exit %d\n", code)
	}
	return out.String()
}

// Each entry of x-death is a line; what has none, or made it up, has one without a death.
func TestDeaths(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	for _, args := range [][]string{
		{"declare", "queue", "name=dead"},
		{"declare", "queue", "name=work", `arguments={"x-dead-letter-exchange":"","x-dead-letter-routing-key":"dead"}`},
		{"publish", "routing_key=work", "payload=two books", `properties={"headers":{"CC":["b"],"tenant":7},"expiration":"60000","message_id":"order-1"}`},
		{"get", "queue=work", "ackmode=reject_requeue_false"},
		{"publish", "routing_key=dead", "payload=never died"},
		{"publish", "routing_key=dead", `payload=made up`, `properties={"headers":{"x-death":"yesterday"}}`},
		{"publish", "routing_key=dead", "payload=x" + strings.Repeat("信", 30)},
	} {
		tool(t, append([]string{"rabbitmqadmin"}, args...)...)
	}
	times := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	for _, step := range []struct{ args, want string }{
		{"deaths dead", "Deaths of 4 of 4 messages in queue 'dead' in vhost '/', changing nothing ...\n" +
			"message\tpayload\treason\tqueue\tcount\texchange\trouting_keys\ttime\n" +
			"1\ttwo books\trejected\twork\t1\t\twork b\tTIME\n" +
			"2\tnever died\t\t\t\t\t\t\n" +
			"3\tmade up\t\t\t\t\t\t\n" +
			"4\tx" + strings.Repeat("信", 19) + "\t\t\t\t\t\t\n"},
		{"deaths -s --limit 1 dead reason original_expiration", "rejected\t60000\n"},
		{"deaths --formatter json --limit 1 dead reason,count", "[\n{\"reason\":\"rejected\",\"count\":1}\n]\n"},
		{"deaths --limit 1 dead message_id,headers,replayed_from", "Deaths of 1 of 4 messages in queue 'dead' in vhost '/', changing nothing ...\n" +
			"message_id\theaders\treplayed_from\n" +
			`order-1	{"CC":["b"],"tenant":7,"x-first-death-exchange":"","x-first-death-queue":"work","x-first-death-reason":"rejected",` +
			`"x-last-death-exchange":"","x-last-death-queue":"work","x-last-death-reason":"rejected"}` + "\t\n"},
		{"deaths --reason rejected dead message payload reason", "Deaths of 4 of 4 messages in queue 'dead' in vhost '/', changing nothing ...\nmessage\tpayload\treason\n1\ttwo books\trejected\n"},
		{"deaths -s --reason expired dead", ""},
		{"deaths -q --by-cause dead", "reason\tqueue\tmessages\tearliest\tlatest\n\t\t3\t\t\nrejected\twork\t1\tTIME\tTIME\n"},
		{"deaths -s --by-cause --reason rejected dead messages queue", "1\twork\n"},
		{"deaths -s --by-cause --limit 1 dead messages queue", "1\twork\n"},
		{"deaths --formatter json --by-cause --reason rejected dead reason messages", "[\n{\"reason\":\"rejected\",\"messages\":1}\n]\n"},
		{"deaths missing", "Object (queue, stream, exchange, etc) was not found\nexit 65\n"},
	} {
		got := times.ReplaceAllString(tool(t, append([]string{"bartleby"}, strings.Fields(step.args)...)...), "TIME")
		if got != step.want {
			t.Errorf("%s\n%swant\n%s", step.args, got, step.want)
		}
	}
	for _, args := range []string{"deaths dead --limit 0", "deaths dead colour", "deaths", "deaths dead --reason old", "deaths dead --reason=", "deaths dead --by-cause payload"} {
		if got := tool(t, append([]string{"bartleby"}, strings.Fields(args)...)...); !strings.HasSuffix(got, "exit 64\n") {
			t.Errorf("%s\n%swant exit code 64", args, got)
		}
	}
	for _, c := range []struct{ args, has string }{
		{"deaths dead colour", "Info key(s) colour are not supported\nThe columns are: message, message_id, payload, routing_key, headers, replayed_from, reason, "},
		{"list_queues colour", "Info key(s) colour are not supported\nThe columns are: name, durable, "},
		{"deaths --help", "Columns: message, message_id, payload, routing_key, headers, replayed_from, reason, "},
		{"list_queues --help", "Columns: name, durable, "},
	} {
		if got := tool(t, append([]string{"bartleby"}, strings.Fields(c.args)...)...); !strings.Contains(got, c.has) {
			t.Errorf("%s\n%swant it to name the columns", c.args, got)
		}
	}
	if got := tool(t, "bartleby", "list_queues", "-s", "name", "messages"); got != "dead\t4\nwork\t0\n" {
		t.Errorf("looking has changed the queues: %s", got)
	}
}
