package topology

import (
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// changeable are the arguments of a queue that may be changed after its declaration: those that a policy may change too.
var changeable = []string{
	"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-delayed-retry-jitter", "x-delayed-retry-max",
	"x-delayed-retry-min", "x-delayed-retry-multiplier", "x-delayed-retry-type", "x-delivery-limit", "x-expires", "x-max-length",
	"x-max-length-bytes", "x-message-ttl", "x-overflow",
}

// PresentArguments are the arguments that hold: those of the declaration, unless they were changed since. The table itself
// never changes. REQUIRES: the State is locked; Settings.Arguments are the same for a reader without the lock.
func (q *Queue) PresentArguments() amqp091.Table {
	if q.changed != nil {
		return q.changed
	}
	return q.Arguments
}

// ChangeArguments sets some arguments of a declared queue and takes others away, under the checks of a declaration. Its
// settings are in force in the State; the caller passes them on.
func (s *State) ChangeArguments(vhost message.VHost, name message.QueueName, set amqp091.Table, unset []string, connection string, permit Permit) (*Queue, error) {
	q, err := s.PassiveQueue(vhost, name, connection)
	if err != nil {
		return nil, err
	}
	v, r := s.vhosts[vhost], q.Resource()
	if err := permit.check(Configure, r); err != nil {
		return nil, err
	}
	if strings.HasPrefix(string(name), OwnPrefix) {
		return nil, Refuse(AccessRefused, "%s is the broker's own: its arguments cannot be changed", r)
	}
	args := slices.Clone(q.PresentArguments())
	remove := func(key string) error {
		if !slices.Contains(changeable, key) {
			return Refuse(Invalid, "argument '%s' of %s cannot be changed; those that can are %s", key, r, strings.Join(changeable, ", "))
		}
		args = slices.DeleteFunc(args, func(f amqp091.Field) bool { return f.Key == key })
		return nil
	}
	for _, key := range unset {
		if _, both := set.Get(key); both {
			return nil, Refuse(Invalid, "argument '%s' of %s cannot be set and taken away at once", key, r)
		}
		if err := remove(key); err != nil {
			return nil, err
		}
	}
	for _, f := range set {
		if err := remove(f.Key); err != nil {
			return nil, err
		}
	}
	args = append(args, set...)
	if err := checkReferredExchange(set, "x-dead-letter-exchange", r, permit); err != nil {
		return nil, err
	}
	if err := q.dialect().checkArguments(q.Type, args, r); err != nil {
		return nil, err
	}
	if err := v.checkProfile(&QueueDecl{VHost: vhost, Name: q.Name, Arguments: args}, q.Priorities); err != nil {
		return nil, err
	}
	if _, err := encode(args); err != nil {
		return nil, err
	}
	declared, err := encode(q.Arguments)
	if err != nil {
		return nil, err
	}
	if q.changed = args; !q.differs(args) {
		q.changed = nil
	}
	q.Effective = effectiveSettings(q)
	s.revision++
	if q.Durable {
		q.encoded = declared
		s.logQueue(q)
		q.encoded = nil
	}
	return q, nil
}

// differs says whether arguments that may be changed are others than those of the declaration.
func (q *Queue) differs(args amqp091.Table) bool {
	return checkSameArguments(changeable, q.Resource(), q.Arguments, args) != nil
}

// Outdated says whether a declaration with these arguments is accepted only because the virtual host is lenient: some were
// changed since the queue was declared with them. REQUIRES: the declaration was accepted, and the State is locked.
func (q *Queue) Outdated(args amqp091.Table) bool {
	return q.changed != nil && checkSameArguments(changeable, q.Resource(), q.changed, args) != nil
}

// asDeclared replaces, in the arguments of a declaration, those that the queue was declared with and that were changed since by
// those that hold.
func (q *Queue) asDeclared(args amqp091.Table) amqp091.Table {
	result := slices.Clone(args)
	for _, key := range changeable {
		one := []string{key}
		if checkSameArguments(one, q.Resource(), q.Arguments, args) != nil {
			continue // neither: the comparison with what holds decides
		}
		result = slices.DeleteFunc(result, func(f amqp091.Field) bool { return f.Key == key })
		if now, ok := q.changed.Get(key); ok {
			result = append(result, amqp091.Field{Key: key, Value: now})
		}
	}
	return result
}
