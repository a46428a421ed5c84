package declare

import (
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
)

// PutUser creates a user, or replaces the password and tags of an existing one (BR-2.8).
type PutUser struct {
	Name     string
	Password auth.PasswordHash
	Tags     []auth.Tag
}

// apply marks what a deleted user of this name has left before it makes a new one, some at a time.
func (c PutUser) apply(s *State, r *Result) (err error) {
	if _, exists := s.Users.User(c.Name); !exists {
		if r.Again = s.Topology.Orphan(c.Name); r.Again {
			return nil
		}
	}
	r.Created, err = s.Users.PutUser(c.Name, c.Password, c.Tags)
	return err
}

// DeleteUser deletes a user with its permissions (BR-2.8).
type DeleteUser struct{ Name string }

func (c DeleteUser) apply(s *State, r *Result) error {
	r.Existed = s.Users.DeleteUser(c.Name)
	return nil
}

// SetUserLimits sets limits of a user to JSON values, which must be integers (BR-3.7): all of them, or none.
type SetUserLimits struct {
	Name   string
	Limits map[auth.Limit]any
}

func (c SetUserLimits) apply(s *State, _ *Result) error { return s.Users.SetLimits(c.Name, c.Limits) }

// ClearUserLimit removes a limit of a user; one that was not set is not an error.
type ClearUserLimit struct {
	Name  string
	Limit auth.Limit
}

func (c ClearUserLimit) apply(s *State, _ *Result) error { return s.Users.ClearLimit(c.Name, c.Limit) }

// PutPermission sets what a user may do in a virtual host (BR-3.2). If either does not exist, it is Invalid (BR-15.9).
type PutPermission struct{ auth.Permission }

func (c PutPermission) apply(s *State, r *Result) (err error) {
	if err := s.both(c.VHost, c.User); err != nil {
		return err
	}
	r.Created, err = s.Users.PutPermission(c.Permission)
	return err
}

// both refuses what is about a virtual host or a user that is not there.
func (s *State) both(vhost message.VHost, user string) error {
	if err := s.vhost(vhost); err != nil {
		return err
	}
	return s.user(user)
}

// DeletePermission deletes a user's permissions in a virtual host. Connections stay; their next operations are refused (BR-3.6).
type DeletePermission struct {
	VHost message.VHost
	User  string
}

func (c DeletePermission) apply(s *State, r *Result) error {
	r.Existed = s.Users.DeletePermission(c.VHost, c.User)
	return nil
}

// PutTopicPermission sets which keys a user may use with an exchange (BR-3.5).
type PutTopicPermission struct{ auth.TopicPermission }

func (c PutTopicPermission) apply(s *State, r *Result) (err error) {
	if err := s.both(c.VHost, c.User); err != nil {
		return err
	}
	r.Created, err = s.Users.PutTopicPermission(c.TopicPermission)
	return err
}

// DeleteTopicPermissions deletes a user's permissions for an exchange, or all in the virtual host if Exchange is nil.
type DeleteTopicPermissions struct {
	VHost    message.VHost
	User     string
	Exchange *message.ExchangeName
}

func (c DeleteTopicPermissions) apply(s *State, r *Result) error {
	r.Existed = s.Users.DeleteTopicPermissions(c.VHost, c.User, c.Exchange)
	return nil
}
