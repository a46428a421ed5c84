package api_test

import (
	"strings"
	"sync"
	"testing"
)

// Answers are made by many at once, and share nothing that one of them writes to. The race detector
// sees it if they do.
func TestAnswersOfManyAtOnceShareNothing(t *testing.T) {
	n := start(t)
	n.must("PUT", "/queues/%2F/q", `{"durable":true}`)
	n.must("PUT", "/policies/%2F/p", `{"pattern":".*","definition":{"max-length":5}}`)
	const inner = "garbage_collection,garbage_collection.minor_gcs,effective_policy_definition,effective_policy_definition.max-length"
	var all sync.WaitGroup
	for range 4 {
		for _, path := range []string{"/queues/detailed", "/queues", "/queues/%2F/q", "/overview", "/health/checks/alarms"} {
			all.Go(func() {
				a := n.do("GET", path+"?columns="+inner+strings.Repeat(",status,status.x", 3), "")
				if a.status != 200 {
					t.Errorf("%s: %d %s", path, a.status, a.body)
				}
			})
		}
	}
	all.Wait()
}
