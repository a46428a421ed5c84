package server

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// residentMemory is the resident memory of the process, in bytes; 0 if it is unknown.
func residentMemory() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// totalMemory is the machine's memory, or the control group's limit if that is
// less, in bytes; 0 if neither is known. It is read once.
var totalMemory = sync.OnceValue(func() int64 {
	return lesser(machineMemory(), groupMemory())
})

// lesser is the smaller of two limits; 0 means no limit.
func lesser(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func machineMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return parseMemInfo(string(text))
}

// parseMemInfo reads the line "MemTotal:  16384 kB".
func parseMemInfo(text string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				return 0
			}
			kb, err := strconv.ParseInt(fields[0], 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

// groupMemory is the limit of the control group, of version 2 or 1.
func groupMemory() (limit int64) {
	paths := []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}
	if text, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		paths = append(paths, groupFiles(string(text))...)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// "max" is not a number: no limit.
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 {
			limit = lesser(limit, n)
		}
	}
	return limit
}

// groupFiles names the files with the limits of the groups in /proc/self/cgroup
// and of all the groups they are in.
func groupFiles(text string) (paths []string) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max"
		switch parts[1] {
		case "":
		case "memory":
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := strings.TrimSuffix(parts[2], "/"); group != ""; group = group[:strings.LastIndexByte(group, '/')] {
			if !strings.HasPrefix(group, "/") {
				break
			}
			paths = append(paths, root+group+"/"+file)
		}
	}
	return paths
}

// freeDisk is the free space for the data directory, in bytes; negative if it is unknown.
func freeDisk(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * st.Bsize
}

// openFiles returns the number of open files and its limit.
func openFiles() (open, limit int) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, 0
	}
	defer func() { _ = dir.Close() }()
	if names, err := dir.Readdirnames(-1); err == nil {
		open = len(names) - 1 // without dir itself
	}
	return open, fileLimit()
}
