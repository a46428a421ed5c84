package ctl_test

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/office"
)

// What was dropped is listed with its number, its place and why.
func TestDrops(t *testing.T) {
	url, b := node(t)
	f, err := office.New(office.Options{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := httptest.NewServer(api.New(api.Options{Broker: b, Office: f}))
	defer s.Close()
	t.Setenv("BARTLEBY_URL", url)
	for _, args := range [][]string{
		{"declare", "queue", "name=work"},
		{"publish", "routing_key=work", "payload=a", `properties={"message_id":"order-1"}`},
		{"publish", "routing_key=work", "payload=b", `properties={"message_id":"order-2"}`},
		{"get", "queue=work", "ackmode=reject_requeue_false", "count=2"},
	} {
		tool(t, append([]string{"rabbitmqadmin"}, args...)...)
	}
	t.Setenv("BARTLEBY_URL", s.URL)
	times := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	for _, step := range []struct{ args, want string }{
		{"drops", "2 messages dropped in all virtual hosts, 1 of 1 lines ...\n" +
			"last\tcount\tvhost\tqueue\treason\twhy\texchange\trouting_keys\tmessage_id\n" +
			"TIME\t2\t/\twork\trejected\tno_dlx\t\twork\torder-1\n"},
		{"drops --vhost /", "2 messages dropped in vhost '/', 1 of 1 lines ...\n" +
			"last\tcount\tqueue\treason\twhy\texchange\trouting_keys\tmessage_id\n" +
			"TIME\t2\twork\trejected\tno_dlx\t\twork\torder-1\n"},
		{"drops -s --queue work --why no_dlx --reason rejected count,bytes,vhost", "2\t1\t/\n"},
		{"drops -s --why cycle", ""},
		{"drops --limit 0", "--limit must be a number from 1 to 1000"},
		{"drops colour", "colour"},
	} {
		got := times.ReplaceAllString(tool(t, append([]string{"bartleby"}, strings.Fields(step.args)...)...), "TIME")
		if got != step.want && !(strings.Contains(got, "exit") && strings.Contains(got, step.want)) {
			t.Errorf("%s:\n%s\nwant\n%s", step.args, got, step.want)
		}
	}
}
