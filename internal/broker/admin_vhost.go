package broker

import (
	"fmt"

	"bartleby.mq/internal/auth"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/topology"
)

// PutVHost creates a virtual host or replaces the metadata of one there is
// (BR-3.9). The user who creates one may do everything in it.
func (b *Broker) PutVHost(name message.VHost, m topology.Metadata, creator string) (created bool, err error) {
	err = b.change(func() error {
		var err error
		if _, created, err = b.state.PutVHost(name, m); !created || err != nil {
			return err
		}
		if _, ok := b.users.User(creator); !ok {
			return nil // an administrator by other means than an account
		}
		_, err = b.users.PutPermission(auth.Permission{VHost: name, User: creator, Configure: ".*", Write: ".*", Read: ".*"})
		return err
	})
	return created, err
}

// DeleteVHost deletes a virtual host with everything in it, and closes its
// connections (BR-3.8). A missing one is NotFound, a protected one Protected.
func (b *Broker) DeleteVHost(name message.VHost) error {
	err := b.change(func() error {
		queues, err := b.state.DeleteVHost(name)
		if err != nil {
			return err
		}
		b.users.DeleteVHost(name)
		for _, q := range queues {
			if _, err := b.node.Delete(runtimeOf(q), nil); err == nil {
				b.Totals.QueuesGone.Add(1)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.CloseConnections(func(c *Connection) bool { return c.VHost == name }, 320, fmt.Sprintf("vhost '%s' is down", name))
	return nil
}

// SetVHostProtection switches the protection of a virtual host from deletion (BR-3.8).
func (b *Broker) SetVHostProtection(name message.VHost, on bool) error {
	return b.change(func() error { return b.state.SetVHostProtection(name, on) })
}

// SetVHostLimit sets a limit to a JSON value, which must be an integer (BR-3.7).
func (b *Broker) SetVHostLimit(name message.VHost, l topology.Limit, value any) error {
	return b.change(func() error { return b.state.SetVHostLimit(name, l, value) })
}

// ClearVHostLimit removes a limit; that it was not set is no error.
func (b *Broker) ClearVHostLimit(name message.VHost, l topology.Limit) error {
	return b.change(func() error { return b.state.ClearVHostLimit(name, l) })
}
