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
