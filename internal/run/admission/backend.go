// Package admission asks others than the node's own accounts who a client is and what it
// may do, by RabbitMQ's protocol for that over HTTP; remembers for a while what they
// answered; and slows down who guesses passwords.
//
// A Backend is asked with nothing locked: it waits for a network. What the node's own
// accounts know is package auth's to say, and which backends are asked in which order,
// and what becomes of their answers, the broker's.
package admission

import (
	"context"
	"net/netip"
	"strings"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Backend is somebody who knows clients. It is safe for use by many goroutines.
type Backend interface {
	// Name is what a refusal calls the backend.
	Name() string
	// Login says whether a client is who it says it is, and which tags it has. A *Refusal
	// means that it is not; any other error that the backend cannot tell.
	Login(ctx context.Context, c auth.Credentials) (tags []auth.Tag, err error)
	// Allow says whether a client may do something: nil, a *Refusal or another error.
	Allow(ctx context.Context, q Question) error
}

// Kind says what a Question is about.
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
	// Peer is where the client connects from; zero if that is not known. Of VHost only.
	Peer netip.Addr
	// Access and Resource are those of Resource and Topic.
	Access   topology.Access
	Resource topology.Resource
}

// clone is a question that keeps nothing of what its names came in.
func (q Question) clone() Question {
	q.User, q.Tags, q.VHost = strings.Clone(q.User), strings.Clone(q.Tags), message.VHost(strings.Clone(string(q.VHost)))
	r := &q.Resource
	r.VHost, r.Name, r.Key = message.VHost(strings.Clone(string(r.VHost))), strings.Clone(r.Name), strings.Clone(r.Key)
	return q
}

// Refusal is a backend's no.
type Refusal struct {
	// Reason is for the log, and for the client if Disclosed; it may be empty.
	Reason    string
	Disclosed bool
}

// Error is the reason, or that there is none.
func (r *Refusal) Error() string {
	if r.Reason == "" {
		return "refused"
	}
	return "refused: " + r.Reason
}
