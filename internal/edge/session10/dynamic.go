package session10

import (
	"errors"
	"net/url"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp10"
)

// Nodes that are made for a link (3.5.3, dynamic), as RabbitMQ makes them. A client says by a capability which kind it wants:
//
//	temporary-queue          an exclusive classic queue, which is deleted with the link
//	rabbitmq:volatile-queue  no queue: what is sent there goes straight to the link while it has credit, settled. This is direct
//	                         reply-to (BR-12), and clients of both protocols send there
const (
	temporaryQueue = "temporary-queue"
	volatileQueue  = "rabbitmq:volatile-queue"
)

// can says whether an array of capabilities has one. RabbitMQ looks at no other form.
func can(capabilities amqp10.Value, name string) bool {
	if capabilities.Type() != amqp10.TypeArray {
		return false
	}
	list := capabilities.Symbols()
	for c, ok := list.Next(); ok; c, ok = list.Next() {
		if string(c) == name {
			return true
		}
	}
	return false
}

// wantsReplies says whether a source is one of direct replies.
func wantsReplies(a *amqp10.Attach, src *amqp10.Source) bool {
	return src.Address == nil && can(src.Capabilities, volatileQueue) && src.Durable == amqp10.TerminusDurabilityNone &&
		src.ExpiryPolicy == amqp10.TerminusExpiryPolicyLinkDetach && src.Timeout == 0 && settles(a)
}

// noDynamicSource and noDynamicTarget are what clients hear who want another node.
func noDynamicSource() error {
	return failLink(amqp10.ConditionNotImplemented, "Dynamic source not supported: it has an address, or neither the capability '%s' nor what '%s' needs: settled deliveries, expiry-policy link-detach, no timeout and no durability", temporaryQueue, volatileQueue)
}

func noDynamicTarget() error {
	return failLink(amqp10.ConditionNotImplemented, "Dynamic target not supported: it has an address, or not the capability '%s'", temporaryQueue)
}

// maxNamed is how long container-id and name of a link may be together to be in the name of their queue, as in RabbitMQ.
const maxNamed = 150

// declareTemporary declares the queue of a link with a dynamic node.
func (s *session) declareTemporary(link []byte) (message.QueueName, error) {
	prefix := "amq.dyn.gen-"
	if name := s.c.container + "-" + printable(link); len(name) <= maxNamed {
		prefix = "amq.dyn-" + name + "-"
	}
	name := message.QueueName(broker.RandomName(prefix))
	_, err := s.c.link.DeclareQueue(topology.QueueDecl{Name: name, ServerNamed: true, Durable: true, Exclusive: true})
	return name, err
}

// makeTarget declares the queue of a dynamic target, and makes the target name it.
func (s *session) makeTarget(link []byte, tgt *amqp10.Target) (message.QueueName, error) {
	if tgt.Address != nil || !can(tgt.Capabilities, temporaryQueue) {
		return "", noDynamicTarget()
	}
	if err := s.c.link.MayPublish(&broker.Publication{}); err != nil {
		return "", err
	}
	name, err := s.declareTemporary(link)
	capabilities, _, _ := amqp10.ReadValue(amqp10.AppendSymbols(nil, temporaryQueue))
	*tgt = amqp10.Target{
		Address: queueAddress(string(name)), ExpiryPolicy: amqp10.TerminusExpiryPolicyLinkDetach, Dynamic: true, DynamicNodeProperties: dynamicProperties(),
		Capabilities: capabilities,
	}
	return name, err
}

// makeSource is the same for a source.
func (s *session) makeSource(link []byte, src *amqp10.Source) (message.QueueName, error) {
	if src.Address != nil || !can(src.Capabilities, temporaryQueue) {
		return "", noDynamicSource()
	}
	name, err := s.declareTemporary(link)
	*src = amqp10.Source{
		Address: queueAddress(string(name)), ExpiryPolicy: amqp10.TerminusExpiryPolicyLinkDetach, Dynamic: true, DynamicNodeProperties: dynamicProperties(),
	}
	return name, err
}

// made are the queues that were made for links of the session.
func (s *session) made() (list []message.QueueName) {
	s.mu.Lock()
	for _, k := range s.consumers {
		if k.made != "" {
			list = append(list, k.made)
		}
	}
	s.mu.Unlock()
	for _, p := range s.publishers {
		if p.made != "" {
			list = append(list, p.made)
		}
	}
	return list
}

// dropTemporary deletes the queue of a link with a dynamic node; "" is none.
func (s *session) dropTemporary(name message.QueueName) {
	if name == "" {
		return
	}
	if _, err := s.c.link.DeleteQueue(name, false, false); err != nil {
		s.c.log.Warn("cannot delete the queue of a link; it goes with the connection", "queue", string(name), "channel", s.number, "error", err)
	}
}

