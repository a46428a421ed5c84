package server

import (
	"testing"

	"bartleby.mq/internal/edge/metrics"
)

// Room is short with less than shortRoom beside the limit, and plenty again only with
// plentyRoom: what is given back does not count as plenty at once.
func TestShortOfRoom(t *testing.T) {
	const limit = 1 << 30
	for _, tt := range []struct {
		free         int64
		before, want bool
	}{
		{-1, false, false}, {-1, true, false}, {0, false, true},
		{limit + shortRoom - 1, false, true}, {limit + shortRoom, false, false},
		{limit + plentyRoom - 1, true, true}, {limit + plentyRoom, true, false},
	} {
		if got := shortOfRoom(metrics.Node{DiskFree: tt.free, DiskLimit: limit}, tt.before); got != tt.want {
			t.Errorf("%d free, short before: %v: short: %v", tt.free, tt.before, got)
		}
	}
}
