package topology

import (
	"fmt"
	"strings"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/erlterm"
)

// CheckName checks the name of an exchange, a queue or a virtual host by the rules of a profile. ApsaraMQ requires 1 to 255
// letters, digits and the characters - _ . # / @ (DL-22.13). It does not check the prefix amq., which is reserved in every
// profile.
func CheckName(p deadletter.Profile, name string) error {
	return checkCharacters(p, "name", name, "")
}

// checkCharacters is CheckName for other texts that ApsaraMQ limits; more are further allowed characters.
func checkCharacters(p deadletter.Profile, what, text, more string) error {
	if p != deadletter.ApsaraMQ {
		return nil
	}
	odd := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && !(r >= '0' && r <= '9') && !strings.ContainsRune("-_.#/@", r) && !strings.ContainsRune(more, r)
	}
	if text != "" && len(text) <= message.MaxName && !strings.ContainsFunc(text, odd) {
		return nil
	}
	return fmt.Errorf("%s '%s' must be 1 to %d letters, digits and characters of -_.#/@%s", what, text, message.MaxName, more)
}

// checkName refuses a new exchange or queue whose name is too long, not UTF-8, or forbidden by the virtual host's profile.
func (v *VHost) checkName(r Resource) error {
	kind := "exchange"
	if r.Kind == QueueResource {
		kind = "queue"
	}
	if err := message.CheckName(kind, r.Name); err != nil {
		return &Error{Kind: PreconditionFailed, Fault: BadName, Resource: r, Text: err.Error()}
	}
	if err := CheckName(v.Profile(), r.Name); err != nil {
		return &Error{Kind: PreconditionFailed, Fault: BadName, Resource: r, Text: fmt.Sprintf("invalid %s: %s", r, err)}
	}
	return nil
}

// checkNamed refuses an administrator's name that is too long or not UTF-8.
func checkNamed(what, name string) error {
	if err := message.CheckName(what, name); err != nil {
		return validationFailed(err.Error())
	}
	return nil
}

// notAName is the reason why an argument cannot be a name or a key, "" if it can.
func notAName(value string) string {
	if err := message.CheckName("value", value); err != nil {
		return erlterm.String(err.Error())
	}
	return ""
}

// checkKey refuses a binding key that is too long, not UTF-8, or forbidden by the profile. It allows an empty key for
// exchanges that ignore it, and * for topic exchanges: the documents do not mean to forbid either.
func (v *VHost) checkKey(x *Exchange, key message.RoutingKey) error {
	r := Resource{VHost: v.Name, Kind: TopicResource, Name: string(x.Name), Key: string(key)}
	if err := message.CheckName("routing_key", key); err != nil {
		return &Error{Kind: PreconditionFailed, Fault: BadName, Resource: r, Text: err.Error()}
	}
	more := ""
	switch x.acts {
	case routing.Topic:
		more = "*"
	case routing.Direct:
	default:
		if key == "" {
			return nil
		}
	}
	if err := checkCharacters(v.Profile(), "key", string(key), more); err != nil {
		return &Error{Kind: PreconditionFailed, Fault: BadName, Resource: r, Text: fmt.Sprintf("invalid binding of %s: %s", x.Resource(), err)}
	}
	return nil
}
