//go:build unix

package server

import "syscall"

// fileLimit is how many files the process may have open; 0 if that is not known.
func fileLimit() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(uint64(r.Cur), 1<<31-1))
}
