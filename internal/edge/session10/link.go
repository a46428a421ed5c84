package session10

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// attach answers attach (2.6.3). A link that is refused is answered without the terminus that would be ours, and detached
// with the reason.
func (s *session) attach(a *amqp10.Attach) error {
	c := s.c
	if a.Handle > s.handleMax {
		return failSession(amqp10.ConditionFramingError, "link handle value (%d) exceeds maximum link handle value (%d)", a.Handle, s.handleMax)
	}
	s.mu.Lock()
	_, used := s.consumers[a.Handle]
	s.mu.Unlock()
	if used || s.publishers[a.Handle] != nil || s.managerOf(a.Handle) != nil {
		return failSession(amqp10.ConditionHandleInUse, "handle %d is already associated with a link", a.Handle)
	}
	c.flushOps() // what came before is done before the link begins
	var err error
	if a.Role == amqp10.RoleSender {
		err = s.attachPublisher(a)
	} else {
		err = s.attachConsumer(a)
	}
	if err == nil {
		return nil
	}
	f := asFailure(err)
	if f.scope != ofLink {
		return f
	}
	c.log.Warn("refused a link", "link", printable(a.Name), "channel", s.number, "condition", f.condition, "reason", f.text, "user", c.login.User)
	answer := amqp10.Attach{Name: a.Name, Handle: a.Handle, Role: !a.Role, SndSettleMode: a.SndSettleMode, RcvSettleMode: a.RcvSettleMode}
	if a.Role == amqp10.RoleSender {
		answer.Source = a.Source
	} else {
		answer.Target, answer.InitialDeliveryCount = a.Target, amqp10.Some[uint32](0)
	}
	c.putFrame(s.number, &answer)
	c.putFrame(s.number, &amqp10.Detach{Handle: a.Handle, Closed: true, Error: f.wire()})
	return nil
}

// checkAttach refuses what RabbitMQ has not either.
func checkAttach(a *amqp10.Attach) error {
	switch {
	case a.Target.Descriptor() == amqp10.DescriptorCoordinator:
		return failLink(amqp10.ConditionNotImplemented, "Transactions not supported")
	case a.Unsettled.Len() > 0, a.IncompleteUnsettled:
		return failLink(amqp10.ConditionNotImplemented, "Link recovery not supported")
	case a.RcvSettleMode == amqp10.ReceiverSettleModeSecond && !settles(a):
		return failLink(amqp10.ConditionNotImplemented, "rcv-settle-mode second not supported")
	}
	return nil
}

// settles says whether the sender of a link settles everything it sends.
func settles(a *amqp10.Attach) bool {
	return a.SndSettleMode.Set && a.SndSettleMode.Value == amqp10.SenderSettleModeSettled
}

// outcomeNames are the outcomes that we know, all those of the standard (3.4).
var outcomeNames = []string{
	amqp10.DescriptorAccepted.String(), amqp10.DescriptorRejected.String(), amqp10.DescriptorReleased.String(), amqp10.DescriptorModified.String(),
}

// outcomes are those of a source: what the client names, or all.
func outcomes(v amqp10.Value) (amqp10.Value, error) {
	if v.IsNull() {
		all, _, _ := amqp10.ReadValue(amqp10.AppendSymbols(nil, outcomeNames...))
		return all, nil
	}
	list := v.Symbols()
	for name, ok := list.Next(); ok; name, ok = list.Next() {
		if !slices.Contains(outcomeNames, string(name)) {
			return v, failLink(amqp10.ConditionNotImplemented, "Outcomes not supported: [{symbol,%s}]", erlangBinary(name))
		}
	}
	return v, nil
}

// managementNode is the address of the node by which clients declare and bind: see manager.
const managementNode = "/management"

