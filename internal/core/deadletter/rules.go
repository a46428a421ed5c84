package deadletter

// Rules are what the profile of a virtual host says about what dies in its queues. The zero value are RabbitMQ's.
// They are comparable, and what is decided by them depends on nothing else.
type Rules struct {
	Profile Profile

	// What follows is ApsaraMQ's.

	ExpireDead  bool   // dead letters have the TTL of the queue they came to (DL-22.8)
	ResetCounts bool   // failures are counted anew in each queue (DL-22.1 leaves it open)
	MaxHops     int64  // deaths after which a message has no TTL any more (DL-22.10)
	Retention   int64  // milliseconds that a queue keeps a message; 0 = for ever (DL-22.14)
	LimitReason string // what a message died of that failed too often (DL-22.7)
}

func (r *Rules) apsara() bool { return r.Profile == ApsaraMQ }

// CountReturns says whether every delivery that a consumer gives back counts as a failed attempt, and whether limit and
// timeout are those of every type of queue (DL-22.1, DL-22.2).
func (r *Rules) CountReturns() bool { return r.apsara() }

// Rejection is the reason of a message that a consumer did not want again: basic.reject and basic.nack have one
// each, or share one (DL-22.7, DL-1.2).
func (r *Rules) Rejection(nack bool) Reason {
	if nack && r.apsara() {
		return Nacked
	}
	return Rejected
}

// Limited says whether queues keep messages for a limited time (DL-22.14). It is said even where Retention is not set:
// it may be after the next start.
func (r *Rules) Limited() bool { return r.apsara() }

// CutCycles says whether targets are left out that would close an automatic cycle (DL-9); else the message comes to
// rest there.
func (r *Rules) CutCycles() bool { return !r.apsara() }

// Rests says whether a dead letter with this history has no TTL in the target (DL-22.8 to DL-22.10).
func (r *Rules) Rests(h *History, target string) bool {
	if !r.apsara() || len(h.Deaths) == 0 {
		return false
	}
	return !r.ExpireDead || h.Total() >= uint64(r.MaxHops) || h.ClosesCycle(target)
}
