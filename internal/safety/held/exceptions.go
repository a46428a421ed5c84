//go:build invariants

package held

// exception is a lock that may be held during a wait, both by name.
type exception struct{ lock, wait string }

// exceptions lists all exceptions with their reasons.
var exceptions = map[exception]string{
	{"a partition", "the store of the index"}:     "pages of a queue are put away and had again as a step of it; the store answers from memory but for what is old, and gives way",
	{"the outboxes", "the store of the index"}:    "it is taken with partitions, for the same step",
	{"a partition", "scratch files"}:              "what is put away has a place on disk from that step on; the files are written into the system's memory and never synced",
	{"the outboxes", "scratch files"}:             "a message for another log takes the detail of its history along: it is taken with partitions, for the same step",
	{"the policies", "scratch files"}:             onlyPolicies, // details of what dies of a new limit
	{"the policies", "the log of declarations"}:   onlyPolicies,
	{"the policies", "the store of declarations"}: onlyPolicies,
	{"the policies", "the journal"}:               onlyPolicies,
	{"the policies", "bodies on disk"}:            onlyPolicies, // of what dies of a new limit
	{"the policies", "a file of the journal"}:     onlyPolicies, // which these lie in
	{"the policies", "the flush of a store"}:      onlyPolicies,
	{"the policies", "the store of the index"}:    onlyPolicies, // of pages on which what a new limit reaches is
}

const onlyPolicies = "else an older policy would reach a queue after a newer one; nothing on the way of a message takes it"
