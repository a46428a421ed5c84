package topology

import (
	"fmt"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// QueueDecl is a client's declaration of a queue.
type QueueDecl struct {
	VHost message.VHost
	// Name is the client's name, or the broker's name of a server-named queue.
	Name        message.QueueName
	ServerNamed bool
	Durable     bool
	Exclusive   bool
	AutoDelete  bool
	// Owner is the declaring connection: only it may use an exclusive queue.
	Owner     string
	Arguments amqp091.Table

	// Plan has the policies that were found for it, if it was planned.
	Plan *Plan

	encoded encodedArguments // see EncodeArguments
}

func (d *QueueDecl) resource() Resource { return queueResource(d.VHost, d.Name) }

// Queue is a declared queue. Only the State changes its fields, except Runtime.
type Queue struct {
	VHost      message.VHost
	Name       message.QueueName
	Type       QueueType
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	Owner      string        // the connection of an exclusive queue, else ""
	Arguments  amqp091.Table // as it was declared; see PresentArguments
	// Incarnation distinguishes this queue from all earlier queues of its name; it is never reused.
	Incarnation uint64
	// Group is the Raft group of a quorum queue, 0 for other types; see State.Place.
	Group uint64
	// Strict queues follow RabbitMQ without Bartleby's extensions; fixed at creation.
	Strict bool
	// AtLeastOnce allows a classic queue the at-least-once strategy (DL-21.5); fixed at creation.
	AtLeastOnce bool
	// Profile is the virtual host's profile.
	Profile deadletter.Profile
	// Priorities says whether a queue of ApsaraMQ's profile has any (DL-22.14); fixed at creation.
	Priorities bool
	// Policy and OperatorPolicy are the policies in force, or nil.
	Policy, OperatorPolicy *Policy
	// Effective is the result of arguments and policies. It is replaced, never changed: a reader may use it after the lock.
	Effective *Settings
	// byDefault is the virtual host's default for dead letters (Metadata.DefaultDeadLetter) that is in force.
	byDefault string
	// Delays is the exchange whose delayed messages are in the queue, nil for all queues that are declared.
	Delays *Exchange
	// Runtime belongs to the broker.
	Runtime any

	in bindings
	// changed are the arguments since they were changed, nil if they are those of the declaration. It is replaced, never changed.
	changed amqp091.Table
	// unstored: the store does not have the declared queue yet. Its name is taken, and no binding leads to it.
	unstored bool
	// encoded is the stored form of the arguments, until they are stored: see Place.
	encoded encodedArguments
}

// Unstored says whether the queue is not in force yet, see State.Stored.
func (q *Queue) Unstored() bool { return q.unstored }

// Resource names the queue for permissions and texts.
func (q *Queue) Resource() Resource { return queueResource(q.VHost, q.Name) }

func (q *Queue) dialect() dialect {
	return dialect{strict: q.Strict, classicAtLeastOnce: q.AtLeastOnce}
}

// Bindings lists the bindings to the queue, with the implicit one of the default exchange, in no order: see SortBindings.
func (q *Queue) Bindings() []*Binding {
	return append([]*Binding{implicitBinding(q)}, q.in.list...)
}

// EachBinding calls f for bindings to the queue, without the implicit one, in no order, until f returns false.
func (q *Queue) EachBinding(f func(*Binding) bool) {
	for _, b := range q.in.list {
		if !f(b) {
			return
		}
	}
}

// Queue finds a queue.
func (v *VHost) Queue(name message.QueueName) (*Queue, bool) {
	q, ok := v.queues[name]
	return q, ok
}

// Queues lists the queues by name.
func (v *VHost) Queues() []*Queue { return sortedValues(v.queues) }

// EachQueue calls f for each queue in no order, so that the lock is held for less time.
func (v *VHost) EachQueue(f func(*Queue)) {
	for _, q := range v.queues {
		f(q)
	}
}

// QueueCount is the number of queues.
func (v *VHost) QueueCount() int { return len(v.queues) }

// NoQueue is the refusal for a queue that is missing (BR-7.10).
func NoQueue(vhost message.VHost, name message.QueueName) error {
	r := queueResource(vhost, name)
	return &Error{Kind: NotFound, Resource: r, Text: "no " + r.String()}
}

// CheckAccess refuses an exclusive queue to connections other than its own (BR-7.5).
func (q *Queue) CheckAccess(connection string) error {
	if !q.Exclusive || q.Owner == connection {
		return nil
	}
	return q.locked()
}

func (q *Queue) locked() error {
	r := q.Resource()
	return &Error{Kind: ResourceLocked, Resource: r, Text: fmt.Sprintf("cannot obtain exclusive access to locked %s. It could be originally "+
		"declared on another connection or the exclusive property value does not match that of the original declaration.", r)}
}

// CheckServerNamed refuses an empty name for the types that need one (BR-7.2). The edge calls it before it generates a name.
func (s *State) CheckServerNamed(args amqp091.Table) error {
	v, _ := args.Get("x-queue-type")
	if t, _ := v.(string); t == string(Quorum) || t == string(Stream) {
		return Refuse(PreconditionFailed, "Cannot declare a server-named queue for type %s", QueueType(t).module())
	}
	return nil
}

// CheckQueue makes all checks of a declaration in the order of DL-3.3 and stops at the first failure. It returns the
// existing queue, or nil if the declaration would create one. It only reads.
func (s *State) CheckQueue(d QueueDecl, permit Permit) (*Queue, error) {
	return s.checkQueue(&d, permit)
}

// DeclareQueue checks like CheckQueue and creates the queue if it is missing. It returns ErrLeaving while bindings of a
// deleted queue of this name are still stored.
func (s *State) DeclareQueue(d QueueDecl, permit Permit) (q *Queue, created bool, err error) {
	if err := d.EncodeArguments(); err != nil {
		return nil, false, err
	}
	q, err = s.checkQueue(&d, permit)
	if q != nil || err != nil {
		return q, false, err
	}
	if err := s.mayMake(func() string { return queueKey(d.VHost, d.Name) }); err != nil {
		return nil, false, err
	}
	v := s.vhosts[d.VHost]
	q = s.newQueue(v, &d)
	q.Incarnation = s.nextIncarnation()
	s.addQueue(v, q, d.Plan)
	s.revision++
	if q.Durable {
		s.made = append(s.made, q)
		s.logQueue(q)
	}
	if q.Type != Quorum {
		q.encoded = nil // Place is not called for it
	}
	return q, true, nil
}

// newQueue makes the queue of a checked declaration, without an incarnation.
func (s *State) newQueue(v *VHost, d *QueueDecl) *Queue {
	q := &Queue{
		VHost: d.VHost, Name: d.Name, Durable: d.Durable, Exclusive: d.Exclusive, AutoDelete: d.AutoDelete,
		Arguments:   slices.Clone(d.Arguments),
		Strict:      s.options.Strict,
		AtLeastOnce: s.options.ClassicAtLeastOnce,
		Priorities:  s.options.ApsaraPriorities && v.Profile() == deadletter.ApsaraMQ,
		encoded:     d.encoded,
	}
	if d.Exclusive {
		q.Owner = d.Owner
	}
	return q
}

// Place sets the Raft group of a queue that was just created. It is called once.
func (s *State) Place(q *Queue, group uint64) {
	q.Group = group
	if q.Durable {
		s.logQueue(q)
	}
	q.encoded = nil
}

// addQueue adds a queue and gives it the policies in force, which a plan may have found.
func (s *State) addQueue(v *VHost, q *Queue, plan *Plan) {
	q.in = newBindings(atDestination)
	v.queues[q.Name] = q
	v.types(q)
	q.goBy(plan.ofQueue(v, q))
}

// types gives a queue its type and its profile.
func (v *VHost) types(q *Queue) {
	t, _ := q.Arguments.Get("x-queue-type")
	name, _ := t.(string)
	q.Type, q.Profile = QueueType(name), v.Profile()
}

// checkQueue also normalizes the declaration for comparing and storing: it cleans the name, makes exclusive queues
// transient (BR-7.5), and adds x-queue-type (BR-7.3).
func (s *State) checkQueue(d *QueueDecl, permit Permit) (*Queue, error) {
	v, err := s.vhost(d.VHost)
	if err != nil {
		return nil, err
	}
	d.Name = CleanName(d.Name)
	q, exists := v.queues[d.Name]
	if !exists && !d.ServerNamed {
		if err := checkReserved("queue", string(d.Name)); err != nil {
			return nil, err
		}
	}
	r := d.resource()
	if err := permit.check(Configure, r); err != nil {
		return nil, err
	}
	declaredDurable := d.Durable
	d.Durable = d.Durable && !d.Exclusive
	if d.Arguments, err = s.withQueueType(v, d); err != nil {
		return nil, err
	}
	if exists {
		if err := q.checkEquivalent(d, v.Metadata.Lenient && !q.Strict); err != nil {
			return nil, err
		}
		return q, nil
	}
	if err := v.checkName(r); err != nil {
		return nil, err
	}
	if err := v.checkQueueLimit(d.Name); err != nil {
		return nil, err
	}
	if err := checkReferredExchange(d.Arguments, "x-dead-letter-exchange", r, permit); err != nil {
		return nil, err
	}
	t, err := queueTypeOf(d.Arguments, r)
	if err != nil {
		return nil, err
	}
	if err := s.dialect().checkArguments(t, d.Arguments, r); err != nil {
		return nil, err
	}
	if err := v.checkProfile(d, s.options.ApsaraPriorities); err != nil {
		return nil, err
	}
	return nil, s.checkTypeAllows(t, d, declaredDurable)
}

func (s *State) dialect() dialect {
	return dialect{strict: s.options.Strict, classicAtLeastOnce: s.options.ClassicAtLeastOnce}
}

// checkTypeAllows checks the flags against the queue type (BR-7.11), and features that can be denied (BR-7.7).
func (s *State) checkTypeAllows(t QueueType, d *QueueDecl, declaredDurable bool) error {
	r := d.resource()
	if t != Classic {
		switch {
		case d.AutoDelete:
			return Refuse(PreconditionFailed, "invalid property 'auto-delete' for %s", r)
		case d.Exclusive:
			return Refuse(PreconditionFailed, "invalid property 'exclusive-owner' for %s", r)
		case !declaredDurable:
			return Refuse(PreconditionFailed, "invalid property 'non-durable' for %s", r)
		case d.ServerNamed:
			return s.CheckServerNamed(d.Arguments)
		}
	}
	if t == Stream {
		return Refuse(NotImplemented, "queue type stream is not implemented")
	}
	if s.options.DenyTransientNonExclusive && !d.Durable && !d.Exclusive {
		return deprecated("transient_nonexcl_queues")
	}
	if _, ok := d.Arguments.Get("x-queue-master-locator"); ok && s.options.DenyQueueMasterLocator {
		return deprecated("queue_master_locator")
	}
	return nil
}

// deprecated is the refusal of a feature that is denied (BR-7.7, BR-7.13).
func deprecated(feature string) error {
	return Refuse(Internal, "Feature `%s` is deprecated.\nBy default, this feature is not permitted anymore.\n"+
		"The feature will be removed from a future major RabbitMQ version, regardless of the configuration.\n"+
		"To continue using this feature when it is not permitted by default, set the following parameter in your "+
		"configuration:\n    \"deprecated_features.permit.%s = true\"", feature, feature)
}

// withQueueType adds x-queue-type if it is missing or empty. A default other than classic applies only to queues that the
// type allows (BR-7.3). Arguments that become too large are refused.
func (s *State) withQueueType(v *VHost, d *QueueDecl) (args amqp091.Table, err error) {
	i := slices.IndexFunc(d.Arguments, func(f amqp091.Field) bool { return f.Key == "x-queue-type" })
	if i >= 0 && d.Arguments[i].Value != "" {
		return d.Arguments, nil
	}
	t := Classic
	if d.Durable && !d.Exclusive && !d.AutoDelete && !d.ServerNamed {
		t = s.DefaultQueueType(v)
	}
	args = slices.Clone(d.Arguments)
	if i >= 0 {
		args[i].Value = string(t)
		d.encoded, err = encode(args)
		return args, err
	}
	if len(d.encoded) > 0 {
		d.encoded = append(slices.Clip(d.encoded), ',')
	}
	d.encoded = append(d.encoded, typeField(t)...)
	return append(args, amqp091.Field{Key: "x-queue-type", Value: string(t)}), nil
}

// typeField is the stored form of the argument x-queue-type.
func typeField(t QueueType) []byte { return []byte(`["x-queue-type","S","` + string(t) + `"]`) }

// DefaultQueueType is the type of queues that are declared in the virtual host without a type.
func (s *State) DefaultQueueType(v *VHost) QueueType {
	if v.Metadata.DefaultQueueType != "" {
		return v.Metadata.DefaultQueueType
	}
	return s.options.DefaultQueueType
}

// queueTypeOf reads the argument x-queue-type (BR-7.13). REQUIRES: the argument is there.
func queueTypeOf(args amqp091.Table, r Resource) (QueueType, error) {
	v, _ := args.Get("x-queue-type")
	name, ok := v.(string)
	if !ok {
		return "", invalidArg("x-queue-type", r, unacceptableType(v))
	}
	if t := QueueType(name); t.known() {
		return t, nil
	}
	return "", invalidArg("x-queue-type", r, erlterm.String(fmt.Sprintf("unsupported queue type '%s'", name)))
}

// checkEquivalent compares a declaration with the existing queue (BR-7.4). The owner comes first: a client that declares an
// exclusive queue and finds a shared one gets this error, not one about durability (BR-7.5).
// lenient says that arguments may be those that the queue was declared with before they were changed.
func (q *Queue) checkEquivalent(d *QueueDecl, lenient bool) error {
	if q.Exclusive != d.Exclusive || q.Exclusive && q.Owner != d.Owner {
		return q.locked()
	}
	r := q.Resource()
	if err := checkSame("durable", r, q.Durable, d.Durable); err != nil {
		return err
	}
	if err := checkSame("auto_delete", r, q.AutoDelete, d.AutoDelete); err != nil {
		return err
	}
	args := d.Arguments
	if lenient && q.changed != nil {
		args = q.asDeclared(args)
	}
	return checkSameArguments(q.dialect().knownArguments(q.Type), r, q.PresentArguments(), args)
}

// PassiveQueue finds a queue that the connection may use (BR-7.15).
func (s *State) PassiveQueue(vhost message.VHost, name message.QueueName, connection string) (*Queue, error) {
	v, err := s.vhost(vhost)
	if err != nil {
		return nil, err
	}
	name = CleanName(name)
	q, ok := v.queues[name]
	if !ok {
		return nil, NoQueue(vhost, name)
	}
	if err := q.CheckAccess(connection); err != nil {
		return nil, err
	}
	return q, nil
}

// DeleteQueue deletes a queue with its bindings, and exchanges that are auto-deleted because of it (BR-6.14, BR-5.10). It
// checks nothing: the broker checks permission, exclusiveness, if-empty and if-unused. A queue that is already deleted, or
// replaced by another incarnation, is not an error.
func (s *State) DeleteQueue(q *Queue) Removed {
	v, ok := s.vhosts[q.VHost]
	if !ok || v.queues[q.Name] != q {
		return Removed{}
	}
	removed := s.deleteQueue(v, q)
	s.revision++
	return removed
}

func (s *State) deleteQueue(v *VHost, q *Queue) Removed {
	delete(v.queues, q.Name)
	if q.Durable {
		s.log.Delete(queueKey(q.VHost, q.Name))
	}
	removed := Removed{Queue: q}
	in := q.in.takeAll()
	s.makeRoom(len(in), &removed)
	s.dropIncoming(v, in, &removed)
	return removed
}
