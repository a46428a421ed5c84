package shovel

import (
	"math"
	"testing"
	"time"
)

// A delay that no clock can count is as long as one can, not 0.29 s.
func TestTheDelayOfAShovelDoesNotWrap(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{
		0: 0, 1: time.Second, 5: 5 * time.Second, 9223372036: 9223372036 * time.Second,
		9223372037: math.MaxInt64, 18446744074: math.MaxInt64, math.MaxInt64: math.MaxInt64,
		-1: -time.Second, math.MinInt64: math.MinInt64,
	} {
		d, complaints := parse("s", map[string]any{
			"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b", "reconnect-delay": seconds,
		})
		if len(complaints) > 0 || d.reconnectDelay != want {
			t.Errorf("%d seconds: %v %v, want %v", seconds, d.reconnectDelay, complaints, want)
		}
	}
}
