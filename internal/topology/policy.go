package topology

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	"bartleby.mq/internal/message"
)

// Policy sets arguments of the queues and exchanges whose names match a pattern. It never changes; setting it again
// makes a new one.
type Policy struct {
	VHost      message.VHost
	Name       string
	Pattern    string
	ApplyTo    ApplyTo
	Priority   float64 // RabbitMQ takes any number
	Definition Definition
	// Operator marks an operator policy, which limits what policies and clients may set.
	Operator bool

	pattern *regexp.Regexp
	seq     uint64 // of equal priorities the last set wins (DL-4.4)
}

func (p *Policy) key() string { return policyRecordKey(p.Operator, p.VHost, p.Name) }

// policySet is the policies of one virtual host, the one to try first in front.
type policySet []*Policy

func (set policySet) find(name string) (*Policy, bool) {
	i := slices.IndexFunc(set, func(p *Policy) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return set[i], true
}

func (set *policySet) put(p *Policy) (replaced bool) {
	replaced = set.remove(p.Name)
	i, _ := slices.BinarySearchFunc(*set, p, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.seq, a.seq))
	})
	*set = slices.Insert(*set, i, p)
	return replaced
}

func (set *policySet) remove(name string) bool {
	before := len(*set)
	*set = slices.DeleteFunc(*set, func(p *Policy) bool { return p.Name == name })
	return len(*set) < before
}

func (set policySet) sorted() []*Policy {
	return slices.SortedFunc(slices.Values(set), func(a, b *Policy) int { return cmp.Compare(a.Name, b.Name) })
}

// forQueue finds the one policy that applies (DL-4.4).
func (set policySet) forQueue(q *Queue) *Policy {
	for _, p := range set {
		if p.ApplyTo.queue(q.Type) && q.supports(p.Definition) && p.pattern.MatchString(string(q.Name)) {
			return p
		}
	}
	return nil
}

func (set policySet) forExchange(x *Exchange) *Policy {
	for _, p := range set {
		if p.ApplyTo.exchange() && p.pattern.MatchString(string(x.Name)) {
			return p
		}
	}
	return nil
}

// Affected is what a change of policies has changed: those with another policy or with other settings in force.
type Affected struct {
	Queues    []*Queue
	Exchanges []*Exchange
}

// PutPolicy sets a policy or operator policy. A refusal is Invalid, with the management API's text (DL-4.3).
func (s *State) PutPolicy(vhost message.VHost, d PolicyDecl, operator bool) (affected Affected, created bool, err error) {
	v, err := s.vhost(vhost)
	if err != nil {
		return Affected{}, false, err
	}
	pattern, err := d.check(operator, s.options.Strict)
	if err != nil {
		return Affected{}, false, err
	}
	if err := v.checkPolicyKeys(d.Definition); err != nil {
		return Affected{}, false, err
	}
	priority, _ := number(d.Priority)
	s.policySeq++
	p := &Policy{
		VHost: vhost, Name: d.Name, Pattern: d.Pattern, ApplyTo: d.ApplyTo, Priority: priority,
		Definition: d.Definition.clone(), Operator: operator, pattern: pattern, seq: s.policySeq,
	}
	replaced := v.policySet(operator).put(p)
	s.revision++
	s.logPolicy(p)
	return v.applyPolicies(), !replaced, nil
}

// DeletePolicy removes a policy or operator policy and says whether there was one.
func (s *State) DeletePolicy(vhost message.VHost, name string, operator bool) (affected Affected, existed bool, err error) {
	v, err := s.vhost(vhost)
	if err != nil {
		return Affected{}, false, err
	}
	p, ok := v.policySet(operator).find(name)
	if !ok {
		return Affected{}, false, nil
	}
	v.policySet(operator).remove(name)
	s.revision++
	s.log.Delete(p.key())
	return v.applyPolicies(), true, nil
}

func (v *VHost) policySet(operator bool) *policySet {
	if operator {
		return &v.operatorPolicies
	}
	return &v.policies
}

// Policies lists the policies or operator policies by name.
func (v *VHost) Policies(operator bool) []*Policy { return v.policySet(operator).sorted() }

// Policy finds a policy or operator policy.
func (v *VHost) Policy(name string, operator bool) (*Policy, bool) {
	return v.policySet(operator).find(name)
}

// applyPolicies gives every queue and exchange the policies that are now in force.
func (v *VHost) applyPolicies() Affected {
	var a Affected
	for _, q := range v.Queues() {
		if v.applyPolicyToQueue(q) {
			a.Queues = append(a.Queues, q)
		}
	}
	for _, x := range v.Exchanges() {
		if v.applyPolicyToExchange(x) {
			a.Exchanges = append(a.Exchanges, x)
		}
	}
	return a
}

func (v *VHost) applyPolicyToQueue(q *Queue) (changed bool) {
	policy, operator := v.policies.forQueue(q), v.operatorPolicies.forQueue(q)
	if q.Effective != nil && policy == q.Policy && operator == q.OperatorPolicy {
		return false
	}
	q.Policy, q.OperatorPolicy = policy, operator
	q.Effective = effectiveSettings(q)
	return true
}

// applyPolicyToExchange: the default exchange has no policy, for its name matches any pattern that can be empty.
func (v *VHost) applyPolicyToExchange(x *Exchange) (changed bool) {
	if x.Name == "" {
		return false
	}
	policy, operator := v.policies.forExchange(x), v.operatorPolicies.forExchange(x)
	changed = policy != x.Policy || operator != x.OperatorPolicy
	x.Policy, x.OperatorPolicy = policy, operator
	x.Alternate = nil
	if value, ok := x.Arguments.Get(alternateExchange); ok {
		if name, ok := value.(string); ok {
			x.Alternate = (*message.ExchangeName)(&name)
		}
	} else if policy != nil {
		x.Alternate = (*message.ExchangeName)(policy.Definition.text(alternateExchange))
	}
	return changed
}

// EffectiveDefinition is the policy and the operator policy merged into one (DL-4.7); nil if there is neither.
func (q *Queue) EffectiveDefinition() Definition { return mergeDefinitions(q.Policy, q.OperatorPolicy) }

// EffectiveDefinition is the policy and the operator policy merged into one (DL-4.7); nil if there is neither.
func (x *Exchange) EffectiveDefinition() Definition {
	return mergeDefinitions(x.Policy, x.OperatorPolicy)
}

func mergeDefinitions(policy, operator *Policy) Definition {
	switch {
	case policy == nil && operator == nil:
		return nil
	case operator == nil:
		return policy.Definition
	case policy == nil:
		return operator.Definition
	}
	merged := policy.Definition.clone()
	for _, key := range slices.Sorted(maps.Keys(operator.Definition)) {
		if value, ok := merged[key]; ok {
			merged[key] = mergeOperator(key, value, operator.Definition[key])
		} else {
			merged[key] = operator.Definition[key]
		}
	}
	return merged
}

// mergeOperator decides between a policy's and an operator policy's value of one key (DL-4.7).
func mergeOperator(key string, policy, operator any) any {
	p, pIsInt := policy.(int64)
	o, oIsInt := operator.(int64)
	if !pIsInt || !oIsInt {
		return operator
	}
	switch key {
	case "delivery-limit":
		return mergeDeliveryLimits(p, o)
	case "delayed-retry-min":
		return max(p, o)
	case "queue-version":
		return operator
	}
	return min(p, o)
}
