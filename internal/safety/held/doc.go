// Package held sees to it that nobody who waits for a disk, a peer or a client holds a lock
// that others need to go on (docs/internals/goroutines.md has the locks).
//
// Its locks are those of package sync, and nothing else, but in a program built with the tag
// invariants: there they know who holds them, and Nothing, which whoever is about to wait
// calls, panics with the name of a lock that its goroutine holds. Two mistakes beside are
// found on the way: a goroutine that takes a lock which it has, and one that lets go of a lock
// which nobody has.
//
// Waits are told of where they may come, whether or not this one does: what is found must
// not hang on the moment. The package owns, in such a program, who holds what.
package held
