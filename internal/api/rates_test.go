package api

import (
	"testing"
	"time"
)

// BR-15.13: rates are events a second, from samples five seconds apart.
func TestRates(t *testing.T) {
	var r rates
	at := time.Unix(1000, 0)
	steps := []struct {
		after time.Duration
		n     float64
		want  float64
	}{
		{0, 100, 0},                // nothing to compare with
		{time.Second, 200, 0},      // too early
		{4 * time.Second, 150, 10}, // 50 in 5 s
		{time.Second, 1000, 10},    // as before
		{9 * time.Second, 150, 0},
	}
	for i, step := range steps {
		at = at.Add(step.after)
		if got := r.of("q", at, map[string]float64{"publish": step.n})["publish"]; got != step.want {
			t.Errorf("step %d: rate %g, want %g", i, got, step.want)
		}
	}
	r.of("other", at.Add(2*rateKept), map[string]float64{"publish": 1})
	if len(r.objects) != 1 {
		t.Errorf("%d objects are remembered, want the one asked about lately", len(r.objects))
	}
}

// BR-3.7, BR-15.9: limits print what is missing as RabbitMQ's printer breaks lines.
func TestMissingKeys(t *testing.T) {
	for _, c := range []struct {
		keys []string
		want string
	}{
		{[]string{"a"}, "[{key_missing,a}]"},
		{[]string{"ackmode", "count", "encoding"}, "[{key_missing,ackmode},{key_missing,count},{key_missing,encoding}]"},
		{
			[]string{"routing_key", "properties", "payload", "payload_encoding"},
			"[{key_missing,routing_key},\n {key_missing,properties},\n {key_missing,payload},\n {key_missing,payload_encoding}]",
		},
	} {
		if err := missingKeys(map[string]any{}, c.keys...); err == nil || err.Error() != c.want {
			t.Errorf("%v: got %v, want %s", c.keys, err, c.want)
		}
	}
	if err := missingKeys(map[string]any{"a": nil}, "a"); err != nil {
		t.Errorf("a key that is null is there: %v", err)
	}
}
