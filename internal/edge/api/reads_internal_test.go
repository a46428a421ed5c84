package api

import (
	"testing"

	"bartleby.mq/internal/run/office"
)

// What is about all there is takes turns by user; what monitors ask, and what is about one thing, never waits.
func TestReadsOfAllTakeTurns(t *testing.T) {
	want := map[string]bool{
		"overview": true, "queues": true, "queues/{vhost}": true, "queues/detailed": true, "definitions": true, "definitions/{vhost}": true, "bindings": true,
		"connections": true, "consumers/{vhost}": true, "office/topology/{vhost}": true, "office/lint": true, "office/lint/{vhost}": true, "vhosts": true,
		"queues/{vhost}/{queue}": false, "exchanges/{vhost}/{exchange}": false, "vhosts/{vhost}": false, "users/{user}": false, "connections/{connection}": false,
		"health/checks/alarms": false, "aliveness-test/{vhost}": false, "whoami": false, "nodes": false, "session": false, "office/groups": false,
	}
	for _, r := range (&server{Options: Options{Office: new(office.Office)}}).routes() {
		if all, ok := want[r.pattern]; ok && r.method == "GET" {
			if r.readsAll() != all {
				t.Errorf("%s: %t, want %t", r.pattern, r.readsAll(), all)
			}
			delete(want, r.pattern)
		} else if r.method != "GET" && r.readsAll() {
			t.Errorf("%s %s is no read", r.method, r.pattern)
		}
	}
	for pattern := range want {
		t.Errorf("there is no route %s", pattern)
	}
}
