package topology

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

// BindingDecl is a client's declaration or removal of a binding.
type BindingDecl struct {
	VHost           message.VHost
	Source          message.ExchangeName
	DestinationKind ResourceKind // ExchangeResource or QueueResource
	Destination     string
	Key             message.RoutingKey
	Arguments       amqp091.Table
	// Owner is the requesting connection, for exclusive queues.
	Owner string

	encoded   encodedArguments // see EncodeArguments
	unencoded error
	arguments string // see Identify
}

// Identify computes the form of the arguments that identifies the binding. This takes a while if they are many, so callers
// do it without the lock. The State does it if the caller did not.
func (d *BindingDecl) Identify() {
	if d.arguments == "" && len(d.Arguments) > 0 {
		d.Arguments = d.Arguments.Sorted()
		d.arguments = string(amqp091.AppendTable(nil, d.Arguments))
	}
}

func (d *BindingDecl) destination() Resource {
	return Resource{VHost: d.VHost, Kind: d.DestinationKind, Name: d.Destination}
}

// Binding is a rule by which a source's messages reach a destination.
type Binding struct {
	VHost message.VHost
	// Source is nil for the implicit bindings of the default exchange.
	Source *Exchange
	// Exactly one of the destinations is set.
	Queue     *Queue
	Exchange  *Exchange
	Key       message.RoutingKey
	Arguments amqp091.Table

	id     bindingID
	entry  routing.Binding
	linked bool          // it is in the lists of both ends
	at     [bothEnds]int // its index in each list
}

// The two ends of a binding.
const (
	atSource = iota
	atDestination
	bothEnds
)

// bindings are the bindings at one end. Their order depends only on the order of changes.
type bindings struct {
	end  int
	byID map[bindingID]*Binding
	list []*Binding
}

func newBindings(end int) bindings { return bindings{end: end, byID: map[bindingID]*Binding{}} }

func (s *bindings) add(b *Binding) {
	s.byID[b.id] = b
	b.at[s.end] = len(s.list)
	s.list = append(s.list, b)
}

// remove puts the last binding in the place of b. takeAll may have removed b already.
func (s *bindings) remove(b *Binding) {
	if len(s.list) == 0 {
		return
	}
	delete(s.byID, b.id)
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[b.at[s.end]], moved.at[s.end] = moved, b.at[s.end]
	s.list[last] = nil
	s.list = s.list[:last]
}

// takeAll removes and returns all bindings.
func (s *bindings) takeAll() []*Binding {
	list := s.list
	*s = newBindings(s.end)
	return list
}

// bindingID is a binding's identity within its virtual host (BR-6.2). Arguments are compared as encoded bytes, sorted.
type bindingID struct {
	source      message.ExchangeName
	kind        ResourceKind
	destination string
	key         message.RoutingKey
	arguments   string
}

func (a bindingID) compare(b bindingID) int {
	return cmp.Or(
		cmp.Compare(a.source, b.source),
		cmp.Compare(a.destination, b.destination),
		cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.key, b.key),
		cmp.Compare(a.arguments, b.arguments),
	)
}

// SourceName returns the source exchange's name, "" for the default exchange.
func (b *Binding) SourceName() message.ExchangeName { return b.id.source }

// Destination names what the binding leads to.
func (b *Binding) Destination() Resource {
	return Resource{VHost: b.VHost, Kind: b.id.kind, Name: b.id.destination}
}

// PropertiesKey is the management API's name of a binding among the bindings between the same two ends (BR-15.6): the
// percent-encoded key, and a hash of the arguments if there are any. Its characters are safe in a URL.
func (b *Binding) PropertiesKey() string {
	if b.id.key == "" && len(b.Arguments) == 0 {
		return "~"
	}
	key := strings.ReplaceAll(url.QueryEscape(string(b.id.key)), "~", "%7E")
	if len(b.Arguments) == 0 {
		return key
	}
	return key + "~" + b.id.argumentsHash()
}

