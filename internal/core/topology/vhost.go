package topology

import (
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/erlterm"
)

// Metadata describes a virtual host (BR-3.9).
type Metadata struct {
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	// DefaultQueueType is used for declarations without a type; empty means the server's (BR-7.3).
	DefaultQueueType QueueType `json:"default_queue_type,omitempty"`
	// Tracing says whether messages are copied to TraceExchange. It ends with the process, as in RabbitMQ.
	Tracing   bool `json:"-"`
	Protected bool `json:"protected_from_deletion,omitempty"`
	// Profile is the product whose rules apply. If it is unset, PutVHost uses the server's default for a new virtual host, and
	// does not change the profile of an existing one.
	Profile deadletter.Profile `json:"profile,omitempty"`
	// DefaultDeadLetter is where dead letters of queues without a dead-letter exchange go: the name of a queue, in which %q
	// stands for the name of theirs; "": nowhere.
	DefaultDeadLetter string `json:"default_dead_letter,omitempty"`
	// Lenient says that a queue may be declared with the arguments that it had before they were changed (ChangeArguments).
	Lenient bool `json:"lenient_declarations,omitempty"`
}

// maxMetadata is the maximal size of a description and tags together, in bytes, with a comma for each tag: they are in every
// list and every record of their object.
const maxMetadata = 64 << 10

// CheckMetadataSize refuses a description and tags that are too large as Invalid; what names their object. It is not called
// for stored ones.
func CheckMetadataSize(what, description string, tags []string) error {
	n := len(description) + len(tags)
	for _, t := range tags {
		n += len(t)
	}
	if n > maxMetadata {
		return Refuse(Invalid, "%s should be at most %d bytes, actually were %d", what, maxMetadata, n)
	}
	return nil
}

// VHost is a virtual host: a name space of exchanges, queues and policies. Only the State changes its fields.
type VHost struct {
	Name     message.VHost
	Metadata Metadata

	limits           map[Limit]int64
	exchanges        map[message.ExchangeName]*Exchange
	queues           map[message.QueueName]*Queue
	policies         policySet
	operatorPolicies policySet
	ruled            uint64 // revision of the last change of these
	parameters       map[parameterName]Parameter
	bound            uint64 // number of bindings ever made in it
	before           uint64 // the last incarnation before this virtual host was made
}

// Had says whether a queue with this incarnation can be or have been in the virtual host. A queue of an earlier virtual host
// of the same name cannot.
func (v *VHost) Had(incarnation uint64) bool { return incarnation > v.before }

// Limit names a limit of a virtual host (BR-3.7).
type Limit string

// The limits.
const (
	MaxConnections Limit = "max-connections"
	MaxQueues      Limit = "max-queues"
)

// VHost finds a virtual host.
func (s *State) VHost(name message.VHost) (*VHost, bool) {
	v, ok := s.vhosts[name]
	return v, ok
}

// VHosts lists the virtual hosts by name.
func (s *State) VHosts() []*VHost { return sortedValues(s.vhosts) }

// vhost finds a virtual host or says that it is missing (BR-3.1).
func (s *State) vhost(name message.VHost) (*VHost, error) {
	v, ok := s.vhosts[name]
	if !ok {
		return nil, Refuse(NotAllowed, "vhost %s not found", name)
	}
	return v, nil
}

// PutVHost creates a virtual host with its predeclared exchanges, or replaces the metadata of an existing one (BR-3.9).
// If DefaultDeadLetter changes, a Takeover must follow.
func (s *State) PutVHost(name message.VHost, m Metadata) (v *VHost, created bool, err error) {
	if m.DefaultQueueType != "" && !m.DefaultQueueType.known() {
		return nil, false, Refuse(Invalid, "%s is not a valid queue type", m.DefaultQueueType)
	}
	if err := CheckMetadataSize(fmt.Sprintf("description and tags of vhost '%s'", name), m.Description, m.Tags); err != nil {
		return nil, false, err
	}
	if err := m.checkDefaultDeadLetter(); err != nil {
		return nil, false, err
	}
	v, ok := s.vhosts[name]
	if !ok {
		if err := message.CheckName("vhost", name); err != nil {
			return nil, false, &Error{Kind: Invalid, Text: err.Error()}
		}
	}
	if m.Profile, err = s.settleProfile(name, v, m.Profile); err != nil {
		return nil, false, err
	}
	if m.Profile == deadletter.ApsaraMQ && m.DefaultDeadLetter != "" {
		return nil, false, Refuse(Invalid, "default_dead_letter of vhost '%s' cannot be set: in the profile %s only the declaration of a queue sets its dead-lettering", name, m.Profile)
	}
	if !ok {
		if err := s.mayMake(func() string { return vhostKey(name) }); err != nil {
			return nil, false, err
		}
		v = s.addVHost(name)
		v.before = s.incarnation
		v.ruled = s.revision + 1
	}
	v.Metadata = m
	v.Metadata.Tags = slices.Clone(m.Tags)
	s.noteTracing(v)
	s.revision++
	s.logVHost(v)
	return v, !ok, nil
}

