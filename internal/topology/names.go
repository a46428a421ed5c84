package topology

import (
	"fmt"
	"strings"

	"bartleby.mq/internal/deadletter"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/routing"
)

// maxName is how long ApsaraMQ lets a name be, in bytes; AMQP's short strings are no longer either.
const maxName = 255

// CheckName says what a profile has against the name of an exchange, a queue or a virtual host; nil: nothing. ApsaraMQ
// wants 1 to 255 letters, digits and the characters - _ . # / @ (DL-22.13). That names beginning with amq. are reserved
// is so in every profile, and not checked here.
func CheckName(p deadletter.Profile, name string) error {
	return checkCharacters(p, "name", name, "")
}

// checkCharacters is CheckName for any text that ApsaraMQ limits, with more characters allowed.
func checkCharacters(p deadletter.Profile, what, text, more string) error {
	if p != deadletter.ApsaraMQ {
		return nil
	}
	odd := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && !(r >= '0' && r <= '9') && !strings.ContainsRune("-_.#/@", r) && !strings.ContainsRune(more, r)
	}
	if text != "" && len(text) <= maxName && !strings.ContainsFunc(text, odd) {
		return nil
	}
	return fmt.Errorf("%s '%s' must be 1 to %d letters, digits and characters of -_.#/@%s", what, text, maxName, more)
}

// checkName refuses a new exchange or queue whose name the virtual host's profile does not allow.
func (v *VHost) checkName(r Resource) error {
	if err := CheckName(v.Profile(), r.Name); err != nil {
		return &Error{Kind: PreconditionFailed, Fault: BadName, Resource: r, Text: fmt.Sprintf("invalid %s: %s", r, err)}
	}
	return nil
}

// checkKey refuses a binding key that the profile does not allow. Exchanges that do not look at it are bound with an
// empty one, and on topic exchanges * is a pattern: the documents do not mean to forbid either.
func (v *VHost) checkKey(x *Exchange, key message.RoutingKey) error {
	more := ""
	switch x.Type {
	case routing.Topic:
		more = "*"
	case routing.Direct:
	default:
		if key == "" {
			return nil
		}
	}
	if err := checkCharacters(v.Profile(), "key", string(key), more); err != nil {
		r := Resource{VHost: v.Name, Kind: TopicResource, Name: string(x.Name), Key: string(key)}
		return &Error{Kind: PreconditionFailed, Fault: BadName, Resource: r, Text: fmt.Sprintf("invalid binding of %s: %s", x.Resource(), err)}
	}
	return nil
}
