package peer

import (
	"math"
	"reflect"
	"strings"

	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// A script is what a client says, as it follows from an input.
type script struct {
	apsara   bool // in a virtual host of that profile
	policies []policy
	lives    []life
	percent  int // of what was not synced, that a crash leaves
	promises *promises
}

// A policy is one that is set before anybody connects.
type policy struct {
	topology.PolicyDecl
	operator bool
}

// A life is one connection.
type life struct {
	startOk amqp091.ConnectionStartOk
	tuneOk  amqp091.ConnectionTuneOk
	open    amqp091.ConnectionOpen
	bursts  []burst
	end     end
	// stranger says that it is not let in: it says everything at once and goes, since the
	// node takes its time to refuse.
	stranger bool
}

// A burst is what leaves at once, or in two writes.
type burst struct {
	bytes []byte
	cut   int // 0: not
}

// end is how a connection ends.
type end int

const (
	inOrder end = iota
	halfClosed
	reset
	midFrame
	ends
)

// What a script is bounded by.
const (
	mostLives      = 3
	mostOperations = 60
	channels       = 4
	// apart is where the numbers of channels begin that are used for one method.
	apart = 100
)

// methods are all that the protocol has, as zero values, found by asking for each number.
var methods = func() (all []amqp091.Method) {
	for class := range 120 {
		for method := range 200 {
			id := amqp091.MethodID(class<<16 | method)
			payload := []byte{0, byte(class), 0, byte(method)}
			if strings.Contains(id.String(), ".") && id.String()[0] <= '9' {
				continue // numbers: there is no such method
			}
			for range 64 { // until all its arguments are there
				if m, err := amqp091.DecodeMethod(payload); err == nil {
					all = append(all, m)
					break
				}
				payload = append(payload, 0)
			}
		}
	}
	return all
}()

// often are the methods that clients live by, those that lead to more the more often.
var often = []amqp091.Method{
	&amqp091.BasicPublish{}, &amqp091.BasicPublish{}, &amqp091.BasicPublish{}, &amqp091.BasicPublish{}, &amqp091.BasicPublish{}, &amqp091.BasicPublish{}, &amqp091.BasicPublish{},
	&amqp091.BasicConsume{}, &amqp091.BasicConsume{}, &amqp091.BasicConsume{}, &amqp091.BasicCancel{},
	&amqp091.BasicGet{}, &amqp091.BasicGet{}, &amqp091.BasicGet{},
	&amqp091.BasicAck{}, &amqp091.BasicNack{}, &amqp091.BasicNack{}, &amqp091.BasicReject{}, &amqp091.BasicReject{}, &amqp091.BasicRecover{}, &amqp091.BasicRecoverAsync{},
	&amqp091.BasicQos{}, &amqp091.TxCommit{}, &amqp091.TxCommit{}, &amqp091.TxRollback{},
	&amqp091.QueueDeclare{}, &amqp091.QueueDeclare{}, &amqp091.QueueDeclare{}, &amqp091.QueueDelete{}, &amqp091.QueuePurge{}, &amqp091.QueueBind{}, &amqp091.QueueUnbind{},
	&amqp091.ExchangeDeclare{}, &amqp091.ExchangeDeclare{}, &amqp091.ExchangeBind{}, &amqp091.ExchangeUnbind{}, &amqp091.ExchangeDelete{},
	&amqp091.ChannelClose{},
}

var (
	queues    = []string{"c", "q", "d", "c", "q", "c2", "q2", "", "amq.rabbitmq.reply-to", long, "none", "amq.x", wide}
	exchanges = []string{"", "e", "", "e", "x", "amq.topic", "amq.headers", "amq.direct", "amq.fanout", long, "none", "amq.rabbitmq.trace", "amq.new", wide}
	keys      = []string{"c", "q", "d", "c", "q", "c2", "q2", "", long, "a.b.c", "a.#", "*.b.#", "amq.rabbitmq.reply-to", wide, "none", strings.Repeat(".", 255), "1", "10"}
	types     = []string{"fanout", "topic", "direct", "headers", "x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random", "x-jms-topic", "x-delayed-message", "x-recent-history", "", long}
	tags      = []string{"1", "2", "3", "", long, wide, "amq.ctag-x"}
	// sizes of bodies: small ones are likelier.
	sizes = []int{1, 0, 1, 3, 1, 100, 3, 1, 4096, 5000, 1, 0, 3, 100, 70_000, 200_000}
	// deliveryTags are mostly those of the first deliveries.
	deliveryTags = []uint64{1, 2, 3, 0, 0, 4, 1, 0, 5, 2, 0, 1, 0, 6, 7, 8, 9, 10, 255, 1 << 31, 1 << 32, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}
)

// generate makes a script from an input.
func generate(input []byte) (s script) {
	s.promises = newPromises()
	c := &choices{rest: input, promises: s.promises}
	s.apsara = c.once(8)
	for range max(0, c.below(6)-3) {
		p := policy{c.policy(), c.once(3)}
		s.promises.hearPolicy(p.Definition)
		s.policies = append(s.policies, p)
	}
	s.percent = []int{0, 50, 100, 100}[c.below(4)]
	for len(s.lives) < mostLives {
		s.lives = append(s.lives, c.life(len(s.lives) == 0))
		if c.over() {
			break
		}
	}
	return s
}

// firstMethods are what the channels of a connection begin with.
func firstMethods(channel uint16) []byte {
	b := amqp091.AppendMethod(nil, channel, amqp091.ChannelOpen{})
	switch channel {
	case 2:
		b = amqp091.AppendMethod(b, channel, amqp091.ConfirmSelect{})
	case 3:
		b = amqp091.AppendMethod(b, channel, amqp091.TxSelect{})
	}
	return b
}

func (c *choices) life(first bool) (l life) {
	l.startOk = amqp091.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US", ClientProperties: amqp091.Table{
		{Key: "capabilities", Value: amqp091.Table{{Key: "consumer_cancel_notify", Value: true}, {Key: "basic.nack", Value: true}}},
	}}
	l.tuneOk = amqp091.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072}
	if c.once(8) {
		c.handshake(&l)
	}
	var b []byte
	for n := range uint16(channels) {
		b = append(b, firstMethods(n+1)...)
	}
	if first {
		b = c.world(b)
	}
	for range mostOperations {
		if c.once(8) {
			for _, step := range c.story() {
				b = append(b, step...)
				if c.once(2) {
					l.bursts = append(l.bursts, c.burst(b))
					b = nil
				}
			}
		}
		b = c.operation(b)
		if c.once(6) {
			l.bursts = append(l.bursts, c.burst(b))
			b = nil
		}
		if c.over() || c.once(40) {
			break
		}
	}
	l.bursts = append(l.bursts, c.burst(b))
	l.end = end(c.below(int(ends)))
	return l
}

