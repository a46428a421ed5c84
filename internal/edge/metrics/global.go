package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// protocols are those that clients publish and consume with.
var protocols = []broker.LoginProtocol{broker.LoginAMQP091, broker.LoginAMQP10}

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

// typeMetric is a counter by queue type and its source. RabbitMQ counts some of them for AMQP 0-9-1 only: the others come from both.
type typeMetric struct {
	*metric
	of       func(*partition.Stats) uint64
	credited func(*partition.CreditedStats) uint64 // what AMQP 1.0 has of it; nil: none
}

func typeCounter(name, help string, of func(*partition.Stats) uint64, credited func(*partition.CreditedStats) uint64) typeMetric {
	return typeMetric{counter("global_"+name+"_total", "Total number of "+help, "protocol", "queue_type"), of, credited}
}

var typeMetrics = []typeMetric{
	typeCounter("messages_delivered", "messages delivered to consumers", func(st *partition.Stats) uint64 {
		return st.Delivered + st.DeliveredNoAck - st.Credited.Delivered - st.Credited.DeliveredNoAck + st.Got + st.GotNoAck
	}, func(c *partition.CreditedStats) uint64 { return c.Delivered + c.DeliveredNoAck }),
	typeCounter("messages_delivered_consume_auto_ack", "messages delivered to consumers using basic.consume with automatic acknowledgment", func(st *partition.Stats) uint64 {
		return st.DeliveredNoAck - st.Credited.DeliveredNoAck
	}, nil),
	typeCounter("messages_delivered_consume_manual_ack", "messages delivered to consumers using basic.consume with manual acknowledgment", func(st *partition.Stats) uint64 {
		return st.Delivered - st.Credited.Delivered
	}, nil),
	typeCounter("messages_delivered_get_auto_ack", "messages delivered to consumers using basic.get with automatic acknowledgment", func(st *partition.Stats) uint64 { return st.GotNoAck }, nil),
	typeCounter("messages_delivered_get_manual_ack", "messages delivered to consumers using basic.get with manual acknowledgment", func(st *partition.Stats) uint64 { return st.Got }, nil),
	typeCounter("messages_get_empty", "times basic.get operations fetched no message", func(st *partition.Stats) uint64 { return st.GetNone }, nil),
	typeCounter("messages_redelivered", "messages redelivered to consumers", func(st *partition.Stats) uint64 {
		return st.Redelivered - st.Credited.Redelivered
	}, func(c *partition.CreditedStats) uint64 { return c.Redelivered }),
	typeCounter("messages_acknowledged", "messages acknowledged by consumers", func(st *partition.Stats) uint64 {
		return st.Acked - st.Credited.Acked
	}, func(c *partition.CreditedStats) uint64 { return c.Acked }),
}

// globalFamily counts since the start of the node, including deleted queues (BR-17.3).
var globalFamily = &family{collect: func(s *scrape) {
	for _, p := range protocols {
		t := &s.Broker.Totals.Traffic[p]
		answered := t.Confirmed.Load()
		asked := answered
		if p == broker.LoginAMQP10 {
			asked += t.UnroutableReturned.Load() // released, which is neither accepted nor rejected
		}
		s.put(received, float64(t.Published.Load()), p.String())
		s.put(receivedConfirm, float64(asked), p.String())
		s.put(confirmed, float64(answered-min(answered, t.Refused.Load())), p.String())
		s.put(routed, float64(t.Routed.Load()), p.String())
		s.put(unroutableDropped, float64(t.UnroutableDropped.Load()), p.String())
		s.put(unroutableBack, float64(t.UnroutableReturned.Load()), p.String())
		s.putSizes(p)
	}

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
	channels, links := countPublishers(s.Broker)
	s.put(globalConsumers, float64(max(0, attached-links.Consumers+links.Replies)), broker.LoginAMQP091.String())
	s.put(globalConsumers, float64(links.Consumers), broker.LoginAMQP10.String())
	s.put(publishers, float64(channels), broker.LoginAMQP091.String())
	s.put(publishers, float64(links.Publishers), broker.LoginAMQP10.String())
	for _, m := range typeMetrics {
		for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
			s.put(m.metric, float64(m.of(byType[kind])), broker.LoginAMQP091.String(), typeLabel(kind))
			n := uint64(0)
			if m.credited != nil {
				n = m.credited(&byType[kind].Credited)
			}
			s.put(m.metric, float64(n), broker.LoginAMQP10.String(), typeLabel(kind))
		}
	}
}}

// countPublishers counts the channels that have published, and the links of AMQP 1.0.
func countPublishers(b *broker.Broker) (channels int, links broker.LinkCounts) {
	for _, c := range b.Connections() {
		client := c.Client()
		if client == nil {
			continue
		}
		for _, ch := range client.ChannelStatuses() {
			if ch.Stats.Published > 0 {
				channels++
			}
		}
		if of10, ok := client.(broker.SessionClient); ok {
			n := of10.Links()
			links.Publishers += n.Publishers
			links.Consumers += n.Consumers
			links.Replies += n.Replies
		}
	}
	return channels, links
}

// putSizes shows the histogram of message sizes.
func (s *scrape) putSizes(p broker.LoginProtocol) {
	sizes := &s.Broker.Totals.Traffic[p].Sizes
	buckets := map[float64]uint64{}
	count := uint64(0)
	for i := range sizes.Counts {
		count += sizes.Counts[i].Load()
		if i < len(broker.SizeBounds) {
			buckets[float64(broker.SizeBounds[i])] = count
		}
	}
	desc := prometheus.NewDesc(usual+"message_size_bytes", "Size of messages received from publishers", []string{"protocol"}, nil)
	s.out <- prometheus.MustNewConstHistogram(desc, count, float64(sizes.Bytes.Load()), buckets, p.String())
}
