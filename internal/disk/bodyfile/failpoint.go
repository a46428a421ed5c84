package bodyfile

// The named steps at which a crash test may end the process.
const (
	FailFinishWritten = "keep-finish-written" // a dense file has all its records, but is not synced
	FailFinishSynced  = "keep-finish-synced"  // the file is synced, its name is not
)

// Failpoints lists the names that OpenKeep's failpoint is called with.
var Failpoints = []string{FailFinishWritten, FailFinishSynced}
