package twodrivers

import (
	"fmt"
	"sync"

	"bartleby.mq/internal/wire/amqp091"
)

// differences are all that may differ between a classic and a quorum queue, by the rule that
// says so, and what is done about it here. What RabbitMQ 4.3.6 does beyond the text of a rule
// it was asked, or recorded, for.
var differences = map[string]string{
	"BR-7.2":  "server-named queues: quorum queues cannot be. Not generated.",
	"BR-7.9":  "queue.delete with if-unused or if-empty: quorum queues refuse it to clients, as RabbitMQ 4.3.6 was recorded to. Operators ask for it.",
	"BR-7.11": "queues that are transient, exclusive or go with their last consumer: quorum queues cannot be. Not generated.",
	"BR-8.12": "messages have an order in each queue; which of two queues delivers first is a matter of time, also to one channel. Deliveries are compared by consumer.",
	"BR-9.2":  "x-consumer-timeout of a consumer: classic queues refuse it. Not generated.",
	"BR-9.3":  "exclusive consumers: quorum queues enforce nothing. Others leave a queue with one alone.",
	"BR-9.5":  "single active consumer: on quorum queues priorities count, and there is no basic.get. Neither is used.",
	"BR-9.13": "what comes back goes to its old place, or before all others and behind what came back before. Only what comes to the same place is given back.",
	"BR-11.1": "x-max-priority: quorum queues refuse it. Where messages have priorities classic queues have as many levels.",
	"BR-11.3": "a message without a priority is at level 4 of a quorum queue, 0 of a classic one. In a list all have one, or none.",
	"DL-1.9":  "dead letters have an order in the queue they died in; those of several, and what is published, meet in another by chance. Where their order differs the list ends.",
	"DL-2.1":  "a purge of a quorum queue takes what is delayed or held. No purge while there is.",
	"DL-3.7":  "reject-publish-dlx: quorum queues take it for drop-head. Not generated.",
	"DL-3.9":  "of two arguments that do not match, another is named first. Only one is changed.",
	"DL-4.4":  "policies with keys that a type does not know do not apply to it. Not generated.",
	"DL-4.6":  "overflow of an argument and of a policy: the argument wins, or the policy. Only one of them has it.",
	"DL-6.12": "a full quorum queue takes dead letters beyond its limit. No queue that refuses is a target of dead letters.",
	"DL-6.14": "a dead letter that failed before is redelivered, but not where a classic queue hands it to a client that waits, as was recorded.",
	"DL-8.7":  "a TTL of 0 is 1 ms in quorum queues. Some ms pass between operations; none is used where one tells: with limits, among several at once, in a target of dead letters.",
	"DL-8.12": "after a restart x-expires begins anew, but in quorum queues goes on from the last use, as in RabbitMQ 4.3.6. No restart while a queue has it.",
	"DL-10.1": "what is delayed or held counts towards the limits of quorum queues. Queues with such have no limit.",
	"DL-10.2": "quorum queues count properties as bytes, classic ones bodies only. Where limits are in bytes bodies are so large that it makes no message.",
	"DL-10.6": "what comes back to a full queue dies, but a quorum queue first hands it to a client that waits, as RabbitMQ 4.3.6 does. None comes back to such.",
	"DL-10.7": "a refusal closes the channel of its transaction: what the commit brings to that channel's own consumers has left before, or goes back. None has consumers then.",
	"DL-11.1": "a delivery limit outside of the profile ApsaraMQ: classic queues have none. Not generated, and lists are too short for the usual one of 20.",
	"DL-11.2": "x-delivery-count and x-acquired-count: only quorum queues show them.",
	"DL-11.5": "a nack with requeue is a failed delivery in quorum queues and where classic ones have delayed retry. It is none here.",
	"DL-12.7": "a consumer timeout outside of the profile ApsaraMQ: classic queues have none. Not generated.",
	"DL-14.6": "annotations of the outcome modified: classic queues take none.",
	"DL-16.3": "transient messages survive a restart in quorum queues. Where there are any nothing is restarted.",
	"DL-21.5": "at-least-once on classic queues is an extension that is switched on here.",
}

// tally counts what was met with, for whoever wants to know what a run was worth.
var tally struct {
	sync.Mutex
	by map[string]int
}

func count(what string) {
	tally.Lock()
	defer tally.Unlock()
	if tally.by == nil {
		tally.by = map[string]int{}
	}
	tally.by[what]++
}

// except notes that a difference was met with. It returns true.
func except(rule string) bool {
	if differences[rule] == "" {
		panic(fmt.Sprintf("rule %s is not in the table of differences", rule))
	}
	count("except " + rule)
	return true
}

