package server

import "testing"

func TestCollectorPercent(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 100}, {16 * mib, 100}, {64 * mib, 25}, {128 * mib, 12}, {256 * mib, 8}, {8192 * mib, 8}} {
		if got := collectorPercent(c.live); got != c.want {
			t.Errorf("%d MiB live: %d %%, want %d %%", c.live/mib, got, c.want)
		}
	}
}
