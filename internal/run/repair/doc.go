// Package repair looks at the data directory of a stopped node and mends it: which
// files are damaged, which queues and how many messages that touches, and what an
// operator may choose to lose so that the node starts again.
//
// It owns no state. An examination works on a second tree of links and copies below
// the data directory, on which it does what a start would do; the data directory itself
// is not changed. A repair does the same to the data directory, after it has put
// copies of what it will change into quarantine.
//
// What it does not do: it takes no lock (the caller keeps nodes out), decides nothing that
// the operator has not said, and cannot bring back bytes that are gone.
package repair
