package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
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

	pattern *expression.Name
	steps   int    // of the pattern
	seq     uint64 // of policies with equal priority the latest wins (DL-4.4)
}

func (p *Policy) key() string { return policyRecordKey(p.Operator, p.VHost, p.Name) }

// policySet holds the policies of one virtual host in the order in which they are tried. A change makes a new set.
type policySet []*Policy

func (set policySet) find(name string) (*Policy, bool) {
	i := slices.IndexFunc(set, func(p *Policy) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return set[i], true
}

// What the policies of a virtual host may be, and likewise its operator policies. Every declaration and every start matches
// all of them with each name, which takes up to 4 µs for each step.
const (
	MaxPolicies    = 1000
	MaxPolicySteps = 2000 // of all their patterns
)

// checkRoom refuses a policy beyond MaxPolicies or MaxPolicySteps, unless it replaces one that was as large.
func (set policySet) checkRoom(p *Policy) error {
	n, steps, before := 1, p.steps, 0
	for _, other := range set {
		if other.Name == p.Name {
			before = other.steps
			continue
		}
		n, steps = n+1, steps+other.steps
	}
	what := "policies"
	if p.Operator {
		what = "operator policies"
	}
	switch {
	case n > MaxPolicies && before == 0:
		return validationFailed(fmt.Sprintf("virtual host '%s' would have %d %s, %d at most", p.VHost, n, what, MaxPolicies))
	case steps > MaxPolicySteps && p.steps > before:
		return validationFailed(fmt.Sprintf("the patterns of the %s of virtual host '%s' would have %d steps, %d at most (a repetition counts as often as it may repeat)", what, p.VHost, steps, MaxPolicySteps))
	}
	return nil
}

func (set *policySet) put(p *Policy) (replaced bool) {
	replaced = set.remove(p.Name)
	i, _ := slices.BinarySearchFunc(*set, p, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.seq, a.seq))
	})
	*set = slices.Insert(slices.Clip(*set), i, p)
	return replaced
}