// handshake makes it one that most clients would not make.
func (c *choices) handshake(l *life) {
	l.startOk.ClientProperties = c.table(clientProperties, 4)
	l.tuneOk.ChannelMax = []uint16{2047, 2047, 1100, 3}[c.below(4)]
	l.tuneOk.FrameMax = []uint32{131072, 131072, 4096, 4097}[c.below(4)]
	l.tuneOk.Heartbeat = []uint16{0, 1, 60, math.MaxUint16}[c.below(4)]
	if c.once(8) {
		l.stranger = true
		c.fill(&l.startOk)
		c.fill(&l.tuneOk)
		c.fill(&l.open)
	}
}

func (c *choices) burst(b []byte) burst {
	cut := 0
	if len(b) > 1 && c.once(4) {
		cut = 1 + (int(c.next())<<8|int(c.next()))%(len(b)-1)
	}
	return burst{b, cut}
}

// world declares what the rest is about: a classic and a quorum queue, a queue of dead
// letters, and an exchange that is bound to all of them.
func (c *choices) world(b []byte) []byte {
	toD := amqp091.Table{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: "d"}}
	for _, name := range []string{"c", "q"} {
		arguments := c.queueTable(name == "q", 3)
		if name == "q" {
			arguments = append(arguments, amqp091.Field{Key: "x-queue-type", Value: "quorum"})
		}
		if !c.once(4) {
			arguments = append(arguments, toD...)
		}
		// Each on a channel of its own, for one that is refused. Then there is one without
		// arguments.
		for i, t := range []amqp091.Table{arguments, c.kind(name)} {
			apart := apart + uint16(i) + uint16(name[0])
			b = amqp091.AppendMethod(b, apart, amqp091.ChannelOpen{})
			b = c.say(b, apart, &amqp091.QueueDeclare{Queue: name, Durable: true, Arguments: t})
		}
		b = c.say(b, 1, &amqp091.QueueDeclare{Queue: name + "2", Durable: true, Arguments: append(c.kind(name), toD...)})
	}
	b = c.say(b, 1, &amqp091.QueueDeclare{Queue: "d", Durable: true, Arguments: c.kind(pick(c, []string{"c", "q"}))})
	b = amqp091.AppendMethod(b, 1, amqp091.ExchangeDeclare{Exchange: "e", Type: types[c.below(4)], Durable: true})
	for _, name := range []string{"c2", "q2", "d"} {
		b = amqp091.AppendMethod(b, 1, amqp091.QueueBind{Queue: name, Exchange: "e", RoutingKey: name[:1]})
	}
	return b
}

