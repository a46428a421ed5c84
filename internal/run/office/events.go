package office

import (
	"strconv"
	"strings"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// fact is a field of an event: a text, a bool, an int64, or an amqp091.Array of texts.
func fact(key string, value any) amqp091.Field { return amqp091.Field{Key: key, Value: value} }

// jobEvents are what the change of a job to a state is called.
var jobEvents = map[State]string{
	Running: "job.resumed", Paused: "job.paused", Halted: "job.halted", Cancelled: "job.cancelled", Done: "job.done", Failed: "job.failed",
}

// eventNames are all events of the node, as docs/user/events.md has them.
var eventNames = strings.Fields(`
	alarm.cleared alarm.set binding.created binding.deleted breaker.closed breaker.opened channel.closed channel.created connection.closed connection.created
	consumer.created consumer.deleted drop.recorded exchange.created exchange.deleted
	job.cancelled job.done job.failed job.halted job.paused job.resumed job.started letter.group.created letter.threshold
	operator.policy.cleared parameter.cleared parameter.set permission.created permission.deleted policy.cleared policy.set
	queue.created queue.deleted shovel.worker.removed shovel.worker.status topic.permission.created topic.permission.deleted
	user.authentication.failure user.authentication.success user.created user.deleted user.limits.cleared user.limits.set
	user.password.changed user.tags.set vhost.created vhost.deleted vhost.limits.cleared vhost.limits.set vhost.updated`)

// tell tells of a job that is in another state than before, "" for a new one. REQUIRES: m.mu is held.
func (m *Jobs) tell(j *job, before State) {
	key, ok := jobEvents[j.r.State]
	if begins := before == "" || before == Planned; begins && j.r.State == Running {
		key = "job.started"
	} else if !ok || before == "" || before == j.r.State {
		return
	}
	tally := m.b.Node().JobTally(j.r.ID)
	mask := m.office.masks.Mask(j.r.VHost)
	m.b.Notify(key, func() amqp091.Table { return j.r.facts(&tally, mask) })
}

// facts are what events tell of a job.
func (r *record) facts(t *partition.JobTally, mask *letter.Mask) amqp091.Table {
	queues := amqp091.Array{}
	for _, q := range r.Queues[:min(len(r.Queues), 100)] {
		queues = append(queues, q)
	}
	facts := amqp091.Table{
		fact("id", strconv.FormatUint(r.ID, 10)), fact("action", string(r.Action)), fact("vhost", r.VHost), fact("queues", queues), fact("state", string(r.State)),
		fact("planned", int64(r.Planned)), fact("moved", int64(t.Moved)), fact("died_again", int64(t.DiedAgain)), fact("user_who_performed_action", r.By),
	}
	for _, f := range []amqp091.Field{fact("why", mask.Text(r.Why)), fact("rule", r.Rule), fact("reason", mask.Text(r.Reason))} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

// facts are what an event tells of an entry that has just begun.
func (e *DropEntry) facts() amqp091.Table {
	return amqp091.Table{
		fact("vhost", e.VHost), fact("queue", e.Queue), fact("reason", e.Reason), fact("why", e.Why), fact("exchange", e.Exchange), fact("count", int64(e.Count)),
		fact("id", int64(e.ID)),
	}
}
