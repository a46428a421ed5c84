package server

import (
	"slices"
	"testing"
)

func TestParseMemInfo(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:       16384 kB\nMemFree: 1 kB\n": 16384 << 10,
		"MemFree: 1 kB\n": 0, "MemTotal:\n": 0, "MemTotal: x kB\n": 0, "": 0,
	} {
		if got := parseMemInfo(text); got != want {
			t.Errorf("%q is %d bytes, want %d", text, got, want)
		}
	}
}

func TestGroupFiles(t *testing.T) {
	for text, want := range map[string][]string{
		"0::/a/b\n": {"/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max"},
		"0::/\n":    nil,
		"5:memory:/docker/x\n4:cpu:/docker/x\n": {"/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes",
			"/sys/fs/cgroup/memory/docker/memory.limit_in_bytes"},
		"nonsense\n0::relative\n": nil,
	} {
		if got := groupFiles(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestResourcesAreKnownHere(t *testing.T) {
	open, limit := openFiles()
	if residentMemory() <= 0 || totalMemory() <= 0 || freeDisk(t.TempDir()) < 0 || open <= 0 || limit <= 0 {
		t.Errorf("resident %d, total %d, free %d, files %d of %d", residentMemory(), totalMemory(), freeDisk(t.TempDir()), open, limit)
	}
	if lesser(0, 5) != 5 || lesser(5, 0) != 5 || lesser(3, 5) != 3 || lesser(5, 3) != 3 || lesser(0, 0) != 0 {
		t.Error("lesser is wrong")
	}
}
