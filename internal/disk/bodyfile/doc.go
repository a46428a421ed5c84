// Package bodyfile keeps message records in files of their own, beside the
// journal: those that outlived their segment ("keep") and those that were never in
// the journal ("scratch").
//
// A Keep is a directory of read-only files: segments that the journal has retired,
// under their numbers, and dense files that a compaction has written, which have
// numbers of their own. A Scratch is a directory of files that are appended to
// without ever being synced, and that no restart brings back. Each owns its
// directory, and keeps a bounded number of files open.
//
// What it does not do: it does not know what a record is, checks no bytes (a record
// carries its own check), counts no references and decides by itself about no file
// that a caller wrote.
package bodyfile
