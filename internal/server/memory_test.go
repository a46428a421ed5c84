package server

import (
	"testing"

	"bartleby.mq/internal/config"
)

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

// What a node keeps in memory by itself does not raise the alarm: its budgets are below the watermark.
func TestBudgetsAreBelowTheWatermark(t *testing.T) {
	for _, c := range []struct{ limit, cache, wantIndex, wantCache int64 }{
		{400_000_000, 0, 100_000_000, 50_000_000},
		{400_000_000, 1 << 30, 100_000_000, 1 << 30},
		{1, 0, leastBudget, leastBudget},
	} {
		s := &Server{Options: Options{Config: config.Default()}}
		s.Config.Memory = config.Watermark{Absolute: c.limit}
		s.Config.Storage.CacheBudget = c.cache
		if got := s.storage(); got.IndexBudget > c.wantIndex || got.CacheBudget > c.wantCache {
			t.Errorf("with a watermark of %d bytes the budgets are %d for the index and %d for messages, want %d and %d at most",
				c.limit, got.IndexBudget, got.CacheBudget, c.wantIndex, c.wantCache)
		}
	}
}
