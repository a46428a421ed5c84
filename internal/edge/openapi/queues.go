package openapi

import (
	"math"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// Bounds of a queue's properties (DL-22.16).
const (
	maxMessageTTL = 24 * 60 * 60 * 1000            // ms, a day
	maxExpires    = 10 * 365 * 24 * 60 * 60 * 1000 // ms, as x-expires
	maxPriority   = 255
)

// createQueue declares a durable queue (DL-22.16). An existing queue with the same
// properties stays as it is.
func createQueue(c *call) (any, error) {
	f := c.fields()
	vhost := f.vhost()
	d := topology.QueueDecl{Name: message.QueueName(f.unreserved("QueueName")), Durable: true, AutoDelete: f.flag("AutoDeleteState")}
	if f.flag("ExclusiveState") {
		f.refuse(invalid("ExclusiveState", "An exclusive queue belongs to an AMQP connection, and this API has none."))
	}
	d.Arguments = queueArguments(f)
	if f.err != nil {
		return nil, f.err
	}
	if err := c.findVHost(vhost); err != nil {
		return nil, err
	}
	_, err := c.link(vhost).DeclareQueue(d)
	return nil, err
}

// queueArguments are the arguments of the declaration. The virtual host's profile decides
// whether x-max-length and x-max-priority have an effect.
func queueArguments(f *fields) (t amqp091.Table) {
	add := func(key string, value any, given bool) {
		if given {
			t = append(t, amqp091.Field{Key: key, Value: value})
		}
	}
	expires, given := f.integer("AutoExpireState", 1, maxExpires)
	add("x-expires", expires, given)
	ttl, given := f.integer("MessageTTL", 0, maxMessageTTL)
	add("x-message-ttl", ttl, given)
	length, given := f.integer("MaxLength", 0, math.MaxInt64)
	add("x-max-length", length, given)
	priority, given := f.integer("MaximumPriority", 0, maxPriority)
	add("x-max-priority", priority, given)
	exchange, hasExchange := f.optionalName("DeadLetterExchange")
	add("x-dead-letter-exchange", exchange, hasExchange)
	key, given := f.optionalName("DeadLetterRoutingKey")
	add("x-dead-letter-routing-key", key, given)
	if given && !hasExchange {
		f.refuse(invalid("DeadLetterRoutingKey", "It needs a DeadLetterExchange."))
	}
	return t
}

// findQueue refuses a request for a missing queue.
func (c *call) findQueue(vhost message.VHost, name message.QueueName) *refusal {
	return c.in(vhost, func(v *topology.VHost) *refusal {
		if _, ok := v.Queue(name); !ok {
			return noQueue
		}
		return nil
	})
}

// deleteQueue deletes a queue with all messages in it.
func deleteQueue(c *call) (any, error) {
	f := c.fields()
	vhost, name := f.vhost(), message.QueueName(f.required("QueueName"))
	if f.err != nil {
		return nil, f.err
	}
	if err := c.findQueue(vhost, name); err != nil {
		return nil, err
	}
	_, err := c.link(vhost).DeleteQueue(name, false, false)
	return nil, err
}

// queueList is a page of queues.
type queueList struct {
	Queues     []queue
	NextToken  string
	MaxResults int
}

// queue describes a declared queue. The times of its creation and last consumption are not known.
type queue struct {
	Name            string
	VHostName       string
	OwnerID         string         `json:"OwnerId"` // the instance
	Attributes      map[string]any // its arguments
	AutoDeleteState bool
	ExclusiveState  bool
}

func listQueues(c *call) (any, error) {
	f := c.fields()
	vhost, p := f.vhost(), f.page("MaxResults", maxPage)
	if f.err != nil {
		return nil, f.err
	}
	all := []queue{}
	var found []*topology.Queue
	var arguments []amqp091.Table
	err := c.in(vhost, func(v *topology.VHost) *refusal {
		v.EachQueue(func(q *topology.Queue) {
			found, arguments = append(found, q), append(arguments, q.PresentArguments())
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, q := range found {
		all = append(all, queue{string(q.Name), string(q.VHost), c.p["InstanceId"], topology.ArgumentsJSON(arguments[i]), q.AutoDelete, q.Exclusive})
	}
	some, next := cut(p, all, func(q queue) string { return q.Name })
	return queueList{some, next, p.size}, nil
}

// consumerList is a page of a queue's consumers.
type consumerList struct {
	Consumers  []consumer
	NextToken  string
	MaxResults int
}

type consumer struct{ ConsumerTag string }

func listQueueConsumers(c *call) (any, error) {
	f := c.fields()
	vhost, name := f.vhost(), message.QueueName(f.required("Queue"))
	p := f.page("QueryCount", 1) // as documented
	if f.err != nil {
		return nil, f.err
	}
	var info broker.QueueInfo
	err := c.in(vhost, func(v *topology.VHost) *refusal {
		q, ok := v.Queue(name)
		if !ok {
			return noQueue
		}
		info = broker.Describe(q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Tags are a channel's own: two consumers may have the same.
	some, next := cut(p, c.s.b.Consumers(info), func(a broker.AttachedConsumer) string {
		return a.Tag + "\x00" + a.Connection + "\x00" + a.Channel
	})
	tags := make([]consumer, 0, len(some))
	for _, a := range some {
		tags = append(tags, consumer{a.Tag})
	}
	return consumerList{tags, next, p.size}, nil
}