// attachPublisher begins a link on which the client sends.
func (s *session) attachPublisher(a *amqp10.Attach) error {
	if err := checkAttach(a); err != nil {
		return err
	}
	c := s.c
	if a.Target.IsNull() {
		return failLink(amqp10.ConditionInvalidField, "Attach refused: target_required")
	}
	if !a.InitialDeliveryCount.Set {
		return failSession(amqp10.ConditionInvalidField, "initial-delivery-count is not set by the sender").violation()
	}
	var tgt amqp10.Target
	if err := tgt.Decode(a.Target); err != nil { // most often its address, which is no string
		return failLink(amqp10.ConditionInvalidField, "Attach refused: {amqp_address_v1_not_permitted,{%s}}", err)
	}
	if string(tgt.Address) == managementNode && settles(a) {
		return s.attachManager(a, sourceAddress(a.Source))
	}
	answered := a.Target
	var made message.QueueName
	if tgt.Dynamic {
		var err error
		if made, err = s.makeTarget(a.Name, &tgt); err != nil {
			return err
		}
		answered, _, _ = amqp10.ReadValue(tgt.Append(nil))
	}
	to, err := s.resolveTarget(&tgt)
	if err == nil {
		err = checkOutcomes(a.Source)
	}
	if err != nil {
		s.dropTemporary(made)
		return err
	}
	p := &publisher{s: s, handle: a.Handle, name: printable(a.Name), address: string(tgt.Address), to: to, made: made, mode: a.SndSettleMode.Value}
	p.confirms.count, p.confirms.credit = a.InitialDeliveryCount.Value, firstCredit
	p.exchange, p.key = []byte(to.exchange), []byte(to.key)
	c.chMu.Lock()
	s.publishers[a.Handle] = p
	c.chMu.Unlock()
	c.putFrame(s.number, &amqp10.Attach{
		Name: a.Name, Handle: a.Handle, Role: amqp10.RoleReceiver, SndSettleMode: a.SndSettleMode, Source: a.Source, Target: answered,
		MaxMessageSize: amqp10.Some(uint64(c.link.MaxMessageSize())),
	})
	p.confirms.mu.Lock()
	p.grant()
	p.confirms.mu.Unlock()
	return nil
}

// checkOutcomes refuses the source of a client that sends if it names outcomes that nobody knows.
func checkOutcomes(source amqp10.Value) error {
	if source.Descriptor() != amqp10.DescriptorSource {
		return nil
	}
	var src amqp10.Source
	if err := src.Decode(source); err != nil {
		return undecodable(err)
	}
	_, err := outcomes(src.Outcomes)
	return err
}

// resolveTarget says where messages go, if the client may send there.
func (s *session) resolveTarget(tgt *amqp10.Target) (to target, err error) {
	if tgt.Address == nil {
		return target{anonymous: true}, nil
	}
	address := string(tgt.Address)
	if !isVersion2(address) {
		return to, refuseVersion1(tgt.Address)
	}
	to, ok := parseTarget(address)
	if !ok {
		return to, failLink(amqp10.ConditionInvalidField, "Attach refused: {bad_address_string,%s}", erlangBinary(tgt.Address))
	}
	link := s.c.link
	if to.queue && !link.HasQueue(message.QueueName(to.key)) && !s.seesRequester(to.key) {
		return to, topology.NoQueue(link.VHost, message.QueueName(to.key))
	}
	if err := message.CheckName("routing_key", to.key); err != nil { // no message could have it
		return to, failLink(amqp10.ConditionPreconditionFailed, "%s", err)
	}
	if err = link.MayPublish(&broker.Publication{Exchange: []byte(to.exchange), Key: []byte(to.key)}); err != nil {
		return to, forbidden(err)
	}
	return to, nil
}

// forbidden is the failure of a publish that is refused, with RabbitMQ's text for an internal exchange.
func forbidden(err error) *failure {
	f := asFailure(err)
	f.text = strings.Replace(f.text, "cannot publish to internal", "forbidden to publish to internal", 1)
	return f
}

