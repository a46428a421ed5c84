package server

import (
	"slices"
	"testing"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/run/broker"
)

// BR-13.1: limits that are set while the node runs hold at once, are shown, and go when
// the configuration says something else.
func TestLimitsWhileItRuns(t *testing.T) {
	o, _ := options(t.TempDir())
	s := mustStart(t, o)
	defer mustStop(t, s)
	alarmed := func(when string, want broker.Alarm) {
		t.Helper()
		if got := s.broker.ActiveAlarms(); got != want {
			t.Errorf("%s: alarms %v, want %v", when, got, want)
		}
	}
	shown := func(line string) {
		t.Helper()
		if lines := s.settings(); !slices.Contains(lines, line) {
			t.Errorf("settings are %q, without %s", lines, line)
		}
	}
	memory, disk := s.setLimit(&s.memory), s.setLimit(&s.disk)
	alarmed("at first", 0)
	_ = memory(0, 0) // fails never
	alarmed("memory limit 0", broker.Memory)
	_ = disk(0, 1<<60)
	alarmed("and an exabyte to be free", broker.Memory|broker.Disk)
	shown("disk_free_limit.absolute = 1152921504606846976")
	_ = memory(0.9, 0)
	_ = disk(0, 0)
	alarmed("limits that hold", 0)
	shown("vm_memory_high_watermark.relative = 0.9")
	_ = memory(0, 1)
	next := o.Config
	next.Disk = config.Watermark{Absolute: 1 << 60}
	if err := s.Reload(next); err != nil {
		t.Fatal(err)
	}
	alarmed("a configuration with another disk limit", broker.Memory|broker.Disk)
	next.Disk, next.Memory = o.Config.Disk, config.Watermark{Relative: 0.5}
	if err := s.Reload(next); err != nil {
		t.Fatal(err)
	}
	alarmed("and one with another memory limit", 0)
}
