package ctl_test

import (
	"strings"
	"testing"
)

// What waits in an exchange that delays messages is listed, and can be dropped.
func TestDelayedMessages(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	must := func(args ...string) {
		t.Helper()
		if code, out, errs := admin(args...); code != 0 {
			t.Fatalf("%s: exit %d, %s%s", args, code, out, errs)
		}
	}
	delayed := func(want string) {
		t.Helper()
		code, out, errs := run("-q", "list_exchanges", "name", "messages_delayed")
		if code != 0 || !strings.Contains(out, "\nlater\t"+want+"\n") || !strings.Contains(out, "\namq.topic\t\n") {
			t.Errorf("exit %d, %s%s; want %s", code, out, errs, want)
		}
	}
	must("declare", "exchange", "name=later", "type=x-delayed-message", `arguments={"x-delayed-type":"direct"}`)
	delayed("0")
	for range 3 {
		must("publish", "exchange=later", "routing_key=k", "payload=m", `properties={"headers":{"x-delay":4320000000}}`)
	}
	delayed("3")
	if code, out, errs := run("purge_exchange", "later"); code != 0 || out != "Purging exchange 'later' in vhost '/' ...\n" {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	delayed("0")
}
