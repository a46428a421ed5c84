//go:build !unix

package server

import "os"

// tryLock does nothing: the store below the data directory locks its own folder,
// with a less clear word about it.
func tryLock(*os.File) error { return nil }
