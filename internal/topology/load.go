package topology

import (
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"strings"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/routing"
)

// Load rebuilds a State from the pairs that its changes left in the store, in any order. Pairs of other packages are
// skipped. An error names the key that cannot be read; records are written in whole batches, so this is damage or a
// newer version's data, not an interrupted write.
func Load(o Options, pairs iter.Seq2[[]byte, []byte]) (*State, error) {
	l := loader{state: New(o)}
	for key, value := range pairs {
		kind := string(key)
		if !strings.HasPrefix(kind, KeyPrefix) {
			continue
		}
		if i := strings.IndexByte(kind[len(KeyPrefix):], '/'); i >= 0 {
			kind = kind[:len(KeyPrefix)+i]
		}
		if err := l.read(kind, value); err != nil {
			return nil, fmt.Errorf("topology: record %q: %w", key, err)
		}
	}
	return l.build()
}

// loader collects records first, for they refer to each other in another order than that of their keys.
type loader struct {
	state      *State
	vhosts     []vhostRecord
	exchanges  []exchangeRecord
	queues     []queueRecord
	bindings   []bindingRecord
	policies   []policyRecord
	operator   []policyRecord
	parameters []parameterRecord
}

func (l *loader) read(kind string, value []byte) error {
	switch kind {
	case vhostKind:
		return readInto(&l.vhosts, value)
	case exchangeKind:
		return readInto(&l.exchanges, value)
	case queueKind:
		return readInto(&l.queues, value)
	case bindingKind:
		return readInto(&l.bindings, value)
	case policyKind:
		return readInto(&l.policies, value)
	case operatorPolicyKind:
		return readInto(&l.operator, value)
	case parameterKind:
		return readInto(&l.parameters, value)
	case globalParameterKind:
		var list []parameterRecord
		if err := readInto(&list, value); err != nil {
			return err
		}
		l.state.parameters[list[0].Name] = list[0].Value
		return nil
	case counterKey:
		var list []counterRecord
		if err := readInto(&list, value); err != nil {
			return err
		}
		l.state.incarnation, l.state.reserved = list[0].Reserved, list[0].Reserved
		return nil
	}
	return fmt.Errorf("unknown kind")
}

func readInto[R any](list *[]R, value []byte) error {
	var version struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(value, &version); err != nil {
		return err
	}
	if version.Version != recordVersion {
		return fmt.Errorf("version %d, this program reads version %d", version.Version, recordVersion)
	}
	var record R
	if err := json.Unmarshal(value, &record); err != nil {
		return err
	}
	*list = append(*list, record)
	return nil
}

// build makes the objects, those first to which others refer. Policies stand before queues and exchanges, which then
// get theirs as they are added.
func (l *loader) build() (*State, error) {
	s := l.state
	for _, r := range l.vhosts {
		v := s.addVHost(r.Name)
		v.Metadata = r.Meta
		for limit, n := range r.Limits {
			v.limits[limit] = n
		}
	}
	for _, r := range l.parameters {
		v, err := s.vhost(r.VHost)
		if err != nil {
			return nil, fmt.Errorf("topology: parameter %q: %w", r.Name, err)
		}
		v.parameters[parameterName{r.Component, r.Name}] = r.Value
	}
	for _, r := range l.policies {
		if err := l.addPolicy(r, false); err != nil {
			return nil, fmt.Errorf("topology: policy %q: %w", r.Name, err)
		}
	}
	for _, r := range l.operator {
		if err := l.addPolicy(r, true); err != nil {
			return nil, fmt.Errorf("topology: operator policy %q: %w", r.Name, err)
		}
	}
	for _, r := range l.exchanges {
		if err := l.addExchange(r); err != nil {
			return nil, fmt.Errorf("topology: exchange %q: %w", r.Name, err)
		}
	}
	for _, r := range l.queues {
		if err := l.addQueue(r); err != nil {
			return nil, fmt.Errorf("topology: queue %q: %w", r.Name, err)
		}
	}
	for _, r := range l.bindings {
		if err := l.addBinding(r); err != nil {
			return nil, fmt.Errorf("topology: binding from %q to %q: %w", r.Source, r.Destination, err)
		}
	}
	for _, v := range s.vhosts {
		v.applyPolicies() // the predeclared exchanges
	}
	return s, nil
}

func (l *loader) addPolicy(r policyRecord, operator bool) error {
	v, err := l.state.vhost(r.VHost)
	if err != nil {
		return err
	}
	pattern, err := regexp.Compile(r.Pattern)
	if err != nil {
		return err
	}
	v.policySet(operator).put(&Policy{
		VHost: r.VHost, Name: r.Name, Pattern: r.Pattern, ApplyTo: r.ApplyTo, Priority: r.Priority,
		Definition: r.Definition, Operator: operator, pattern: pattern, seq: r.Seq,
	})
	l.state.policySeq = max(l.state.policySeq, r.Seq)
	return nil
}

func (l *loader) addExchange(r exchangeRecord) error {
	v, err := l.state.vhost(r.VHost)
	if err != nil {
		return err
	}
	args := amqp091.Table(r.Arguments)
	table, err := routing.New(r.Type, args)
	if err != nil {
		return err
	}
	l.state.addExchange(v, newExchange(ExchangeDecl{
		VHost: r.VHost, Name: r.Name, Type: r.Type, Durable: true, AutoDelete: r.AutoDelete, Internal: r.Internal, Arguments: args, User: r.User,
	}, table))
	return nil
}

func (l *loader) addQueue(r queueRecord) error {
	v, err := l.state.vhost(r.VHost)
	if err != nil {
		return err
	}
	q := &Queue{
		VHost: r.VHost, Name: r.Name, Durable: true, AutoDelete: r.AutoDelete, Arguments: amqp091.Table(r.Arguments),
		Incarnation: r.Incarnation, Strict: r.Strict, AtLeastOnce: r.AtLeastOnce, Group: r.Group, Priorities: r.Priorities,
	}
	if _, err := queueTypeOf(q.Arguments, q.Resource()); err != nil {
		return err
	}
	l.state.addQueue(v, q)
	return nil
}

func (l *loader) addBinding(r bindingRecord) error {
	v, err := l.state.vhost(r.VHost)
	if err != nil {
		return err
	}
	d := BindingDecl{
		VHost: r.VHost, Source: r.Source, DestinationKind: QueueResource, Destination: r.Destination, Key: r.Key,
		Arguments: amqp091.Table(r.Arguments),
	}
	source, ok := v.exchanges[r.Source]
	if !ok {
		return NoExchange(r.VHost, r.Source)
	}
	var b *Binding
	if r.ToExchange {
		d.DestinationKind = ExchangeResource
		x, ok := v.exchanges[message.ExchangeName(r.Destination)]
		if !ok {
			return NoExchange(r.VHost, message.ExchangeName(r.Destination))
		}
		b = newBinding(&d, source, x, nil)
	} else {
		q, ok := v.queues[message.QueueName(r.Destination)]
		if !ok {
			return NoQueue(r.VHost, message.QueueName(r.Destination))
		}
		b = newBinding(&d, source, nil, q)
	}
	b.link()
	return nil
}
