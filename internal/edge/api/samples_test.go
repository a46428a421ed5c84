package api_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

const dayOfLengths = "?lengths_age=86400&lengths_incr=600&msg_rates_age=86400&msg_rates_incr=600"

// earliest is the oldest value of a queue's or the overview's messages, and since when there are values.
func earliest(t *testing.T, details any) (value, since float64) {
	t.Helper()
	d := details.(map[string]any)
	samples := d["samples"].([]any)
	return samples[len(samples)-1].(map[string]any)["sample"].(float64), d["samples_since"].(float64)
}

// The overview's history of a day goes on while nobody asks, and so does that of a queue whose curves somebody has drawn.
func TestHistoriesGoOnWhileNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		pass := func(d time.Duration) {
			for range d / time.Minute {
				time.Sleep(time.Minute)
				n.handler.Sample(time.Now())
			}
		}
		publish := func(queue string) {
			n.must("POST", "/exchanges/%2F/amq.default/publish", fmt.Sprintf(`{"properties":{},"routing_key":%q,"payload":"m","payload_encoding":"string"}`, queue))
		}
		n.must("PUT", "/queues/%2F/looked-at", `{}`)
		n.must("PUT", "/queues/%2F/other", `{}`)
		n.handler.Sample(time.Now())
		began := time.Now()
		n.must("GET", "/queues/%2F/looked-at"+dayOfLengths, "")
		pass(2 * time.Hour)
		publish("looked-at")
		publish("other")
		pass(4 * time.Hour)
		for path, totals := range map[string]string{"/overview": "queue_totals", "/queues/%2F/looked-at": ""} {
			o := n.must("GET", path+"?lengths_age=10800&lengths_incr=600", "").object(t)
			if totals != "" {
				o = o[totals].(map[string]any)
			}
			if v, since := earliest(t, o["messages_ready_details"]); v == 0 || since != float64(began.UnixMilli()) {
				t.Errorf("%s: three hours ago there were %v messages, since %v; want some, and %v", path, v, since, began.UnixMilli())
			}
			o = n.must("GET", path+dayOfLengths, "").object(t)
			if totals != "" {
				o = o[totals].(map[string]any)
			}
			if v, _ := earliest(t, o["messages_ready_details"]); v != 0 {
				t.Errorf("%s: a day ago there were %v messages", path, v)
			}
		}
		if v, since := earliest(t, n.must("GET", "/queues/%2F/other"+dayOfLengths, "").object(t)["messages_ready_details"]); v != 1 || since != float64(time.Now().UnixMilli()) {
			t.Errorf("a queue that nobody has looked at: %v since %v", v, since)
		}
		n.must("DELETE", "/queues/%2F/looked-at", "")
		n.must("PUT", "/queues/%2F/looked-at", `{}`)
		if _, since := earliest(t, n.must("GET", "/queues/%2F/looked-at"+dayOfLengths, "").object(t)["messages_ready_details"]); since != float64(time.Now().UnixMilli()) {
			t.Errorf("the history of a queue that was made anew begins at %v", since)
		}
	})
}
