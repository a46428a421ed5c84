package topology

import (
	"fmt"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp091"
)

// Readmitted is a queue whose declaration is lost and whose messages are not.
type Readmitted struct {
	VHost       message.VHost     // "": not known
	Name        message.QueueName // "": not known
	Incarnation uint64            // 0: it is another queue, and gets a number
	Group       uint64            // of a quorum queue; 0: it is classic
	MaxPriority int               // the highest that it has
}

// Readmit declares the queue again: durable, with no argument but those that its messages cannot do
// without, in its virtual host if that is known, else in "/" or the first there is, and under its name if that is
// known and free, else as "recovered-NUMBER". No limit and no policy by argument holds for it. Numbers go on
// behind its own.
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
	if !v.Had(q.Incarnation) { // it was deleted with what it had, or the queue was in another
		v.before = q.Incarnation - 1
		s.logVHost(v)
	}
	s.addQueue(v, q)
	s.revision++
	s.logQueue(q)
	q.encoded = nil
	s.GoOnFrom(r.Incarnation)
	return q, nil
}