// attachConsumer begins a link on which we send.
func (s *session) attachConsumer(a *amqp10.Attach) error {
	if err := checkAttach(a); err != nil {
		return err
	}
	if a.Source.IsNull() {
		return failLink(amqp10.ConditionInvalidField, "Attach refused: source_required")
	}
	var src amqp10.Source
	if err := src.Decode(a.Source); err != nil {
		return failLink(amqp10.ConditionInvalidField, "Attach refused: {bad_address,{%s}}", err)
	}
	if mode := string(src.DistributionMode); mode != "" && mode != "move" && mode != "copy" {
		return failSession(amqp10.ConditionInvalidField, "there is no distribution mode '%s'", printable(src.DistributionMode)).violation()
	}
	if string(src.Address) == managementNode {
		var tgt amqp10.Target
		if a.Target.Descriptor() == amqp10.DescriptorTarget {
			if err := tgt.Decode(a.Target); err != nil {
				return undecodable(err)
			}
		}
		return s.attachManager(a, tgt.Address)
	}
	c := s.c
	all, err := outcomes(src.Outcomes)
	if err != nil {
		return err
	}
	if !src.Dynamic {
		name, err := sourceQueue(&src)
		if err != nil {
			return err
		}
		if s.seesRequester(string(name)) {
			return failLink(amqp10.ConditionPreconditionFailed, "only creator channel may consume from %s", topology.Resource{VHost: c.link.VHost, Kind: topology.QueueResource, Name: string(name)})
		}
		return s.consume(a, &src, all, name, "")
	}
	if wantsReplies(a, &src) {
		return s.attachReplies(a, &src)
	}
	made, err := s.makeSource(a.Name, &src)
	if err != nil {
		return err
	}
	if err = s.consume(a, &src, all, made, made); err != nil {
		s.dropTemporary(made)
	}
	return err
}

// consume begins a link on which we send what is in a queue. made is the queue if it was made for the link.
func (s *session) consume(a *amqp10.Attach, src *amqp10.Source, all amqp10.Value, name, made message.QueueName) error {
	c := s.c
	q, err := c.link.Find(name, topology.Read)
	if err != nil {
		f := asFailure(err)
		f.text, _, _ = strings.Cut(f.text, ". It could be originally declared") // which RabbitMQ says in AMQP 0-9-1 only
		return f
	}
	noAck := settles(a)
	k := &consumer{s: s, handle: a.Handle, name: printable(a.Name), address: string(src.Address), made: made, maxMessage: a.MaxMessageSize.Value}
	k.Consumer = queue.Consumer{Target: k, Tag: fmt.Sprint(a.Handle), NoAck: noAck, Credited: true}
	k.properties(a.Properties, q.Decl)
	mode := amqp10.SenderSettleModeUnsettled
	if noAck {
		mode = amqp10.SenderSettleModeSettled
	}
	released, _, _ := amqp10.ReadValue((&amqp10.Released{}).Append(nil))
	src.DefaultOutcome, src.Outcomes, src.Capabilities = released, all, amqp10.Value{}
	if filter := src.Filter; !filter.IsNull() {
		b, start := amqp10.BeginMap(nil)
		src.Filter, _, _ = amqp10.ReadValue(amqp10.EndCompound(b, start, 0)) // none of them is in place
		if c.Strict {
			src.Filter = understood(filter)
		}
	}
	src.DistributionMode = []byte("move")
	source, _, _ := amqp10.ReadValue(src.Append(nil))
	answer := &amqp10.Attach{
		Name: a.Name, Handle: a.Handle, Role: amqp10.RoleSender, SndSettleMode: amqp10.Some(mode), RcvSettleMode: a.RcvSettleMode,
		Source: source, InitialDeliveryCount: amqp10.Some[uint32](0), MaxMessageSize: a.MaxMessageSize,
	}
	_, err = c.link.Consume(name, &k.Consumer, func(q *partition.Queue) {
		k.q = q
		s.mu.Lock()
		s.consumers[a.Handle] = k
		s.mu.Unlock()
		c.putFrame(s.number, answer)
	})
	return err
}

// sourceAddress is the address of a source, nil if it has none.
func sourceAddress(v amqp10.Value) []byte {
	var src amqp10.Source
	if v.Descriptor() != amqp10.DescriptorSource || src.Decode(v) != nil {
		return nil
	}
	return src.Address
}

// sourceQueue is the queue that a source names.
func sourceQueue(src *amqp10.Source) (message.QueueName, error) {
	address := string(src.Address)
	switch name, ok := parseSource(address); {
	case ok:
		return name, nil
	case src.Address == nil:
		return "", failLink(amqp10.ConditionInvalidField, "Attach refused: {bad_address,undefined}")
	case strings.HasPrefix(address, queuesPrefix):
		return "", failLink(amqp10.ConditionInvalidField, "Attach refused: {bad_address,{utf8,%s}}", erlangBinary(src.Address))
	}
	return "", refuseVersion1(src.Address)
}

