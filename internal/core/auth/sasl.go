package auth

import (
	"errors"
	"strings"

	"bartleby.mq/internal/wire/amqp091"
)

// Credentials are the result of a mechanism.
type Credentials struct {
	User     string
	Password string
	// Verified says that a certificate has already authenticated the user.
	Verified bool
}

// ErrMalformed means that a response does not have the mechanism's form; the connection is dropped (BR-2.5).
var ErrMalformed = errors.New("malformed SASL response")

// Mechanism is one SASL exchange, from the server's side. It is used once.
type Mechanism interface {
	// Name is the mechanism's registered name.
	Name() string
	// Step takes the client's response and returns either its credentials or the challenge to send next.
	Step(response []byte) (challenge []byte, c *Credentials, err error)
}

// NewMechanism starts an exchange by a mechanism that needs only the client's responses: PLAIN or AMQPLAIN.
func NewMechanism(name string) (Mechanism, bool) {
	switch name {
	case "PLAIN":
		return plain{}, true
	case "AMQPLAIN":
		return amqplain{}, true
	}
	return nil, false
}

// NewExternal starts an EXTERNAL exchange for a client whose certificate names the user (BR-2.3).
func NewExternal(user string) Mechanism {
	return known{"EXTERNAL", Credentials{User: user, Verified: true}}
}

// NewAnonymous starts an ANONYMOUS exchange, which logs in with configured credentials (BR-2.1).
func NewAnonymous(c Credentials) Mechanism { return known{"ANONYMOUS", c} }

// plain is RFC 4616: [authzid] NUL user NUL password (BR-2.2). The authorization identity is ignored, as RabbitMQ does.
type plain struct{}

func (plain) Name() string { return "PLAIN" }

func (plain) Step(response []byte) ([]byte, *Credentials, error) {
	parts := strings.SplitN(string(response), "\x00", 4) // one more part than allowed
	if len(parts) != 3 {
		return nil, nil, ErrMalformed
	}
	return nil, &Credentials{User: parts[1], Password: parts[2]}, nil
}

// amqplain is a field table without its length, with LOGIN and PASSWORD (BR-2.2).
type amqplain struct{}

func (amqplain) Name() string { return "AMQPLAIN" }

func (amqplain) Step(response []byte) ([]byte, *Credentials, error) {
	if amqp091.CheckTable(response) != nil { // nothing is built from the response before this check: the client is not authenticated yet
		return nil, nil, ErrMalformed
	}
	loginType, login, _ := amqp091.HeaderField(response, "LOGIN")
	passwordType, password, _ := amqp091.HeaderField(response, "PASSWORD")
	if loginType != 'S' || passwordType != 'S' {
		return nil, nil, ErrMalformed
	}
	return nil, &Credentials{User: string(login), Password: string(password)}, nil
}

// known is a mechanism whose result does not depend on the client's response.
type known struct {
	mechanism   string
	credentials Credentials
}

func (k known) Name() string { return k.mechanism }

// Step ignores the response.
func (k known) Step([]byte) ([]byte, *Credentials, error) { return nil, &k.credentials, nil }
