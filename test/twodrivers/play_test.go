package twodrivers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp091"
)

// play plays operations to both nodes, and knows what their clients have been told: the
// same, or it ends.
type play struct {
	episode
	nodes    [2]*node // classic, quorum
	channels [connections][asking + 1]*channel
	declared [queues]*declared
	policies [queues]*arguments
	instant  [queues]bool // have had a TTL of 0
	bodies   int
	tags     int
	lastTags [2]map[*channel]uint64

	seen      map[string]bool   // queues and copies of what has come to them
	ended     bool              // nothing that follows can be compared
	delivered map[string]bool   // queues and copies of what consumers have been given
	forgiven  map[string]uint64 // by queue: see forgiveFresh
	credited  bool              // all consumers have credit: they speak AMQP 1.0
}

func newPlay(e episode) *play {
	return &play{
		episode: e, lastTags: [2]map[*channel]uint64{{}, {}},
		seen: map[string]bool{}, delivered: map[string]bool{}, forgiven: map[string]uint64{},
	}
}

type declared struct{ args arguments }

// channel is what the clients of both nodes know of a channel.
type channel struct {
	held        []held // deliveries that are not settled, by the classic node's tag
	pending     []held // likewise those that a transaction settles
	publishes   bool   // a transaction does
	consumers   []*consumer
	gets        []consumer         // under way
	published   uint64             // since confirm.select
	unconfirmed [2]map[uint64]bool // by node
}

type consumer struct {
	tag, queue string
	noAck      bool
	exclusive  bool
	unlimited  bool // it may have any number of deliveries that are not settled
}

// held is a delivery. Its tags are those of the nodes: which of two queues that a message
// comes to delivers it first is a matter of time (BR-8.12).
type held struct {
	tags    [2]uint64
	queue   string
	copy    string // see copyName
	requeue bool   // of one that a transaction settles
	instant bool   // it has a TTL of 0
}

var queueNames = []string{"q0", "q1", "q2"}

func queueName(i int) string { return queueNames[i] }

// run plays the operations and returns where the nodes differ, "" if they do not.
func (p *play) run(ops []op) (difference string) {
	if difference = p.start(); difference != "" {
		return difference
	}
	defer func() {
		if d := p.stop(); difference == "" {
			difference = d
		}
	}()
	if difference = p.prepare(); difference != "" {
		return "preparation: " + difference
	}
	var doing atomic.Value
	hangs := time.AfterFunc(hanging, func() { panic(fmt.Sprintf("%v hangs, of %v", doing.Load(), ops)) })
	defer hangs.Stop()
	for i, o := range ops {
		count("operations")
		doing.Store(fmt.Sprintf("operation %d, %s,", i, o))
		hangs.Reset(hanging)
		untilNext()
		if difference = p.step(o); difference != "" {
			return fmt.Sprintf("operation %d, %s:\n%s", i, o, difference)
		}
		if p.ended {
			return ""
		}
	}
	for i := range queues {
		if difference = p.peek(queueName(i)); difference != "" {
			return fmt.Sprintf("q%d in the end:\n%s", i, difference)
		}
	}
	return ""
}

// start starts both nodes, and stop stops them.
func (p *play) start() (difference string) {
	for i := range p.nodes {
		p.nodes[i] = newNode(i == 1, p.episode)
	}
	return p.together((*node).start)
}

func (p *play) stop() (difference string) {
	for _, do := range []func(n *node) error{(*node).drain, (*node).stop} {
		if d := p.together(do); difference == "" {
			difference = d
		}
	}
	return difference
}

// untilNext waits until the next operation may begin.
func untilNext() {
	if now := time.Now(); now.Nanosecond() > 900_000_000 {
		// What is due within this operation has the same second in its history on both.
		time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
	}
	sleepUntil(time.Now().Truncate(time.Millisecond).Add(beside))
}

