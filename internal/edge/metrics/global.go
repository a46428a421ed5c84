package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// protocol091 is the label of AMQP 0-9-1.
const protocol091 = "amqp091"

func globalCounter(name, help string) *metric {
	return counter("global_"+name+"_total", "Total number of "+help, "protocol")
}

var (
	received          = globalCounter("messages_received", "messages received from publishers")
	receivedConfirm   = globalCounter("messages_received_confirm", "messages received from publishers expecting confirmations")
	routed            = globalCounter("messages_routed", "messages routed to queues or streams")
	confirmed         = globalCounter("messages_confirmed", "messages confirmed to publishers")
	unroutableDropped = globalCounter("messages_unroutable_dropped", "messages published as non-mandatory into an exchange and dropped as unroutable")
	unroutableBack    = globalCounter("messages_unroutable_returned", "messages published as mandatory into an exchange and returned to the publisher as unroutable")
	publishers        = gauge("global_publishers", "Current number of publishers", "protocol")
	globalConsumers   = gauge("global_consumers", "Current number of consumers", "protocol")
)

// typeMetric is a counter by queue type and its source.
type typeMetric struct {
	*metric
	of func(*partition.Stats) uint64
}

func typeCounter(name, help string, of func(*partition.Stats) uint64) typeMetric {
	return typeMetric{counter("global_"+name+"_total", "Total number of "+help, "protocol", "queue_type"), of}
}

var typeMetrics = []typeMetric{
	typeCounter("messages_delivered", "messages delivered to consumers", func(st *partition.Stats) uint64 {
		return st.Delivered + st.DeliveredNoAck + st.Got + st.GotNoAck
	}),
	typeCounter("messages_delivered_consume_auto_ack", "messages delivered to consumers using basic.consume with automatic acknowledgment", func(st *partition.Stats) uint64 { return st.DeliveredNoAck }),
	typeCounter("messages_delivered_consume_manual_ack", "messages delivered to consumers using basic.consume with manual acknowledgment", func(st *partition.Stats) uint64 { return st.Delivered }),
	typeCounter("messages_delivered_get_auto_ack", "messages delivered to consumers using basic.get with automatic acknowledgment", func(st *partition.Stats) uint64 { return st.GotNoAck }),
	typeCounter("messages_delivered_get_manual_ack", "messages delivered to consumers using basic.get with manual acknowledgment", func(st *partition.Stats) uint64 { return st.Got }),
	typeCounter("messages_get_empty", "times basic.get operations fetched no message", func(st *partition.Stats) uint64 { return st.GetNone }),
	typeCounter("messages_redelivered", "messages redelivered to consumers", func(st *partition.Stats) uint64 { return st.Redelivered }),
	typeCounter("messages_acknowledged", "messages acknowledged by consumers", func(st *partition.Stats) uint64 { return st.Acked }),
}

// globalFamily counts since the start of the node, including deleted queues (BR-17.3).
var globalFamily = &family{collect: func(s *scrape) {
	t := &s.Broker.Totals
	answered := t.Confirmed.Load()
	s.put(received, float64(t.Published.Load()), protocol091)
	s.put(receivedConfirm, float64(answered), protocol091)
	s.put(confirmed, float64(answered-min(answered, t.Refused.Load())), protocol091)
	s.put(routed, float64(t.Routed.Load()), protocol091)
	s.put(unroutableDropped, float64(t.UnroutableDropped.Load()), protocol091)
	s.put(unroutableBack, float64(t.UnroutableReturned.Load()), protocol091)

	byType := map[topology.QueueType]*partition.Stats{topology.Classic: {}, topology.Quorum: {}}
	for kind, st := range byType {
		*st = s.Broker.StatsOfDeleted(kind)
	}
	attached := 0
	all := s.everything()
	for i := range all {
		if st := byType[all[i].Queue.Type]; st != nil {
			st.Add(&all[i].Counts.Stats)
		}
		attached += all[i].Counts.Consumers
	}
	s.put(globalConsumers, float64(attached), protocol091)
	s.put(publishers, float64(countPublishers(s.Broker)), protocol091)
	for _, m := range typeMetrics {
		for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
			s.put(m.metric, float64(m.of(byType[kind])), protocol091, typeLabel(kind))
		}
	}
	s.putSizes()
}}

// countPublishers counts the channels that have published.
func countPublishers(b *broker.Broker) (n int) {
	for _, c := range b.Connections() {
		client := c.Client()
		if client == nil {
			continue
		}
		for _, ch := range client.ChannelStatuses() {
			if ch.Stats.Published > 0 {
				n++
			}
		}
	}
	return n
}

// putSizes shows the histogram of message sizes.
func (s *scrape) putSizes() {
	sizes := &s.Broker.Totals.Sizes
	buckets := map[float64]uint64{}
	count := uint64(0)
	for i := range sizes.Counts {
		count += sizes.Counts[i].Load()
		if i < len(broker.SizeBounds) {
			buckets[float64(broker.SizeBounds[i])] = count
		}
	}
	desc := prometheus.NewDesc(usual+"message_size_bytes", "Size of messages received from publishers", []string{"protocol"}, nil)
	s.out <- prometheus.MustNewConstHistogram(desc, count, float64(sizes.Bytes.Load()), buckets, protocol091)
}
