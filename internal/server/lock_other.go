//go:build !unix

package server

import "os"

// tryLock does nothing: the store below the data directory locks its own directory,
// with a less clear error.
func tryLock(*os.File) error { return nil }