func (p *play) prepare() string {
	for i := range p.nodes {
		if err := p.nodes[i].connect(0); err != nil {
			return err.Error()
		}
	}
	p.open(0, asking)
	p.send(0, asking, amqp091.ExchangeDeclare{Exchange: "direct", Type: "direct", Durable: true})
	p.send(0, asking, amqp091.ExchangeDeclare{Exchange: "fanout", Type: "fanout", Durable: true})
	for _, name := range []string{sameClassic, sameQuorum} {
		kind, _ := strings.CutPrefix(name, "same-")
		p.send(0, asking, amqp091.QueueDeclare{Queue: name, Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}})
		p.send(0, asking, amqp091.QueueBind{Queue: name, Exchange: "direct", RoutingKey: name})
	}
	return p.compare()
}

// step does one operation on both nodes and compares what came of it.
func (p *play) step(o op) string {
	o = p.aimed(o)
	if p.nodes[0].clients[o.conn] == nil {
		for i := range p.nodes {
			if err := p.nodes[i].connect(o.conn); err != nil {
				return fmt.Sprintf("the %s node: %v", p.nodes[i].kind(), err)
			}
		}
	}
	if difference := p.do(o); difference != "" {
		return difference
	}
	if difference := p.compare(); difference != "" || p.ended {
		return difference
	}
	return p.starved()
}

// aimed is the operation on a queue that is there, and on a channel where it does something, if
// there are any.
func (p *play) aimed(o op) op {
	for range queues {
		if o.kind != "declare" && o.kind != "passive" && p.declared[o.queue] == nil {
			o.queue = (o.queue + 1) % queues
		}
	}
	var does func(ch *channel) bool
	switch o.kind {
	case "settle", "recover", "close channel":
		does = func(ch *channel) bool { return len(ch.held) > 0 }
	case "cancel":
		does = func(ch *channel) bool { return len(ch.consumers) > 0 }
	default:
		return o
	}
	if ch := p.channels[o.conn][o.ch]; ch != nil && does(ch) {
		return o
	}
	for conn := range p.channels {
		for _, number := range []int{plain, confirming, transactional} {
			if ch := p.channels[conn][number]; ch != nil && does(ch) {
				o.conn, o.ch = conn, number
				return o
			}
		}
	}
	return o
}

func (n *node) kind() string {
	if n.quorum {
		return "quorum"
	}
	return "classic"
}

// open opens a channel if it is not open.
func (p *play) open(conn, ch int) *channel {
	if p.channels[conn][ch] == nil {
		p.channels[conn][ch] = &channel{}
		for i := range p.channels[conn][ch].unconfirmed {
			p.channels[conn][ch].unconfirmed[i] = map[uint64]bool{}
		}
		p.send(conn, ch, amqp091.ChannelOpen{})
		switch {
		case ch == confirming:
			p.send(conn, ch, amqp091.ConfirmSelect{})
		case ch == transactional:
			p.send(conn, ch, amqp091.TxSelect{})
		}
	}
	return p.channels[conn][ch]
}

func (p *play) send(conn, ch int, m amqp091.Method) {
	p.write(conn, amqp091.AppendMethod(nil, uint16(ch), m))
}

func (p *play) write(conn int, b []byte) {
	for _, n := range p.nodes {
		n.clients[conn].write(b)
	}
}

// each has both nodes do the same and compares the answers.
func (p *play) each(f func(n *node) string) string {
	classic, quorum := f(p.nodes[0]), f(p.nodes[1])
	return differ("the answer", classic, quorum)
}

func differ(what, classic, quorum string) string {
	if classic == quorum {
		return ""
	}
	return fmt.Sprintf("%s\n  classic: %s\n  quorum:  %s", what, classic, quorum)
}

