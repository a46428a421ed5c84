// Package journal is the one append-only log of a node: opaque payloads, framed
// and checksummed, in segment files that are synced, read back, recovered and
// recycled.
//
// It is for the partitions, which write their batches here and get them back, in
// order, after a crash. A Journal owns its directory and every file in it; the
// caller keeps other processes away (it holds the lock of the data directory)
// and owns all timers: nothing happens here except inside a call.
//
// What it does not do: it does not know what a payload means, never compacts, never
// deletes a segment by itself, never retries a failed write or sync, and never
// shortens the log on its own judgement where that could hide damage. It starts
// no goroutine.
//
// DESIGN.md beside this file draws the format and argues what a crash leaves.
package journal
