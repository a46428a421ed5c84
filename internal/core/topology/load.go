package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

// Load rebuilds a State from the pairs in the store, in any order. It skips pairs of other packages. An error names the
// unreadable key; records are written in whole batches, so the cause is damage or a newer version, not an interrupted write.
// The State's changes contain corrections of records that earlier versions have written wrong.
func Load(o Options, pairs iter.Seq2[[]byte, []byte]) (*State, error) {
	l := loader{state: New(o)}
	return l.load(pairs)
}

// LoadTorn is Load after a loss of records: it makes a missing virtual host anew if other records name it, and skips other
// records that refer to a lost one. lost lists both. The caller must store the State's changes.
func LoadTorn(o Options, pairs iter.Seq2[[]byte, []byte]) (s *State, lost []string, err error) {
	l := loader{state: New(o), torn: true}
	s, err = l.load(pairs)
	return s, l.lost, err
}

func (l *loader) load(pairs iter.Seq2[[]byte, []byte]) (*State, error) {
	for key, value := range pairs {
		kind := string(key)
		if !strings.HasPrefix(kind, KeyPrefix) {
			continue
		}
		if i := strings.IndexByte(kind[len(KeyPrefix):], '/'); i >= 0 {
			kind = kind[:len(KeyPrefix)+i]
		}
		if err := l.read(kind, string(key), value); err != nil {
			return nil, fmt.Errorf("topology: record %q: %w", key, err)
		}
	}
	if l.torn {
		l.makeVHosts()
	}
	return l.build()
}

// loader first collects all records, because they do not refer to each other in the order of their keys.
type loader struct {
	state       *State
	torn        bool     // records have been lost
	lost        []string // what was done about each lost record
	vhosts      []vhostRecord
	exchanges   []exchangeRecord
	queues      []queueRecord
	bindings    []bindingRecord
	bindingKeys []string // of each
	policies    []policyRecord
	operator    []policyRecord
	parameters  []parameterRecord
	leaving     map[string]bool // keys of deleted objects whose bindings may still be stored
}

func (l *loader) read(kind, key string, value []byte) error {
	parts, _ := mutation.Parts(kind, key)
	switch kind {
	case vhostKind:
		return readInto(&l.vhosts, parts, value)
	case exchangeKind:
		return readInto(&l.exchanges, parts, value)
	case queueKind:
		return readInto(&l.queues, parts, value)
	case bindingKind:
		l.bindingKeys = append(l.bindingKeys, key)
		return readInto(&l.bindings, parts, value)
	case leavingKind:
		var list []leavingRecord
		if err := readInto(&list, nil, value); err != nil {
			return err
		}
		if l.leaving == nil {
			l.leaving = map[string]bool{}
		}
		for _, end := range list[0].Keys {
			l.leaving[end] = true
		}
		l.state.log.Delete(key)
		return nil
	case policyKind:
		return readInto(&l.policies, parts, value)
	case operatorPolicyKind:
		return readInto(&l.operator, parts, value)
	case parameterKind:
		return readInto(&l.parameters, parts, value)
	case globalParameterKind:
		var list []parameterRecord
		if err := readInto(&list, parts, value); err != nil {
			return err
		}
		l.state.parameters[list[0].Name] = list[0].Value
		return nil
	case counterKey:
		var list []counterRecord
		if err := readInto(&list, nil, value); err != nil {
			return err
		}
		l.state.incarnation, l.state.reserved, l.state.numbered = list[0].Reserved, list[0].Reserved, list[0].Reserved
		return nil
	}
	return fmt.Errorf("unknown kind")
}

// record is a record whose names are also in its key.
type record[R any] interface {
	*R
	// rename takes the names from the parts of the key. Earlier versions accepted names that are not UTF-8, for which
	// JSON has no form: the record has replacement characters, and an object whose name differs from its key could
	// not be deleted.
	rename(parts []string)
}

// readInto appends the record that value holds, under a key of the parts.
func readInto[R any, P record[R]](list *[]R, parts []string, value []byte) error {
	var version struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(value, &version); err != nil {
		return err
	}
	if version.Version != recordVersion {
		return fmt.Errorf("version %d, this program reads version %d", version.Version, recordVersion)
	}
	var r R
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	P(&r).rename(parts)
	*list = append(*list, r)
	return nil
}

func (r *vhostRecord) rename(parts []string) {
	if len(parts) == 1 {
		r.Name = message.VHost(parts[0])
	}
}

func (r *exchangeRecord) rename(parts []string) {
	if len(parts) == 2 {
		r.VHost, r.Name = message.VHost(parts[0]), message.ExchangeName(parts[1])
	}
}

func (r *queueRecord) rename(parts []string) {
	if len(parts) == 2 {
		r.VHost, r.Name = message.VHost(parts[0]), message.QueueName(parts[1])
	}
}

// rename does not change the binding key, which is always text.
func (r *bindingRecord) rename(parts []string) {
	if len(parts) == 5 {
		r.VHost, r.Source, r.Destination = message.VHost(parts[0]), message.ExchangeName(parts[1]), parts[3]
	}
}

func (r *policyRecord) rename(parts []string) {
	if len(parts) == 2 {
		r.VHost, r.Name = message.VHost(parts[0]), parts[1]
	}
}

func (r *parameterRecord) rename(parts []string) {
	switch len(parts) {
	case 1: // a global one
		r.Name = parts[0]
	case 3:
		r.VHost, r.Component, r.Name = message.VHost(parts[0]), parts[1], parts[2]
	}
}

func (*counterRecord) rename([]string) {}

func (*leavingRecord) rename([]string) {}

