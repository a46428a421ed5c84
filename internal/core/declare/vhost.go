package declare

import (
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// PutVHost creates a virtual host, or changes the metadata of an existing one (BR-3.9).
type PutVHost struct {
	Name      message.VHost
	Change    VHostChange
	OnlyNew   bool   // an existing one stays as it is
	CreatedBy string // the user who may do everything in a new one, if it has an account; "": nobody
}

// VHostChange is what a command says of the metadata of a virtual host. Nil leaves a value as it is.
type VHostChange struct {
	Description       *string
	Tags              *[]string
	DefaultQueueType  *topology.QueueType
	Tracing           *bool
	Protected         *bool
	Profile           deadletter.Profile // "" leaves it
	DefaultDeadLetter *string
	Lenient           *bool
}

// All is the change to these metadata, whatever there was.
func All(m topology.Metadata) VHostChange {
	return VHostChange{&m.Description, &m.Tags, &m.DefaultQueueType, &m.Tracing, &m.Protected, m.Profile, &m.DefaultDeadLetter, &m.Lenient}
}

// of applies the change.
func (c *VHostChange) of(old topology.Metadata) topology.Metadata {
	return topology.Metadata{
		Description: or(c.Description, old.Description), Tags: or(c.Tags, old.Tags), DefaultQueueType: or(c.DefaultQueueType, old.DefaultQueueType),
		Tracing: or(c.Tracing, old.Tracing), Protected: or(c.Protected, old.Protected), Profile: c.Profile,
		DefaultDeadLetter: or(c.DefaultDeadLetter, old.DefaultDeadLetter), Lenient: or(c.Lenient, old.Lenient),
	}
}

// or is the value that was given, or the old one.
func or[T any](given *T, old T) T {
	if given != nil {
		return *given
	}
	return old
}

func (c PutVHost) apply(s *State, r *Result) error {
	v, exists := s.Topology.VHost(c.Name)
	if exists {
		r.Before = v.Metadata
		r.Before.Profile = v.Profile()
		if c.OnlyNew {
			r.After = r.Before
			return nil
		}
	}
	v, created, err := s.Topology.PutVHost(c.Name, c.Change.of(r.Before))
	if err != nil {
		return err
	}
	r.Created, r.After = created, v.Metadata
	r.After.Profile = v.Profile()
	r.Takeover = r.After.DefaultDeadLetter != r.Before.DefaultDeadLetter
	if _, known := s.Users.User(c.CreatedBy); created && known {
		_, err = s.Users.PutPermission(auth.Permission{VHost: c.Name, User: c.CreatedBy, Configure: ".*", Write: ".*", Read: ".*"})
	}
	return err
}

// DeleteVHost deletes a virtual host with everything in it. A missing one is NotFound, a protected one Protected (BR-3.8).
type DeleteVHost struct {
	Name message.VHost
	// OnlyEmpty refuses as PreconditionFailed if there are queues, or exchanges that somebody declared (DL-22.17).
	OnlyEmpty bool
}

func (c DeleteVHost) apply(s *State, r *Result) (err error) {
	if v, ok := s.Topology.VHost(c.Name); ok && c.OnlyEmpty {
		declared := func(x *topology.Exchange) bool { return !x.BelongsToNode() }
		if v.QueueCount() > 0 || slices.ContainsFunc(v.Exchanges(), declared) {
			return topology.Refuse(topology.PreconditionFailed, "vhost '%s' is not empty", c.Name)
		}
	}
	if r.Ended, err = s.Topology.DeleteVHost(c.Name); err != nil {
		return err
	}
	s.Users.DeleteVHost(c.Name)
	r.Existed = true
	return nil
}

// ProtectVHost sets whether a virtual host is protected from deletion (BR-3.8).
type ProtectVHost struct {
	Name message.VHost
	On   bool
}

func (c ProtectVHost) apply(s *State, _ *Result) error {
	return s.Topology.SetVHostProtection(c.Name, c.On)
}

// SetVHostLimits sets limits of a virtual host to JSON values, which must be integers (BR-3.7): all of them, or none.
type SetVHostLimits struct {
	Name   message.VHost
	Limits map[topology.Limit]any
	Only   bool // all others are removed
}

func (c SetVHostLimits) apply(s *State, _ *Result) error {
	return s.Topology.SetVHostLimits(c.Name, c.Limits, c.Only)
}

// ClearVHostLimit removes a limit of a virtual host; one that was not set is not an error.
type ClearVHostLimit struct {
	Name  message.VHost
	Limit topology.Limit
}

func (c ClearVHostLimit) apply(s *State, _ *Result) error {
	return s.Topology.ClearVHostLimit(c.Name, c.Limit)
}
