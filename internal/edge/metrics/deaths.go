package metrics

import (
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// deaths are the counters of DL-18.1 by reason, with the help texts of DL-18.2.
var deaths = map[deadletter.Reason]*metric{
	deadletter.Rejected:      deathCounter("rejected", "due to basic.reject or basic.nack"),
	deadletter.Expired:       deathCounter("expired", "due to message TTL exceeded"),
	deadletter.MaxLen:        deathCounter("maxlen", "due to overflow drop-head or reject-publish-dlx"),
	deadletter.DeliveryLimit: deathCounter("delivery_limit", "due to delivery-limit exceeded"),
}

var deathConfirmed = deathCounter("confirmed", "and confirmed by target queues")

func deathCounter(reason, why string) *metric {
	return counter("global_messages_dead_lettered_"+reason+"_total", "Total number of messages dead-lettered "+why, "queue_type", "dead_letter_strategy")
}

// deathFamily: all these series exist from the start (DL-18.1).
var deathFamily = &family{collect: func(s *scrape) {
	n := s.Broker.Node()
	for _, r := range deadletter.Reasons {
		for strategy := partition.Disabled; strategy <= partition.AtLeastOnce; strategy++ {
			for t, label := range map[queue.Type]string{queue.Classic: classicLabel, queue.Quorum: quorumLabel} {
				if count := n.Deaths(t, strategy, r); count > 0 || fromStart(t, strategy, r) {
					s.put(deaths[r], float64(count), label, strategy.String())
				}
			}
		}
	}
	// Direct reply-to has no queue that could overflow here.
	s.put(deaths[deadletter.MaxLen], 0, volatileLabel, partition.Disabled.String())
	s.put(deathConfirmed, float64(n.DeathsConfirmed()), quorumLabel, partition.AtLeastOnce.String())
}}

// fromStart says whether RabbitMQ has the series from its start on. Our own series, for
// classic queues with a delivery limit or at-least-once dead-lettering, appear with the
// first death.
func fromStart(t queue.Type, s partition.Strategy, r deadletter.Reason) bool {
	if t == queue.Classic {
		return s != partition.AtLeastOnce && r != deadletter.DeliveryLimit
	}
	return s != partition.AtLeastOnce || r != deadletter.MaxLen
}

var (
	deadLettered = counter("bartleby_queue_dead_lettered_total", "Messages that died in a queue, by why and by what became of them", "vhost", "queue", "reason", "outcome").whole()
	allDead      = counter("bartleby_dead_lettered_total", "Messages that died, by why and by what became of them", "reason", "outcome").whole()
	deadTarget   = gauge("bartleby_queue_dead_letter_target", "is 1 if dead letters of another queue are routed here", "vhost", "queue").whole()
	oldest       = gauge("bartleby_queue_oldest_message_age_seconds", "How long the first message has been in the queue, or dead if it died elsewhere", "vhost", "queue").whole()
	retries      = gauge("bartleby_queue_retries_waiting", "Messages that wait for their next attempt", "vhost", "queue").whole()
	lateness     = gauge("bartleby_queue_retry_lateness_seconds", "How long the first waiting retry is overdue", "vhost", "queue").whole()
	breakerOpen  = gauge("bartleby_queue_breaker_open", "is 1 if the breaker of the queue is open, or lets one message at a time try, and 0 if it is closed", "vhost", "queue").whole()
	held         = gauge("bartleby_queue_dead_letters_held", "Dead letters that wait for their targets", "vhost", "queue").whole()
)

// deadLetterFamily is ours (DL-18.4): deaths by queue, reason and outcome, ages, and waiting
// messages. A queue has no series for reasons and outcomes that it has not seen: there are
// two dozen, and most queues see none. Totals have only the counters.
var deadLetterFamily = &family{name: "dead_letters", collect: func(s *scrape) {
	if s.total {
		s.putAllDead()
		return
	}
	targets := s.Broker.DeadLetterTargets()
	now := time.UnixMilli(s.Broker.Now())
	for _, q := range s.survey() {
		vhost, name := string(q.Queue.VHost), string(q.Queue.Name)
		for _, r := range deadletter.Reasons {
			for o := range deadletter.Outcomes {
				if n := q.Counts.Stats.Dead[r][o]; n > 0 {
					s.put(deadLettered, float64(n), vhost, name, r.String(), o.String())
				}
			}
		}
		if targets[q.Queue] {
			s.put(deadTarget, 1, vhost, name)
		}
		if since, ok := s.Broker.Oldest(q.Info); ok {
			s.put(oldest, max(0, now.Sub(since).Seconds()), vhost, name)
		}
		s.putWaiting(&q, now, vhost, name)
		if b := q.Counts.Breaker.State; b != queue.BreakerNone {
			s.put(breakerOpen, flag(b != queue.BreakerClosed), vhost, name)
		}
	}
}}

func (s *scrape) putWaiting(q *broker.CountedQueue, now time.Time, vhost, name string) {
	if n := q.Counts.Held + q.Counts.Dying; n > 0 {
		s.put(held, float64(n), vhost, name)
	}
	if q.Counts.Delayed == 0 {
		return
	}
	s.put(retries, float64(q.Counts.Delayed), vhost, name)
	if first, _ := s.Broker.DelayedUntil(q.Info); first > 0 {
		s.put(lateness, max(0, now.Sub(time.UnixMilli(first)).Seconds()), vhost, name)
	}
}

// putAllDead shows every reason and outcome, so that a rate has a first value.
func (s *scrape) putAllDead() {
	total := partition.Stats{}
	for _, t := range []topology.QueueType{topology.Classic, topology.Quorum} {
		gone := s.Broker.StatsOfDeleted(t)
		total.Add(&gone)
	}
	for _, q := range s.everything() {
		total.Add(&q.Counts.Stats)
	}
	for _, r := range deadletter.Reasons {
		for o := range deadletter.Outcomes {
			s.put(allDead, float64(total.Dead[r][o]), r.String(), o.String())
		}
	}
}
