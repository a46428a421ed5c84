package partition

import (
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/wire/amqp091"
)

// An exchange that delays messages keeps them in a queue of its own (queue.Config.Delays, topology's Exchange.Waiting),
// with the end of the delay as the moment of their TTL. When it comes they leave as the dead do: picked, planned, and
// carried out in one frame (deadmove.go). So a message is in one place, whatever ends the process, and what a target
// refuses is held and tried again. It is no death, though:
//
//	entrance    the TTL is the delay; the message's own begins in its targets (enter, plan.ttl)
//	history     says that it has waited, and nothing of a death (planRelease)
//	nowhere     it is dropped as any message that no binding matches, also at least once (carry.end)
//	counts      the exchange counts it, the counters of deaths do not (Queue.Released)

// delayOf is how long the message is to wait. Whoever routed it has found that it is to.
func delayOf(rec message.Record) int64 {
	props, err := amqp091.ParseProps(rec.Properties())
	if err != nil { // checked when it was published
		return 0
	}
	ms, _ := message.Delay(props.Headers)
	return ms
}

// planRelease is planDeath for a message that has waited long enough: it goes where its exchange sends it, with the keys
// that it came with.
func (m *deadmove) planRelease(d *queue.Death, rec message.Record) *deathPlan {
	n := m.n
	p := &deathPlan{prev: d.History, reason: d.Reason, by: d.By, exchange: rec.Exchange(), key: rec.Key(), expiration: -1}
	var h deadletter.History
	if d.History != 0 { // a dead letter
		h, _ = deadletter.Parse(n.historyBytes(d.History)) // as in planDeath
	}
	if len(h.Keys) == 0 {
		h.Exchange, h.Keys = string(rec.Exchange()), keysOf(rec)
	}
	h.Delayed = true
	routes := h.Keys
	if !h.KeysReplaced {
		routes = appendShortStrings(routes[:len(routes):len(routes)], rec.BCC())
	}
	var byKeys bool
	p.targets, _, byKeys = m.route.find(m, m.dead.Exchange, routes, rec, &h)
	if len(p.targets) == 0 {
		p.outcome = deadletter.NoRoute
	}
	stored := h.Append(nil)
	p.history, p.stored, p.said, p.read = deathstore.Keep(n.bodies, stored), stored, h, true
	p.split(m.q.part)
	p.shareable = byKeys && !rec.HasCC() && len(rec.BCC()) == 0
	return p
}

// ttl is the message's own TTL in the targets of the plan, -1 if it has none there: a death takes it away.
func (p *plan) ttl(rec message.Record) int64 {
	if rec == nil || !rec.HasExpiration() || !deadletter.StoredKeepsTTL(p.stored) {
		return -1
	}
	return expirationOf(rec)
}

// nowhere says whether the entry has waited for an exchange that has no queue for it.
func (c *carry) nowhere() bool {
	return c.q.config.Delays && c.plan.outcome != deadletter.Routed
}
