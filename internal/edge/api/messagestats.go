package api

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// putLengths sets the three message counts (BR-15.12). object is the name under which rates are kept.
func (s *server) putLengths(into map[string]any, object string, sp spans, c *partition.Counts) {
	s.history.put(into, object, sp.lengths, lengths(c))
}

func lengths(c *partition.Counts) map[string]float64 {
	return map[string]float64{
		"messages":                float64(c.Messages()),
		"messages_ready":          float64(c.Ready),
		"messages_unacknowledged": float64(c.Out),
	}
}

// statGroup is a group of counters that RabbitMQ shows together if one of them is not 0.
type statGroup map[string]uint64

func (g statGroup) happened() bool {
	for _, n := range g {
		if n > 0 {
			return true
		}
	}
	return false
}

func (g statGroup) values() map[string]float64 {
	values := make(map[string]float64, len(g))
	for name, n := range g {
		values[name] = float64(n)
	}
	return values
}

// putStats sets message_stats with the groups that are not all 0 (BR-15.13). If there is
// none, it sets the key only if always is set.
func (s *server) putStats(into map[string]any, object string, sp spans, always bool, groups ...statGroup) {
	stats := map[string]any{}
	for _, g := range groups {
		if !g.happened() {
			continue
		}
		s.history.put(stats, groupKey(object, g), sp.rates, g.values())
	}
	if len(stats) > 0 || always {
		into["message_stats"] = stats
	}
}

// groupKey names the history of a group: no two groups of an object share a key.
func groupKey(object string, g statGroup) string {
	for _, name := range []string{"deliver_get", "publish_in", "publish", "disk_reads"} {
		if _, ok := g[name]; ok {
			return object + "\x00" + name
		}
	}
	return object + "\x00stats"
}

// deliveries is the group of counters of deliveries.
func deliveries(st *partition.Stats) statGroup {
	return statGroup{
		"deliver": st.Delivered, "deliver_no_ack": st.DeliveredNoAck, "get": st.Got, "get_no_ack": st.GotNoAck, "get_empty": st.GetNone,
		"deliver_get": st.Delivered + st.DeliveredNoAck + st.Got + st.GotNoAck, "ack": st.Acked, "redeliver": st.Redelivered,
	}
}

func channelDeliveries(st *broker.ChannelStats) statGroup {
	return statGroup{
		"deliver": st.Delivered, "deliver_no_ack": st.DeliveredNoAck, "get": st.Got, "get_no_ack": st.GotNoAck, "get_empty": st.GotNothing,
		"deliver_get": st.Delivered + st.DeliveredNoAck + st.Got + st.GotNoAck, "ack": st.Acked, "redeliver": st.Redelivered,
	}
}

// publishes is the group of counters of publishes, confirms and returns.
func publishes(published, confirmed, returned, dropped uint64) statGroup {
	return statGroup{"publish": published, "confirm": confirmed, "return_unroutable": returned, "drop_unroutable": dropped}
}

func bytesIn(c *partition.Counts) int64 {
	return c.ReadyBytes + c.OutBytes + c.DelayedBytes + c.DyingBytes + c.HeldBytes + c.OfferedBytes
}

// showDead shows the deaths of a queue by reason and outcome, without counts of 0:
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

// addCounts adds the counts of a queue to a sum.
func addCounts(sum *partition.Counts, c partition.Counts) {
	sum.Ready += c.Ready
	sum.Out += c.Out
	sum.Delayed += c.Delayed
	sum.Dying += c.Dying
	sum.Held += c.Held
	sum.Transit += c.Transit
	sum.Stranded += c.Stranded
	sum.Consumers += c.Consumers
	sum.Stats.Add(&c.Stats)
}
