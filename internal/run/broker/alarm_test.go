package broker

import "testing"

// BR-13.2: the reasons; and each change is reported once.
func TestAlarmReasonsAndSubscribers(t *testing.T) {
	var b Broker
	told := 0
	cancel := b.OnAlarm(func() { told++ })
	for _, step := range []struct {
		alarm  Alarm
		on     bool
		reason string
		told   int
	}{
		{Memory, true, "low on memory", 1},
		{Memory, true, "low on memory", 1},
		{Disk, true, "low on memory & disk", 2},
		{Memory, false, "low on disk", 3},
		{Disk, false, "", 4},
		{Disk, false, "", 4},
	} {
		b.SetAlarm(step.alarm, step.on)
		reason, active := b.Alarms()
		if reason != step.reason || active != (step.reason != "") || told != step.told {
			t.Errorf("after SetAlarm(%d, %v): reason %q, active %v, told %d times; want %q, told %d times",
				step.alarm, step.on, reason, active, told, step.reason, step.told)
		}
	}
	cancel()
	b.SetAlarm(Disk, true)
	if told != 4 {
		t.Errorf("told %d times after cancel, want 4", told)
	}
}
