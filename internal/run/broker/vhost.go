package broker

import (
	"fmt"
	"slices"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/partition"
)

// PutVHost creates a virtual host, or replaces the metadata of an existing one (BR-3.9). The user who creates it may
// do everything in it. If the profile changes, its connections are closed, because they follow the old one.
func (b *Broker) PutVHost(name message.VHost, m topology.Metadata, creator string) (created bool, err error) {
	return b.ReviseVHost(name, func(topology.Metadata) topology.Metadata { return m }, &Identity{Name: creator})
}

// ReviseVHost is PutVHost for an authenticated client, nil being the operator. revise computes the new metadata from
// the present ones, the zero value for a new virtual host. revise runs under the lock, perhaps more than once, so it
// must not wait for anything.
func (b *Broker) ReviseVHost(name message.VHost, revise func(topology.Metadata) topology.Metadata, creator *Identity) (created bool, err error) {
	changed, untraced, redirected := false, false, false
	var connected []*Connection
	err = b.change(func() error {
		var before deadletter.Profile
		var old topology.Metadata
		if v, ok := b.state.VHost(name); ok {
			before, old = v.Profile(), v.Metadata
		}
		v, made, err := b.putVHost(name, revise(old), creator)
		created, untraced = made, err == nil && old.Tracing && !v.Metadata.Tracing
		redirected = err == nil && v.Metadata.DefaultDeadLetter != old.DefaultDeadLetter
		if changed = err == nil && !made && v.Profile() != before; changed {
			connected = b.inVHost(name)
		}
		return err
	})
	if created && err == nil {
		err = b.ensureEventExchange()
	}
	if redirected {
		b.takeover(name)
	}
	if untraced {
		b.traces.flush() // who turns tracing off finds all copies in their queues
	}
	if changed {
		terminate(connected, 320, fmt.Sprintf("the profile of vhost '%s' has changed", name))
	}
	return created, err
}

// CreateVHost is ReviseVHost, but leaves an existing virtual host unchanged.
func (b *Broker) CreateVHost(name message.VHost, m topology.Metadata, creator *Identity) (created bool, err error) {
	err = b.change(func() (err error) {
		if _, exists := b.state.VHost(name); exists {
			return nil
		}
		_, created, err = b.putVHost(name, m, creator)
		return err
	})
	if created && err == nil {
		err = b.ensureEventExchange()
	}
	return created, err
}

// putVHost does the work of PutVHost. A creator that a backend knows, or whose account is gone, gets no permissions:
// an account of the same name is another user. REQUIRES: called within change.
func (b *Broker) putVHost(name message.VHost, m topology.Metadata, creator *Identity) (v *topology.VHost, created bool, err error) {
	if v, created, err = b.state.PutVHost(name, m); !created || err != nil {
		return v, false, err
	}
	if creator == nil || creator.Elsewhere() || !creator.stands(b.users) {
		return v, true, nil
	}
	if _, ok := b.users.User(creator.Name); !ok {
		return v, true, nil // an administrator without an account
	}
	_, err = b.users.PutPermission(auth.Permission{VHost: name, User: creator.Name, Configure: ".*", Write: ".*", Read: ".*"})
	return v, true, err
}

// DeleteVHost deletes a virtual host with everything in it, and closes its connections (BR-3.8). A missing one is
// NotFound, a protected one Protected.
func (b *Broker) DeleteVHost(name message.VHost) error {
	return b.deleteVHost(name, Doer{}, nil, func() {})
}

// DeleteEmptyVHost is DeleteVHost for a virtual host without queues and with only the predeclared exchanges; any
// other is PreconditionFailed (DL-22.17).
func (b *Broker) DeleteEmptyVHost(name message.VHost) error {
	return b.deleteVHost(name, Doer{}, onlyEmpty(name), func() {})
}

// onlyEmpty objects to the deletion of a virtual host in which something was declared.
func onlyEmpty(name message.VHost) func(*topology.VHost) error {
	return func(v *topology.VHost) error {
		declared := func(x *topology.Exchange) bool { return !x.BelongsToNode() }
		if v.QueueCount() > 0 || slices.ContainsFunc(v.Exchanges(), declared) {
			return topology.Refuse(topology.PreconditionFailed, "vhost '%s' is not empty", name)
		}
		return nil
	}
}

// endedVHost is a virtual host that was deleted, and by whom.
type endedVHost struct {
	name message.VHost
	by   Doer
}

// endedQueue is a queue that was deleted with its virtual host, and what it held.
type endedQueue struct {
	q    *topology.Queue
	held partition.Counts
}

// inVHost returns the connections to a virtual host.
func (b *Broker) inVHost(name message.VHost) []*Connection {
	return b.matching(func(c *Connection) bool { return c.VHost == name })
}

// deleteVHost deletes a virtual host unless check, if not nil, returns an error. note is called right before the virtual
// host goes, with the topology locked.
func (b *Broker) deleteVHost(name message.VHost, by Doer, check func(*topology.VHost) error, note func()) error {
	var ended []endedQueue
	var connected []*Connection
	err := b.change(func() error {
		if v, ok := b.state.VHost(name); ok && check != nil {
			if err := check(v); err != nil {
				return err
			}
		}
		note()
		queues, err := b.state.DeleteVHost(name)
		if err != nil {
			return err
		}
		b.users.DeleteVHost(name)
		b.endedVHosts = append(b.endedVHosts, endedVHost{name, by})
		connected = b.inVHost(name)
		b.removing()
		for _, q := range queues {
			if n, err := b.node.Delete(runtimeOf(q), nil); err == nil {
				ended = append(ended, endedQueue{q, n})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range ended {
		n := b.node.Deleted(runtimeOf(e.q), e.held)
		b.keepStats(e.q.Type, &n.Stats)
	}
	b.node.RetryStranded() // stranded messages of the virtual host end with it
	b.parametersTouched()
	terminate(connected, 320, fmt.Sprintf("vhost '%s' is down", name))
	return nil
}

// SetVHostProtection sets whether a virtual host is protected from deletion (BR-3.8).
func (b *Broker) SetVHostProtection(name message.VHost, on bool) error {
	return b.change(func() error { return b.state.SetVHostProtection(name, on) })
}

// SetVHostLimit sets a limit to a JSON value, which must be an integer (BR-3.7).
func (b *Broker) SetVHostLimit(name message.VHost, l topology.Limit, value any) error {
	return b.change(func() error { return b.state.SetVHostLimit(name, l, value) })
}

// SetVHostLimits sets several limits, all or none. With only, it removes all others.
func (b *Broker) SetVHostLimits(name message.VHost, limits map[topology.Limit]any, only bool) error {
	return b.change(func() error { return b.state.SetVHostLimits(name, limits, only) })
}

// ClearVHostLimit removes a limit; a limit that was not set is not an error.
func (b *Broker) ClearVHostLimit(name message.VHost, l topology.Limit) error {
	return b.change(func() error { return b.state.ClearVHostLimit(name, l) })
}
