package conserve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
	"bartleby.mq/test/node"
)

// patience is how long anything may take before it counts as hanging.
const patience = 5 * time.Second

// retryPeriod is how often a node tries again to forward dead letters that must not be lost
// (see configuration).
const retryPeriod = 50 * time.Millisecond

// target is the broker that is played with.
type target struct {
	amqp, http, metrics string // HOST:PORT
	peer                bool   // it is RabbitMQ
}

// running is a node that the player may end and start again.
type running struct {
	start  func() (*node.Node, error)
	node   *node.Node
	armed  bool // it may kill itself, at a failpoint
	disarm func()
}

// gone says whether the node has ended by itself.
func (r *running) gone() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.node.Ended():
		return true
	default:
		return false
	}
}

// going is gone for somebody whose socket broke: that is heard a little before the end.
func (r *running) going() bool {
	if r == nil || !r.armed {
		return r.gone()
	}
	select {
	case <-r.node.Ended():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// player plays one episode.
type player struct {
	*world
	l       *ledger
	t       *target
	run     *running // the node, where it may be ended
	vhost   string
	clients []*client
	shovels map[string]bool // false: the node ended before it said that there is one, or is none
	unheard bool            // the node ended instead of answering the API
	serial  int
	admin   *client // drains
}

// play plays those operations of a world and returns what is wrong.
func play(w *world, ops []op, t *target, run *running) []string {
	p := &player{world: w, l: newLedger(), t: t, run: run, vhost: fmt.Sprintf("conserve-%d-%d", w.seed, time.Now().UnixNano()), clients: make([]*client, len(w.clients)), shovels: map[string]bool{}}
	p.l.peer = t.peer
	before, err := p.begin()
	if err != nil && run.going() && run.node.Killed() { // at its step, before there was anything to lose
		run.disarm()
		if err = p.startAgain(); err == nil {
			before, err = p.begin()
		}
	}
	if err != nil {
		return []string{"hangs: no virtual host: " + err.Error()}
	}
	p.l.mayEnd = run != nil && run.armed
	for i := range ops {
		p.alive()
		p.step(&ops[i])
		if p.broken() {
			break
		}
	}
	if p.alive(); !p.broken() {
		p.quiet()
	}
	if run != nil && !p.broken() {
		// Nobody kills it from here on.
		run.disarm()
		p.end(run.gone() || w.seed%2 == 0, 0)
		p.endShovels() // what the node did not answer for before
	}
	if !p.broken() {
		p.drain()
	}
	p.closeAll()
	if p.broken() {
		p.l.mu.Lock()
		defer p.l.mu.Unlock()
		return p.l.faults
	}
	if len(p.l.kills) == 0 {
		if after, err := p.dropped(); err != nil {
			p.l.fault("counters: %v", err)
		} else {
			p.l.deaths, p.l.counted = after-before, true
		}
	}
	if run != nil {
		return p.l.settleAll(w)
	}
	if err := p.api(http.MethodDelete, "/vhosts/"+p.vhost, nil, nil); err != nil {
		p.l.fault("hangs: the virtual host is not deleted: %v", err)
	}
	return p.l.settleAll(w)
}

// begin makes what the episode needs, and returns how many dead letters were dropped before it.
func (p *player) begin() (dropped float64, err error) {
	dropped, err = p.dropped()
	if err == nil {
		err = p.api(http.MethodPut, "/vhosts/"+p.vhost, map[string]any{}, nil)
	}
	if err == nil {
		err = p.api(http.MethodPut, "/permissions/"+p.vhost+"/guest", map[string]any{"configure": ".*", "write": ".*", "read": ".*"}, nil)
	}
	if err == nil {
		err = p.exchanges()
	}
	if err == nil && p.unheard {
		err = errUnheard
	}
	p.unheard = false
	return dropped, err
}

var errUnheard = errors.New("the node has ended instead of answering")

// broken says that the episode needs no end: the node hangs or is gone.
func (p *player) broken() bool {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return slices.ContainsFunc(p.l.faults, func(f string) bool { return strings.Contains(f, "hangs") })
}

// exchanges declares those of the episode. They stay.
func (p *player) exchanges() error {
	for _, x := range sortedKeys(p.fanouts) {
		if err := p.api(http.MethodPut, "/exchanges/"+p.vhost+"/"+x, map[string]any{"type": "fanout", "durable": true}, nil); err != nil {
			return err
		}
	}
	return nil
}

var client30 = &http.Client{Timeout: 2 * patience, Transport: &http.Transport{DisableKeepAlives: true}}

// refusal is what the API answered if it is not what was hoped for.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s", r.code, r.text) }

func (p *player) api(method, path string, body, answer any) error {
	var b io.Reader = http.NoBody
	if body != nil {
		j, err := json.Marshal(body)
		if err != nil {
			return err
		}
		b = bytes.NewReader(j)
	}
	q, err := http.NewRequest(method, "http://"+p.t.http+"/api"+path, b)
	if err != nil {
		return err
	}
	q.SetBasicAuth("guest", "guest")
	q.Header.Set("Content-Type", "application/json")
	a, err := client30.Do(q)
	if err != nil {
		if p.run.going() {
			p.unheard = true
			return nil // somebody will see
		}
		return err
	}
	defer func() { _ = a.Body.Close() }()
	content, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	if a.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %w", method, path, &refusal{a.StatusCode, string(content)})
	}
	if answer != nil {
		return json.Unmarshal(content, answer)
	}
	return nil
}

// dropped is how many dead letters the broker has dropped so far; RabbitMQ does not tell
// those apart from others.
func (p *player) dropped() (total float64, err error) {
	a, err := client30.Get("http://" + p.t.metrics + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { _ = a.Body.Close() }()
	all, err := io.ReadAll(a.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(all)) {
		ours := strings.HasPrefix(line, "bartleby_dead_lettered_total{") && !strings.Contains(line, `outcome="routed"`)
		theirs := p.t.peer && strings.HasPrefix(line, "rabbitmq_global_messages_dead_lettered_") && !strings.Contains(line, "confirmed")
		if !ours && !theirs {
			continue
		}
		fields := strings.Fields(line)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// until waits until f holds. REQUIRES: not mu.
func (p *player) until(limit time.Duration, f func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(200 * time.Microsecond) {
		p.l.mu.Lock()
		ok := f()
		p.l.mu.Unlock()
		if ok || p.run.gone() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// client returns the connection, made anew if need be.
func (p *player) client(i int) *client {
	c := p.clients[i]
	if c != nil {
		p.l.mu.Lock()
		ended := c.ended
		p.l.mu.Unlock()
		if !ended {
			return c
		}
	}
	p.serial++
	c, err := p.dial(fmt.Sprintf("client %d (%d)", i, p.serial), p.speaksTen(i))
	if err != nil {
		if p.run.going() {
			return nil
		}
		p.l.fault("hangs: a client cannot connect: %v", err)
		return nil
	}
	p.clients[i] = c
	return c
}

// channel returns a channel, opened anew if need be; nil if that cannot be.
func (p *player) channel(o *op) *channel {
	c := p.client(o.client)
	if c == nil {
		return nil
	}
	num := uint16(o.channel + 1)
	p.l.mu.Lock()
	ch := c.chans[num]
	closing := ch != nil && ch.closing
	p.l.mu.Unlock()
	if closing {
		c.flush(0)
		if !p.until(patience, func() bool { return ch.ended }) {
			p.l.fault("%s: hangs: channel.close is not answered", c.name)
			return nil
		}
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if ch != nil && !ch.ended {
		return ch
	}
	crossed := ch != nil && ch.byPeer && ch.closing
	switch {
	case ch == nil || !ch.byPeer:
	case c.ten == nil:
		c.out = amqp091.AppendMethod(c.out, num, amqp091.ChannelCloseOk{})
	case !ch.asked():
		c.out = amqp10.AppendFrame(c.out, num, &amqp10.End{})
	}
	ch = &channel{c: c, num: num, mode: p.world.clients[o.client][o.channel], unconfirmed: map[uint64]*message{}, consumers: map[string]*consumer{}, crossed: crossed}
	c.chans[num] = ch
	if c.ten != nil {
		ch.beginTen([]uint32{2, 5, 40, 2000}[(p.serial+int(num))%4])
		return ch
	}
	ch.send("open", "", amqp091.ChannelOpen{}, amqp091.ChannelOpenOkID)
	switch ch.mode {
	case confirming:
		ch.send("confirm", "", amqp091.ConfirmSelect{}, amqp091.ConfirmSelectOkID)
	case transactional:
		ch.send("tx", "", amqp091.TxSelect{}, amqp091.TxSelectOkID)
	case plain:
	}
	return ch
}

// step plays one operation.
func (p *player) step(o *op) {
	switch o.verb {
	case doPause:
		p.flushAll()
		time.Sleep(time.Duration(o.pause) * time.Microsecond)
		return
	case doWait:
		p.flushAll()
		for _, c := range p.clients {
			p.await(c)
		}
		return
	case doAwait:
		p.await(p.clients[o.client])
		return
	case doPolicy:
		p.policy(o)
		return
	case doShovel:
		p.shovel(o)
		return
	case doReplay:
		p.replay(o)
		return
	case doKill, doStop:
		if p.run != nil {
			p.end(o.verb == doKill, o.pause)
		}
		return
	case doAbort:
		if c := p.clients[o.client]; c != nil {
			c.flush(0)
			c.abort()
		}
		return
	case doClose:
		if c := p.clients[o.client]; c != nil {
			p.disconnect(c)
		}
		return
	}
	ch := p.channel(o)
	if ch == nil {
		return
	}
	if ch.ten != nil {
		p.stepTen(ch, o)
		return
	}
	p.l.mu.Lock()
	p.say(ch, o)
	p.l.mu.Unlock()
	switch {
	case o.verb == doRecover:
		p.await(ch.c) // which deliveries are still this channel's is not known before
	case p.t.peer && (o.verb == doCommit || o.verb == doRollback):
		p.await(ch.c) // RabbitMQ takes nothing else meanwhile
	case !o.hold:
		ch.c.flush(o.cut)
	}
}

// say has a channel say what an operation is. REQUIRES: mu.
func (p *player) say(ch *channel, o *op) {
	l := p.l
	switch o.verb {
	case doPublish:
		for n := range o.count {
			p.publish(ch, o, fmt.Sprintf("m%d.%d", o.index, n), o.exchange, o.key, false)
		}
	case doReply:
		p.reply(ch, o)
	case doDeclare:
		p.declare(ch, o)
	case doBind:
		a := ch.send("bind", o.queue, amqp091.QueueBind{Queue: o.queue, Exchange: o.exchange}, amqp091.QueueBindOkID)
		l.binds = append(l.binds, &binding{a, o.exchange, ""})
	case doDelete:
		if o.queue == "" {
			if len(ch.settled) == 0 {
				return
			}
			named := *o
			named.queue = ch.settled[len(ch.settled)-1].copied.queue
			o = &named
		}
		a := ch.send("delete", o.queue, amqp091.QueueDelete{Queue: o.queue}, amqp091.QueueDeleteOkID)
		l.deletes[o.queue] = append(l.deletes[o.queue], a)
	case doPurge:
		a := ch.send("purge", o.queue, amqp091.QueuePurge{Queue: o.queue}, amqp091.QueuePurgeOkID)
		l.purges[o.queue] = append(l.purges[o.queue], a)
	case doConsume:
		p.consume(ch, o.queue, o.noAck, o.prefetch)
	case doCancel:
		for _, tag := range sortedKeys(ch.consumers) {
			if s := ch.consumers[tag]; !s.cancelled && s.queue == o.queue {
				s.cancelled = true
				l.unordered[s.queue] = true
				ch.send("cancel", s.queue, amqp091.BasicCancel{ConsumerTag: tag}, amqp091.BasicCancelOkID)
				break
			}
		}
	case doGet:
		for range o.count {
			what := "get"
			mark := "="
			if o.noAck {
				what, mark = "get!", "!"
			} else {
				l.consumed[o.queue] = true
			}
			l.unordered[o.queue] = true
			ch.send(what, o.queue, amqp091.BasicGet{Queue: o.queue, NoAck: o.noAck}, amqp091.BasicGetOkID, amqp091.BasicGetEmptyID)
			ch.getting = append(ch.getting, mark+o.queue)
		}
	case doSettle:
		p.settle(ch, o)
	case doRecover:
		if len(ch.outstanding) > 0 {
			a := ch.send("recover", "", amqp091.BasicRecover{Requeue: true}, amqp091.BasicRecoverOkID)
			l.settling(ch, a, 0, true, requeued)
			// What was on its way is requeued as well.
			a.onAnswer = func(amqp091.Method) { l.settling(ch, a, 0, true, requeued) }
		}
	case doCommit, doRollback:
		if ch.mode != transactional {
			return
		}
		if o.verb == doCommit {
			l.finish(ch, ch.send("commit", "", amqp091.TxCommit{}, amqp091.TxCommitOkID), true)
		} else {
			l.finish(ch, ch.send("rollback", "", amqp091.TxRollback{}, amqp091.TxRollbackOkID), false)
		}
	case doCloseChannel:
		ch.send("close", "", amqp091.ChannelClose{ReplyCode: 200}, amqp091.ChannelCloseOkID)
		ch.closes(l.ticks)
	}
}

func (p *player) publish(ch *channel, o *op, id, exchange, key string, reply bool) *message {
	body := p.body(o, id)
	m := newMessage(o, id, exchange, key, body, reply)
	mode, priority := uint8(1), uint8(o.priority)
	if o.persistent {
		mode = 2
	}
	props := amqp091.PropertyList{MessageID: &id, DeliveryMode: &mode, Priority: &priority, Headers: amqp091.Table{{Key: "id", Value: id}}}
	if o.expiration >= 0 {
		s := strconv.Itoa(o.expiration)
		props.Expiration = &s
	}
	if o.verb == doReply && !reply {
		s := replyTo
		props.ReplyTo = &s
	}
	m.act = ch.send("publish", key, amqp091.BasicPublish{Exchange: exchange, RoutingKey: key, Mandatory: o.mandatory})
	m.act.message = m
	c := ch.c
	c.out = amqp091.AppendContentHeader(c.out, ch.num, amqp091.ClassBasic, uint64(len(body)), amqp091.AppendPropsFrom(nil, props))
	c.out = amqp091.AppendBody(c.out, ch.num, body, frameMax)
	p.l.publishing(ch, m)
	return m
}

// body is that of one of an operation's messages: no two are equal.
func (p *player) body(o *op, id string) []byte {
	body := make([]byte, o.size)
	r := rand.NewPCG(p.seed, uint64(o.index))
	for i := range body {
		if i%8 == 0 {
			v := r.Uint64()
			body[i] = byte(v)
		} else {
			body[i] = body[i-1] + byte(i)
		}
	}
	return append(body, id...)
}

func newMessage(o *op, id, exchange, key string, body []byte, reply bool) *message {
	return &message{
		id: id, exchange: exchange, key: key, body: crc32.ChecksumIEEE(body), size: len(body), persistent: o.persistent, mandatory: o.mandatory,
		expiration: o.expiration, priority: o.priority, reply: reply,
	}
}

const replyTo = "amq.rabbitmq.reply-to"

// reply answers a request that somebody got, or makes one.
func (p *player) reply(ch *channel, o *op) {
	if n := len(p.l.replyTos); n > 0 {
		to := p.l.replyTos[n-1]
		p.l.replyTos = p.l.replyTos[:n-1]
		p.publish(ch, o, fmt.Sprintf("m%d.reply", o.index), "", to, true)
		return
	}
	if !ch.requestor {
		ch.requestor = true
		tag := "replies"
		ch.consumers[tag] = &consumer{ch: ch, tag: tag, queue: replyTo, noAck: true, last: map[*channel]*message{}}
		ch.send("consume replies", "", amqp091.BasicConsume{Queue: replyTo, ConsumerTag: tag, NoAck: true}, amqp091.BasicConsumeOkID)
	}
	p.publish(ch, o, fmt.Sprintf("m%d.request", o.index), "", o.queue, false)
}

func (p *player) declare(ch *channel, o *op) {
	s := p.slot(o.queue).variants[o.variant]
	p.l.specs[o.queue] = appendOnce(p.l.specs[o.queue], s)
	a := ch.send("declare", o.queue, amqp091.QueueDeclare{
		Queue: o.queue, Durable: s.durable, Exclusive: s.exclusive, AutoDelete: s.autoDelete, Arguments: s.table(),
	}, amqp091.QueueDeclareOkID)
	p.l.declares[o.queue] = append(p.l.declares[o.queue], a)
}

func appendOnce[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

func (p *player) consume(ch *channel, queue string, noAck bool, prefetch int) {
	p.serial++
	if ch.ten != nil {
		credit := uint32(prefetch)
		if credit == 0 {
			credit = 100000
		}
		if k := p.receive(ch, queue, noAck); k != nil {
			ch.credit(k, credit, false)
		}
		return
	}
	tag := "c" + strconv.Itoa(p.serial)
	s := &consumer{ch: ch, tag: tag, queue: queue, noAck: noAck, began: p.l.tick(), last: map[*channel]*message{}}
	ch.consumers[tag] = s
	ch.send("qos", "", amqp091.BasicQos{PrefetchCount: uint16(prefetch)}, amqp091.BasicQosOkID)
	what := "consume"
	if noAck {
		what = "consume!"
	}
	p.consumes(s, ch.send(what, queue, amqp091.BasicConsume{Queue: queue, ConsumerTag: tag, NoAck: noAck}, amqp091.BasicConsumeOkID))
}

// consumes notes that a consumer begins with an act.
func (p *player) consumes(s *consumer, a *act) {
	queue := s.queue
	if s.noAck {
		p.l.unordered[queue] = true
	} else {
		p.l.consumed[queue] = true
	}
	for _, v := range p.l.specs[queue] {
		if v.autoDelete {
			// It goes with its last consumer, whenever that is.
			p.l.deletes[queue] = append(p.l.deletes[queue], &act{what: "auto-delete", queue: queue, sent: a.sent, count: -1})
			break
		}
	}
}

func (p *player) settle(ch *channel, o *op) {
	if len(ch.outstanding) == 0 {
		return
	}
	d := ch.outstanding[o.pick%len(ch.outstanding)]
	tag := d.tag
	var a *act
	switch o.how {
	case acked:
		a = ch.send("settle ack", "", amqp091.BasicAck{DeliveryTag: tag, Multiple: o.multiple})
	case failed:
		a = ch.send("settle reject", "", amqp091.BasicReject{DeliveryTag: tag, Requeue: true})
	case rejected:
		if o.multiple {
			a = ch.send("settle nack", "", amqp091.BasicNack{DeliveryTag: tag, Multiple: true})
		} else {
			a = ch.send("settle reject", "", amqp091.BasicReject{DeliveryTag: tag})
		}
	default:
		a = ch.send("settle nack requeue", "", amqp091.BasicNack{DeliveryTag: tag, Multiple: o.multiple, Requeue: true})
	}
	p.l.settling(ch, a, tag, o.multiple && o.how != failed, o.how)
}

func (p *player) flushAll() {
	for _, c := range p.clients {
		if c != nil {
			c.flush(0)
		}
	}
}

// await waits for all answers and confirms that are to come.
func (p *player) await(c *client) {
	if c == nil {
		return
	}
	c.flush(0)
	what := ""
	done := func() bool {
		what = ""
		if c.ended {
			return true
		}
		for _, ch := range c.chans {
			if ch.ended {
				continue
			}
			if len(ch.waiting) > 0 {
				what = fmt.Sprintf("channel %d: no answer to %s %s", ch.num, ch.waiting[0].what, ch.waiting[0].queue)
				return false
			}
			if len(ch.unconfirmed) > 0 {
				what = fmt.Sprintf("channel %d: %d publishes are not confirmed", ch.num, len(ch.unconfirmed))
				return false
			}
		}
		return true
	}
	if !p.until(patience, done) {
		p.l.fault("%s: hangs for %v: %s", c.name, patience, what)
	}
}

// disconnect closes a connection in order.
func (p *player) disconnect(c *client) {
	p.l.mu.Lock()
	if c.ended {
		p.l.mu.Unlock()
		return
	}
	c.ending, c.clean = true, true
	for _, ch := range c.chans {
		if !ch.closing {
			ch.closes(p.l.tick())
		}
	}
	if c.ten == nil {
		c.out = amqp091.AppendMethod(c.out, 0, amqp091.ConnectionClose{ReplyCode: 200})
	} else {
		c.out = amqp10.AppendFrame(c.out, 0, &amqp10.Close{})
	}
	p.l.mu.Unlock()
	c.flush(0)
	if !p.until(patience, func() bool { return c.ended }) {
		p.l.fault("%s: hangs: connection.close is not answered", c.name)
	}
	_ = c.conn.Close()
	<-c.gone
}

func (p *player) closeAll() {
	for _, c := range append(slices.Clone(p.clients), p.admin) {
		if c != nil {
			c.abort()
		}
	}
}

// quiet lets all that is under way come to its end, and closes the clients: those with odd
// numbers in order.
func (p *player) quiet() {
	p.flushAll()
	for _, c := range p.clients {
		if c == nil {
			continue
		}
		p.l.mu.Lock()
		if !c.ended {
			for _, num := range sortedChannels(c) {
				switch ch := c.chans[num]; {
				case ch.ended || ch.closing:
				case ch.ten != nil:
					ch.syncTen()
				default:
					ch.send("qos", "", amqp091.BasicQos{}, amqp091.BasicQosOkID)
				}
			}
		}
		p.l.mu.Unlock()
	}
	for i, c := range p.clients {
		p.await(c)
		if c == nil || p.broken() {
			continue
		}
		if i%2 == 1 {
			p.disconnect(c)
		} else {
			c.abort()
		}
	}
	p.endShovels()
}

func sortedChannels(c *client) (nums []uint16) {
	for n := range c.chans {
		nums = append(nums, n)
	}
	slices.Sort(nums)
	return nums
}

// state is a queue as the API shows it.
type state struct {
	Name      string
	Messages  int `json:"messages"`
	Ready     int `json:"messages_ready"`
	Unacked   int `json:"messages_unacknowledged"`
	Consumers int
	Dead      int `json:"messages_dlx"`
	Delayed   int `json:"messages_delayed"`
	Stranded  int `json:"messages_stranded"`
}

func (p *player) queues() (all []state, err error) {
	err = p.api(http.MethodGet, "/queues/"+p.vhost, nil, &all)
	return all, err
}

// drain takes everything out of all queues.
func (p *player) drain() {
	var all []state
	var err error
	// What nobody holds any more is ready soon.
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		if all, err = p.queues(); err != nil {
			p.l.fault("hangs: queues: %v", err)
			return
		}
		i := slices.IndexFunc(all, func(s state) bool { return s.Unacked > 0 || s.Consumers > 0 })
		if i < 0 || p.t.peer {
			break
		}
		if time.Now().After(end) {
			p.l.fault("nobody is connected, and %s has %d messages unacknowledged and %d consumers (BR-4.5)", all[i].Name, all[i].Unacked, all[i].Consumers)
			break
		}
	}
	c, err := p.dial("drain", bilingual(p.seed) && p.seed%2 == 1)
	if err != nil {
		p.l.fault("hangs: drain: %v", err)
		return
	}
	p.admin = c
	drained := map[string]bool{}
	p.drainFrom(c, drained, all)
	p.empty(c, drained, &all)
}

// drainFrom consumes from the queues that are not among those drained.
func (p *player) drainFrom(c *client, drained map[string]bool, all []state) {
	p.l.mu.Lock()
	for i := range all {
		name := all[i].Name
		if drained[name] {
			continue
		}
		drained[name] = true
		ch := &channel{c: c, num: uint16(len(drained)), unconfirmed: map[uint64]*message{}, consumers: map[string]*consumer{}}
		c.chans[ch.num] = ch
		if c.ten != nil {
			ch.beginTen(1000)
		} else {
			ch.send("open", "", amqp091.ChannelOpen{}, amqp091.ChannelOpenOkID)
		}
		unordered := p.l.unordered[name]
		p.consume(ch, name, false, 0)
		p.l.unordered[name] = unordered
	}
	p.l.mu.Unlock()
	c.flush(0)
}

// empty acknowledges what comes until the queues say that they are empty.
// A queue may be made meanwhile: the lost and found, when something first needs it.
func (p *player) empty(c *client, drained map[string]bool, all *[]state) {
	began := time.Now()
	last := began
	for {
		p.l.mu.Lock()
		n := 0
		for _, num := range sortedChannels(c) {
			ch := c.chans[num]
			if len(ch.outstanding) == 0 || ch.ended {
				continue
			}
			n += len(ch.outstanding)
			for _, d := range ch.outstanding {
				p.l.takenOut(d)
			}
			// Up to what has come: all there is would be what nobody has read yet, too, and the queue empty.
			tag := ch.outstanding[len(ch.outstanding)-1].tag
			if ch.ten != nil {
				first := uint32(ch.outstanding[0].tag)
				a := ch.sayTen("settle", "", &amqp10.Disposition{
					Role: amqp10.RoleReceiver, First: first, Last: amqp10.Some(uint32(tag)), Settled: true, State: client10.Described(&amqp10.Accepted{}),
				})
				p.l.settling(ch, a, tag, true, acked)
				continue
			}
			a := ch.send("settle ack", "", amqp091.BasicAck{DeliveryTag: tag, Multiple: true})
			p.l.settling(ch, a, tag, true, acked)
		}
		p.l.mu.Unlock()
		c.flush(0)
		if n > 0 {
			last = time.Now()
		}
		calm := 20 * time.Millisecond
		if p.t.peer {
			calm = 700 * time.Millisecond
		}
		if time.Since(last) < calm {
			time.Sleep(500 * time.Microsecond)
			continue
		}
		// A queue that has not answered yet may have more than it shows: one of a group that has
		// just started has what its log ends with only then.
		p.l.mu.Lock()
		still := !slices.ContainsFunc(sortedChannels(c), func(n uint16) bool { return len(c.chans[n].waiting) > 0 && !c.chans[n].ended })
		p.l.mu.Unlock()
		var err error
		if *all, err = p.queues(); err != nil {
			p.l.fault("hangs: queues: %v", err)
			return
		}
		p.drainFrom(c, drained, *all)
		i := slices.IndexFunc(*all, func(s state) bool { return s.Messages+s.Dead+s.Delayed+s.Ready+s.Unacked > 0 })
		p.l.mu.Lock()
		ended := c.ended
		p.l.mu.Unlock()
		if ended || (i < 0 || p.t.peer && time.Since(began) > patience) && still {
			return
		}
		if i >= 0 && time.Since(last) > 15*retryPeriod && !slices.ContainsFunc(*all, func(s state) bool {
			return s.Messages != s.Dead+s.Stranded || s.Dead > 0 && !p.l.any(s.Name, func(v *queueSpec) bool { return v.atLeastOnce })
		}) {
			// The judge looks whether they may stay there.
			for _, s := range *all {
				p.l.held[s.Name] = s.Dead + s.Stranded
			}
			return
		}
		if time.Since(last) > patience {
			s := state{}
			if i >= 0 {
				s = (*all)[i]
			}
			p.l.fault("nothing comes any more, and %s is not empty: %+v", s.Name, s)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// policy sets or deletes the policy of a queue.
func (p *player) policy(o *op) {
	name := "/policies/" + p.vhost + "/for-" + o.queue
	r := rand.New(rand.NewPCG(p.seed, uint64(o.variant)))
	definition := map[string]any{}
	s := &queueSpec{policy: true, quorum: p.quorum(o.queue), dlx: "none", ttl: -1, maxLen: -1, expires: -1, limit: -1}
	switch r.IntN(6) {
	case 0:
		s.dlx, s.dlrk = "", p.slots[r.IntN(len(p.slots))].name
		definition["dead-letter-exchange"], definition["dead-letter-routing-key"] = s.dlx, s.dlrk
	case 1:
		s.ttl = []int{0, 10, 60000}[r.IntN(3)]
		definition["message-ttl"] = s.ttl
	case 2:
		s.maxLen = []int{0, 1, 4}[r.IntN(3)]
		definition["max-length"] = s.maxLen
	case 3:
		s.maxLen = []int{0, 1, 4}[r.IntN(3)]
		s.overflow = "reject-publish"
		definition["max-length"], definition["overflow"] = s.maxLen, s.overflow
	case 4:
		s.limit = r.IntN(3)
		definition["delivery-limit"] = s.limit
	case 5:
		p.flushAll()
		var gone *refusal
		if err := p.api(http.MethodDelete, name, nil, nil); err != nil && (!errors.As(err, &gone) || gone.code != 404) {
			p.l.fault("policy: %v", err)
		}
		return
	}
	p.l.mu.Lock()
	p.l.specs[o.queue] = append(p.l.specs[o.queue], s)
	p.l.mu.Unlock()
	p.flushAll()
	if err := p.api(http.MethodPut, name, map[string]any{"pattern": "^" + o.queue + "$", "apply-to": "queues", "definition": definition}, nil); err != nil {
		p.l.fault("policy: %v", err)
	}
}

// shovel begins or ends to move messages from one queue to another.
func (p *player) shovel(o *op) {
	name := o.queue + "-" + o.to
	path := "/parameters/shovel/" + p.vhost + "/" + name
	p.flushAll()
	if _, begun := p.shovels[name]; begun {
		p.endShovel(name)
		return
	}
	if o.queue == o.to {
		return
	}
	p.move(o.queue, o.to)
	p.unheard = false
	uri := "amqp:///" + url.PathEscape(p.vhost)
	if err := p.api(http.MethodPut, path, map[string]any{"value": map[string]any{
		"src-protocol": "amqp091", "src-uri": uri, "src-queue": o.queue, "src-predeclared": true, "src-prefetch-count": 1 + o.pick,
		"dest-protocol": "amqp091", "dest-uri": uri, "dest-queue": o.to, "dest-predeclared": true, "ack-mode": "on-confirm", "reconnect-delay": 1,
	}}, nil); err != nil {
		p.l.fault("shovel: %v", err)
	}
	p.shovels[name] = !p.unheard
}

func (p *player) endShovels() {
	for name := range p.shovels {
		p.endShovel(name)
	}
}

func (p *player) endShovel(name string) {
	p.unheard = false
	err := p.api(http.MethodDelete, "/parameters/shovel/"+p.vhost+"/"+name, nil, nil)
	var gone *refusal
	switch {
	case errors.As(err, &gone) && gone.code == 404 && !p.shovels[name]:
	case err != nil:
		p.l.fault("shovel: %v", err)
	case p.unheard:
		p.shovels[name] = false
		return
	}
	delete(p.shovels, name)
}

// move notes that something may carry messages from one queue to another.
func (p *player) move(from, to string) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.l.shovels = append(p.l.shovels, &mover{from: from, to: to})
	p.l.consumed[from], p.l.unordered[from] = true, true
}

// replay moves the dead letters of a queue back to where they came from.
func (p *player) replay(o *op) {
	if p.t.peer {
		return
	}
	p.flushAll()
	for _, s := range p.slots {
		p.move(o.queue, s.name)
	}
	var gone *refusal
	if err := p.api(http.MethodPost, "/queues/"+p.vhost+"/"+o.queue+"/replay", map[string]any{"limit": 1 + o.pick}, nil); err != nil && (!errors.As(err, &gone) || gone.code >= 500) {
		p.l.fault("replay: %v", err)
	}
}

// alive starts the node again if it has ended itself, as failpoints make it do.
func (p *player) alive() {
	if p.run.gone() {
		p.end(true, 0)
	}
}

// end ends the node and starts it again after a pause (in microseconds).
func (p *player) end(kill bool, pause int) {
	if !kill {
		p.flushAll()
	}
	p.l.mu.Lock()
	for _, c := range append(slices.Clone(p.clients), p.admin) {
		if c != nil {
			c.ending = true
			for _, ch := range c.chans {
				if !kill && !ch.closing { // a node that stops closes one connection after the other
					ch.closes(p.l.tick())
				}
			}
		}
	}
	p.l.mu.Unlock()
	self := p.run.gone()
	switch {
	case kill:
		p.run.node.Kill()
	default:
		if err := p.run.node.Stop(); err != nil && !strings.Contains(err.Error(), "stopped with signal: killed") { // at its step, in the middle of the stop
			p.l.fault("hangs: %v", err)
			return
		}
	}
	if (kill || self) && !p.run.node.Killed() {
		p.l.fault("hangs: the node has ended by itself, see its log")
		return
	}
	p.closeAll()
	p.l.mu.Lock()
	p.l.kills = append(p.l.kills, p.l.tick())
	p.l.replyTos = nil
	p.l.mu.Unlock()
	p.run.disarm()
	p.l.mayEnd = false
	time.Sleep(time.Duration(pause) * time.Microsecond)
	if err := p.startAgain(); err != nil {
		p.l.fault("hangs: %v", err)
		return
	}
	p.survived()
}

// startAgain starts the node that has ended.
func (p *player) startAgain() error {
	n, err := p.run.start()
	if err != nil {
		return fmt.Errorf("the node does not start again: %w", err)
	}
	p.run.node = n
	p.t.amqp, p.t.http, p.t.metrics = n.AMQP, n.HTTP, n.Prometheus
	return nil
}

// survived checks that what was told to be declared is there, and what was told to be
// deleted is not (BR-14.1, BR-7.9).
func (p *player) survived() {
	all, err := p.queues()
	if err != nil {
		p.l.fault("hangs: queues: %v", err)
		return
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	j := &judge{l: p.l, w: p.world}
	now := &act{sent: p.l.tick(), doneAt: time.Now()}
	for _, s := range p.slots {
		there := slices.ContainsFunc(all, func(q state) bool { return q.Name == s.name })
		if !there && p.durable(s.name) && !j.vanishes(s.name) && j.stood(s.name, now) {
			p.l.complain("%s was declared, and is not there after the node was started again (BR-14.1)", s.name)
		}
		if there && j.deleted(s.name) {
			p.l.complain("%s was deleted, and is there again after the node was started again (BR-7.9)", s.name)
		}
	}
}
