package topology

import (
	"cmp"
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// Snapshot lists the objects of a virtual host at one moment. Taking one needs the lock for reading and copies only
// pointers. Sorting and reading it needs no lock: its objects never change, except their bindings and their policy in
// force, which must not be read.
type Snapshot struct {
	queues    []*Queue
	exchanges []*Exchange
	bindings  []*Binding
	changed   map[*Queue]amqp091.Table // arguments that were changed since the declaration
}

// Arguments are the arguments of a queue that held.
func (s *Snapshot) Arguments(q *Queue) amqp091.Table {
	if args, ok := s.changed[q]; ok {
		return args
	}
	return q.Arguments
}

// Snapshot takes all queues, exchanges and bindings.
func (v *VHost) Snapshot() *Snapshot {
	n := 0
	for _, x := range v.exchanges {
		n += len(x.out.list)
	}
	s := &Snapshot{
		queues: make([]*Queue, 0, len(v.queues)), exchanges: make([]*Exchange, 0, len(v.exchanges)), bindings: make([]*Binding, 0, n),
	}
	for _, q := range v.queues {
		s.queues = append(s.queues, q)
		if q.changed != nil {
			if s.changed == nil {
				s.changed = map[*Queue]amqp091.Table{}
			}
			s.changed[q] = q.changed
		}
	}
	for _, x := range v.exchanges {
		s.exchanges = append(s.exchanges, x)
		s.bindings = append(s.bindings, x.out.list...)
	}
	return s
}

// Queues lists the queues by name.
func (s *Snapshot) Queues() []*Queue {
	slices.SortFunc(s.queues, func(a, b *Queue) int { return cmp.Compare(a.Name, b.Name) })
	return s.queues
}

// Exchanges lists the exchanges by name.
func (s *Snapshot) Exchanges() []*Exchange {
	slices.SortFunc(s.exchanges, func(a, b *Exchange) int { return cmp.Compare(a.Name, b.Name) })
	return s.exchanges
}

// Bindings lists all bindings by source, destination and key; the implicit ones of the default exchange come first.
func (s *Snapshot) Bindings() []*Binding {
	list := make([]*Binding, 0, len(s.queues)+len(s.bindings))
	for _, q := range s.Queues() {
		list = append(list, implicitBinding(q))
	}
	return append(list, SortBindings(s.bindings)...)
}

// RuleSet lists the policies, parameters and limits of a virtual host at one moment. It is taken and read like a Snapshot.
type RuleSet struct {
	VHost              message.VHost
	Limits             map[Limit]int64
	policies, operator policySet
	parameters         []Parameter
}

// RuleSet takes all policies, parameters and limits.
func (v *VHost) RuleSet() *RuleSet {
	r := &RuleSet{VHost: v.Name, Limits: v.Limits(), policies: v.policies, operator: v.operatorPolicies, parameters: make([]Parameter, 0, len(v.parameters))}
	for _, p := range v.parameters {
		r.parameters = append(r.parameters, p)
	}
	return r
}

// Policies lists the policies or operator policies by name.
func (r *RuleSet) Policies(operator bool) []*Policy {
	if operator {
		return r.operator.sorted()
	}
	return r.policies.sorted()
}

// Parameters lists the parameters of a component, or of all for "", by component and name.
func (r *RuleSet) Parameters(component string) []Parameter {
	return sortedParameters(r.parameters, component)
}

func sortedParameters(all []Parameter, component string) []Parameter {
	var list []Parameter
	for _, p := range all {
		if component == "" || p.Component == component {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Parameter) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), strings.Compare(a.Name, b.Name))
	})
	return list
}
