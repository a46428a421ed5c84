//go:build !unix

package server

// fileLimit is none where the system has none.
func fileLimit() int { return 0 }
