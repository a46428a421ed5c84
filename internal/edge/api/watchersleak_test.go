package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/office"
)

// A request to watch a job that is refused for its query keeps no place.
func TestARefusedWatcherKeepsNoPlace(t *testing.T) {
	n := start(t, func(o *api.Options) {
		f, err := office.New(office.Options{Broker: o.Broker})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		o.Office = f
	})
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	plan := n.do("POST", "/office/jobs?dry_run=true", `{"action":"discard","vhost":"/","queue":"q"}`)
	job := n.do("POST", "/office/jobs", fmt.Sprintf(`{"action":"discard","vhost":"/","queue":"q","count":0,"token":%q}`, fieldOf(plan.body, "token")))
	id := fieldOf(job.body, "id")
	if id == "" {
		t.Fatal(plan.body, job.body)
	}
	n.b.Strict = true
	for range 600 {
		if a := n.do("GET", "/office/jobs/"+id+"/events?page=x", ""); a.status == http.StatusServiceUnavailable {
			t.Fatal("there is no place: ", a.body)
		} else if a.status < 400 {
			t.Fatal("it was not refused: ", a.status)
		}
	}
}

// fieldOf is a text or number of an object.
func fieldOf(text, name string) string {
	var o map[string]any
	if json.Unmarshal([]byte(text), &o) != nil || o[name] == nil {
		return ""
	}
	return fmt.Sprint(o[name])
}