// argumentsHash need only distinguish bindings with one key between the same two ends.
func (a bindingID) argumentsHash() string {
	sum := sha256.Sum256([]byte(a.arguments))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func newBinding(d *BindingDecl, source, exchange *Exchange, queue *Queue) *Binding {
	d.Identify()
	b := &Binding{VHost: d.VHost, Source: source, Queue: queue, Exchange: exchange, Key: d.Key, Arguments: d.Arguments}
	b.id = bindingID{d.Source, d.DestinationKind, d.Destination, d.Key, d.arguments}
	b.entry = routing.Binding{Key: string(d.Key), Arguments: d.Arguments}
	if queue != nil {
		b.entry.Destination = queue
		b.entry.Name = "q/" + d.Destination
		b.entry.QueueType = queue.Type.module()
	} else {
		b.entry.Destination = exchange
		b.entry.Name = "e/" + d.Destination
	}
	return b
}

// durable: a binding is kept over a restart iff both its ends are (BR-6.14).
func (b *Binding) durable() bool {
	if b.Source == nil || !b.Source.Durable {
		return false
	}
	if b.Queue != nil {
		return b.Queue.Durable
	}
	return b.Exchange.Durable
}

// findEnds checks names and permissions in RabbitMQ's order and finds the two ends. missing is the refusal if one of
// them does not exist.
func (s *State) findEnds(d *BindingDecl, permit Permit) (v *VHost, b *Binding, missing, err error) {
	if v, err = s.vhost(d.VHost); err != nil {
		return nil, nil, nil, err
	}
	d.Source = CleanName(d.Source)
	d.Destination = CleanName(d.Destination)
	if err := checkNotDefault(d.Source); err != nil {
		return nil, nil, nil, err
	}
	if d.DestinationKind == ExchangeResource {
		if err := checkNotDefault(message.ExchangeName(d.Destination)); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := permit.check(Write, d.destination()); err != nil {
		return nil, nil, nil, err
	}
	if err := permit.check(Read, exchangeResource(d.VHost, d.Source)); err != nil {
		return nil, nil, nil, err
	}
	source, ok := v.exchanges[d.Source]
	if !ok {
		return v, nil, NoExchange(d.VHost, d.Source), nil
	}
	if source.acts == routing.Topic {
		topic := Resource{VHost: d.VHost, Kind: TopicResource, Name: string(d.Source), Key: string(d.Key)}
		if err := permit.check(Read, topic); err != nil {
			return nil, nil, nil, err
		}
	}
	if d.DestinationKind == ExchangeResource {
		x, ok := v.exchanges[message.ExchangeName(d.Destination)]
		if !ok {
			return v, nil, NoExchange(d.VHost, message.ExchangeName(d.Destination)), nil
		}
		return v, newBinding(d, source, x, nil), nil, nil
	}
	q, ok := v.queues[message.QueueName(d.Destination)]
	if !ok {
		return v, nil, NoQueue(d.VHost, message.QueueName(d.Destination)), nil
	}
	return v, newBinding(d, source, nil, q), nil, nil
}

// checkAccess refuses a binding of another connection's exclusive queue (BR-7.5).
func (b *Binding) checkAccess(owner string) error {
	if b.Queue == nil {
		return nil
	}
	return b.Queue.CheckAccess(owner)
}

// Bind makes a binding, unless it exists already (BR-6.1, BR-6.2). A missing end is NotFound; a queue that is not stored
// yet is ErrUnstored.
func (s *State) Bind(d BindingDecl, permit Permit) (b *Binding, created bool, err error) {
	d.EncodeArguments()
	v, b, missing, err := s.findEnds(&d, permit)
	if err = cmp.Or(err, missing); err != nil {
		return nil, false, cmp.Or(d.unencoded, err)
	}
	if err := b.checkAccess(d.Owner); err != nil {
		return nil, false, err
	}
	if b.Queue != nil && b.Queue.unstored {
		return nil, false, ErrUnstored // otherwise an exchange could route a message to it
	}
	if old, ok := b.Source.out.byID[b.id]; ok {
		return old, false, nil
	}
	if d.unencoded != nil {
		return nil, false, d.unencoded
	}
	if err := v.checkKey(b.Source, b.Key); err != nil {
		return nil, false, err
	}
	if err := b.Source.table.Check(&b.entry); err != nil {
		return nil, false, Refuse(PreconditionFailed, "%s", err)
	}
	b.link(v)
	s.revision++
	if b.durable() {
		s.logBinding(b, d.encoded)
	}
	return b, true, nil
}

// link enters the binding of a virtual host at both its ends.
func (b *Binding) link(v *VHost) {
	b.linked = true
	b.Source.out.add(b)
	b.Source.table.Add(&b.entry)
	b.Source.bound++
	v.bound++
	b.incoming().add(b)
}

func (b *Binding) incoming() *bindings {
	if b.Queue != nil {
		return &b.Queue.in
	}
	return &b.Exchange.in
}

// Unbind removes a binding, and exchanges that are auto-deleted because of it. Neither a missing binding nor a missing
// end is an error (BR-6.2).
func (s *State) Unbind(d BindingDecl, permit Permit) (Removed, error) {
	v, b, missing, err := s.findEnds(&d, permit)
	if err != nil || missing != nil {
		return Removed{}, err
	}
	old, ok := b.Source.out.byID[b.id]
	if !ok {
		return Removed{}, nil // as RabbitMQ, which checks the queue's owner only after this
	}
	if err := b.checkAccess(d.Owner); err != nil {
		return Removed{}, err
	}
	var removed Removed
	s.dropIncoming(v, []*Binding{old}, &removed)
	s.revision++
	return removed, nil
}

// dropBinding takes the binding out at both ends. It is a no-op for one already gone: a binding of an exchange to
// itself is met at both ends.
func (s *State) dropBinding(b *Binding, removed *Removed) {
	if !b.linked {
		return
	}
	b.linked = false
	b.Source.out.remove(b)
	b.incoming().remove(b)
	b.Source.table.Remove(&b.entry)
	switch {
	case !b.durable():
	case b.endGone(s.vhosts[b.VHost]):
		s.log.DeleteLate(b)
	default:
		s.log.DeleteOf(b)
	}
	removed.Bindings = append(removed.Bindings, b)
}

// endGone says whether one of its ends has been deleted from v.
func (b *Binding) endGone(v *VHost) bool {
	switch {
	case v.exchanges[b.Source.Name] != b.Source:
		return true
	case b.Queue != nil:
		return v.queues[b.Queue.Name] != b.Queue
	}
	return v.exchanges[b.Exchange.Name] != b.Exchange
}

// implicitBinding is the default exchange's binding of a queue, which exists as long as the queue does (BR-5.3).
func implicitBinding(q *Queue) *Binding {
	return newBinding(&BindingDecl{
		VHost: q.VHost, DestinationKind: QueueResource, Destination: string(q.Name), Key: message.RoutingKey(q.Name),
	}, nil, nil, q)
}

// Bindings lists all bindings by source, destination and key; the implicit ones of the default exchange come first.
func (v *VHost) Bindings() []*Binding { return v.Snapshot().Bindings() }

// BindingsLike lists, in no order, the bindings between two ends that a properties key may mean: see FindBinding. They
// are few, because all have the routing key in it.
func (v *VHost) BindingsLike(source message.ExchangeName, kind ResourceKind, destination, propertiesKey string) (list []*Binding) {
	var in *bindings
	if kind == QueueResource {
		q, ok := v.queues[message.QueueName(destination)]
		if !ok {
			return nil
		}
		if source == "" {
			return []*Binding{implicitBinding(q)}
		}
		in = &q.in
	} else if x, ok := v.exchanges[message.ExchangeName(destination)]; ok {
		in = &x.in
	} else {
		return nil
	}
	keys, hashed := keysOf(propertiesKey)
	id := bindingID{source: source, kind: kind, destination: destination}
	for _, id.key = range keys {
		if b, ok := in.byID[id]; ok {
			list = append(list, b)
		}
	}
	if !hashed {
		return list
	}
	for _, b := range in.list {
		if b.id.source == source && b.id.arguments != "" && slices.Contains(keys, b.id.key) {
			list = append(list, b)
		}
	}
	return list
}

// keysOf returns the routing keys that a properties key may mean, and whether it may mean a binding with arguments.
func keysOf(propertiesKey string) (keys []message.RoutingKey, hashed bool) {
	add := func(key string) {
		if k := message.RoutingKey(key); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	encoded, hash, _ := strings.Cut(propertiesKey, "~")
	if key, err := url.QueryUnescape(encoded); err == nil {
		add(key)
	}
	if decoded, err := url.QueryUnescape(propertiesKey); err == nil {
		add(decoded)
		if at := strings.LastIndexByte(decoded, '~'); at >= 0 {
			add(decoded[:at])
			hashed = decoded[at+1:] != ""
		}
	}
	return keys, hashed || hash != ""
}

// FindBinding finds the binding with a PropertiesKey among BindingsLike. The key may have been decoded once too often.
// FindBinding needs no lock.
func FindBinding(among []*Binding, propertiesKey string) (*Binding, bool) {
	SortBindings(among)
	for _, b := range among {
		if b.PropertiesKey() == propertiesKey {
			return b, true
		}
	}
	decoded, err := url.QueryUnescape(propertiesKey)
	if err != nil {
		return nil, false
	}
	for _, b := range among {
		if key, err := url.QueryUnescape(b.PropertiesKey()); err == nil && key == decoded {
			return b, true
		}
	}
	return nil, false
}

// BindingsBetween lists the bindings from an exchange to a destination in no order: see SortBindings.
func (v *VHost) BindingsBetween(source message.ExchangeName, kind ResourceKind, destination string) []*Binding {
	var list []*Binding
	if kind == QueueResource {
		if q, ok := v.queues[message.QueueName(destination)]; ok {
			list = q.Bindings()
		}
	} else if x, ok := v.exchanges[message.ExchangeName(destination)]; ok {
		list = x.BindingsTo()
	}
	return slices.DeleteFunc(list, func(b *Binding) bool { return b.id.source != source })
}
