package topology

import (
	"fmt"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// Readmitted is a queue that has lost its declaration but not its messages.
type Readmitted struct {
	VHost       message.VHost     // "": unknown
	Name        message.QueueName // "": unknown
	Incarnation uint64            // 0: a new queue, which gets a number
	Group       uint64            // of a quorum queue; 0: a classic queue
	MaxPriority int               // the highest known priority
}

// Readmit declares the queue again: durable, and with only the arguments that its messages need. It is in its virtual
// host if that is known, otherwise in "/" or the first virtual host. It has its name if that is known and free, otherwise
// "recovered-NUMBER". It has no limits. Later incarnations are larger than its own.
func (s *State) Readmit(r Readmitted) (*Queue, error) {
	if r.VHost == "" {
		r.VHost = "/"
		if names := sortedValues(s.vhosts); s.vhosts["/"] == nil && len(names) > 0 {
			r.VHost = names[0].Name
		}
	}
	v := s.vhosts[r.VHost]
	if v == nil {
		var err error
		if v, _, err = s.PutVHost(r.VHost, Metadata{Description: "made for queues that were recovered"}); err != nil {
			return nil, err
		}
	}
	if r.Incarnation == 0 {
		r.Incarnation = s.nextIncarnation()
	}
	if r.Name == "" || v.queues[r.Name] != nil {
		r.Name = message.QueueName(fmt.Sprintf("recovered-%d", r.Incarnation))
	}
	for v.queues[r.Name] != nil {
		r.Name += "-"
	}
	kind := Classic
	if r.Group != 0 {
		kind = Quorum
	}
	args := amqp091.Table{{Key: "x-queue-type", Value: string(kind)}}
	if r.MaxPriority > 0 && r.Group == 0 {
		args = slices.Insert(args, 0, amqp091.Field{Key: "x-max-priority", Value: int64(r.MaxPriority)})
	}
	encoded, err := encode(args)
	if err != nil {
		return nil, err
	}
	q := &Queue{VHost: r.VHost, Name: r.Name, Durable: true, Arguments: args, Incarnation: r.Incarnation, Strict: s.options.Strict, Group: r.Group, encoded: encoded}
	if !v.Had(q.Incarnation) { // the virtual host was deleted with the queue, or the queue was in another one
		v.before = q.Incarnation - 1
		s.logVHost(v)
	}
	s.addQueue(v, q, nil)
	s.revision++
	s.logQueue(q)
	q.encoded = nil
	s.GoOnFrom(r.Incarnation)
	return q, nil
}
