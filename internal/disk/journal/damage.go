package journal

import "fmt"

// DamageError reports bytes that were durable once and are not what was written.
// The journal has changed nothing on disk. A single node must not start on it; a
// member of a cluster rejoins its groups.
type DamageError struct {
	Segment uint32 // number of the damaged or missing segment
	File    string // path of its file
	Offset  int64  // byte offset of the first frame or header that is not intact
	Reason  string // what is wrong with it
	// Proof is the later frame that says these bytes had been synced. It is zero
	// where the following segment's header says so.
	Proof Pos
}

// Error names the file and the offset.
func (e *DamageError) Error() string {
	msg := fmt.Sprintf("journal: %s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
	if e.Proof != 0 {
		msg += fmt.Sprintf(" (the frame at %s says it was synced)", e.Proof)
	}
	return msg
}