// detach answers detach. One that the client sends for ours is not answered again.
func (s *session) detach(d *amqp10.Detach) error {
	c := s.c
	s.mu.Lock()
	k := s.consumers[d.Handle]
	s.mu.Unlock()
	p := s.publishers[d.Handle]
	switch {
	case k != nil && k.q == nil:
		c.broker.RemoveRequester(k.replies)
		if s.endConsumer(k, true) {
			s.letGo(k)
		}
	case k != nil:
		c.flushOps() // what it has settled does not go back
		alone := k.q.Config().SingleActive
		if alone { // the next one begins with what this one has not settled: it gets no more, but is the active one until that is back
			_, _, _ = c.link.Grant(k.q, &k.Consumer, math.MinInt32, false)
		} else {
			c.link.Cancel(k.q, &k.Consumer, nil)
		}
		if !s.endConsumer(k, true) {
			return nil // its queue was deleted at the same time
		}
		s.forget(k, func(u *unsettled) { c.addOp(k.detached(u.id), opOwner{}) })
		c.flushOps()
		if alone {
			c.link.Cancel(k.q, &k.Consumer, nil)
		}
		s.letGo(k)
		c.link.NotifyConsumerGone(k.q, k.Tag, s.number, true)
		s.dropTemporary(k.made)
	case p != nil:
		c.flushOps()
		c.confirm()
		if p.confirms.waiting() > 0 {
			c.link.Settle()
		}
		s.endPublisher(p)
		s.dropTemporary(p.made)
	default:
		m := s.managerOf(d.Handle)
		if m == nil {
			return nil
		}
		s.detachManager(m, d.Handle)
	}
	c.putFrame(s.number, &amqp10.Detach{Handle: d.Handle, Closed: d.Closed})
	return nil
}

// endConsumer takes a consumer out of the session: no delivery of it becomes unsettled any more. was is false if somebody else has done
// it. back says that deliveries in the output go back one by one.
func (s *session) endConsumer(k *consumer, back bool) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.ended {
		return false
	}
	k.ended, k.back = true, back
	k.gone.Store(true)
	delete(s.consumers, k.handle)
	return true
}

// letGo gives back what is parked of a consumer that has ended: see pen.withdraw. It comes behind what the client has and has not settled.
func (s *session) letGo(k *consumer) { s.c.putItem(item{kind: itemWindow, s: s, consumer: k}) }

// forget takes what a consumer that has ended has not settled out of the session, and calls f for each delivery, in order.
// session.mu is free meanwhile, and now and then: there may be millions.
func (s *session) forget(k *consumer, f func(u *unsettled)) {
	var list []unsettled
	for from, more := uint64(0), true; more; {
		s.mu.Lock()
		list, from, more = s.unsettled.takeOf(k, from, list[:0])
		s.mu.Unlock()
		for i := range list {
			f(&list[i])
		}
	}
}

func (s *session) endPublisher(p *publisher) {
	p.end()
	s.c.chMu.Lock()
	delete(s.publishers, p.handle)
	s.c.chMu.Unlock()
}

// fail detaches a publisher with an error, after everything before it was answered.
func (p *publisher) fail(f *failure) {
	s := p.s
	c := s.c
	c.flushOps()
	c.confirm()
	if p.confirms.waiting() > 0 {
		c.link.Settle()
	}
	c.log.Warn("detaching a link", "link", p.name, "channel", s.number, "condition", f.condition, "reason", f.text, "user", c.login.User)
	s.endPublisher(p)
	s.dropTemporary(p.made)
	c.putFrame(s.number, &amqp10.Detach{Handle: p.handle, Closed: true, Error: f.wire()})
}

// properties reads the properties of a consumer's link.
func (k *consumer) properties(v amqp10.Value, decl *topology.Queue) {
	if n, ok := v.Lookup("rabbitmq:priority"); ok && n.Type() == amqp10.TypeInt {
		k.Priority, _ = n.Int64()
		k.arguments = append(k.arguments, amqp091.Field{Key: "x-priority", Value: k.Priority})
	}
	if n, ok := v.Lookup("rabbitmq:consumer-timeout"); ok && n.Type() == amqp10.TypeUint && decl.Type == topology.Quorum {
		ms, _ := n.Uint64()
		k.Timeout = int64(ms)
		k.arguments = append(k.arguments, amqp091.Field{Key: "x-consumer-timeout", Value: k.Timeout})
	}
}