// addVHost makes the virtual host and its predeclared exchanges (BR-5.1).
func (s *State) addVHost(name message.VHost) *VHost {
	v := &VHost{
		Name:       name,
		limits:     map[Limit]int64{},
		exchanges:  map[message.ExchangeName]*Exchange{},
		queues:     map[message.QueueName]*Queue{},
		parameters: map[parameterName]Parameter{},
	}
	for _, p := range []struct {
		name     message.ExchangeName
		kind     routing.Kind
		internal bool
	}{
		{"", routing.Direct, false},
		{"amq.direct", routing.Direct, false},
		{"amq.fanout", routing.Fanout, false},
		{"amq.headers", routing.Headers, false},
		{"amq.match", routing.Headers, false},
		{TraceExchange, routing.Topic, true},
		{"amq.topic", routing.Topic, false},
	} {
		table, err := routing.New(p.kind, nil)
		if err != nil {
			panic("topology: predeclared exchange: " + err.Error())
		}
		x := newExchange(ExchangeDecl{VHost: name, Name: p.name, Type: p.kind, Durable: true, Internal: p.internal, User: internalUser}, table)
		x.Predeclared = true
		v.exchanges[p.name] = x
	}
	s.vhosts[name] = v
	return v
}

// TraceExchange is the exchange of each virtual host that gets the copies of traced messages.
const TraceExchange message.ExchangeName = "amq.rabbitmq.trace"

// EventExchange is the exchange for events, in one virtual host.
const EventExchange message.ExchangeName = "amq.rabbitmq.event"

// EnsureEventExchange declares EventExchange in a virtual host, if that is there. It is stored, since its bindings are.
func (s *State) EnsureEventExchange(vhost message.VHost) error {
	v, ok := s.vhosts[vhost]
	if !ok || v.exchanges[EventExchange] != nil {
		return nil
	}
	if err := s.mayMake(func() string { return exchangeKey(vhost, EventExchange) }); err != nil {
		return err
	}
	table, err := routing.New(routing.Topic, nil)
	if err != nil {
		return err
	}
	x := newExchange(ExchangeDecl{VHost: vhost, Name: EventExchange, Type: routing.Topic, Durable: true, Internal: true, User: internalUser}, table)
	s.addExchange(v, x, nil)
	s.revision++
	s.logExchange(x)
	return nil
}

// EventsLead says whether an event to EventExchange in a virtual host can reach anything.
func (s *State) EventsLead(vhost message.VHost) bool {
	v, ok := s.vhosts[vhost]
	if !ok {
		return false
	}
	x := v.exchanges[EventExchange]
	return x != nil && x.leads()
}

func (s *State) noteTracing(v *VHost) {
	if !v.Metadata.Tracing {
		delete(s.traced, v.Name)
		return
	}
	if s.traced == nil {
		s.traced = map[message.VHost]*VHost{}
	}
	s.traced[v.Name] = v
}

// TracedTo lists the virtual hosts with tracing whose TraceExchange leads somewhere, nil if there are none.
func (s *State) TracedTo() (list map[message.VHost]bool) {
	for name, v := range s.traced {
		if v.exchanges[TraceExchange].leads() {
			if list == nil {
				list = map[message.VHost]bool{}
			}
			list[name] = true
		}
	}
	return list
}

// internalUser is RabbitMQ's name of the user who declares predeclared objects.
const internalUser = "rmq-internal"