// kind is the type of a queue with that name.
func (c *choices) kind(name string) amqp091.Table {
	if name[0] == 'q' {
		return amqp091.Table{{Key: "x-queue-type", Value: "quorum"}}
	}
	return nil
}

// say appends a method, and notes what follows from it.
func (c *choices) say(b []byte, channel uint16, m amqp091.Method) []byte {
	c.promises.hear(m)
	return amqp091.AppendMethod(b, channel, m)
}

// story is what a message lives through in one queue: it is published, taken, and comes back
// or dies, some times. Each step may be the end of a burst.
func (c *choices) story() (steps [][]byte) {
	queue, channel := pick(c, []string{"q", "c", "q", "c2", "q", "q2", "d"}), uint16(1+c.below(channels))
	say := func(methods ...amqp091.Method) {
		var b []byte
		for _, m := range methods {
			b = c.say(b, channel, m)
			if m.ID().HasContent() {
				b = c.content(b, channel)
			}
		}
		if channel == 3 {
			b = c.say(b, channel, &amqp091.TxCommit{})
		}
		steps = append(steps, b)
	}
	say(&amqp091.BasicPublish{RoutingKey: queue})
	consumes := c.once(3)
	if consumes {
		say(&amqp091.BasicConsume{Queue: queue, ConsumerTag: pick(c, tags), Arguments: c.table(consumerArguments, 1)})
	}
	for range 1 + c.below(4) {
		if !consumes {
			say(&amqp091.BasicGet{Queue: queue})
		}
		switch c.below(8) {
		default:
			say(&amqp091.BasicNack{Multiple: true, Requeue: !c.once(3)})
		case 3:
			say(&amqp091.BasicReject{DeliveryTag: pick(c, deliveryTags), Requeue: !c.once(3)})
		case 4:
			say(&amqp091.BasicRecover{Requeue: true})
		case 5:
			say(&amqp091.BasicAck{Multiple: true})
		}
	}
	return steps
}

// operation appends one method, with content if it has one.
func (c *choices) operation(b []byte) []byte {
	channel := uint16(1 + c.below(channels))
	var model amqp091.Method
	switch c.below(80) {
	case 79: // most of which end the connection
		model = pick(c, methods)
		if c.once(3) {
			channel = []uint16{0, channels + 1, 2047, 2048, math.MaxUint16}[c.below(5)]
		}
		if model.ID().Class() == 10 {
			channel = 0
		}
	default:
		model = pick(c, often)
	}
	m := reflect.New(reflect.TypeOf(model).Elem())
	c.fill(m.Interface())
	method := m.Interface().(amqp091.Method)
	if model.ID().Class() == amqp091.ClassTx && !c.once(8) {
		channel = 3
	}
	b = c.say(b, channel, method)
	if method.ID().HasContent() {
		b = c.content(b, channel)
	}
	return b
}

// fill chooses every argument of a method by its name and type.
func (c *choices) fill(method any) {
	v := reflect.ValueOf(method).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch f.Interface().(type) {
		case string:
			f.SetString(c.text(name))
		case bool:
			f.SetBool(c.bit(name))
		case uint8, uint16, uint32:
			f.SetUint(c.unsigned(name) & (1<<f.Type().Bits() - 1))
		case uint64:
			f.SetUint(c.unsigned(name))
		case amqp091.Table:
			f.Set(reflect.ValueOf(c.arguments(method)))
		case []byte:
			f.SetBytes([]byte(pick(c, texts)))
		}
	}
}

func (c *choices) text(name string) string {
	if c.once(32) {
		return pick(c, texts)
	}
	some := func(all []string, usual int) string { // most often one that there is
		if c.once(4) {
			return pick(c, all)
		}
		return pick(c, all[:usual])
	}
	switch name {
	case "Queue":
		return some(queues, 7)
	case "Exchange", "Source", "Destination":
		return some(exchanges, 4)
	case "RoutingKey":
		return some(keys, 7)
	case "Type":
		return pick(c, types)
	case "ConsumerTag":
		return pick(c, tags)
	}
	return pick(c, texts)
}

