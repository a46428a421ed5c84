package api

import (
	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/partition"
)

// putTotals sets the three message counts and, once anything has happened,
// message_stats (BR-15.12, BR-15.13). Rates go by the name of the object.
func (s *server) putTotals(into map[string]any, object string, c partition.Counts) {
	s.rates.put(into, object, map[string]float64{
		"messages":                float64(messagesIn(&c)),
		"messages_ready":          float64(c.Ready),
		"messages_unacknowledged": float64(c.Out),
	})
	st := &c.Stats
	if st.Published == 0 && st.Delivered == 0 && st.DeliveredNoAck == 0 && st.Got == 0 && st.GotNoAck == 0 && st.GetNone == 0 {
		return
	}
	stats := map[string]any{}
	s.rates.put(stats, object+"\x00stats", map[string]float64{
		"publish":        float64(st.Published),
		"confirm":        float64(st.Confirmed),
		"deliver":        float64(st.Delivered),
		"deliver_no_ack": float64(st.DeliveredNoAck),
		"get":            float64(st.Got),
		"get_no_ack":     float64(st.GotNoAck),
		"get_empty":      float64(st.GetNone),
		"deliver_get":    float64(st.Delivered + st.DeliveredNoAck + st.Got + st.GotNoAck),
		"ack":            float64(st.Acked),
		"redeliver":      float64(st.Redelivered),
	})
	into["message_stats"] = stats
}

// messagesIn counts all a queue holds, deliverable or not (DL-12.4, DL-13.7).
func messagesIn(c *partition.Counts) int { return c.Ready + c.Out + c.Delayed + c.Dying + c.Held }

func bytesIn(c *partition.Counts) int64 {
	return c.ReadyBytes + c.OutBytes + c.DelayedBytes + c.DyingBytes + c.HeldBytes
}

// showDead shows what became of a queue's dead, by reason and outcome, what did
// not happen left out:
//
//	{"rejected": {"routed": 3, "no_route": 1}}
func showDead(st *partition.Stats) map[string]any {
	dead := map[string]any{}
	for _, reason := range deadletter.Reasons {
		byOutcome := map[string]any{}
		for outcome, n := range st.Dead[reason] {
			if n > 0 {
				byOutcome[deadletter.Outcome(outcome).String()] = n
			}
		}
		if len(byOutcome) > 0 {
			dead[reason.String()] = byOutcome
		}
	}
	return dead
}

// addCounts adds what a queue holds and has done to a sum.
func addCounts(sum *partition.Counts, c partition.Counts) {
	sum.Ready += c.Ready
	sum.Out += c.Out
	sum.Delayed += c.Delayed
	sum.Dying += c.Dying
	sum.Held += c.Held
	sum.Consumers += c.Consumers
	a, b := &sum.Stats, &c.Stats
	a.Published += b.Published
	a.Confirmed += b.Confirmed
	a.Delivered += b.Delivered
	a.DeliveredNoAck += b.DeliveredNoAck
	a.Got += b.Got
	a.GotNoAck += b.GotNoAck
	a.GetNone += b.GetNone
	a.Acked += b.Acked
	a.Redelivered += b.Redelivered
	a.Returned += b.Returned
	a.Purged += b.Purged
	for reason := range a.Dead {
		for outcome := range a.Dead[reason] {
			a.Dead[reason][outcome] += b.Dead[reason][outcome]
		}
	}
}
