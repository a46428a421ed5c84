package api_test

import (
	"fmt"
	"testing"
)

// One answer is made in memory: whoever asks for the history of many objects gets the points of the
// first, and the rates of all.
func TestAnAnswerWithHistoriesIsBounded(t *testing.T) {
	n := start(t)
	const queues = 200
	for i := range queues {
		n.must("PUT", fmt.Sprintf("/queues/%%2F/q%d", i), `{"durable":false}`)
	}
	const span = "lengths_age=1000&lengths_incr=1&msg_rates_age=1000&msg_rates_incr=1"
	for _, path := range []string{"/queues?" + span, "/queues?sort=messages&" + span} {
		points, with := 0, 0
		for _, q := range n.must("GET", path, "").list(t) {
			details, _ := q["messages_details"].(map[string]any)
			if _, ok := details["rate"]; !ok {
				t.Fatalf("%s: %v has no rate", path, q["name"])
			}
			samples, _ := details["samples"].([]any)
			if points += len(samples); len(samples) > 0 {
				with++
			}
		}
		if points > 1<<17 || with == 0 || with == queues {
			t.Errorf("%s: %d points of one value, in %d queues", path, points, with)
		}
	}
}