// DeleteVHost deletes a virtual host with all its objects, and returns its queues, which the broker then ends. A missing
// virtual host is NotFound, a protected one Protected (BR-3.8).
func (s *State) DeleteVHost(name message.VHost) ([]*Queue, error) {
	v, ok := s.vhosts[name]
	if !ok {
		return nil, Refuse(NotFound, "vhost %s not found", name)
	}
	if v.Metadata.Protected {
		return nil, Refuse(Protected, "Refusing to delete virtual host '%s' because it is protected from deletion", name)
	}
	queues := v.Queues()
	for _, q := range queues {
		s.deleteQueue(v, q)
	}
	for _, x := range v.Exchanges() {
		if v.exchanges[x.Name] == x { // not gone already with an auto-deletion
			s.deleteExchange(v, x, &Removed{})
		}
	}
	for _, p := range v.policies.sorted() {
		s.log.Delete(p.key())
	}
	for _, p := range v.operatorPolicies.sorted() {
		s.log.Delete(p.key())
	}
	for _, p := range v.Parameters("") {
		s.log.Delete(parameterKey(v.Name, p.Component, p.Name))
	}
	s.log.Delete(vhostKey(name))
	delete(s.vhosts, name)
	delete(s.traced, name)
	s.revision++
	return queues, nil
}

// SetVHostProtection switches the protection from deletion (BR-3.8).
func (s *State) SetVHostProtection(name message.VHost, on bool) error {
	v, err := s.vhost(name)
	if err != nil {
		return err
	}
	v.Metadata.Protected = on
	s.revision++
	s.logVHost(v)
	return nil
}

// Limit returns a limit that is in force; a negative one means no limit (BR-3.7).
func (v *VHost) Limit(l Limit) (n int64, ok bool) {
	n, ok = v.limits[l]
	return n, ok && n >= 0
}

// Limits returns all limits as they were set, negative ones included.
func (v *VHost) Limits() map[Limit]int64 {
	m := make(map[Limit]int64, len(v.limits))
	for l, n := range v.limits {
		m[l] = n
	}
	return m
}

// SetVHostLimits sets all of these limits to JSON values, which must be integers (BR-15.9), or none of them if one is refused. If only is set,
// it removes all other limits.
func (s *State) SetVHostLimits(name message.VHost, limits map[Limit]any, only bool) error {
	v, err := s.vhost(name)
	if err != nil {
		return err
	}
	result := maps.Clone(v.limits)
	if only {
		clear(result)
	}
	for _, l := range slices.Sorted(maps.Keys(limits)) {
		if result[l], err = limitOf(l, limits[l]); err != nil {
			return err
		}
	}
	v.limits = result
	s.revision++
	s.logVHost(v)
	return nil
}

func limitOf(l Limit, value any) (int64, error) {
	switch l {
	case MaxConnections, MaxQueues:
	default:
		return 0, validationFailed(fmt.Sprintf("Unrecognised terms %s in limits", erlterm.Format([]erlterm.Pair{{Key: string(l), Value: printable(value)}})))
	}
	n, ok := value.(int64)
	if !ok {
		return 0, validationFailed(fmt.Sprintf("%s should be a number, actually was %s", l, erlterm.Format(printable(value))))
	}
	return n, nil
}

// ClearVHostLimit removes a limit. It is not an error if the limit was not set.
func (s *State) ClearVHostLimit(name message.VHost, l Limit) error {
	v, err := s.vhost(name)
	if err != nil {
		return err
	}
	delete(v.limits, l)
	s.revision++
	s.logVHost(v)
	return nil
}

// checkQueueLimit refuses a queue beyond the limit (BR-3.7).
func (v *VHost) checkQueueLimit(name message.QueueName) error {
	if limit, ok := v.Limit(MaxQueues); ok && int64(len(v.queues)) >= limit {
		refusal := Refuse(PreconditionFailed, "cannot declare queue '%s': queue limit in vhost '%s' (%d) is reached", name, v.Name, limit)
		refusal.Fault = TooMany
		return refusal
	}
	return nil
}

// validationFailed is the refusal of a parameter in the management API's form (DL-4.3).
func validationFailed(messages ...string) *Error {
	text := "Validation failed\n\n"
	for _, m := range messages {
		text += m + "\n"
	}
	return &Error{Kind: Invalid, Text: text}
}