func (set *policySet) remove(name string) bool {
	before := len(*set)
	*set = slices.DeleteFunc(slices.Clone(*set), func(p *Policy) bool { return p.Name == name })
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

// PutPolicy sets a policy or operator policy. It applies at once to new declarations, and to existing objects after a
// Takeover. A refusal is Invalid, with the management API's text (DL-4.3).
func (s *State) PutPolicy(vhost message.VHost, d PolicyDecl, operator bool) (created bool, err error) {
	v, err := s.vhost(vhost)
	if err != nil {
		return false, err
	}
	pattern, err := d.check(operator, s.options.Strict)
	if err != nil {
		return false, err
	}
	if err := v.checkPolicyKeys(d.Definition); err != nil {
		return false, err
	}
	priority, _ := number(d.Priority)
	p := &Policy{
		VHost: vhost, Name: d.Name, Pattern: d.Pattern, ApplyTo: d.ApplyTo, Priority: priority,
		Definition: d.Definition.asStored(), Operator: operator, pattern: pattern, steps: pattern.Steps(), seq: s.policySeq + 1,
	}
	if err := v.policySet(operator).checkRoom(p); err != nil {
		return false, err
	}
	s.policySeq++
	replaced := v.policySet(operator).put(p)
	s.revision++
	v.ruled = s.revision
	s.logPolicy(p)
	return !replaced, nil
}

// DeletePolicy deletes a policy or operator policy and says whether it existed. A Takeover must follow.
func (s *State) DeletePolicy(vhost message.VHost, name string, operator bool) (existed bool, err error) {
	v, err := s.vhost(vhost)
	if err != nil {
		return false, err
	}
	p, ok := v.policySet(operator).find(name)
	if !ok {
		return false, nil
	}
	v.policySet(operator).remove(name)
	s.revision++
	v.ruled = s.revision
	s.log.Delete(p.key())
	return true, nil
}

func (v *VHost) policySet(operator bool) *policySet {
	if operator {
		return &v.operatorPolicies
	}
	return &v.policies
}

// Policy finds a policy or operator policy.
func (v *VHost) Policy(name string, operator bool) (*Policy, bool) {
	return v.policySet(operator).find(name)
}

// Takeover applies changed policies to existing queues and exchanges. A pattern may take a millisecond for a name, and
// there may be a hundred thousand names, so they are matched a few at a time, without a lock.
type Takeover struct {
	v         *VHost
	queues    []*Queue
	exchanges []*Exchange
	found     []inForce // for the first queues, then for the first exchanges
}

// inForce are the policies that apply to a queue or an exchange, and the default for dead letters of its virtual host.
type inForce struct {
	policy, operator *Policy
	byDefault        string
}

// Rules are the policies of a virtual host at one moment, and its default for dead letters.
type Rules struct {
	policies, operator policySet
	byDefault          string
}

func (v *VHost) rules() Rules {
	return Rules{v.policies, v.operatorPolicies, v.Metadata.DefaultDeadLetter}
}

func (r Rules) ofQueue(q *Queue) inForce {
	return inForce{r.policies.forQueue(q), r.operator.forQueue(q), r.byDefault}
}

func (r Rules) ofExchange(x *Exchange) inForce {
	return inForce{policy: r.policies.forExchange(x), operator: r.operator.forExchange(x)}
}

// Takeover begins a takeover for the objects of a virtual host; it is nil if the virtual host is gone. It only reads.
func (s *State) Takeover(vhost message.VHost) (t *Takeover) {
	v, ok := s.vhosts[vhost]
	if !ok {
		return new(Takeover)
	}
	t = &Takeover{v: v, queues: make([]*Queue, 0, len(v.queues)), exchanges: make([]*Exchange, 0, len(v.exchanges))}
	for _, q := range v.queues {
		t.queues = append(t.queues, q)
	}
	for _, x := range v.exchanges {
		t.exchanges = append(t.exchanges, x)
	}
	return t
}

// Rules returns the policies for Match. It only reads the State.
func (t *Takeover) Rules() (r Rules) {
	if t.v != nil {
		r = t.v.rules()
	}
	return r
}

// Order sorts the objects, so that the takeover is deterministic. It needs no State.
func (t *Takeover) Order() {
	slices.SortFunc(t.queues, func(a, b *Queue) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.exchanges, func(a, b *Exchange) int { return cmp.Compare(a.Name, b.Name) })
}

// Match finds the policies for the next queues and exchanges, at most limit of them and until enough returns true. more
// says whether there were any. It needs no State: names and types do not change.
func (t *Takeover) Match(r Rules, limit int, enough func() bool) (more bool) {
	t.found = t.found[:0]
	for i := 0; i < min(limit, len(t.queues)+len(t.exchanges)) && (i == 0 || !enough()); i++ {
		if i < len(t.queues) {
			t.found = append(t.found, r.ofQueue(t.queues[i]))
		} else {
			t.found = append(t.found, r.ofExchange(t.exchanges[i-len(t.queues)]))
		}
	}
	return len(t.found) > 0
}

// Apply puts the policies that Match has found in force, except for deleted objects. It returns the queues whose policy
// has changed, and whether that of an exchange has. If policies have changed meanwhile, the takeover of that change follows.
func (s *State) Apply(t *Takeover) (queues []*Queue, rerouted bool) {
	n := min(len(t.found), len(t.queues))
	for i, q := range t.queues[:n] {
		if s.vhosts[t.v.Name] == t.v && t.v.queues[q.Name] == q && q.goBy(t.found[i]) {
			queues = append(queues, q)
		}
	}
	for i, x := range t.exchanges[:len(t.found)-n] {
		if s.vhosts[t.v.Name] == t.v && t.v.exchanges[x.Name] == x && x.goBy(t.found[n+i]) {
			rerouted = true
		}
	}
	t.queues, t.exchanges = t.queues[n:], t.exchanges[len(t.found)-n:]
	if len(queues) > 0 || rerouted {
		s.revision++
	}
	return queues, rerouted
}

// goBy sets the policies in force, and says whether they have changed.
func (q *Queue) goBy(f inForce) (changed bool) {
	if q.Effective != nil && f.policy == q.Policy && f.operator == q.OperatorPolicy && f.byDefault == q.byDefault {
		return false
	}
	q.Policy, q.OperatorPolicy, q.byDefault = f.policy, f.operator, f.byDefault
	q.Effective = effectiveSettings(q)
	return true
}

// goBy sets the policies in force, and says whether they have changed. The default exchange has none, because its
// empty name would match many patterns.
func (x *Exchange) goBy(f inForce) (changed bool) {
	if x.Name == "" {
		return false
	}
	changed = f.policy != x.Policy || f.operator != x.OperatorPolicy
	x.Policy, x.OperatorPolicy = f.policy, f.operator
	x.Alternate = nil
	if value, ok := x.Arguments.Get(alternateExchange); ok {
		if name, ok := value.(string); ok {
			x.Alternate = (*message.ExchangeName)(&name)
		}
	} else if f.policy != nil && x.Name != EventExchange { // a policy must not lead events past the right to read them
		x.Alternate = (*message.ExchangeName)(f.policy.Definition.text(alternateExchange))
	}
	return changed
}

// EffectiveDefinition is the policy and the operator policy merged into one (DL-4.7); nil if there is neither.
func (q *Queue) EffectiveDefinition() Definition { return MergeDefinitions(q.Policy, q.OperatorPolicy) }

// EffectiveDefinition is the policy and the operator policy merged into one (DL-4.7); nil if there is neither.
func (x *Exchange) EffectiveDefinition() Definition {
	return MergeDefinitions(x.Policy, x.OperatorPolicy)
}

// MergeDefinitions merges a policy and an operator policy (DL-4.7); either may be nil. It needs no lock.
func MergeDefinitions(policy, operator *Policy) Definition {
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
	case "queue-version", "delayed-retry-multiplier", "delayed-retry-jitter":
		return operator // also if both happen to be whole numbers
	}
	return min(p, o)
}
