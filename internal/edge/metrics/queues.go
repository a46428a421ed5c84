package metrics

import (
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// everything counts all queues, once for each scrape.
func (s *scrape) everything() []broker.CountedQueue {
	if !s.surveyed {
		s.all, s.surveyed = s.Broker.CountQueues(), true
	}
	return s.all
}

// survey is the queues that are asked for.
func (s *scrape) survey() []broker.CountedQueue {
	all := s.everything()
	if len(s.vhosts) == 0 {
		return all
	}
	var chosen []broker.CountedQueue
	for _, q := range all {
		if s.sees(q.Queue.VHost) {
			chosen = append(chosen, q)
		}
	}
	return chosen
}

// The labels of RabbitMQ's queue types.
const (
	classicLabel  = "rabbit_classic_queue"
	quorumLabel   = "rabbit_quorum_queue"
	volatileLabel = "rabbit_volatile_queue"
)

func typeLabel(t topology.QueueType) string {
	if t == topology.Quorum {
		return quorumLabel
	}
	return classicLabel
}

func bytesIn(c *partition.Counts) int64 {
	return c.ReadyBytes + c.OutBytes + c.DelayedBytes + c.DyingBytes + c.HeldBytes + c.OfferedBytes
}

// eachQueue calls f with the labels of each queue that is asked for.
func (s *scrape) eachQueue(f func(q *broker.CountedQueue, vhost, name string)) {
	all := s.survey()
	for i := range all {
		f(&all[i], string(all[i].Queue.VHost), string(all[i].Queue.Name))
	}
}

// putInfo shows what type a queue is of, in families whose series are joined with it.
func (s *scrape) putInfo(q *broker.CountedQueue) {
	s.put(queueInfo, 1, string(q.Queue.VHost), string(q.Queue.Name), typeLabel(q.Queue.Type), "leader")
}

var queueInfo = gauge("queue_info", "A metric with a constant '1' value and labels that provide some queue details", "vhost", "queue", "queue_type", "membership").alone()

func queueGauge(name, help string) *metric   { return gauge(name, help, "vhost", "queue") }
func queueCounter(name, help string) *metric { return counter(name, help, "vhost", "queue") }

var (
	ready           = queueGauge("queue_messages_ready", "Messages ready to be delivered to consumers")
	unacked         = queueGauge("queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged")
	depth           = queueGauge("queue_messages", "Sum of ready and unacknowledged messages - total queue depth")
	queueReductions = queueCounter("queue_process_reductions_total", "Total number of queue process reductions")
)

var queueCoarseFamily = &family{
	name: "queue_coarse_metrics", objects: true, metrics: []*metric{ready, unacked, depth, queueReductions},
	collect: func(s *scrape) {
		s.eachQueue(func(q *broker.CountedQueue, vhost, name string) {
			s.put(ready, float64(q.Counts.Ready), vhost, name)
			s.put(unacked, float64(q.Counts.Out), vhost, name)
			s.put(depth, float64(q.Counts.Messages()), vhost, name)
			s.put(queueReductions, 0, vhost, name)
			s.putInfo(q)
		})
	},
}

var queueConsumers = queueGauge("queue_consumers", "Consumers on a queue")

var queueConsumerFamily = &family{
	name: "queue_consumer_count", objects: true, onRequest: true, metrics: []*metric{queueConsumers},
	collect: func(s *scrape) {
		s.eachQueue(func(q *broker.CountedQueue, vhost, name string) {
			s.put(queueConsumers, float64(q.Counts.Consumers), vhost, name)
			s.putInfo(q)
		})
	},
}

// queueMetric is a metric of a queue with where it comes from.
type queueMetric struct {
	*metric
	of func(*partition.Counts) float64
}

func none(*partition.Counts) float64       { return 0 }
func messages(c *partition.Counts) float64 { return float64(c.Messages()) }
func bytes(c *partition.Counts) float64    { return float64(bytesIn(c)) }
func served(c *partition.Counts) float64   { return flag(c.Consumers > 0) }

// queueMemory is what an empty queue is taken to cost, in bytes.
const queueMemory = 4096

var queueMetrics = []queueMetric{
	{queueConsumers, func(c *partition.Counts) float64 { return float64(c.Consumers) }},
	{queueGauge("queue_consumer_capacity", "Consumer capacity").alone(), served},
	{queueGauge("queue_consumer_utilisation", "Same as consumer capacity"), served},
	{queueGauge("queue_process_memory_bytes", "Memory in bytes used by the Erlang queue process"), func(c *partition.Counts) float64 { return bytes(c) + queueMemory }},
	{queueGauge("queue_messages_ram", "Ready and unacknowledged messages stored in memory"), messages},
	{queueGauge("queue_messages_ram_bytes", "Size of ready and unacknowledged messages stored in memory"), bytes},
	{queueGauge("queue_messages_ready_ram", "Ready messages stored in memory"), func(c *partition.Counts) float64 { return float64(c.Ready) }},
	{queueGauge("queue_messages_unacked_ram", "Unacknowledged messages stored in memory"), func(c *partition.Counts) float64 { return float64(c.Out) }},
	{queueGauge("queue_messages_persistent", "Persistent messages"), func(c *partition.Counts) float64 { return float64(c.Persistent) }},
	{queueGauge("queue_messages_persistent_bytes", "Size in bytes of persistent messages").alone(), persistentBytes},
	{queueGauge("queue_messages_bytes", "Size in bytes of ready and unacknowledged messages"), bytes},
	{queueGauge("queue_messages_ready_bytes", "Size in bytes of ready messages"), func(c *partition.Counts) float64 { return float64(c.ReadyBytes) }},
	{queueGauge("queue_messages_unacked_bytes", "Size in bytes of all unacknowledged messages"), func(c *partition.Counts) float64 { return float64(c.OutBytes) }},
	{queueCounter("queue_disk_reads_total", "Total number of times queue read messages from disk"), none},
	{queueCounter("queue_disk_writes_total", "Total number of times queue wrote messages to disk"), none},
}

// persistentBytes is the share of the bytes that the persistent messages have, who
// are counted and not weighed: all of them where all are persistent.
func persistentBytes(c *partition.Counts) float64 {
	n := c.Messages()
	if n == 0 {
		return 0
	}
	return bytes(c) * float64(c.Persistent) / float64(n)
}

var headTimestamp = queueGauge("queue_head_message_timestamp", "Timestamp of the first message in the queue, if any").alone()

var queueFamily = &family{
	name: "queue_metrics", objects: true, metrics: metricsOf(queueMetrics),
	collect: func(s *scrape) {
		s.eachQueue(func(q *broker.CountedQueue, vhost, name string) {
			for _, m := range queueMetrics {
				s.put(m.metric, m.of(&q.Counts), vhost, name)
			}
			s.putInfo(q)
			if s.total {
				return
			}
			if at, ok := s.Broker.HeadTimestamp(q.Info); ok {
				s.put(headTimestamp, float64(at), vhost, name)
			}
		})
	},
}

func metricsOf(list []queueMetric) (metrics []*metric) {
	for _, m := range list {
		metrics = append(metrics, m.metric)
	}
	return metrics
}

var deliveryMetrics = []queueMetric{
	{queueCounter("queue_get_ack_total", "Total number of messages fetched from a queue with basic.get in manual acknowledgement mode"), func(c *partition.Counts) float64 { return float64(c.Stats.Got) }},
	{queueCounter("queue_get_total", "Total number of messages fetched from a queue with basic.get in automatic acknowledgement mode"), func(c *partition.Counts) float64 { return float64(c.Stats.GotNoAck) }},
	{queueCounter("queue_messages_delivered_ack_total", "Total number of messages delivered from a queue to consumers in manual acknowledgement mode"), func(c *partition.Counts) float64 { return float64(c.Stats.Delivered) }},
	{queueCounter("queue_messages_delivered_total", "Total number of messages delivered from a queue to consumers in automatic acknowledgement mode"), func(c *partition.Counts) float64 { return float64(c.Stats.DeliveredNoAck) }},
	{queueCounter("queue_messages_redelivered_total", "Total number of messages redelivered from a queue to consumers"), func(c *partition.Counts) float64 { return float64(c.Stats.Redelivered) }},
	{queueCounter("queue_messages_acked_total", "Total number of messages acknowledged by consumers on a queue"), func(c *partition.Counts) float64 { return float64(c.Stats.Acked) }},
	{queueCounter("queue_get_empty_total", "Total number of times basic.get operations fetched no message on a queue"), func(c *partition.Counts) float64 { return float64(c.Stats.GetNone) }},
}

var queueDeliveryFamily = &family{
	name: "queue_delivery_metrics", objects: true, metrics: metricsOf(deliveryMetrics),
	collect: func(s *scrape) {
		s.eachQueue(func(q *broker.CountedQueue, vhost, name string) {
			for _, m := range deliveryMetrics {
				s.put(m.metric, m.of(&q.Counts), vhost, name)
			}
		})
	},
}

var (
	queuePublished         = counter("queue_messages_published_total", "Total number of messages published into a queue through an exchange on a channel", objectLabel, "queue_vhost", "queue", "exchange_vhost", "exchange")
	queueExchangePublished = counter("queue_exchange_messages_published_total", "Total number of messages published into a queue through an exchange", "vhost", "exchange", "queue")
)

// channelQueueExchangeFamily and queueExchangeFamily count what clients have published by the exchange they published to. Their
// totals count what has come into queues: dead letters too, and what channels have published that are closed.
var (
	channelQueueExchangeFamily = &family{
		name: "channel_queue_exchange_metrics", objects: true, metrics: []*metric{queuePublished},
		collect: func(s *scrape) {
			if s.total {
				s.putPublished(queuePublished)
				return
			}
			byChannel, _ := s.passages()
			for _, p := range byChannel {
				s.put(queuePublished, float64(p.Messages), p.Channel, string(p.VHost), string(p.Queue), string(p.VHost), string(p.Exchange))
			}
		},
	}
	queueExchangeFamily = &family{
		name: "queue_exchange_metrics", objects: true, metrics: []*metric{queueExchangePublished},
		collect: func(s *scrape) {
			if s.total {
				s.putPublished(queueExchangePublished)
				return
			}
			_, all := s.passages()
			for _, p := range all {
				s.put(queueExchangePublished, float64(p.Messages), string(p.VHost), string(p.Exchange), string(p.Queue))
			}
		},
	}
)

// passages counts once for each scrape.
func (s *scrape) passages() (byChannel, all []broker.Passage) {
	if !s.passed {
		s.byChannel, s.byExchange = s.Broker.Passages(s.sees)
		s.passed = true
	}
	return s.byChannel, s.byExchange
}

func (s *scrape) putPublished(m *metric) {
	s.eachQueue(func(q *broker.CountedQueue, vhost, name string) { s.put(m, float64(q.Counts.Stats.Published)) })
}
