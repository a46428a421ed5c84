// Package declare is the machine of all that is declared on a node: the declarations of package topology and the accounts of package auth
// are one State, and what an administrator does is a Command, a value. What a command does depends on the command and the State alone, so
// that the same commands in the same order make the same State anywhere.
//
// Like its two halves the State has no lock, does no I/O and reads no clock: the package broker calls it, makes durable what it logs, and
// does what a Result says.
package declare

import (
	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// State is all that is declared.
type State struct {
	Topology *topology.State
	Users    *auth.Users
	// Strict refusals have RabbitMQ's texts, even where these do not say what is wrong.
	Strict bool
}

// Command is a change of the State. The types of this package that have the method are all that there are.
type Command interface {
	// apply makes the change. If it fails, it has changed nothing.
	apply(s *State, r *Result) error
}

// Result is what a command has done, and what it leaves to whoever keeps the State.
type Result struct {
	Created bool // of a command that puts something: it was not there
	Existed bool // of one that deletes something: it was there
	// Again says that only a part was done, so that others may come in between: the same command does the next part.
	Again bool
	// Takeover says that the policies of the command's virtual host are to be matched with its queues and exchanges anew.
	Takeover bool
	// Ended are the queues that went with a virtual host. Their messages go next.
	Ended []*topology.Queue
	// Before and After are the metadata of a virtual host that was put; Before is zero for a new one, but for the profile.
	Before, After topology.Metadata
}

// Apply makes a change, or says why not; then nothing has changed. A refusal is a *topology.Error; topology.ErrUnstored asks to try again.
func (s *State) Apply(c Command) (r Result, err error) {
	err = c.apply(s, &r)
	return r, err
}

// vhost refuses what is about a virtual host that is not there (BR-15.9).
func (s *State) vhost(name message.VHost) error {
	if _, ok := s.Topology.VHost(name); !ok {
		return s.notFound("virtual host", string(name))
	}
	return nil
}

// user is the same of a user.
func (s *State) user(name string) error {
	if _, ok := s.Users.User(name); !ok {
		return s.notFound("user", name)
	}
	return nil
}

// notFound is RabbitMQ's refusal, which does not say which of the two is missing, with what is.
func (s *State) notFound(what, name string) error {
	const text = "vhost_or_user_not_found"
	if s.Strict {
		return topology.Refuse(topology.Invalid, text)
	}
	return topology.Refuse(topology.Invalid, text+": there is no %s '%s'", what, name)
}
