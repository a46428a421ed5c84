//go:build unix

package server

import "syscall"

// fileLimit is the number of files that the process may open; 0 if it is unknown.
func fileLimit() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(uint64(r.Cur), 1<<31-1))
}