func (p *play) do(o op) string {
	name := queueName(o.queue)
	switch o.kind {
	case "declare":
		if p.declared[o.queue] != nil {
			return p.ask(o.conn, amqp091.QueueDeclare{Queue: name, Passive: true})
		}
		if !p.fits(o.queue, &o.args, p.policies[o.queue]) {
			if o.args = none; !p.fits(o.queue, &o.args, p.policies[o.queue]) {
				return ""
			}
		}
		p.declared[o.queue] = &declared{o.args}
		p.instant[o.queue] = o.args.instant() || p.policies[o.queue].instant()
		p.declare(o.conn, name, o.args.table())
		p.send(o.conn, asking, amqp091.QueueBind{Queue: name, Exchange: "direct", RoutingKey: name})
		if o.queue > 0 {
			p.send(o.conn, asking, amqp091.QueueBind{Queue: name, Exchange: "direct", RoutingKey: "twice"})
			p.send(o.conn, asking, amqp091.QueueBind{Queue: name, Exchange: "fanout"})
		}
	case "redeclare":
		if d := p.declared[o.queue]; d != nil {
			p.open(o.conn, asking)
			p.declare(o.conn, name, d.args.varied(o.n).table())
		}
	case "bad":
		p.open(o.conn, asking)
		p.declare(o.conn, "bad", badArguments[o.n%len(badArguments)])
	case "passive":
		return p.ask(o.conn, amqp091.QueueDeclare{Queue: name, Passive: true})
	case "purge":
		if t := p.nodes[1].totals(name); t.Delayed+t.Held > 0 && except("DL-2.1") {
			return ""
		}
		return p.ask(o.conn, amqp091.QueuePurge{Queue: name})
	case "delete":
		if !o.flag && !o.other || !except("BR-7.9") {
			return p.ask(o.conn, amqp091.QueueDelete{Queue: name})
		}
		return p.each(func(n *node) string {
			ready, err := n.admin().DeleteQueue(message.QueueName(name), o.flag, o.other)
			return fmt.Sprint(ready, err)
		})
	case "publish":
		return p.publish(o)
	case "consume":
		return p.consume(o)
	case "get":
		d := p.declared[o.queue]
		if d != nil && d.args.single && except("BR-9.5") {
			return ""
		}
		if d == nil {
			return p.ask(o.conn, amqp091.BasicGet{Queue: name})
		}
		ch := p.open(o.conn, o.ch)
		ch.gets = append(ch.gets, consumer{queue: name, noAck: o.flag})
		p.send(o.conn, o.ch, amqp091.BasicGet{Queue: name, NoAck: o.flag})
	case "settle":
		p.settle(o)
	case "recover":
		ch := p.open(o.conn, o.ch)
		if p.mayReturn(ch.held) {
			ch.held = nil
			p.send(o.conn, o.ch, amqp091.BasicRecover{Requeue: true})
		}
	case "commit":
		ch := p.open(o.conn, transactional)
		var back []held
		for _, h := range byTag(ch.held, ch.pending) {
			if h.requeue || !slices.Contains(ch.pending, h) {
				back = append(back, h)
			}
		}
		if len(ch.consumers) > 0 && p.mayRefuse() && except("DL-10.7") {
			return ""
		}
		if len(back) > 0 && ch.publishes && (p.limits(0) || p.limits(1) || p.limits(2)) && except("DL-10.6") {
			return ""
		}
		if p.mayReturn(back) {
			ch.pending, ch.publishes = nil, false
			p.send(o.conn, transactional, amqp091.TxCommit{})
		}
	case "rollback":
		ch := p.open(o.conn, transactional)
		for i := range ch.pending {
			ch.pending[i].requeue = false
		}
		ch.held, ch.pending, ch.publishes = byTag(ch.held, ch.pending), nil, false
		p.send(o.conn, transactional, amqp091.TxRollback{})
	case "cancel":
		ch := p.open(o.conn, o.ch)
		tag := "unknown"
		if len(ch.consumers) > 0 {
			i := o.n % len(ch.consumers)
			tag = ch.consumers[i].tag
			// What comes until it is cancelled comes to it.
			p.send(o.conn, o.ch, amqp091.BasicCancel{ConsumerTag: tag})
			if difference := p.compare(); difference != "" {
				return difference
			}
			if p.channels[o.conn][o.ch] == ch {
				ch.consumers = slices.DeleteFunc(ch.consumers, func(c *consumer) bool { return c.tag == tag })
			}
			return ""
		}
		p.send(o.conn, o.ch, amqp091.BasicCancel{ConsumerTag: tag})
	case "close channel":
		if ch := p.channels[o.conn][o.ch]; ch != nil && p.mayReturn(byTag(ch.held, ch.pending)) {
			p.send(o.conn, o.ch, amqp091.ChannelClose{ReplyCode: 200})
			p.channels[o.conn][o.ch] = nil
		}
	case "unknown tag":
		if ch := p.open(o.conn, o.ch); p.mayReturn(byTag(ch.held, ch.pending)) {
			p.send(o.conn, o.ch, amqp091.BasicAck{DeliveryTag: 1 << 40})
		}
	case "end", "drop":
		if p.mayReturn(p.heldBy(o.conn)) {
			return p.end(o.conn, o.kind == "end")
		}
	case "policy":
		if !p.fitsPolicy(o.queue, &o.args) {
			return ""
		}
		before := p.policies[o.queue]
		p.policies[o.queue] = &o.args
		p.instant[o.queue] = p.instant[o.queue] || o.args.instant()
		return p.each(func(n *node) string {
			created, err := n.b.By("").Do(declare.PutPolicy{VHost: vhost, Policy: topology.PolicyDecl{Name: name, Pattern: "^" + name + "$", Definition: o.args.definition()}})
			if err != nil {
				p.policies[o.queue] = before // refused by both, or else they differ
			}
			return fmt.Sprint(created, err)
		})
	case "no policy":
		p.policies[o.queue] = nil
		return p.each(func(n *node) string {
			existed, err := n.b.By("").Do(declare.DeletePolicy{VHost: vhost, Name: name})
			return fmt.Sprint(existed, err)
		})
	case "replay":
		clear(p.delivered) // copies come again that have the names of those that were delivered
		return p.each(func(n *node) string {
			r, err := letters.As(n.admin()).Replay(context.Background(), message.QueueName(name), letters.ReplayRequest{})
			return fmt.Sprintf("%+v %v", r, err)
		})
	case "peek":
		return p.peek(name)
	case "take":
		return p.take(o, name)
	case "advance":
		if p.apsara && o.wait > time.Second && !p.mayTimeOut() {
			return ""
		}
		time.Sleep(o.wait)
	case "meet":
		return p.meet(o)
	case "restart":
		return p.restart()
	}
	return ""
}

