package broker

import (
	"bartleby.mq/internal/auth"
)

// PutUser creates a user or replaces password and tags of one there is. Its
// connections stay (BR-2.8).
func (b *Broker) PutUser(name string, password auth.PasswordHash, tags []auth.Tag) (created bool, err error) {
	err = b.change(func() error {
		created, err = b.users.PutUser(name, password, tags)
		return err
	})
	return created, err
}

// DeleteUser deletes a user with its permissions, closes its connections (BR-2.8)
// and says whether there was one.
func (b *Broker) DeleteUser(name string) (existed bool, err error) {
	err = b.change(func() error {
		existed = b.users.DeleteUser(name)
		return nil
	})
	if err == nil && existed {
		b.CloseConnections(func(c *Connection) bool { return c.User == name }, 320, auth.UserDeleted(name))
	}
	return existed, err
}

// SetUserLimit sets a user's limit to a JSON value, which must be an integer (BR-3.7).
func (b *Broker) SetUserLimit(name string, l auth.Limit, value any) error {
	return b.change(func() error { return b.users.SetLimit(name, l, value) })
}

// ClearUserLimit removes a user's limit; that it was not set is no error.
func (b *Broker) ClearUserLimit(name string, l auth.Limit) error {
	return b.change(func() error { return b.users.ClearLimit(name, l) })
}
