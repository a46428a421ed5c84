package api_test

import (
	"testing"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
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

// Ours: what can be set while the node runs. What cannot be says so.
func TestSetWhileItRuns(t *testing.T) {
	var fraction float64
	var bytes int64
	level := "info"
	set := func(f float64, b int64) error { fraction, bytes = f, b; return nil }
	n := start(t, func(o *api.Options) {
		o.SetMemoryWatermark, o.SetDiskFreeLimit = set, set
		o.LogLevel, o.SetLogLevel = func() string { return level }, func(s string) error { level = s; return nil }
	})
	bare := start(t)
	for _, path := range []string{"/control/memory-watermark", "/control/disk-free-limit"} {
		n.must("PUT", path, `{"fraction":0.5}`)
		n.must("PUT", path, `{"bytes":7}`)
		if fraction != 0 || bytes != 7 {
			t.Errorf("%s: set is %v, %d; want 7 bytes", path, fraction, bytes)
		}
		for _, wrong := range []string{`{}`, `{"fraction":1,"bytes":1}`, `{"fraction":-1}`, `{"bytes":-1}`, `{"bytes":"1"}`} {
			same(t, path+wrong, n.do("PUT", path, wrong).status, 400)
		}
		same(t, path+" where it is not", bare.do("PUT", path, `{"bytes":7}`).status, 501)
	}
	n.must("PUT", "/control/log-level", `{"level":"debug"}`)
	same(t, "level", n.must("GET", "/control/log-level", "").object(t), map[string]any{"level": "debug"})
	for _, wrong := range []string{`{}`, `{"level":"warn"}`, `{"level":1}`} {
		same(t, wrong, n.do("PUT", "/control/log-level", wrong).status, 400)
	}
	same(t, "where the log is another's", bare.do("PUT", "/control/log-level", `{"level":"debug"}`).status, 501)
	same(t, "and to look", bare.do("GET", "/control/log-level", "").status, 501)
}

// Under an alarm the API publishes as little as anybody (BR-13.1).
func TestPublishUnderAnAlarm(t *testing.T) {
	n := start(t)
	publish := func() answer {
		return n.do("POST", "/exchanges/%2F/amq.direct/publish", `{"routing_key":"q","properties":{},"payload":"x","payload_encoding":"string"}`)
	}
	n.b.SetAlarm(broker.Disk, true)
	a := publish()
	same(t, "status", a.status, 503)
	same(t, "reason", a.object(t)["reason"], "publishers are blocked: low on disk")
	n.b.SetAlarm(broker.Disk, false)
	same(t, "status", publish().status, 200)
}
