package topology

import "fmt"

// Kind is the kind of a refusal. The edges map it to AMQP codes and HTTP statuses.
type Kind uint8

// The kinds, with their AMQP 0-9-1 codes.
const (
	Internal           Kind = iota // 541
	NotFound                       // 404
	AccessRefused                  // 403
	PreconditionFailed             // 406
	ResourceLocked                 // 405
	NotAllowed                     // 530
	NotImplemented                 // 540
	Invalid                        // a value refused by the management API: HTTP 400
	Protected                      // a virtual host protected from deletion: HTTP 412
)

var kindNames = [...]string{
	Internal: "internal error", NotFound: "not found", AccessRefused: "access refused",
	PreconditionFailed: "precondition failed", ResourceLocked: "resource locked", NotAllowed: "not allowed",
	NotImplemented: "not implemented", Invalid: "invalid", Protected: "protected",
}

// String returns the kind in words.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Fault refines the Kind, for edges with their own error codes (DL-22.15).
type Fault uint8

// The faults.
const (
	OtherFault Fault = iota
	Differs          // a declaration differs from the existing object: see Error.Differences
	BadName          // the profile does not allow the name (DL-22.13)
	TooLarge         // the body of a message is too large (BR-4.9)
	Denied           // the user lacks a permission (BR-3.3)
	TooMany          // a virtual host has too many queues (BR-3.7)
)

// Difference is a property in which a declaration differs from the existing object.
type Difference struct{ Property, Current, Declared string }

// Error is a refusal. Text is RabbitMQ's, without the name of the code that precedes it on the wire (BR-4.2).
type Error struct {
	Kind Kind
	Text string

	Fault       Fault
	Resource    Resource // the refused object, if Kind or Fault is about one; for a binding key a TopicResource
	Differences []Difference
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Refuse returns an Error with a formatted text.
func Refuse(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// invalidArg is the refusal of a queue argument's value (BR-7.13).
func invalidArg(arg string, r Resource, reason string) *Error {
	return Refuse(PreconditionFailed, "invalid arg '%s' for %s: %s", arg, r, reason)
}