// meet has somebody look at a queue just when the first message that waits has done so long enough, before the workers do.
func (p *play) meet(o op) string {
	name, until := "", int64(0)
	for _, q := range queueNames {
		for _, at := range p.nodes[0].places(q) {
			if at.state == "delayed" && (until == 0 || at.until < until) {
				name, until = q, at.until
			}
		}
	}
	if !sleepUntil(time.UnixMilli(until)) {
		return ""
	}
	count("messages met when they had waited")
	return p.ask(o.conn, amqp091.QueueDeclare{Queue: name, Passive: true})
}

// sleepUntil sleeps, and returns whether the moment was not over already.
func sleepUntil(at time.Time) bool {
	d := time.Until(at)
	time.Sleep(d)
	return d >= 0
}

func (p *play) declare(conn int, name string, t amqp091.Table) {
	p.open(conn, asking)
	for _, n := range p.nodes {
		kind := amqp091.Field{Key: "x-queue-type", Value: n.kind()}
		args := append(amqp091.Table{kind}, t...)
		if p.priorities && !n.quorum { // quorum queues always have their levels (BR-11.3)
			args = append(args, amqp091.Field{Key: "x-max-priority", Value: int32(31)})
		}
		n.clients[conn].write(amqp091.AppendMethod(nil, asking, amqp091.QueueDeclare{Queue: name, Durable: true, Arguments: args}))
	}
}

// ask asks something on the channel where nothing is lost if it is closed.
func (p *play) ask(conn int, m amqp091.Method) string {
	p.open(conn, asking)
	p.send(conn, asking, m)
	return ""
}

func byTag(a, b []held) []held {
	list := slices.Concat(a, b)
	slices.SortFunc(list, func(a, b held) int { return cmp.Compare(a.tags[0], b.tags[0]) })
	return list
}

func (p *play) heldBy(conn int) (list []held) {
	for _, ch := range p.channels[conn] {
		if ch != nil {
			list = append(list, byTag(ch.held, ch.pending)...)
		}
	}
	return list
}

// end ends a connection, with connection.close or without a word.
func (p *play) end(conn int, politely bool) string {
	if politely {
		p.send(conn, 0, amqp091.ConnectionClose{ReplyCode: 200})
		if difference := p.compare(); difference != "" {
			return difference
		}
	}
	for _, n := range p.nodes {
		n.hangUp(conn)
	}
	p.channels[conn] = [asking + 1]*channel{}
	return ""
}

