package broker

import (
	"bartleby.mq/internal/core/auth"
)

// PutUser creates a user, or replaces the password and tags of an existing one. Its connections stay (BR-2.8).
func (b *Broker) PutUser(name string, password auth.PasswordHash, tags []auth.Tag) (created bool, err error) {
	for more := true; more && err == nil; {
		err = b.change(func() (err error) {
			_, exists := b.users.User(name)
			if more = !exists && b.state.Orphan(name); !more {
				created, err = b.users.PutUser(name, password, tags)
			}
			return err
		})
	}
	b.parametersTouched() // the user may have lost a tag
	return created, err
}

// DeleteUser deletes a user with its permissions, closes its connections (BR-2.8), and says whether it existed.
func (b *Broker) DeleteUser(name string) (existed bool, err error) {
	var connected []*Connection
	err = b.change(func() error {
		existed = b.users.DeleteUser(name)
		connected = b.matching(func(c *Connection) bool { return c.User == name })
		return nil
	})
	if err == nil && existed {
		b.parametersTouched()
		terminate(connected, 320, auth.UserDeleted(name))
	}
	return existed, err
}

// SetUserLimits sets limits of a user to JSON values, which must be integers (BR-3.7). It sets all of them or none.
func (b *Broker) SetUserLimits(name string, limits map[auth.Limit]any) error {
	return b.change(func() error { return b.users.SetLimits(name, limits) })
}

// ClearUserLimit removes a user's limit; a limit that was not set is not an error.
func (b *Broker) ClearUserLimit(name string, l auth.Limit) error {
	return b.change(func() error { return b.users.ClearLimit(name, l) })
}
