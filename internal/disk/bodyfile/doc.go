// Package bodyfile keeps message records in files beside the journal: records that outlived
// their segment ("keep"), records that were never in the journal ("scratch"), and damaged
// data ("aside"). Partitions, bodies and repair call it.
//
//	keep/       NNNNNNNNNN.seg      a segment that the journal has retired, under its number
//	            NNNNNNNNNN.keep     a dense file that a compaction wrote, with its own number
//	scratch/    NNNNNNNNNN.scratch  appended to, never synced, deleted at the next start
//	set-aside/  message-...         a line of JSON, then the bytes as they were found
//
// A Keep owns a directory of read-only files. A dense file counts only after Finish: a crash
// before that leaves a file that nothing refers to, which Retain removes. Keep and Scratch
// hold a bounded number of files open.
//
// The package never interprets a record, verifies no bytes (a record has its own check),
// counts no references, and never drops a file unless its caller asks for it.
package bodyfile
