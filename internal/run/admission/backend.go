// Package admission asks external backends who a client is and what it may do, with
// RabbitMQ's HTTP protocol for that. It caches their answers, and slows down clients that
// guess passwords.
//
// The broker calls it, and decides which backends are asked in which order. It holds no lock
// during a call, because a Backend waits for the network. The package owns caches and
// counts. It does not know the node's own accounts; package auth does.
package admission

import (
	"context"
	"net/netip"
	"strings"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Backend authenticates and authorizes clients. It is safe for use by many goroutines.
type Backend interface {
	// Name is the backend's name in a refusal.
	Name() string
	// Login authenticates a client and returns its tags. A *Refusal means that the
	// credentials are wrong; any other error means that the backend cannot decide.
	Login(ctx context.Context, c auth.Credentials) (tags []auth.Tag, err error)
	// Allow says whether a client may do something: nil, a *Refusal, or another error if the
	// backend cannot decide.
	Allow(ctx context.Context, q Question) error
}

// Kind is the kind of a Question.
type Kind uint8

// The kinds.
const (
	VHost    Kind = iota // to enter a virtual host
	Resource             // to use a queue or an exchange
	Topic                // to use a key of a topic exchange
)

// Question is what a backend is asked about a client. It can be compared.
type Question struct {
	Kind  Kind
	User  string
	Tags  string // with blanks between
	VHost message.VHost
	// Peer is the client's address; zero if it is not known. Only VHost has it.
	Peer netip.Addr
	// Only the kinds Resource and Topic have Access and Resource.
	Access   topology.Access
	Resource topology.Resource
}

// clone copies a question, so that it does not keep the buffers of its names.
func (q Question) clone() Question {
	q.User, q.Tags, q.VHost = strings.Clone(q.User), strings.Clone(q.Tags), message.VHost(strings.Clone(string(q.VHost)))
	r := &q.Resource
	r.VHost, r.Name, r.Key = message.VHost(strings.Clone(string(r.VHost))), strings.Clone(r.Name), strings.Clone(r.Key)
	return q
}

// Refusal is a refusal by a backend.
type Refusal struct {
	// Reason is for the log, and for the client if Disclosed; it may be empty.
	Reason    string
	Disclosed bool
}

// Error is the reason, or a text that there is none.
func (r *Refusal) Error() string {
	if r.Reason == "" {
		return "refused"
	}
	return "refused: " + r.Reason
}
