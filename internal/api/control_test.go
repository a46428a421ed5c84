package api_test

import (
	"testing"

	"bartleby.mq/internal/api"
	"bartleby.mq/internal/broker"
)

// BR-15.11, BR-13.4
func TestAlarms(t *testing.T) {
	n := start(t)
	n.b.SetAlarm(broker.Memory, true)
	a := n.do("GET", "/health/checks/alarms", "")
	same(t, "status", a.status, 503)
	same(t, "body", a.object(t), map[string]any{
		"status": "failed", "reason": "There are alarms in effect in the cluster",
		"alarms": []any{map[string]any{"node": "rabbit@test", "resource": "memory"}},
	})
	same(t, "mem_alarm", n.must("GET", "/nodes/rabbit@test", "").object(t)["mem_alarm"], true)
	n.b.SetAlarm(broker.Memory, false)
	same(t, "status", n.do("GET", "/health/checks/alarms", "").status, 200)
}

// Ours: the node can be stopped where the server lets it, by administrators.
func TestStop(t *testing.T) {
	stopped := make(chan struct{})
	n := start(t, func(o *api.Options) { o.Stop = func() { close(stopped) } })
	n.must("PUT", "/users/m", `{"password":"m","tags":"management"}`)
	n.user = "m:m"
	same(t, "a user who may not", n.do("POST", "/control/stop", "").status, 401)
	n.user = "guest:guest"
	n.must("POST", "/control/stop", "")
	<-stopped
	same(t, "without Stop", start(t).do("POST", "/control/stop", "").status, 501)
}
