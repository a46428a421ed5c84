// Package repair examines and repairs the data directory of a stopped node. It reports
// damaged files, the queues and messages that they affect, and what each kind of repair
// would lose. "bartleby journal" calls it.
//
// It owns no state. An examination works on a second tree of links and copies, on which it
// does what a start would do. It does not change the data directory itself:
//
//	data directory ──links, copies──► examination/ ─repair, open, read all─► Report
//	       │                                                                   │
//	       └── files that will change ──► quarantine/TIME ◄── report.txt ──────┘
//	       then the same steps on the data directory itself (apply)
//
// Invariant: before a repair changes a file, the quarantine has a durable copy of it. A
// repair that was interrupted can run again. A part that was missing gets its identity last,
// so that no node starts before the repair is complete.
//
// The package takes no lock (the caller keeps nodes out), never chooses what to lose (the
// operator does), and cannot bring back lost bytes.
package repair
