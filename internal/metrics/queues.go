package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/partition"
)

// depth is what RabbitMQ shows of what is in a queue: what is due, what is with
// consumers, and both with what is between queues (DL-18.4).
type depth struct{ messages, ready, unacked, consumers int }

func depthOf(c partition.Counts) depth {
	return depth{
		messages: c.Ready + c.Out + c.Delayed + c.Dying + c.Held,
		ready:    c.Ready, unacked: c.Out, consumers: c.Consumers,
	}
}

// queueNames are the series of a queue, by the labels they have.
type queueNames struct{ messages, ready, unacked, consumers series }

func namesOf(labels ...string) queueNames {
	return queueNames{
		messages:  gauge("rabbitmq_queue_messages", "Sum of ready and unacknowledged messages - total queue depth", labels...),
		ready:     gauge("rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers", labels...),
		unacked:   gauge("rabbitmq_queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged", labels...),
		consumers: gauge("rabbitmq_queue_consumers", "Consumers on a queue", labels...),
	}
}

func (n queueNames) describe(out chan<- *prometheus.Desc) {
	for _, s := range []series{n.messages, n.ready, n.unacked, n.consumers} {
		out <- s.desc
	}
}

func (n queueNames) emit(out chan<- prometheus.Metric, d depth, labels ...string) {
	emit(out, n.messages, d.messages, labels...)
	emit(out, n.ready, d.ready, labels...)
	emit(out, n.unacked, d.unacked, labels...)
	emit(out, n.consumers, d.consumers, labels...)
}

var (
	allQueues    = namesOf()
	oneQueue     = namesOf("vhost", "queue")
	queueCount   = gauge("rabbitmq_queues", "Queues available")
	consumers    = gauge("rabbitmq_consumers", "Consumers currently connected")
	deadLettered = counter("bartleby_queue_dead_lettered_total", "Messages that died in a queue, by why and by what became of them", "vhost", "queue", "reason", "outcome")
)

// totalCollector shows sums over all queues (BR-17.2).
type totalCollector struct{ b *broker.Broker }

// Describe implements prometheus.Collector.
func (c totalCollector) Describe(out chan<- *prometheus.Desc) {
	allQueues.describe(out)
	out <- queueCount.desc
	out <- consumers.desc
}

// Collect implements prometheus.Collector.
func (c totalCollector) Collect(out chan<- prometheus.Metric) {
	all := c.b.Survey()
	var sum depth
	for _, q := range all {
		d := depthOf(q.Counts)
		sum.messages += d.messages
		sum.ready += d.ready
		sum.unacked += d.unacked
		sum.consumers += d.consumers
	}
	allQueues.emit(out, sum)
	emit(out, queueCount, len(all))
	emit(out, consumers, sum.consumers)
}

// queueCollector shows each queue by itself (BR-17.1, DL-18.4).
type queueCollector struct{ b *broker.Broker }

// Describe implements prometheus.Collector.
func (c queueCollector) Describe(out chan<- *prometheus.Desc) {
	oneQueue.describe(out)
	out <- deadLettered.desc
}

// Collect implements prometheus.Collector. Causes of death that a queue has not
// seen have no series: there are twenty, and most queues see none.
func (c queueCollector) Collect(out chan<- prometheus.Metric) {
	for _, q := range c.b.Survey() {
		vhost, name := string(q.Queue.VHost), string(q.Queue.Name)
		oneQueue.emit(out, depthOf(q.Counts), vhost, name)
		for _, r := range deadletter.Reasons {
			for o := range deadletter.Outcomes {
				if n := q.Counts.Stats.Dead[r][o]; n > 0 {
					emit(out, deadLettered, n, vhost, name, r.String(), o.String())
				}
			}
		}
	}
}