// queueAddress is the address of a queue.
func queueAddress(name string) []byte {
	return []byte(queuesPrefix + strings.ReplaceAll(url.QueryEscape(name), "+", "%20"))
}

// dynamicProperties are the properties of all nodes that are made for a link: they end with it (3.5.10).
func dynamicProperties() amqp10.Value {
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendSymbol(b, "lifetime-policy")
	b, list := amqp10.BeginList(amqp10.AppendSymbol(append(b, 0), amqp10.DescriptorDeleteOnClose.String()))
	b = amqp10.EndCompound(b, list, 0)
	b = amqp10.AppendSymbols(amqp10.AppendSymbol(b, "supported-dist-modes"), "move")
	v, _, _ := amqp10.ReadValue(amqp10.EndCompound(b, start, 4))
	return v
}

// attachReplies begins a link for direct replies. It needs the permission to read from a queue of its name.
func (s *session) attachReplies(a *amqp10.Attach, src *amqp10.Source) error {
	c := s.c
	k := &consumer{s: s, handle: a.Handle, name: printable(a.Name), maxMessage: a.MaxMessageSize.Value}
	k.Consumer = queue.Consumer{Target: k, NoAck: true, Credited: true}
	k.replies = c.broker.AddRequester(k)
	var refused *topology.Error
	if _, err := c.link.Find(message.QueueName(k.replies), topology.Read); !errors.As(err, &refused) || refused.Kind != topology.NotFound {
		c.broker.RemoveRequester(k.replies)
		return err
	}
	made := amqp10.Source{
		Address: queueAddress(k.replies), ExpiryPolicy: src.ExpiryPolicy, Dynamic: true, DynamicNodeProperties: dynamicProperties(), DistributionMode: []byte("move"),
	}
	k.address = string(made.Address)
	source, _, _ := amqp10.ReadValue(made.Append(nil))
	s.mu.Lock()
	s.consumers[a.Handle] = k
	s.mu.Unlock()
	c.putFrame(s.number, &amqp10.Attach{
		Name: a.Name, Handle: a.Handle, Role: amqp10.RoleSender, SndSettleMode: a.SndSettleMode, RcvSettleMode: a.RcvSettleMode,
		Source: source, InitialDeliveryCount: amqp10.Some[uint32](0), MaxMessageSize: a.MaxMessageSize,
	})
	return nil
}

var _ broker.Requester = (*consumer)(nil)

// maxReplies is how many bytes may wait for a client before further replies are dropped, as in session091.
const maxReplies = 64 << 20

// Reply implements broker.Requester. A reply for which the client has no credit is dropped, as by RabbitMQ (BR-12.4).
func (k *consumer) Reply(_, _ []byte, body message.Ref) {
	s, c := k.s, k.s.c
	s.mu.Lock()
	taken := !s.closed && !k.ended && int32(k.limit-k.granted.Load()) > 0 && c.out.Pending()+s.parked.Load() <= maxReplies
	if taken {
		k.granted.Add(1)
		it := item{kind: itemDelivery, s: s, consumer: k}
		it.d.Body, it.d.NoAck = body, true
		c.deliver(&it)
	}
	s.mu.Unlock()
	if !taken {
		c.broker.Bodies().Release(body)
		return
	}
	c.out.Flush(true)
}

// heedReplies answers a flow for a link of direct replies: nothing ever waits for it.
func (k *consumer) heedReplies() {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || k.ended || !k.drain && !k.echo {
		return
	}
	f := flow{credit: k.limit, drain: k.drain}
	if k.drain {
		f.drained = uint32(max(0, int32(k.limit-k.granted.Load())))
		k.granted.Store(k.limit)
	}
	k.drain, k.echo = false, false
	s.c.putItem(item{kind: itemFlow, s: s, consumer: k, flow: &f})
}

// seesRequester says whether a name is that of a requester. Those of the session itself it does not see, as in RabbitMQ.
func (s *session) seesRequester(name string) bool {
	r, ok := s.c.broker.Requester(name)
	if !ok {
		return false
	}
	k, ours := r.(*consumer)
	return !ours || k.s != s
}

// queueName is the name of what the link consumes from.
func (k *consumer) queueName() string {
	if k.q == nil {
		return k.replies
	}
	return k.q.Name
}

// quorum says whether the link consumes from a quorum queue.
func (k *consumer) quorum() bool { return k.q != nil && k.q.Type() == queue.Quorum }
