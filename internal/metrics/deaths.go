package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/queue"
)

// deathCollector shows the counters of DL-18.1, all of which exist from the start.
type deathCollector struct{ b *broker.Broker }

// deaths are the series by reason, with the help texts of DL-18.2.
var deaths = map[deadletter.Reason]series{
	deadletter.Rejected:      deathCounter("rejected", "due to basic.reject or basic.nack"),
	deadletter.Expired:       deathCounter("expired", "due to message TTL exceeded"),
	deadletter.MaxLen:        deathCounter("maxlen", "due to overflow drop-head or reject-publish-dlx"),
	deadletter.DeliveryLimit: deathCounter("delivery_limit", "due to delivery-limit exceeded"),
}

func deathCounter(reason, why string) series {
	return counter("rabbitmq_global_messages_dead_lettered_"+reason+"_total", "Total number of messages dead-lettered "+why, "queue_type", "dead_letter_strategy")
}

const (
	classicLabel  = "rabbit_classic_queue"
	quorumLabel   = "rabbit_quorum_queue"
	volatileLabel = "rabbit_volatile_queue"
)

// Describe implements prometheus.Collector.
func (c deathCollector) Describe(out chan<- *prometheus.Desc) {
	for _, s := range deaths {
		out <- s.desc
	}
	out <- deathConfirmed.desc
}

// Collect implements prometheus.Collector.
func (c deathCollector) Collect(out chan<- prometheus.Metric) {
	n := c.b.Node()
	for _, r := range deadletter.Reasons {
		for s := partition.Disabled; s <= partition.AtLeastOnce; s++ {
			if shown(queue.Classic, s, r) || n.Deaths(queue.Classic, s, r) > 0 {
				emit(out, deaths[r], n.Deaths(queue.Classic, s, r), classicLabel, s.String())
			}
			if shown(queue.Quorum, s, r) || n.Deaths(queue.Quorum, s, r) > 0 {
				emit(out, deaths[r], n.Deaths(queue.Quorum, s, r), quorumLabel, s.String())
			}
		}
	}
	// Direct reply-to has no queue here that could overflow.
	emit(out, deaths[deadletter.MaxLen], 0, volatileLabel, partition.Disabled.String())
	emit(out, deathConfirmed, n.DeathsConfirmed(), quorumLabel, partition.AtLeastOnce.String())
}

// shown says whether RabbitMQ has the series from its start on. Others appear with
// their first death: classic queues with a delivery limit, or with at-least-once
// dead-lettering, are ours.
func shown(t queue.Type, s partition.Strategy, r deadletter.Reason) bool {
	if t == queue.Classic {
		return s != partition.AtLeastOnce && r != deadletter.DeliveryLimit
	}
	return s != partition.AtLeastOnce || r != deadletter.MaxLen
}
