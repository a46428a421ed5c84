//go:build !linux

package server

// On other systems the memory and disk are unknown, so there are no alarms.

func residentMemory() int64        { return 0 }
func totalMemory() int64           { return 0 }
func freeDisk(string) int64        { return -1 }
func openFiles() (open, limit int) { return 0, fileLimit() }
