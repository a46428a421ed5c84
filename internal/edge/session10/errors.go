package session10

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp10"
)

// scope is what a failure ends.
type scope uint8

const (
	ofConnection scope = iota
	ofSession
	ofLink
)

// failure is an error for the client. It ends the connection, a session or a link.
type failure struct {
	scope     scope
	condition string
	text      string
	info      []byte // an encoded map, nil for none
	// broken says that the client has broken the protocol in a way for which RabbitMQ has no condition: it fails, and so says
	// amqp:internal-error, as we do in strict mode.
	broken bool
}

func (f *failure) Error() string { return f.condition + ": " + f.text }

// wire is the failure as it goes to the client.
func (f *failure) wire() *amqp10.Error {
	e := &amqp10.Error{Condition: []byte(f.condition)}
	if f.text != "" {
		e.Description = []byte(readable(f.text))
	}
	if f.info != nil {
		e.Info, _, _ = amqp10.ReadValue(f.info) // it was encoded here
	}
	return e
}

// maxFailure is the largest text of a failure, in bytes. What a client has sent may be in it, as large as a frame, and goes into
// the log too.
const maxFailure = 2 << 10

func failureOf(s scope, condition, format string, args []any) *failure {
	text := readable(fmt.Sprintf(format, args...))
	if len(text) > maxFailure {
		text = strings.ToValidUTF8(text[:maxFailure], "") + "..."
	}
	return &failure{scope: s, condition: condition, text: text}
}

// readable is a text that a client can read. Names need not be UTF-8; RabbitMQ then prints each octet as a character.
func readable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	b := make([]rune, len(s))
	for i := range len(s) {
		b[i] = rune(s[i])
	}
	return string(b)
}

// fail is a failure that ends the connection.
func fail(condition, format string, args ...any) *failure {
	return failureOf(ofConnection, condition, format, args)
}

// failSession is a failure that ends the session.
func failSession(condition, format string, args ...any) *failure {
	return failureOf(ofSession, condition, format, args)
}

// failLink is a failure that ends the link.
func failLink(condition, format string, args ...any) *failure {
	return failureOf(ofLink, condition, format, args)
}

// violation makes a failure one of the protocol: see broken.
func (f *failure) violation() *failure {
	f.broken = true
	return f
}

// malformed is the failure for a performative of a session whose fields cannot be read.
func malformed(err error) *failure {
	f := failSession(amqp10.ConditionDecodeError, "%s", err).violation()
	if errors.Is(err, amqp10.ErrTooManyFields) {
		f.scope = ofConnection
	}
	return f
}

// undecodable is the failure for a frame whose body cannot be read. RabbitMQ closes the connection with a crash's report; the
// standard has a condition for it.
func undecodable(err error) *failure {
	return fail(amqp10.ConditionDecodeError, "%s", err).violation()
}

// conditions are the error conditions of the kinds of refusal.
var conditions = [...]string{
	topology.Internal: amqp10.ConditionInternalError, topology.NotFound: amqp10.ConditionNotFound,
	topology.AccessRefused: amqp10.ConditionUnauthorizedAccess, topology.PreconditionFailed: amqp10.ConditionPreconditionFailed,
	topology.ResourceLocked: amqp10.ConditionResourceLocked, topology.NotAllowed: amqp10.ConditionNotAllowed,
	topology.NotImplemented: amqp10.ConditionNotImplemented, topology.Invalid: amqp10.ConditionPreconditionFailed,
	topology.Protected: amqp10.ConditionPreconditionFailed,
}

// asFailure translates an error of the broker. A lacking permission ends the session, as RabbitMQ does it; other refusals end
// the link, and errors that are none the connection.
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	var refused *topology.Error
	if errors.As(err, &refused) && int(refused.Kind) < len(conditions) {
		f = failLink(conditions[refused.Kind], "%s", refused.Text)
		if refused.Fault == topology.Denied {
			f.scope = ofSession
		}
		return f
	}
	return fail(amqp10.ConditionInternalError, "%s", err)
}