// fits says whether the types do the same with a queue of these arguments and this policy.
func (p *play) fits(queue int, args, policy *arguments) bool {
	limited := args.limited() || policy.limited()
	if limited && (args.waits() || policy.waits()) && except("DL-10.1") {
		return false
	}
	if limited && (args.instant() || policy.instant()) && except("DL-8.7") {
		return false
	}
	if args.overflows() && policy.overflows() && except("DL-4.6") {
		return false
	}
	// Whether dead letters of any queue may come to one where that tells.
	for from := range queues {
		a, b := &arguments{}, p.policies[from]
		if d := p.declared[from]; d != nil {
			a = &d.args
		}
		if from == queue {
			a, b = args, policy
		}
		for to := range queues {
			c, d := &arguments{}, p.policies[to]
			if x := p.declared[to]; x != nil {
				c = &x.args
			}
			if to == queue {
				c, d = args, policy
			}
			if (c.instant() || d.instant()) && leads(a, b, to) && except("DL-8.7") {
				return false
			}
			if !a.holds() && !b.holds() && (c.refuses() || d.refuses()) && leads(a, b, to) && except("DL-6.12") {
				return false
			}
		}
	}
	return true
}

func (p *play) fitsPolicy(queue int, policy *arguments) bool {
	args := &none
	if d := p.declared[queue]; d != nil {
		args = &d.args
	}
	return p.fits(queue, args, policy)
}

// limits says whether a queue has a limit.
func (p *play) limits(queue int) bool {
	return p.declared[queue] != nil && p.declared[queue].args.limited() || p.policies[queue].limited()
}

// mayRefuse says whether a queue may refuse a message.
func (p *play) mayRefuse() bool {
	for q := range queues {
		if d := p.declared[q]; d != nil && (d.args.refuses() || p.policies[q].refuses()) {
			return true
		}
	}
	return false
}

func (a *arguments) limited() bool   { return a != nil && (a.maxLength >= 0 || a.maxBytes >= 0) }
func (a *arguments) goes() bool      { return a != nil && a.expires > 0 }
func (a *arguments) instant() bool   { return a != nil && a.ttl == 0 }
func (a *arguments) holds() bool     { return a != nil && a.atLeast }
func (a *arguments) waits() bool     { return a != nil && (a.atLeast || a.retry != "") }
func (a *arguments) overflows() bool { return a != nil && a.overflow != "" }
func (a *arguments) refuses() bool   { return a != nil && a.overflow == "reject-publish" }

// leads says whether dead letters of a queue may come to another.
func leads(a, b *arguments, to int) bool {
	for _, x := range []*arguments{a, b} {
		if x == nil || x.dlx == 0 {
			continue
		}
		switch deadExchanges[x.dlx-1] {
		case "missing":
			continue
		case "fanout":
			if to > 0 {
				return true
			}
			continue
		}
		for _, y := range []*arguments{a, b} {
			switch {
			case y == nil || y.dlk == 0:
				return true // by the message's own key
			case deadKeys[y.dlk-1] == "twice" && to > 0, deadKeys[y.dlk-1] == queueName(to):
				return true
			}
		}
	}
	return false
}

// varied is the same with one argument changed, or all the same.
func (a arguments) varied(n int) arguments {
	switch n % 7 {
	case 0:
		a.ttl = 77
	case 1:
		a.ttl = -1
	case 2:
		a.expires = 77_000
	case 3:
		a.maxLength = 77
	case 4:
		a.dlx = 3
	case 5:
		a.single = !a.single
	}
	return a
}

// badArguments are refused, each with a text that is to be the same.
var badArguments = []amqp091.Table{
	{{Key: "x-message-ttl", Value: "x"}},
	{{Key: "x-message-ttl", Value: int32(-1)}},
	{{Key: "x-message-ttl", Value: int64(315360000001)}},
	{{Key: "x-expires", Value: int32(0)}},
	{{Key: "x-expires", Value: true}},
	{{Key: "x-max-length", Value: int32(-1)}},
	{{Key: "x-max-length-bytes", Value: 1.5}},
	{{Key: "x-overflow", Value: "bogus"}},
	{{Key: "x-overflow", Value: int32(1)}},
	{{Key: "x-dead-letter-exchange", Value: int32(1)}},
	{{Key: "x-dead-letter-routing-key", Value: "k"}},
	{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: int32(1)}},
	{{Key: "x-single-active-consumer", Value: "x"}},
	{{Key: "x-dead-letter-strategy", Value: "bogus"}},
	{{Key: "x-dead-letter-strategy", Value: int32(1)}},
	{{Key: "x-queue-leader-locator", Value: "bogus"}},
	{{Key: "x-message-ttl", Value: int32(-1)}, {Key: "x-max-length", Value: "x"}, {Key: "x-expires", Value: int32(0)}},
}