func (p *play) restart() string {
	if p.transient && except("DL-16.3") {
		return ""
	}
	for q := range queues {
		if d := p.declared[q]; d != nil && (d.args.goes() || p.policies[q].goes()) && except("DL-8.12") {
			return ""
		}
	}
	// One of the connections may still be there; of several it is chance which ends first.
	open := -1
	for conn := range connections {
		if !p.mayReturn(p.heldBy(conn)) {
			return ""
		}
		if open < 0 && len(p.heldBy(conn)) > 0 {
			open = conn
		}
	}
	for conn := range connections {
		if conn != open && p.nodes[0].clients[conn] != nil {
			if difference := p.end(conn, true); difference != "" {
				return difference
			}
			if difference := p.compare(); difference != "" {
				return difference
			}
		}
	}
	if open >= 0 && !p.mayReturn(p.heldBy(open)) {
		return ""
	}
	p.channels = [connections][asking + 1]*channel{}
	clear(p.forgiven)
	for _, do := range []func(n *node) error{(*node).drain, (*node).stop, (*node).start} {
		if difference := p.together(do); difference != "" {
			return difference
		}
	}
	return ""
}

// together has both nodes do the same at the same time, since a little of it may pass.
func (p *play) together(f func(n *node) error) string {
	var errs [2]error
	var all sync.WaitGroup
	for i, n := range p.nodes {
		all.Go(func() { errs[i] = f(n) })
	}
	all.Wait()
	synctest.Wait()
	return differ("the node", fmt.Sprint(errs[0]), fmt.Sprint(errs[1]))
}

func (p *play) publish(o op) string {
	ch := p.open(o.conn, o.ch)
	if o.expiration == "x" && !p.mayReturn(byTag(ch.held, ch.pending)) {
		return ""
	}
	if o.ch == transactional && slices.Contains(p.instant[:], true) && except("DL-8.7") {
		return ""
	}
	if o.expiration == "0" && (o.n > 1 || o.ch == transactional || p.limits(0) || p.limits(1) || p.limits(2)) && except("DL-8.7") {
		return ""
	}
	ch.publishes = ch.publishes || o.ch == transactional
	var b []byte
	for range o.n {
		mode, priority := uint8(2), uint8(o.priority)
		if o.other {
			mode = 1
		}
		l := amqp091.PropertyList{DeliveryMode: &mode}
		if p.priorities {
			l.Priority = &priority
		}
		if o.expiration != "" {
			l.Expiration = &o.expiration
		}
		switch o.headers {
		case 1:
			l.Headers = amqp091.Table{{Key: "z", Value: "1"}, {Key: "a", Value: int64(2)}}
		case 2:
			l.Headers = amqp091.Table{{Key: "CC", Value: amqp091.Array{"q1", "nowhere"}}}
		case 3:
			l.Headers = amqp091.Table{{Key: "BCC", Value: amqp091.Array{"q2"}}, {Key: "x-death", Value: "mine"}}
		}
		p.bodies++
		body := fmt.Sprintf("m%d", p.bodies)
		if p.large {
			body += strings.Repeat(".", largeBody-len(body))
		}
		b = amqp091.AppendMethod(b, uint16(o.ch), amqp091.BasicPublish{Exchange: exchanges[o.exchange], RoutingKey: keys[o.key], Mandatory: o.flag})
		b = amqp091.AppendContentHeader(b, uint16(o.ch), amqp091.ClassBasic, uint64(len(body)), amqp091.AppendPropsFrom(nil, l))
		b = amqp091.AppendBody(b, uint16(o.ch), []byte(body), frameMax)
		if o.ch == confirming {
			ch.published++
			for i := range ch.unconfirmed {
				ch.unconfirmed[i][ch.published] = true
			}
		}
	}
	p.write(o.conn, b)
	return ""
}

