package broker

import (
	"strings"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// Archive is the queue for discarded letters of a virtual host, and ArchiveTTL how long it keeps them, in milliseconds.
const (
	Archive    message.QueueName = "bartleby.archive"
	ArchiveTTL                   = 7 * 24 * int64(time.Hour/time.Millisecond)
)

// ownQueues are the queues that the broker makes in a virtual host when it first needs them, as it declares them.
var ownQueues = map[message.QueueName]amqp091.Table{
	Archive: {{Key: "x-queue-type", Value: "classic"}, {Key: "x-message-ttl", Value: ArchiveTTL}},
	LostAndFound: {
		{Key: "x-queue-type", Value: "classic"}, {Key: "x-max-length", Value: LostAndFoundLength}, {Key: "x-max-length-bytes", Value: LostAndFoundBytes},
	},
}

// OwnQueue is the declaration of a queue that the broker makes in a virtual host when it is first needed: Archive or LostAndFound.
func OwnQueue(vhost message.VHost, name message.QueueName) topology.QueueDecl {
	return topology.QueueDecl{VHost: vhost, Name: name, Durable: true, Arguments: ownQueues[name]}
}

// checkOwn refuses to make a queue whose name is for the broker's own: made by a client it could be of a kind that cannot take what the broker puts there.
// Who declares one as the broker does, such as an import of definitions, may. In strict mode there are no such names.
func (b *Broker) checkOwn(d *topology.QueueDecl) error {
	if b.Strict || !strings.HasPrefix(string(d.Name), topology.OwnPrefix) || isOwn(d) {
		return nil
	}
	return topology.Refuse(topology.AccessRefused, "queue name '%s' contains reserved prefix '%s*'", d.Name, topology.OwnPrefix)
}

// isOwn says whether the declaration is as the broker's own.
func isOwn(d *topology.QueueDecl) bool {
	own, ok := ownQueues[d.Name]
	if !ok || !d.Durable || d.Exclusive || d.AutoDelete || len(d.Arguments) != len(own) {
		return false
	}
	for _, f := range own {
		v, _ := d.Arguments.Get(f.Key)
		if n, isNumber := amqp091.Int64(v); isNumber {
			v = n
		}
		if v != f.Value {
			return false
		}
	}
	return true
}
