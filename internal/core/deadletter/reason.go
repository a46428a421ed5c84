package deadletter

// Reason is why a message died (DL-1.1). Headers and metrics show its string.
type Reason uint8

// The reasons. The numbers are part of the history's stored form.
const (
	Rejected      Reason = iota + 1 // basic.reject or basic.nack without requeue (DL-1.2)
	Expired                         // its TTL passed while it was ready (DL-1.5)
	MaxLen                          // the queue was over its length limit (DL-1.6)
	DeliveryLimit                   // returned more often than the queue allows (DL-1.7)
	Nacked                          // Rejected by basic.nack, where the profile distinguishes it (DL-22.7)
	reasons
)

// Reasons lists the reasons with a counter, in the order of their numbers.
var Reasons = []Reason{Rejected, Expired, MaxLen, DeliveryLimit}

// Valid says whether r is a reason. Decoders check it.
func (r Reason) Valid() bool { return r > 0 && r < reasons }

// Counted returns the reason under which r is counted, one of Reasons.
func (r Reason) Counted() Reason {
	if r == Nacked {
		return Rejected
	}
	return r
}

func (r Reason) String() string {
	switch r {
	case Rejected:
		return "rejected"
	case Expired:
		return "expired"
	case MaxLen:
		return "maxlen"
	case DeliveryLimit:
		return "delivery_limit"
	case Nacked:
		return nack
	}
	return "unknown"
}

// ApsaraMQ's own names of reasons (DL-22.7).
const (
	nack   = "nack"
	reject = "reject"
)

// ReasonName is the reason's name in the headers of the profile.
func (h *History) ReasonName(r Reason) string {
	if h.Profile == ApsaraMQ {
		switch r {
		case Rejected:
			return reject
		case DeliveryLimit:
			return h.LimitReason
		}
	}
	return r.String()
}

// ParseReason is the reverse of String for the reasons in Reasons; ok is false for any other string.
func ParseReason(s string) (r Reason, ok bool) {
	for _, r := range Reasons {
		if r.String() == s {
			return r, true
		}
	}
	return 0, false
}

// Outcome is what became of a dead letter. Each queue counts them (DL-18.4); see Dropped.
type Outcome uint8

// The outcomes. The numbers are part of the log of quorum queues.
const (
	Routed          Outcome = iota // it is in at least one other queue now
	NoExchange                     // the queue has no dead-letter exchange
	NoRoute                        // the exchange routed it nowhere
	Cycle                          // every target would have closed an automatic cycle (DL-9)
	TargetRefused                  // every target was full (DL-6.12)
	Deleted                        // it was deleted, mostly with its queue, before it reached another queue
	MissingExchange                // the queue's dead-letter exchange does not exist
	LostAndFound                   // it led nowhere, and is in the lost and found of its virtual host (Marks.Lost says why)
	Outcomes                       // number of outcomes
)

func (o Outcome) String() string {
	return [...]string{"routed", "no_dlx", "no_route", "cycle", "target_refused", "deleted", "dlx_missing", "lost_and_found"}[o]
}

// Dropped says whether the message is in no queue any longer.
func (o Outcome) Dropped() bool { return o != Routed && o != LostAndFound }

// lost says whether o may be a reason for which a letter is in the lost and found.
func (o Outcome) lost() bool { return o < Outcomes && o.Dropped() && o != Deleted }

// ParseLost is the reverse of String for the outcomes that lead to the lost and found; ok is false for any other string.
func ParseLost(s string) (o Outcome, ok bool) {
	for o := range Outcomes {
		if o.lost() && o.String() == s {
			return o, true
		}
	}
	return Routed, false
}
