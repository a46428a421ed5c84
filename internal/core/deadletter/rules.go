package deadletter

// Rules are a profile's rules for dead-lettering in its queues. The zero value has RabbitMQ's. Rules are comparable, and
// decisions by them depend on nothing else.
type Rules struct {
	Profile Profile

	// The fields below are used only by ApsaraMQ's profile.

	ExpireDead  bool   // dead letters have the TTL of the queue that they enter (DL-22.8)
	ResetCounts bool   // each queue counts failures from 0 (DL-22.1 leaves it open)
	MaxHops     int64  // after this many deaths a message has no TTL (DL-22.10)
	Retention   int64  // milliseconds that a queue keeps a message; 0 = forever (DL-22.14)
	LimitReason string // the reason of a message that failed too often (DL-22.7)
}

func (r *Rules) apsara() bool { return r.Profile == ApsaraMQ }

// CountReturns says whether every delivery that a consumer returns counts as a failed attempt, and whether limit and
// timeout apply to all queue types (DL-22.1, DL-22.2).
func (r *Rules) CountReturns() bool { return r.apsara() }

// Rejection is the reason of a message that a consumer rejected without requeue: basic.reject and basic.nack have
// different reasons or share one (DL-22.7, DL-1.2).
func (r *Rules) Rejection(nack bool) Reason {
	if nack && r.apsara() {
		return Nacked
	}
	return Rejected
}

// Limited says whether the profile has a retention (DL-22.14). It is true even if Retention is not set, because it may
// be set after the next start.
func (r *Rules) Limited() bool { return r.apsara() }

// CutCycles says whether a dead letter skips targets that would close an automatic cycle (DL-9). If not, it enters the
// target and rests there; see Rests.
func (r *Rules) CutCycles() bool { return !r.apsara() }

// Rests says whether a dead letter with this history has no TTL in the target (DL-22.8 to DL-22.10).
func (r *Rules) Rests(h *History, target string) bool {
	if !r.apsara() || len(h.Deaths) == 0 {
		return false
	}
	return !r.ExpireDead || h.Total() >= uint64(r.MaxHops) || h.ClosesCycle(target)
}
