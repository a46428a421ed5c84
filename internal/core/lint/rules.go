package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
)

// Finish returns what was found, the worst first. It needs no lock. c may be nil: nothing is known of messages then.
func (p *Pass) Finish(c Contents) []Finding {
	f := findings{vhost: p.vhost, of: map[string]int{}}
	targets := p.targets()
	for i := range p.facts {
		p.facts[i].check(&f, targets[p.facts[i].q])
		if c != nil {
			p.facts[i].checkPriorities(&f, c)
		}
	}
	for name, s := range p.unbound {
		f.add("exchange", string(name), DLXUnbound, Error, "dead letters of "+list(s.names, s.n)+" go to this exchange, which is bound to nothing: "+nowhere(!s.dropped),
			"bind a queue to it")
	}
	for name, x := range p.exchanges {
		if !x.durable && x.source != nil {
			f.add("exchange", string(name), TargetNotDurable, Warning, fmt.Sprintf("the durable queue '%s' sends its dead letters to this exchange, which is not durable: after a restart it is gone, and they lead nowhere", x.source.Name),
				"declare the exchange as durable")
		}
	}
	p.loops(&f)
	if p.all {
		p.checkTargets(&f, targets)
		p.checkPolicies(&f)
	}
	if p.unlooked > 0 {
		f.add("vhost", string(p.vhost), Incomplete, Hint, fmt.Sprintf("the dead letters of %d queues have too many ways to follow all of them", p.unlooked), "use fewer different dead-letter routing keys")
	}
	return f.finish()
}

// target is what is known of the sources of a queue that gets dead letters.
type target struct {
	n                int
	names            []string
	durable, longest *fact
}

// targets are the queues that get dead letters of others.
func (p *Pass) targets() map[*topology.Queue]*target {
	found := map[*topology.Queue]*target{}
	for _, w := range p.sortedWays() {
		r := p.reaches[w]
		for _, q := range r.queues {
			t := found[q]
			if t == nil {
				t = &target{}
			}
			before := t.n
			t.n += r.sources.n
			for _, name := range r.sources.names {
				switch {
				case name == string(q.Name):
					t.n--
				case len(t.names) < maxNames && !slices.Contains(t.names, name):
					t.names = append(t.names, name)
				}
			}
			for _, source := range []*fact{r.sources.longest, r.sources.other} {
				if source == nil || source.q == q {
					continue
				}
				if t.longest == nil || source.length() > t.longest.length() {
					t.longest = source
				}
				if t.durable == nil && source.q.Durable {
					t.durable = source
				}
			}
			if t.n > before {
				found[q] = t
			}
		}
	}
	return found
}

func (p *Pass) sortedWays() []way {
	ways := make([]way, 0, len(p.reaches))
	for w := range p.reaches {
		ways = append(ways, w)
	}
	slices.SortFunc(ways, func(a, b way) int { return cmp.Or(cmp.Compare(a.exchange, b.exchange), cmp.Compare(a.key, b.key)) })
	return ways
}

// setting says where a setting comes from, and what to do to change it.
func (f *fact) setting(argument, key string) (from, mend string) {
	if _, ok := f.args.Get(argument); ok {
		return "its argument " + argument, "change it with bartleby set_queue_arguments, or declare the queue anew without or with another " + argument
	}
	for _, policy := range []*topology.Policy{f.operator, f.policy} {
		if policy == nil {
			continue
		}
		if _, ok := policy.Definition[key]; ok {
			kind := "policy"
			if policy.Operator {
				kind = "operator policy"
			}
			return fmt.Sprintf("the %s '%s'", kind, policy.Name), fmt.Sprintf("change %s in the %s '%s'", key, kind, policy.Name)
		}
	}
	return "its settings", "change its policy"
}

