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

// Metadata is what a virtual host tells about itself (BR-3.9).
type Metadata struct {
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	// DefaultQueueType is used for declarations without a type; empty means the server's (BR-7.3).
	DefaultQueueType QueueType `json:"default_queue_type,omitempty"`
	Tracing          bool      `json:"tracing,omitempty"`
	Protected        bool      `json:"protected_from_deletion,omitempty"`
	// Profile is whose rules hold. Unset it asks PutVHost for the server's default, or for what the virtual host has.
	Profile deadletter.Profile `json:"profile,omitempty"`
}

// maxMetadata is how many bytes a description and tags may have in all, a comma with each tag: they are in every list and every
// record of what they are of.
const maxMetadata = 64 << 10

// CheckMetadataSize refuses a description and tags that are too large as Invalid; what says what they are of. Those that are
// stored already are not asked.
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

// VHost is a virtual host: a name space of exchanges, queues and policies. Its fields are the State's to change.
type VHost struct {
	Name     message.VHost
	Metadata Metadata

	limits           map[Limit]int64
	exchanges        map[message.ExchangeName]*Exchange
	queues           map[message.QueueName]*Queue
	policies         policySet
	operatorPolicies policySet
	parameters       map[parameterName]Parameter
	bound            uint64 // how often something was bound in it
	before           uint64 // the last number that a queue was given before this virtual host was made
}

// Had says whether a queue with that number may be in the virtual host, or have been: those of another that had its name were not.
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

// PutVHost creates a virtual host with its predeclared exchanges, or replaces the metadata of one there is (BR-3.9).
func (s *State) PutVHost(name message.VHost, m Metadata) (v *VHost, created bool, err error) {
	if m.DefaultQueueType != "" && !m.DefaultQueueType.known() {
		return nil, false, Refuse(Invalid, "%s is not a valid queue type", m.DefaultQueueType)
	}
	if err := CheckMetadataSize(fmt.Sprintf("description and tags of vhost '%s'", name), m.Description, m.Tags); err != nil {
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
	if !ok {
		if err := s.mayMake(func() string { return vhostKey(name) }); err != nil {
			return nil, false, err
		}
		v = s.addVHost(name)
		v.before = s.incarnation
	}
	v.Metadata = m
	v.Metadata.Tags = slices.Clone(m.Tags)
	s.revision++
	s.logVHost(v)
	return v, !ok, nil
}

// addVHost makes the virtual host and what is predeclared in it (BR-5.1).
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
		{"amq.rabbitmq.trace", routing.Topic, true},
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

// internalUser is who declares what nobody asked for, as RabbitMQ calls it.
const internalUser = "rmq-internal"

// DeleteVHost deletes a virtual host and all that is in it, and returns its queues for the broker to end. A missing
// one is NotFound, a protected one Protected (BR-3.8).
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

// Limit returns a limit that is in force; a negative one is none (BR-3.7).
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

// SetVHostLimit sets a limit to a JSON value, which must be an integer (BR-15.9).
func (s *State) SetVHostLimit(name message.VHost, l Limit, value any) error {
	return s.SetVHostLimits(name, map[Limit]any{l: value}, false)
}

// SetVHostLimits sets all of these limits, or none of them if one is refused. Where they are
// the only ones the others are removed.
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

// ClearVHostLimit removes a limit; that it was not set is no error.
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

// checkQueueLimit refuses one queue more than the limit allows (BR-3.7).
func (v *VHost) checkQueueLimit(name message.QueueName) error {
	if limit, ok := v.Limit(MaxQueues); ok && int64(len(v.queues)) >= limit {
		refusal := Refuse(PreconditionFailed, "cannot declare queue '%s': queue limit in vhost '%s' (%d) is reached", name, v.Name, limit)
		refusal.Fault = TooMany
		return refusal
	}
	return nil
}

// validationFailed is the management API's form of what is wrong with a parameter (DL-4.3).
func validationFailed(messages ...string) *Error {
	text := "Validation failed\n\n"
	for _, m := range messages {
		text += m + "\n"
	}
	return &Error{Kind: Invalid, Text: text}
}
