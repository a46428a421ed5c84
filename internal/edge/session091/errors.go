package session091

import (
	"errors"
	"fmt"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// failure is an exception of the protocol. It closes the channel, or the connection for codes that require it
// (BR-4.1).
type failure struct {
	code   uint16
	text   string // without the code's name
	method amqp091.MethodID
	hard   bool // closes the connection, whatever the code

	refused *topology.Error // the refusal that caused it, if any
	said    string          // the text in another style, "" for RabbitMQ's
}

func (f *failure) Error() string { return f.replyText() }

// replyText is the text for the client.
func (f *failure) replyText() string {
	if f.said != "" {
		return amqp091.ShortText(f.said)
	}
	return amqp091.ReplyText(f.code, f.text)
}

// connection says whether the failure ends the connection.
func (f *failure) connection() bool {
	switch f.code {
	case amqp091.CodeContentTooLarge, amqp091.CodeNoRoute, amqp091.CodeNoConsumers, amqp091.CodeAccessRefused,
		amqp091.CodeNotFound, amqp091.CodeResourceLocked, amqp091.CodePreconditionFailed:
		return f.hard
	}
	return true
}

func fail(code uint16, format string, args ...any) *failure {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

// undecodable is the failure for a method whose arguments cannot be read (BR-4.8).
func undecodable(id amqp091.MethodID, args []byte) *failure {
	return &failure{code: amqp091.CodeFrameError, text: amqp091.Undecodable(args), method: id}
}

// codes are the AMQP codes of the kinds of refusal.
var codes = [...]uint16{
	topology.Internal: amqp091.CodeInternalError, topology.NotFound: amqp091.CodeNotFound,
	topology.AccessRefused: amqp091.CodeAccessRefused, topology.PreconditionFailed: amqp091.CodePreconditionFailed,
	topology.ResourceLocked: amqp091.CodeResourceLocked, topology.NotAllowed: amqp091.CodeNotAllowed,
	topology.NotImplemented: amqp091.CodeNotImplemented, topology.Invalid: amqp091.CodePreconditionFailed,
	topology.Protected: amqp091.CodePreconditionFailed,
}

// asFailure translates an error of the broker, for the method that caused it.
func asFailure(err error, method amqp091.MethodID) *failure {
	var f *failure
	if errors.As(err, &f) {
		if f.method == 0 {
			f.method = method
		}
		return f
	}
	var refused *topology.Error
	if errors.As(err, &refused) && int(refused.Kind) < len(codes) {
		return &failure{code: codes[refused.Kind], text: refused.Text, method: method, refused: refused}
	}
	return &failure{code: amqp091.CodeInternalError, text: "internal error", method: method}
}