// check examines one queue. to is what is known of it as a target, nil if it is none.
func (f *fact) check(found *findings, to *target) {
	e, name := f.e, string(f.q.Name)
	add := func(rule string, severity Severity, text, mend string) {
		found.add("queue", name, rule, severity, text, mend)
	}
	from, mend := f.setting("x-dead-letter-exchange", "dead-letter-exchange")
	switch {
	case f.missing:
		becomes := nowhere(f.lost)
		if e.Strategy == topology.AtLeastOnce {
			becomes = "they wait in the queue"
		}
		add(DLXMissing, Error, fmt.Sprintf("%s names the exchange '%s', which does not exist, for its dead letters: %s", from, *e.DeadLetterExchange, becomes),
			fmt.Sprintf("declare the exchange '%s', or %s", *e.DeadLetterExchange, mend))
	case f.known && !f.unbound && !f.blind && f.e.DefaultDeadLetter == "": // the queue of a default is made when it is needed
		f.checkRoutes(add)
	}
	if e.ConfiguredStrategy == topology.AtLeastOnce && e.Strategy != topology.AtLeastOnce {
		why, mend := "its overflow is "+e.Overflow.String(), "set overflow to reject-publish"
		if e.DeadLetterExchange == nil {
			why, mend = "it has no dead-letter exchange", "set a dead-letter exchange"
		}
		add(AtLeastOnceFallsBack, Warning, "the strategy at-least-once is not in force, since "+why+": dead letters may be lost", mend)
	}
	passing := f.q.Exclusive || f.q.AutoDelete || strings.HasPrefix(name, topology.OwnPrefix) // its owner knows what it does
	if e.DeadLetterExchange == nil {
		if e.MessageTTL != nil && !passing {
			switch {
			case to != nil:
				add(TTLUnseen, Warning, fmt.Sprintf("dead letters of %s come here, and vanish %d ms later: nobody may have seen them", list(to.names, to.n), *e.MessageTTL),
					"take its TTL away, or give it a dead-letter exchange")
			default:
				add(TTLUnseen, Hint, fmt.Sprintf("messages vanish after %d ms, and nobody sees which", *e.MessageTTL), "give it a dead-letter exchange, if they matter")
			}
		}
		if e.DeliveryLimit != nil && *e.DeliveryLimit >= 0 && f.q.Type == topology.Quorum && to == nil && !f.lost {
			add(DeliveryLimitDiscards, Warning, fmt.Sprintf("a message that has failed more than %d times is dropped, since the queue has no dead-letter exchange", *e.DeliveryLimit),
				"give it a dead-letter exchange, or the delivery limit -1")
		}
	}
}

// checkRoutes looks whether dead letters reach a queue.
func (f *fact) checkRoutes(add func(rule string, severity Severity, text, mend string)) {
	for _, r := range f.to {
		if len(r.queues) > 0 {
			return
		}
	}
	exchange := fmt.Sprintf("the exchange '%s'", *f.e.DeadLetterExchange)
	if *f.e.DeadLetterExchange == "" {
		exchange = "the default exchange"
	}
	_, mend := f.setting("x-dead-letter-routing-key", "dead-letter-routing-key")
	if f.e.DeadLetterRoutingKey != nil {
		bind := fmt.Sprintf("bind a queue to %s with the key '%s'", exchange, f.keys[0])
		if *f.e.DeadLetterExchange == "" {
			bind = fmt.Sprintf("declare a queue '%s'", f.keys[0])
		}
		add(DLXNoRoute, Error, fmt.Sprintf("%s leads the dead-letter routing key '%s' to no queue, so dead letters lead nowhere: %s", exchange, f.keys[0], nowhere(f.lost)), bind+", or "+mend)
		return
	}
	add(DLXNoRoute, Warning, fmt.Sprintf("%s leads none of the keys that its messages are known to come with (%s) to a queue: dead letters keep their key", exchange, list(f.keys, len(f.keys))),
		"set a dead-letter routing key, or bind a queue with these keys")
}

func (f *fact) checkPriorities(found *findings, c Contents) {
	if f.e.MaxPriority == nil || *f.e.MaxPriority == 0 {
		return
	}
	if ready, urgent := c.Urgent(f.q); ready >= fewUrgent && urgent == 0 {
		found.add("queue", string(f.q.Name), PriorityUnused, Hint, fmt.Sprintf("it has priorities up to %d, and none of the %d messages that are ready has one", *f.e.MaxPriority, ready),
			"publish with the property priority, or declare it anew without x-max-priority")
	}
}

