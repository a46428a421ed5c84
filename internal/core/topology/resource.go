package topology

import (
	"fmt"
	"strings"

	"bartleby.mq/internal/core/message"
)

// ResourceKind is the kind of object that a permission is for.
type ResourceKind uint8

// The kinds of resources.
const (
	ExchangeResource ResourceKind = iota
	QueueResource
	// TopicResource is a routing or binding key on a topic exchange: Name is the exchange, Key the key (BR-3.5).
	TopicResource
)

// Resource names an object in a virtual host.
type Resource struct {
	VHost message.VHost
	Kind  ResourceKind
	Name  string
	Key   string // of a TopicResource
}

// String prints the resource as error texts do. It is also what "Q" and "X" stand for in the specification.
func (r Resource) String() string {
	switch r.Kind {
	case QueueResource:
		return fmt.Sprintf("queue '%s' in vhost '%s'", r.Name, r.VHost)
	case TopicResource:
		return fmt.Sprintf("topic '%s' in exchange '%s' in vhost '%s'", r.Key, r.Name, r.VHost)
	default:
		return fmt.Sprintf("exchange '%s' in vhost '%s'", r.Name, r.VHost)
	}
}

// Access is what a client wants to do with a resource (BR-3.2).
type Access uint8

// The three accesses.
const (
	Configure Access = iota
	Write
	Read
)

// String returns the access as error texts print it.
func (a Access) String() string { return [...]string{"configure", "write", "read"}[a] }

// RefuseAccess is the refusal of an access; because is appended to it, and may be empty (BR-3.3).
func RefuseAccess(a Access, r Resource, user, because string) *Error {
	return &Error{
		Kind: AccessRefused, Fault: Denied, Resource: r,
		Text: fmt.Sprintf("%s access to %s refused for user '%s'%s", a, r, user, because),
	}
}

// Permit checks whether the client has an access. Callers return its error unchanged. A nil Permit allows everything.
type Permit func(a Access, r Resource) error

func (p Permit) check(a Access, r Resource) error {
	if p == nil {
		return nil
	}
	return p(a, r)
}

func queueResource(v message.VHost, name message.QueueName) Resource {
	return Resource{VHost: v, Kind: QueueResource, Name: string(name)}
}

func exchangeResource(v message.VHost, name message.ExchangeName) Resource {
	return Resource{VHost: v, Kind: ExchangeResource, Name: string(name)}
}

const reservedPrefix = "amq."

// checkReserved refuses names that are reserved for the broker (BR-5.4, BR-7.2).
func checkReserved(kind, name string) error {
	if strings.HasPrefix(name, reservedPrefix) {
		return Refuse(AccessRefused, "%s name '%s' contains reserved prefix 'amq.*'", kind, name)
	}
	return nil
}

var crlf = strings.NewReplacer("\r", "", "\n", "")

// CleanName strips carriage returns and line feeds from a name of an exchange or queue (BR-5.12).
func CleanName[N ~string](name N) N {
	if !strings.ContainsAny(string(name), "\r\n") {
		return name
	}
	return N(crlf.Replace(string(name)))
}
