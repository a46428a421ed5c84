//go:build !unix

package ctl

// seesLocks says whether isFree knows.
const seesLocks = false

// isFree cannot tell here whether a node still holds the lock of a data directory.
func isFree(string) bool { return true }

// takeTurn lets all commands go on here: nobody waits for others.
func takeTurn(string) (mine bool, done func(), err error) { return true, func() {}, nil }