func (p *play) consume(o op) string {
	name := queueName(o.queue)
	d := p.declared[o.queue]
	if d == nil {
		return p.ask(o.conn, amqp091.BasicConsume{Queue: name})
	}
	if d.args.single && (o.priority != 0 && except("BR-9.5") || o.other && except("BR-9.3")) {
		return ""
	}
	for i := range p.channels {
		for _, ch := range p.channels[i] {
			if ch == nil {
				continue
			}
			for _, c := range ch.consumers {
				if c.queue == name && (c.exclusive || o.other) && except("BR-9.3") {
					return ""
				}
			}
		}
	}
	ch := p.open(o.conn, o.ch)
	p.tags++
	c := consumer{tag: fmt.Sprintf("t%d", p.tags), queue: name, noAck: o.flag, exclusive: o.other, unlimited: o.n == 0}
	ch.consumers = append(ch.consumers, &c)
	p.send(o.conn, o.ch, amqp091.BasicQos{PrefetchCount: uint16(o.n)})
	m := amqp091.BasicConsume{Queue: name, ConsumerTag: c.tag, NoAck: c.noAck, Exclusive: c.exclusive}
	if o.priority != 0 {
		m.Arguments = amqp091.Table{{Key: "x-priority", Value: int32(o.priority)}}
	}
	p.send(o.conn, o.ch, m)
	return ""
}

func (p *play) settle(o op) {
	ch := p.open(o.conn, o.ch)
	if len(ch.held) == 0 {
		return
	}
	i := o.n % len(ch.held)
	settled := ch.held[i : i+1]
	if o.flag && o.how != "reject" && o.how != "reject requeue" && reaches(ch.held, i) {
		settled = ch.held[:i+1]
	}
	settled = slices.Clone(settled)
	requeue := o.how == "nack requeue" || o.how == "reject requeue"
	if requeue && !p.mayReturn(settled) {
		return
	}
	ch.held = slices.DeleteFunc(ch.held, func(h held) bool { return slices.Contains(settled, h) })
	if o.ch == transactional && !p.apsara {
		for j := range settled {
			settled[j].requeue = requeue
		}
		ch.pending = append(ch.pending, settled...)
	}
	for i, n := range p.nodes {
		tag := uint64(0)
		for _, h := range settled {
			tag = max(tag, h.tags[i])
		}
		var m amqp091.Method
		switch multiple := len(settled) > 1; o.how {
		case "ack":
			m = amqp091.BasicAck{DeliveryTag: tag, Multiple: multiple}
		case "nack", "nack requeue":
			m = amqp091.BasicNack{DeliveryTag: tag, Multiple: multiple, Requeue: requeue}
		default:
			m = amqp091.BasicReject{DeliveryTag: tag, Requeue: requeue}
		}
		n.clients[o.conn].write(amqp091.AppendMethod(nil, uint16(o.ch), m))
	}
}

// reaches says whether to settle all up to the delivery at i is the same on both nodes.
func reaches(list []held, i int) bool {
	last := uint64(0)
	for _, h := range list[:i+1] {
		last = max(last, h.tags[1])
	}
	return !slices.ContainsFunc(list[i+1:], func(h held) bool { return h.tags[1] < last })
}

func shown(n *node, s *broker.Shown) string {
	props, err := amqp091.DecodeProps(s.Properties)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q %q redelivered=%v left=%d %s %s", s.Exchange, s.Key, s.Redelivered, s.Left, properties(props), strings.TrimRight(string(s.Body), "."))
}

func (p *play) peek(name string) string {
	return p.each(func(n *node) string {
		var list []string
		err := n.admin().Peek(message.QueueName(name), 0, func(s *broker.Shown) bool {
			list = append(list, shown(n, s))
			return true
		})
		return fmt.Sprint(strings.Join(list, "\n           "), err)
	})
}

func (p *play) take(o op, name string) string {
	if d := p.declared[o.queue]; d != nil && d.args.single && except("BR-9.5") {
		return ""
	}
	after := map[string]broker.After{"ack": broker.AckRemoves, "ack requeue": broker.AckRequeues, "reject requeue": broker.RejectRequeues, "reject": broker.RejectRemoves}[o.how]
	if strings.HasSuffix(o.how, "requeue") && !p.mayTake(name, o.n) {
		return ""
	}
	return p.each(func(n *node) string {
		var list []string
		err := n.admin().Take(message.QueueName(name), o.n, after, func(s *broker.Shown) (bool, error) {
			list = append(list, shown(n, s))
			return true, nil
		})
		return fmt.Sprint(strings.Join(list, "\n           "), err)
	})
}

