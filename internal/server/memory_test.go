package server

import "testing"

func TestCollectorPercent(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live, scanned uint64 // MiB
		want          int
	}{
		{0, 0, 100}, {16, 16, 100}, {64, 8, 25}, {128, 8, 12}, {256, 8, 8}, {8192, 512, 8}, // long queues
		{64, 48, 75}, {256, 192, 75}, {256, 256, 100}, // many queues
	} {
		if got := collectorPercent(c.live*mib, c.scanned*mib); got != c.want {
			t.Errorf("%d MiB live, %d of them scanned: %d %%, want %d %%", c.live, c.scanned, got, c.want)
		}
	}
}