func (c *choices) bit(name string) bool {
	switch name {
	case "Durable":
		return !c.once(8)
	case "Passive", "Exclusive", "AutoDelete", "Internal", "Immediate":
		return c.once(8)
	case "NoAck", "NoWait", "IfUnused", "IfEmpty":
		return c.once(4)
	}
	return c.once(2)
}

func (c *choices) unsigned(name string) uint64 {
	switch name {
	case "DeliveryTag":
		return pick(c, deliveryTags)
	case "PrefetchCount":
		return []uint64{1, 0, 2, 5, 255, 256, 32768, math.MaxUint16}[c.below(8)]
	case "PrefetchSize":
		if !c.once(8) {
			return 0
		}
	}
	return uint64(pick(c, numbers))
}

// arguments chooses the table of a method.
func (c *choices) arguments(method any) amqp091.Table {
	switch m := method.(type) {
	case *amqp091.QueueDeclare:
		t := c.queueTable(m.Queue != "" && m.Queue[0] == 'q', 6)
		if m.Queue != "" && m.Queue[0] == 'q' && !c.once(8) {
			t = append(amqp091.Table{{Key: "x-queue-type", Value: "quorum"}}, t...)
		}
		if c.once(4) { // as it was declared, most likely
			t = append(c.kind(m.Queue+"-"), amqp091.Field{Key: "x-dead-letter-exchange", Value: ""}, amqp091.Field{Key: "x-dead-letter-routing-key", Value: "d"})
		}
		return t
	case *amqp091.ExchangeDeclare:
		return c.table(exchangeArguments, 2)
	case *amqp091.BasicConsume:
		return c.table(consumerArguments, 2)
	case *amqp091.ConnectionStartOk:
		return c.table(clientProperties, 4)
	}
	return c.table(bindingArguments, 3)
}

// content appends a header and a body, mostly whole ones.
func (c *choices) content(b []byte, channel uint16) []byte {
	size := pick(c, sizes)
	announced := uint64(size)
	if c.once(200) { // which ends the connection, as do those below
		announced = uint64(pick(c, numbers))
	}
	class := uint16(amqp091.ClassBasic)
	if c.once(200) {
		class = uint16(pick(c, numbers))
	}
	if c.once(200) {
		return b // no content
	}
	b = amqp091.AppendContentHeader(b, channel, class, announced, c.properties())
	if c.once(200) {
		return b
	}
	body := make([]byte, size)
	for i := range body {
		body[i] = 'a' + byte(i%26)
	}
	if c.once(8) { // frames of odd sizes, an empty one among them
		n := min(size, 1+c.below(8))
		b = amqp091.AppendBody(b, channel, body[:n], 0)
		b = append(b, amqp091.FrameBody, byte(channel>>8), byte(channel), 0, 0, 0, 0, amqp091.FrameEnd)
		body = body[n:]
	}
	return amqp091.AppendBody(b, channel, body, []int{131072, 4096, 8 + 1001, 131072}[c.below(4)])
}

// properties chooses them, and says none at times.
func (c *choices) properties() []byte {
	var l amqp091.PropertyList
	if !c.once(3) {
		two := uint8(2)
		l.DeliveryMode = &two
	}
	if c.once(2) {
		l.Headers = c.table(headers, 4)
	}
	if c.once(4) {
		v := reflect.ValueOf(&l).Elem()
		for range 1 + c.below(4) {
			i := c.below(v.NumField())
			switch f := v.Field(i); f.Interface().(type) {
			case *string:
				s := pick(c, texts)
				f.Set(reflect.ValueOf(&s))
			case *uint8:
				n := uint8(pick(c, numbers))
				f.Set(reflect.ValueOf(&n))
			case *uint64:
				n := uint64(pick(c, numbers))
				f.Set(reflect.ValueOf(&n))
			}
		}
	}
	if c.once(6) {
		e := pick(c, []string{"0", "1", "10", "100000", "4294967295", "4294967296", "9223372036854775807", "-1", "1e3", ""})
		l.Expiration = &e
	}
	if c.once(10) {
		r := pick(c, texts)
		l.ReplyTo = &r
	}
	return amqp091.AppendPropsFrom(nil, l)
}