// build makes the objects, in the order of their references. Policies come before queues and exchanges, which get their
// policy when they are added.
func (l *loader) build() (*State, error) {
	s := l.state
	for _, r := range l.vhosts {
		v := s.addVHost(r.Name)
		v.Metadata = r.Meta
		v.before = r.Before
		s.incarnation = max(s.incarnation, r.Before) // the counter may be lost: Reserved says what is known of it
		for limit, n := range r.Limits {
			v.limits[limit] = n
		}
	}
	for _, r := range l.parameters {
		v, err := s.vhost(r.VHost)
		if err != nil {
			return nil, fmt.Errorf("topology: parameter %q: %w", r.Name, err)
		}
		v.parameters[parameterName{r.Component, r.Name}] = Parameter{v.Name, r.Component, r.Name, r.Value, r.By, r.Orphaned}
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
		s.incarnation = max(s.incarnation, r.Incarnation)
		if err := l.addQueue(r); err != nil {
			return nil, fmt.Errorf("topology: queue %q: %w", r.Name, err)
		}
	}
	for i, r := range l.bindings {
		if l.leftBehind(&r) {
			s.log.Delete(l.bindingKeys[i])
			continue
		}
		switch err := l.addBinding(r, l.bindingKeys[i]); {
		case err != nil && l.torn:
			l.lost = append(l.lost, fmt.Sprintf("the binding from %q to %q in virtual host %q is dropped: %v", r.Source, r.Destination, r.VHost, err))
			s.log.Delete(l.bindingKeys[i])
		case err != nil:
			return nil, fmt.Errorf("topology: binding from %q to %q: %w", r.Source, r.Destination, err)
		}
	}
	for _, v := range s.vhosts {
		for _, x := range v.exchanges { // the predeclared ones
			x.goBy(v.rules().ofExchange(x))
		}
	}
	return s, nil
}

// makeVHosts makes missing virtual hosts that other records name.
func (l *loader) makeVHosts() {
	var named []message.VHost
	for _, r := range l.parameters {
		named = append(named, r.VHost)
	}
	for _, r := range slices.Concat(l.policies, l.operator) {
		named = append(named, r.VHost)
	}
	for _, r := range l.exchanges {
		named = append(named, r.VHost)
	}
	for _, r := range l.queues {
		named = append(named, r.VHost)
	}
	for _, name := range named {
		if slices.ContainsFunc(l.vhosts, func(r vhostRecord) bool { return r.Name == name }) {
			continue
		}
		l.vhosts = append(l.vhosts, vhostRecord{Version: recordVersion, Name: name, Meta: Metadata{Description: "made anew by a repair"}})
		l.state.log.Put(vhostKey(name), l.vhosts[len(l.vhosts)-1])
		l.lost = append(l.lost, fmt.Sprintf("virtual host %q is made anew, without its limits, tags and profile", name))
	}
}

func (l *loader) addPolicy(r policyRecord, operator bool) error {
	v, err := l.state.vhost(r.VHost)
	if err != nil {
		return err
	}
	pattern, err := expression.CompileStored(r.Pattern)
	if err != nil {
		return err
	}
	v.policySet(operator).put(&Policy{
		VHost: r.VHost, Name: r.Name, Pattern: r.Pattern, ApplyTo: r.ApplyTo, Priority: r.Priority,
		Definition: r.Definition, Operator: operator, pattern: pattern, steps: pattern.Steps(), seq: r.Seq,
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
	x := newExchange(ExchangeDecl{
		VHost: r.VHost, Name: r.Name, Type: r.Type, Durable: true, AutoDelete: r.AutoDelete, Internal: r.Internal, Arguments: args, User: r.User,
	}, table)
	if r.Type == routing.Delayed {
		if r.Waiting == 0 {
			return errors.New("no number of the queue in which messages wait")
		}
		x.wait(r.Waiting)
		l.state.incarnation = max(l.state.incarnation, r.Waiting)
	}
	l.state.addExchange(v, x, nil)
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
		changed: amqp091.Table(r.Changed),
	}
	if _, err := queueTypeOf(q.Arguments, q.Resource()); err != nil {
		return err
	}
	l.state.addQueue(v, q, nil)
	return nil
}

// addBinding adds the binding of a record. Earlier versions accepted argument names that are not UTF-8, for which JSON has no
// form: such a binding now has other names and therefore another key. It moves to the new key, because it could not be
// deleted under the old one. It is dropped if the same binding exists already, or if its ends were deleted.
func (l *loader) addBinding(r bindingRecord, key string) error {
	s := l.state
	v, err := s.vhost(r.VHost)
	if err != nil {
		return err
	}
	d := BindingDecl{
		VHost: r.VHost, Source: r.Source, DestinationKind: QueueResource, Destination: r.Destination, Key: r.Key,
		Arguments: amqp091.Table(r.Arguments),
	}
	var missing error
	var x *Exchange
	var q *Queue
	if r.ToExchange {
		d.DestinationKind = ExchangeResource
		if x = v.exchanges[message.ExchangeName(r.Destination)]; x == nil {
			missing = NoExchange(r.VHost, message.ExchangeName(r.Destination))
		}
	} else if q = v.queues[message.QueueName(r.Destination)]; q == nil {
		missing = NoQueue(r.VHost, message.QueueName(r.Destination))
	}
	source := v.exchanges[r.Source]
	if source == nil {
		missing = NoExchange(r.VHost, r.Source)
	}
	b := newBinding(&d, source, x, q)
	moved := b.StoreKey() != key
	if moved {
		s.log.Delete(key)
	}
	switch {
	case missing != nil && !moved:
		return missing
	case missing != nil || source.out.byID[b.id] != nil:
		return nil
	}
	b.link(v)
	if moved {
		encoded, err := appendFields(nil, b.Arguments)
		if err != nil {
			return err
		}
		s.logBinding(b, encoded)
	}
	return nil
}
