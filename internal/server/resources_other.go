//go:build !linux

package server

// Where the system does not say what memory and disk there are in the way known
// here, there are no alarms.

func residentMemory() int64        { return 0 }
func totalMemory() int64           { return 0 }
func freeDisk(string) int64        { return -1 }
func openFiles() (open, limit int) { return 0, fileLimit() }
