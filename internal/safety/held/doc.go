// Package held checks that no goroutine waits for a disk, a peer or a client while it holds
// a lock that others need (docs/internals/goroutines.md lists the locks).
//
// Normally its locks are those of package sync. In a program built with the tag invariants
// they know their holder. There, code that is about to wait calls Nothing, which panics with
// the name of a lock that its goroutine holds. The locks also find two other mistakes: a
// goroutine that takes a lock that it already holds, and an unlock of a free lock.
//
// Code calls Nothing wherever it may wait, even if it does not wait this time, so that the
// check does not depend on timing. In such a program the package owns the table of holders.
package held