// checkTargets examines the queues that dead letters go to.
func (p *Pass) checkTargets(found *findings, targets map[*topology.Queue]*target) {
	for i := range p.facts {
		f := &p.facts[i]
		t := targets[f.q]
		if t == nil {
			continue
		}
		add := func(rule string, severity Severity, text, mend string) {
			found.add("queue", string(f.q.Name), rule, severity, text, mend)
		}
		if t.durable != nil {
			switch source := t.durable.q.Name; {
			case f.q.Exclusive:
				add(TargetNotDurable, Warning, fmt.Sprintf("dead letters of the durable queue '%s' come here, and the queue ends with the connection that has declared it", source), "declare it without exclusive")
			case f.q.AutoDelete:
				add(TargetNotDurable, Warning, fmt.Sprintf("dead letters of the durable queue '%s' come here, and the queue ends with its last consumer", source), "declare it without auto-delete")
			case !f.q.Durable:
				add(TargetNotDurable, Warning, fmt.Sprintf("dead letters of the durable queue '%s' come here, and a restart of the node ends the queue", source), "declare it as durable")
			}
		}
		if source := t.longest; source != nil && f.length() < source.length() {
			becomes := "the oldest are dropped"
			if f.e.Overflow != queue.DropHead {
				becomes = "more are refused"
			}
			switch {
			case f.e.DeadLetterExchange != nil: // what does not fit goes on
			case source.e.MaxLength != nil:
				add(TargetShorter, Warning, fmt.Sprintf("it holds %d messages, and '%s', whose dead letters come here, %d: when it is full %s", f.length(), source.q.Name, source.length(), becomes),
					"raise its max-length")
			default:
				add(TargetShorter, Hint, fmt.Sprintf("it holds %d messages, and '%s', whose dead letters come here, any number: when it is full %s", f.length(), source.q.Name, becomes),
					"watch its length, or raise its max-length")
			}
		}
		if t.n >= manyShare {
			add(SharedTarget, Hint, fmt.Sprintf("dead letters of %d queues come here (%s): one that dies often hides the others", t.n, list(t.names, t.n)), "give queues that matter a target of their own")
		}
	}
}

// checkPolicies looks for policies that are in force nowhere.
func (p *Pass) checkPolicies(found *findings) {
	for _, operator := range []bool{false, true} {
		kind := "policy"
		if operator {
			kind = "operator policy"
		}
		for _, policy := range p.rules.Policies(operator) {
			if !p.inForce[policyName{policy.Name, operator}] {
				found.add("policy", policy.Name, PolicyMatchesNothing, Hint, fmt.Sprintf("the %s is in force nowhere: its pattern '%s' matches nothing that it applies to (%s), or a policy of higher priority does too", kind, policy.Pattern, policy.ApplyTo),
					"correct its pattern, its priority or what it applies to, or delete it")
			}
		}
	}
}

// findings collects findings, and counts those that are too many.
type findings struct {
	vhost message.VHost
	list  []Finding
	of    map[string]int // by rule
}

func (f *findings) add(kind, name, rule string, severity Severity, text, mend string) {
	if f.of[rule]++; f.of[rule] <= maxOfRule {
		f.list = append(f.list, Finding{f.vhost, kind, name, rule, severity, text, mend})
	}
}

var weights = map[Severity]int{Error: 0, Warning: 1, Hint: 2}

func (f *findings) finish() []Finding {
	for rule, n := range f.of {
		if n > maxOfRule {
			f.list = append(f.list, Finding{f.vhost, "vhost", string(f.vhost), Incomplete, Hint, fmt.Sprintf("%d more findings of the rule %s are not shown", n-maxOfRule, rule), "mend those that are shown first"})
		}
	}
	slices.SortFunc(f.list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(weights[a.Severity], weights[b.Severity]), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Text, b.Text))
	})
	return f.list
}
