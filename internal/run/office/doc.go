// Package office is the Dead Letter Office: what died, why, what became of it, and what was lost
// (docs/internals/office.md).
//
// The management API calls it. It looks into queues and moves messages through package letters, and keeps records of
// its own in the broker's store. It never changes a message by looking at it.
package office
