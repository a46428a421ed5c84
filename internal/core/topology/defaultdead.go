package topology

import (
	"strings"

	"bartleby.mq/internal/core/message"
)

// OwnPrefix begins the names of the queues that the broker itself makes.
const OwnPrefix = "bartleby."

// ofSource stands for the name of a queue in Metadata.DefaultDeadLetter.
const ofSource = "%q"

func (m *Metadata) checkDefaultDeadLetter() error {
	d := m.DefaultDeadLetter
	before, after, each := strings.Cut(d, ofSource)
	switch {
	case d == "":
		return nil
	case each && before+after == "":
		return Refuse(Invalid, "default_dead_letter '%s' would send the dead letters of each queue to that queue", d)
	case strings.Contains(after, ofSource):
		return Refuse(Invalid, "default_dead_letter '%s' has more than one %s", d, ofSource)
	case strings.HasPrefix(d, "amq.") || strings.HasPrefix(d, OwnPrefix):
		return Refuse(Invalid, "default_dead_letter '%s' begins with a reserved prefix", d)
	}
	if err := message.CheckName("default_dead_letter", d); err != nil {
		return &Error{Kind: Invalid, Text: err.Error()}
	}
	return nil
}

// defaultTarget is the queue to which the virtual host's default sends dead letters of the queue, "" if the default does not
// apply: to queues that are such targets themselves, that end with their connection, that have a name of the broker's, or
// that follow RabbitMQ in everything.
func (q *Queue) defaultTarget() message.QueueName {
	name := string(q.Name)
	before, after, each := strings.Cut(q.byDefault, ofSource)
	switch {
	case q.byDefault == "" || q.Strict || q.Exclusive || q.Delays != nil || q.Type == Stream:
	case strings.HasPrefix(name, OwnPrefix) || strings.HasPrefix(name, "amq."):
	case !each && name == q.byDefault:
	case each && len(name) > len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after):
	case each:
		return message.QueueName(before + name + after)
	default:
		return message.QueueName(q.byDefault)
	}
	return ""
}
