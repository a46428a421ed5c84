package topology

import (
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

// alternateExchange is the argument, and the policy key, that names the exchange for unroutable messages.
const alternateExchange = "alternate-exchange"

// ExchangeDecl is a client's declaration of an exchange.
type ExchangeDecl struct {
	VHost      message.VHost
	Name       message.ExchangeName
	Type       routing.Kind
	Durable    bool
	AutoDelete bool
	Internal   bool
	Arguments  amqp091.Table
	// User is the declaring user. A later declaration may come from another user.
	User string
	// Plan has the policies that were found for it, if it was planned.
	Plan *Plan

	encoded encodedArguments // see EncodeArguments
}

// Exchange is a declared exchange. Only the State changes its fields, except Runtime.
type Exchange struct {
	ExchangeDecl
	// Predeclared exchanges come with the virtual host; they are neither stored nor exported.
	Predeclared bool
	// Policy and OperatorPolicy are the policies in force, or nil.
	Policy, OperatorPolicy *Policy
	// Alternate is the exchange for messages that match no binding, from the argument or else the policy (BR-5.8); nil: none.
	Alternate *message.ExchangeName
	// Waiting is the queue of an exchange that delays messages (routing.Delayed), nil for all others. It holds them until
	// their moment comes. It is the exchange's own: it has no name that anything could lead to, and is not listed.
	Waiting *Queue
	// Runtime belongs to the broker.
	Runtime any

	acts  routing.Kind // the type by which it routes
	table routing.Table
	out   bindings
	in    bindings
	bound uint64 // number of bindings ever made from it
}

func newExchange(d ExchangeDecl, table routing.Table) *Exchange {
	acts, _ := routing.Acts(d.Type, d.Arguments) // there is a table of it
	return &Exchange{
		ExchangeDecl: d,
		acts:         acts,
		table:        table,
		out:          newBindings(atSource),
		in:           newBindings(atDestination),
	}
}

// Acts is the type by which the exchange routes: its own, or if it delays messages the one it does so for.
func (x *Exchange) Acts() routing.Kind { return x.acts }

// Resource names the exchange for permissions and texts.
func (x *Exchange) Resource() Resource { return exchangeResource(x.VHost, x.Name) }

// Exchange finds an exchange.
func (v *VHost) Exchange(name message.ExchangeName) (*Exchange, bool) {
	x, ok := v.exchanges[name]
	return x, ok
}

// ExchangeByKey is Exchange for a name still in a read buffer; it does not allocate.
func (v *VHost) ExchangeByKey(name []byte) (*Exchange, bool) {
	x, ok := v.exchanges[message.ExchangeName(name)]
	return x, ok
}

// Exchanges lists the exchanges by name.
func (v *VHost) Exchanges() []*Exchange { return sortedValues(v.exchanges) }

// EachExchange calls f for each exchange in no order, so that the lock is held for less time.
func (v *VHost) EachExchange(f func(*Exchange)) {
	for _, x := range v.exchanges {
		f(x)
	}
}

// NoExchange is the refusal for an exchange that is missing (BR-5.6).
func NoExchange(vhost message.VHost, name message.ExchangeName) error {
	r := exchangeResource(vhost, name)
	return &Error{Kind: NotFound, Resource: r, Text: "no " + r.String()}
}

// BelongsToNode says whether the node declares the exchange, so that no export needs to have it.
func (x *Exchange) BelongsToNode() bool { return x.Predeclared || x.Name == EventExchange }

// leads says whether a message to the exchange can reach anything.
func (x *Exchange) leads() bool { return len(x.out.list) > 0 || x.Alternate != nil }

// checkNotDefault refuses to name the default exchange in a declaration (BR-5.3).
func checkNotDefault(name message.ExchangeName) error {
	if name == "" {
		return &Error{Kind: AccessRefused, Fault: BadName, Resource: Resource{Kind: ExchangeResource}, Text: "operation not permitted on the default exchange"}
	}
	return nil
}

// CheckExchange makes all checks of a declaration in RabbitMQ's order: type, default exchange, configure permission;
// then equivalence if the exchange exists, otherwise its name, the alternate exchange with its permissions, and the
// arguments of its type. It returns the existing exchange, or nil if the declaration would create one. It only reads.
func (s *State) CheckExchange(d ExchangeDecl, permit Permit) (*Exchange, error) {
	x, _, err := s.checkExchange(&d, permit)
	return x, err
}

// DeclareExchange checks like CheckExchange and creates the exchange if it is missing. It returns ErrLeaving while bindings
// of a deleted exchange of this name are still stored.
func (s *State) DeclareExchange(d ExchangeDecl, permit Permit) (x *Exchange, created bool, err error) {
	if err := d.EncodeArguments(); err != nil {
		return nil, false, err
	}
	x, table, err := s.checkExchange(&d, permit)
	if x != nil || err != nil {
		return x, false, err
	}
	if err := s.mayMake(func() string { return exchangeKey(d.VHost, d.Name) }); err != nil {
		return nil, false, err
	}
	plan := d.Plan
	d.Plan = nil // the exchange keeps the declaration
	x = newExchange(d, table)
	if d.Type == routing.Delayed {
		if x.wait(s.nextIncarnation()); x.Durable {
			s.made = append(s.made, x.Waiting)
		}
	}
	s.addExchange(s.vhosts[d.VHost], x, plan)
	s.revision++
	if d.Durable {
		s.logExchange(x)
	}
	x.encoded = nil // it is stored
	return x, true, nil
}

// addExchange adds an exchange and gives it the policies in force, which a plan may have found.
func (s *State) addExchange(v *VHost, x *Exchange, plan *Plan) {
	v.exchanges[x.Name] = x
	x.goBy(plan.ofExchange(v, x))
}

// checkExchange also cleans the declaration's name and returns the table of an exchange to be created.
func (s *State) checkExchange(d *ExchangeDecl, permit Permit) (*Exchange, routing.Table, error) {
	v, err := s.vhost(d.VHost)
	if err != nil {
		return nil, nil, err
	}
	if err := routing.Check(d.Type, s.options.Strict); err != nil {
		return nil, nil, Refuse(PreconditionFailed, "%s", err)
	}
	d.Name = CleanName(d.Name)
	if err := checkNotDefault(d.Name); err != nil {
		return nil, nil, err
	}
	r := exchangeResource(d.VHost, d.Name)
	if err := permit.check(Configure, r); err != nil {
		return nil, nil, err
	}
	if x, ok := v.exchanges[d.Name]; ok {
		if err := x.checkEquivalent(d); err != nil {
			return nil, nil, err
		}
		return x, nil, nil
	}
	if err := checkReserved("exchange", string(d.Name)); err != nil {
		return nil, nil, err
	}
	if err := v.checkName(r); err != nil {
		return nil, nil, err
	}
	if err := checkReferredExchange(d.Arguments, alternateExchange, r, permit); err != nil {
		return nil, nil, err
	}
	table, err := routing.New(d.Type, d.Arguments)
	if err != nil {
		return nil, nil, Refuse(PreconditionFailed, "%s", err)
	}
	return nil, table, nil
}

// checkReferredExchange checks an argument that names another exchange: its type, read on the declared resource and
// write on the exchange it names (BR-5.8, DL-3.3).
func checkReferredExchange(args amqp091.Table, arg string, r Resource, permit Permit) error {
	value, ok := args.Get(arg)
	if !ok {
		return nil
	}
	name, ok := value.(string)
	if !ok {
		return Refuse(PreconditionFailed, "invalid type '%s' for arg '%s' in %s", amqp091.TypeName(value), arg, r)
	}
	if reason := notAName(name); reason != "" {
		return invalidArg(arg, r, reason)
	}
	if err := permit.check(Read, r); err != nil {
		return err
	}
	return permit.check(Write, exchangeResource(r.VHost, message.ExchangeName(name)))
}

// checkSameType is checkSame for the type of an exchange, which RabbitMQ prints as an atom.
func checkSameType(r Resource, current, received routing.Kind) error {
	if current == received {
		return nil
	}
	printed := func(t routing.Kind) string {
		if strings.Contains(string(t), "-") { // such atoms are printed in quotes
			t = "'" + t + "'"
		}
		return "'" + string(t) + "'"
	}
	return inequivalent(r, Difference{"type", string(current), string(received)}, printed(received), printed(current))
}

// checkEquivalent compares a declaration with the existing exchange (BR-5.7).
func (x *Exchange) checkEquivalent(d *ExchangeDecl) error {
	r := x.Resource()
	return firstDifference(
		checkSameType(r, x.Type, d.Type),
		checkSame("durable", r, x.Durable, d.Durable),
		checkSame("auto_delete", r, x.AutoDelete, d.AutoDelete),
		checkSame("internal", r, x.Internal, d.Internal),
		checkSameArguments([]string{alternateExchange}, r, x.Arguments, d.Arguments),
	)
}

// PassiveExchange finds an exchange; type and arguments do not matter (BR-5.6). As the client may name the default
// exchange, it is refused here too (BR-5.3).
func (s *State) PassiveExchange(vhost message.VHost, name message.ExchangeName) (*Exchange, error) {
	v, err := s.vhost(vhost)
	if err != nil {
		return nil, err
	}
	name = CleanName(name)
	if err := checkNotDefault(name); err != nil {
		return nil, err
	}
	x, ok := v.exchanges[name]
	if !ok {
		return nil, NoExchange(vhost, name)
	}
	return x, nil
}

// Removed lists the objects that a deletion removed, each list in order.
type Removed struct {
	Queue     *Queue      // nil if no queue was deleted
	Exchanges []*Exchange // the deleted one and those auto-deleted
	Bindings  []*Binding
}

// DeleteExchange deletes an exchange with its bindings in both directions, and exchanges that are auto-deleted because of
// it (BR-5.9, BR-5.10). A missing exchange is not an error.
func (s *State) DeleteExchange(vhost message.VHost, name message.ExchangeName, ifUnused bool, permit Permit) (Removed, error) {
	v, err := s.vhost(vhost)
	if err != nil {
		return Removed{}, err
	}
	name = CleanName(name)
	if err := checkNotDefault(name); err != nil {
		return Removed{}, err
	}
	r := exchangeResource(vhost, name)
	if strings.HasPrefix(string(name), reservedPrefix) {
		return Removed{}, Refuse(AccessRefused, "deletion of system %s not allowed", r)
	}
	if err := permit.check(Configure, r); err != nil {
		return Removed{}, err
	}
	x, ok := v.exchanges[name]
	if !ok {
		return Removed{}, nil
	}
	if ifUnused && len(x.out.list) > 0 {
		return Removed{}, Refuse(PreconditionFailed, "%s in use", r)
	}
	var removed Removed
	s.deleteExchange(v, x, &removed)
	s.revision++
	return removed, nil
}

func (s *State) deleteExchange(v *VHost, x *Exchange, removed *Removed) {
	s.dropIncoming(v, s.takeOut(v, x, removed), removed)
}

// nowhere is the table of deleted exchanges. A router may still visit them.
var nowhere = func() routing.Table { t, _ := routing.New(routing.Fanout, nil); return t }()

// makeRoom reserves memory for the removal of n bindings.
func (s *State) makeRoom(n int, removed *Removed) {
	s.log.Grow(n)
	removed.Bindings = slices.Grow(removed.Bindings, n)
}

// takeOut removes an exchange with the bindings from it, and returns the bindings to it, which the caller drops next. The
// exchange goes first, so that a cycle of auto-delete exchanges ends.
func (s *State) takeOut(v *VHost, x *Exchange, removed *Removed) []*Binding {
	delete(v.exchanges, x.Name)
	if x.Durable && !x.Predeclared {
		s.log.Delete(exchangeKey(x.VHost, x.Name))
	}
	removed.Exchanges = append(removed.Exchanges, x)
	if x.Waiting != nil {
		s.ended = append(s.ended, x.Waiting)
	}
	x.table = nowhere // as a whole, not one binding at a time
	out := x.out.takeAll()
	s.makeRoom(len(out)+len(x.in.list), removed)
	for _, b := range out {
		s.dropBinding(b, removed)
	}
	return x.in.takeAll()
}

// dropIncoming removes the bindings to a deleted object. If an auto-delete source has no binding left, it removes the source,
// with everything that goes with it, before the next binding. It keeps pending bindings in a list, because a stack would
// grow with the longest chain of exchanges.
func (s *State) dropIncoming(v *VHost, in []*Binding, removed *Removed) {
	slices.Reverse(in) // the next is the last
	for len(in) > 0 {
		b := in[len(in)-1]
		in = in[:len(in)-1]
		s.dropBinding(b, removed)
		if b.Source.leftUnused(v) {
			more := s.takeOut(v, b.Source, removed)
			slices.Reverse(more)
			in = append(in, more...)
		}
	}
}

// leftUnused says whether the loss of a binding auto-deletes the exchange (BR-5.10).
func (x *Exchange) leftUnused(v *VHost) bool {
	return x.AutoDelete && len(x.out.list) == 0 && v.exchanges[x.Name] == x
}

// BindingsFrom lists the bindings whose source is the exchange in no order: see SortBindings.
func (x *Exchange) BindingsFrom() []*Binding { return slices.Clone(x.out.list) }

// BindingsFromCount is the number of these bindings.
func (x *Exchange) BindingsFromCount() int { return len(x.out.list) }

// EachBindingFrom calls f for each of these bindings in no order, so that the lock is held for less time.
func (x *Exchange) EachBindingFrom(f func(*Binding)) {
	for _, b := range x.out.list {
		f(b)
	}
}

// SomeBindingsFrom returns at most n of these bindings.
func (x *Exchange) SomeBindingsFrom(n int) []*Binding {
	return slices.Clone(x.out.list[:min(n, len(x.out.list))])
}

// BindingsTo lists the bindings whose destination is the exchange in no order: see SortBindings.
func (x *Exchange) BindingsTo() []*Binding { return slices.Clone(x.in.list) }

// SortBindings sorts bindings of one virtual host by source, destination and key. It needs no lock.
func SortBindings(list []*Binding) []*Binding {
	slices.SortFunc(list, func(a, b *Binding) int { return a.id.compare(b.id) })
	return list
}