// mayReturn says whether both types give these deliveries back to the same place: what comes
// back to a quorum queue goes before all that has not been out, and behind what came back
// before; in a classic queue it takes its old place.
func (p *play) mayReturn(list []held) bool {
	byQueue := map[string][]held{}
	for _, h := range list {
		byQueue[h.queue] = append(byQueue[h.queue], h)
	}
	for name, list := range byQueue {
		var back []string
		for _, h := range list {
			if (h.instant || p.instant[slices.Index(queueNames, h.queue)]) && except("DL-8.7") {
				return false
			}
			back = append(back, h.copy)
		}
		if !p.keepsOrder(name, back, false) && except("BR-9.13") {
			return false
		}
	}
	return true
}

// mayTimeOut is mayReturn for all that is out: of several consumers of a queue it is chance
// whose deliveries are taken back first.
func (p *play) mayTimeOut() bool {
	whose := map[string]*channel{}
	for i := range p.channels {
		for _, ch := range p.channels[i] {
			if ch == nil {
				continue
			}
			list := byTag(ch.held, ch.pending)
			for _, h := range list {
				if other := whose[h.queue]; other != nil && other != ch && except("BR-9.13") {
					return false
				}
				whose[h.queue] = ch
			}
			if !p.mayReturn(list) {
				return false
			}
		}
	}
	return true
}

// mayTake is mayReturn for what is ready, at most so many of it, all if n is 0.
func (p *play) mayTake(name string, n int) bool {
	var back []string
	for _, at := range p.nodes[0].places(name) {
		if at.state == "ready" && (n == 0 || len(back) < n) {
			back = append(back, at.name)
		}
	}
	if p.instant[slices.Index(queueNames, name)] && except("DL-8.7") {
		return false
	}
	return p.keepsOrder(name, back, true) || !except("BR-9.13")
}

// keepsOrder says whether copies that are out of a queue, or ready in it, may come back to it.
func (p *play) keepsOrder(name string, back []string, ready bool) bool {
	if p.priorities {
		return len(back) == 0
	}
	rank, twice, out := map[string]int{}, map[string]bool{}, map[string]bool{}
	classic := p.nodes[0].places(name)
	for i, at := range classic {
		_, known := rank[at.name]
		twice[at.name] = known
		out[at.name] = at.state != "ready"
		rank[at.name] = i
	}
	if p.fullWith(name, len(back)) && except("DL-10.6") {
		return false
	}
	last := -1
	waiting := map[string]bool{}
	for _, at := range p.nodes[1].places(name) {
		if at.returned || at.state == "delayed" {
			waiting[at.name] = true
			last = max(last, rank[at.name])
		}
	}
	leaving := 0
	for _, copy := range back {
		r, there := rank[copy]
		switch {
		case !there || p.apsara && !out[copy] && !ready:
			continue // its queue is another by now, or a timeout has taken it back
		case twice[copy] || r < last:
			return false
		}
		leaving++
		last = r
	}
	if leaving == 0 {
		return true
	}
	for i, at := range classic {
		if at.state == "ready" && !waiting[at.name] && i < last && !slices.Contains(back, at.name) {
			return false
		}
	}
	// Where each waits for longer than the one before, they come back in another order.
	return !p.retries || leaving == 1 && len(waiting) == 0
}

// fullWith says whether a queue with consumers drops its head when so many messages come back.
func (p *play) fullWith(name string, n int) bool {
	for q := range queues {
		if d := p.declared[q]; queueName(q) == name && d != nil && p.limits(q) {
			info := p.nodes[0].declared(name)
			c := p.nodes[0].b.Counts(*info)
			e := info.Effective
			return c.Consumers > 0 && (e.MaxLength != nil && int64(c.Ready+n) > *e.MaxLength || e.MaxLengthBytes != nil && int64(c.Ready+n)*largeBody > *e.MaxLengthBytes)
		}
	}
	return false
}
