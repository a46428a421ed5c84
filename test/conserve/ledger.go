package conserve

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/test/client10"
)

// fate is what a publisher knows of its message.
type fate uint8

const (
	sent        fate = iota // no answer has come, or none will
	uncommitted             // in a transaction that nobody has asked to commit
	confirmed               // by basic.ack, or it was published without confirms and something later was answered
	committed               // tx.commit-ok
	refused                 // basic.nack
	returned                // basic.return
	rolledBack
)

func (f fate) String() string {
	return [...]string{"sent", "uncommitted", "confirmed", "committed", "refused", "returned", "rolled back"}[f]
}

// message is what was published once; it may be routed to many queues.
type message struct {
	id         string
	act        *act
	exchange   string
	key        string
	body       uint32 // checksum
	size       int
	persistent bool
	mandatory  bool
	expiration int // milliseconds, none if negative
	priority   int
	reply      bool // goes to a requestor and not to a queue
	fate       fate
	committing bool // a commit was sent
	copies     []*copied
	failures   int // how often a basic.reject or basic.nack was sent for it that counts (DL-11.3, DL-11.5)
	replied    int
}

func (m *message) mode() mode { return m.act.ch.mode }

// copied is a message in a queue, with the deaths that brought it there. One that died and
// came back to the same queue is another copy.
type copied struct {
	m     *message
	queue string
	sig   string   // x-death: queue/reason*count, newest first
	path  []string // the queues it died in, sorted
	root  string   // the queue it was published to
	last  *delivery
	all   []*delivery // as they were read
	seen  int
}

// delivery is a copy handed to a client.
type delivery struct {
	copied   *copied
	ch       *channel
	tag      uint64
	consumer *consumer
	at       int64
	noAck    bool
	drained  bool
	settle   *act // nil while it is outstanding
	how      settlement
	synced   int64 // when it was known that the settlement holds over a kill
	// The server said that it had been delivered before.
	redelivered bool
	void        bool              // the settlement was rolled back, or will never be committed
	carries     map[string]string // annotations that outcomes have merged into the message (see annotate.go)
}

type settlement uint8

const (
	unsettled settlement = iota
	acked
	rejected  // it dies
	requeued  // basic.nack, basic.recover
	failed    // basic.reject with requeue
	forgotten // the channel ended
)

// ledger is what all clients of an episode know. mu guards everything that clients and
// channels know as well.
type ledger struct {
	mu       sync.Mutex
	ticks    int64
	faults   []string
	messages map[string]*message
	order    []*message

	declares map[string][]*act
	deletes  map[string][]*act
	purges   map[string][]*act
	binds    []*binding
	specs    map[string][]*queueSpec // all that a queue may have been declared or told by policy to be

	ends      []*ending
	consumed  map[string]bool // a client could hold deliveries of the queue
	noAckLost map[string]bool // deliveries without acknowledgement may have been under way to a client that went
	unordered map[string]bool // the queue may give older messages after younger ones
	shovels   []*mover
	doubts    []func() string // what can be judged only when all is known
	kills     []int64
	deaths    float64 // dead letters that were dropped, as the broker counted
	counted   bool    // deaths is known
	peer      bool    // the broker is RabbitMQ
	mayEnd    bool    // the node may kill itself
	drained   int
	held      map[string]int // dead letters that their queue keeps for ever, as nobody can take them, or their target went
	clients   []*client
	replyTos  []string // addresses of requestors that nobody has answered
}

// ending is the end of a channel or of a connection that could hold deliveries.
type ending struct {
	at     int64
	when   time.Time
	queues []string
	byPeer bool // the server has ended it
}

// binding is a queue bound to an exchange.
type binding struct {
	*act
	exchange, key string
}

// mover is what takes messages from one queue to another: a shovel, or a replay (to no one queue).
type mover struct {
	from, to string
}

func newLedger() *ledger {
	return &ledger{
		messages: map[string]*message{}, declares: map[string][]*act{}, deletes: map[string][]*act{}, purges: map[string][]*act{},
		specs: map[string][]*queueSpec{}, consumed: map[string]bool{}, noAckLost: map[string]bool{}, unordered: map[string]bool{}, held: map[string]int{},
	}
}

// tick is the ledger's clock. REQUIRES: mu.
func (l *ledger) tick() int64 {
	l.ticks++
	return l.ticks
}

// fault notes that something is wrong.
func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complain(format, args...)
}

// complain is fault. REQUIRES: mu.
func (l *ledger) complain(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// publishing notes a message that is being sent.
func (l *ledger) publishing(ch *channel, m *message) {
	l.messages[m.id] = m
	l.order = append(l.order, m)
	switch ch.mode {
	case confirming:
		if ch.ten == nil { // else the message has its delivery-id
			ch.published++
		}
		ch.unconfirmed[ch.published] = m
	case transactional:
		m.fate = uncommitted
		ch.inTx = append(ch.inTx, func(ok bool) {
			if ok {
				m.fate = committed
			} else {
				m.fate = rolledBack
			}
		})
	case plain:
	}
}

// confirmed notes an answer to publishes (BR-8.7 to BR-8.9).
func (l *ledger) confirmed(ch *channel, tag uint64, multiple, ok bool) {
	any := false
	for t, m := range ch.unconfirmed {
		if t != tag && (!multiple || tag != 0 && t > tag) {
			continue
		}
		any = true
		delete(ch.unconfirmed, t)
		if m.act.done == 0 {
			m.act.done, m.act.doneAt = l.tick(), time.Now()
		}
		switch {
		case m.fate == returned && !ok:
			l.complain("%s: returned, and then refused (BR-8.9)", m.id)
		case m.fate == returned:
		case ok:
			m.fate = confirmed
			l.settledBefore(m)
		default:
			m.fate = refused
		}
	}
	if !any && !multiple {
		l.complain("%s: the server confirmed %d, which is not waiting for it (BR-8.7)", ch.c.name, tag)
	}
}

// settledBefore notes what the confirm of m proves: what the channel had settled before of a
// queue that m is in now holds over a kill.
func (l *ledger) settledBefore(m *message) {
	if !m.persistent || m.exchange != "" {
		return
	}
	for _, d := range m.act.ch.settled {
		if d.copied.queue == m.key && d.settle != nil && d.settle.before(m.act) && d.synced == 0 {
			d.synced = l.ticks
		}
	}
}

// returned notes a basic.return (BR-8.2).
func (l *ledger) returned(ch *channel, x *content) {
	m := l.messages[text(x.props.MessageID)]
	if m == nil {
		l.complain("%s: the server returned %q, which was never published", ch.c.name, text(x.props.MessageID))
		return
	}
	if !m.mandatory {
		l.complain("%s: returned, and was not mandatory (BR-8.2)", m.id)
	}
	if m.fate == confirmed {
		l.complain("%s: confirmed before it was returned (BR-8.2)", m.id)
	}
	l.intact(m, x)
	m.fate = returned
}

// answered notes the answer to what a channel sent first of what is not answered.
func (l *ledger) answered(ch *channel, m amqp091.Method) {
	// RabbitMQ's queues answer a consume themselves: that answer may be late.
	late := len(ch.waiting) > 0 && strings.HasPrefix(ch.waiting[0].what, "consume") && ch.answers(m)
	if !late && (len(ch.waiting) == 0 || !slices.Contains(ch.waiting[0].answers, m.ID())) {
		what := "nothing"
		if len(ch.waiting) > 0 {
			what = ch.waiting[0].what
		}
		l.complain("%s: the server answered %s to %s", ch.c.name, m.Name(), what)
	}
	// Whatever its place says of the server, the answer belongs to something.
	i := slices.IndexFunc(ch.waiting, func(a *act) bool { return slices.Contains(a.answers, m.ID()) })
	if i < 0 {
		return
	}
	if i > 0 {
		a := ch.waiting[i]
		ch.waiting = slices.Insert(slices.Delete(ch.waiting, i, i+1), 0, a)
	}
	a := ch.waiting[0]
	ch.waiting = ch.waiting[1:]
	l.finished(ch, a, m)
}

// finished notes that an act of a channel is done, and how it was answered.
func (l *ledger) finished(ch *channel, a *act, m amqp091.Method) {
	now, at := l.tick(), time.Now()
	// What was sent before on this channel is done too, but for the work of a transaction.
	for _, b := range ch.acts[:a.pos+1] {
		if b.done == 0 && !b.inTransaction() {
			b.done, b.doneAt = now, at
		}
	}
	switch m := m.(type) {
	case *amqp091.QueueDeclareOk:
		if m.Queue != a.queue {
			l.complain("%s: declared %q, the server answers %q", ch.c.name, a.queue, m.Queue)
		}
		a.count = int(m.MessageCount)
	case *amqp091.QueueDeleteOk:
		a.count = int(m.MessageCount)
	case *amqp091.QueuePurgeOk:
		a.count = int(m.MessageCount)
	case *amqp091.BasicGetEmpty:
		ch.getting = ch.getting[1:]
	case *amqp091.ChannelCloseOk:
		l.channelEnded(ch)
	}
	if a.onAnswer != nil {
		a.onAnswer(m)
	}
}

// answers says whether a method can be the answer to anything that was sent.
func (ch *channel) answers(m amqp091.Method) bool {
	return slices.ContainsFunc(ch.waiting, func(a *act) bool { return slices.Contains(a.answers, m.ID()) })
}

func (a *act) inTransaction() bool {
	return a.ch != nil && a.ch.mode == transactional && (a.what == "publish" || strings.HasPrefix(a.what, "settle"))
}

// closes notes that the channel is to end, unless it has, or is to end already.
func (ch *channel) closes(at int64) {
	if !ch.closing && !ch.ended {
		ch.closing, ch.closeAt = true, at
	}
}

// channelClosed notes that the server closed a channel.
func (l *ledger) channelClosed(ch *channel, m *amqp091.ChannelClose) {
	ch.byPeer = true
	if at := ch.failing(); !ch.closing || at < ch.closeAt {
		ch.closeAt = at
	}
	known := m.ReplyCode == 404 || m.ReplyCode == 405 || m.ReplyCode == 406 || m.ReplyCode == 403
	if !known || strings.Contains(m.ReplyText, "unknown delivery tag") {
		l.complain("%s: the server closed channel %d: %d %s", ch.c.name, ch.num, m.ReplyCode, m.ReplyText)
	}
	for _, a := range ch.waiting {
		if len(a.answers) > 0 && a == ch.waiting[0] && strings.HasPrefix(a.what, "declare") {
			a.failed = true // whatever it was that failed, this was not answered
		}
	}
	l.channelEnded(ch)
}

// failing is when the first was sent of what the server may have closed the channel for.
func (ch *channel) failing() int64 {
	for _, a := range ch.acts {
		if a.done == 0 || slices.Contains(ch.waiting, a) {
			return a.sent
		}
	}
	return 0
}

// channelEnded notes that a channel is no more: what it had not settled goes back.
func (l *ledger) channelEnded(ch *channel) {
	if l.endChannel(ch) {
		l.ends = append(l.ends, &ending{l.ticks, time.Now(), ch.queues(), ch.byPeer})
	}
}

func (l *ledger) endChannel(ch *channel) (first bool) {
	if ch.ended {
		return false
	}
	ch.ended, ch.endAt = true, l.tick()
	for _, d := range ch.outstanding {
		d.how = forgotten
	}
	// What is on its way to a channel that the server closes is lost with it.
	for _, a := range ch.acts {
		if l.peer && ch.byPeer && (a.what == "consume!" || a.what == "get!") {
			l.noAckLost[a.queue] = true
		}
	}
	return true
}

// queues are those that the channel could hold deliveries of.
func (ch *channel) queues() (names []string) {
	for _, a := range ch.acts {
		if a.what == "consume" || a.what == "get" {
			names = append(names, a.queue)
		}
	}
	return names
}

// connectionEnded notes that a connection is no more.
func (l *ledger) connectionEnded(c *client) {
	if c.ended {
		return
	}
	c.ended, c.endAt = true, l.tick()
	var queues []string
	for _, ch := range c.chans {
		if !ch.ended && !c.clean && len(ch.waiting) > 0 {
			ch.unheard = ch.failing()
		}
		if !ch.ended && (ch.asked() || ch.unheard != 0) { // the server saw that end first, and the other channels may have had what it gave back
			l.ends = append(l.ends, &ending{c.endAt, time.Now(), ch.queues(), ch.unheard != 0})
		}
		l.endChannel(ch)
		queues = append(queues, ch.queues()...)
	}
	for _, ch := range c.chans {
		for _, a := range ch.acts { // in AMQP 1.0 what waits for a window is lost, however its connection ends
			if (a.what == "consume!" || a.what == "get!") && (!c.clean || c.ten != nil || l.peer && ch.othersHold(a.queue)) {
				l.noAckLost[a.queue] = true
			}
		}
	}
	l.ends = append(l.ends, &ending{c.endAt, time.Now(), queues, false})
}

// asked says whether the client has asked to close the channel, and nobody has answered.
func (ch *channel) asked() bool {
	return slices.ContainsFunc(ch.waiting, func(a *act) bool { return a.what == "close" })
}

// othersHold says whether other channels of the connection could hold deliveries of a queue.
// They end one after the other: what one returns may go to a consumer of the next.
func (ch *channel) othersHold(queue string) bool {
	for _, other := range ch.c.chans {
		if other != ch && slices.Contains(other.queues(), queue) {
			return true
		}
	}
	return false
}

// intact checks that nothing of a message was changed (BR-8.4, DL-6.10).
func (l *ledger) intact(m *message, x *content) {
	if text(x.props.Type) == "amqp-1.0" { // a body that AMQP 0-9-1 has no form for
		if r, err := client10.Read(x.body); err == nil {
			x.body = r.Body
		}
	}
	if crc32.ChecksumIEEE(x.body) != m.body || len(x.body) != m.size {
		l.complain("%s: damaged: %d bytes were published, %d came with another checksum (DL-6.10)", m.id, m.size, len(x.body))
	}
	if id, _ := x.props.Headers.Get("id"); id != m.id {
		l.complain("%s: damaged: the header says it is %v (DL-6.10)", m.id, id)
	}
	if p := x.props.DeliveryMode; p == nil && (m.persistent || m.act.ch.ten == nil) || p != nil && (*p == 2) != m.persistent {
		l.complain("%s: damaged: delivery mode", m.id)
	}
	if p := x.props.Priority; p == nil || int(*p) != m.priority {
		l.complain("%s: damaged: priority (BR-8.4)", m.id)
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// deathsOf reads x-death.
func deathsOf(x *content) (sig string, path []string, root string) {
	v, _ := x.props.Headers.Get("x-death")
	list, _ := v.(amqp091.Array)
	var b strings.Builder
	for _, e := range list {
		t, _ := e.(amqp091.Table)
		queue, _ := t.Get("queue")
		reason, _ := t.Get("reason")
		count, _ := t.Get("count")
		fmt.Fprintf(&b, "%v/%v*%v ", queue, reason, count)
		if name, ok := queue.(string); ok && !slices.Contains(path, name) {
			path = append(path, name)
		}
	}
	slices.Sort(path)
	if v, ok := x.props.Headers.Get("x-first-death-queue"); ok {
		root, _ = v.(string)
	}
	return strings.TrimSpace(b.String()), path, root
}

// delivered notes a delivery, by a consumer or by basic.get.
func (l *ledger) delivered(ch *channel, s *consumer, queue string, tag uint64, redelivered, noAck bool, x *content) {
	id := text(x.props.MessageID)
	m := l.messages[id]
	if m == nil {
		l.complain("%s: %q in %s was never published", ch.c.name, id, queue)
		return
	}
	l.intact(m, x)
	if m.reply {
		if m.replied++; m.replied > 1 {
			l.complain("%s: the reply arrives twice (BR-12.2)", m.id)
		}
		return
	}
	if to := text(x.props.ReplyTo); to != "" {
		l.replyTos = append(l.replyTos, to)
	}
	sig, path, root := deathsOf(x)
	if root == "" {
		root = queue
	}
	var c *copied
	for _, other := range m.copies {
		if other.queue == queue && other.sig == sig {
			c = other
		}
	}
	if c == nil {
		c = &copied{m: m, queue: queue, sig: sig, path: path, root: root}
		m.copies = append(m.copies, c)
	}
	d := &delivery{copied: c, ch: ch, tag: tag, consumer: s, at: l.tick(), noAck: noAck, redelivered: redelivered, carries: carried(x)}
	c.all = append(c.all, d)
	l.visible(m, queue)
	if p := c.last; p != nil && !l.comesRound(c) && d.overtaken(p) {
		at := d.at
		c.last, d.at = d, p.at
		l.again(p, true)
		c.last, d.at = p, at
	} else {
		l.again(d, redelivered)
		c.last = d
	}
	l.deliveryCount(d, x)
	l.inOrder(d)
	c.seen++
	if noAck {
		return
	}
	ch.outstanding = append(ch.outstanding, d)
}

// overtaken says whether d may have been sent before p, which was read before it: between two
// sockets there is no order. It is so if p had been delivered before and d had not; or if d
// came to a channel whose end, or recovery, was asked for before p came: what goes back with
// it is delivered to others before the answer is read, in RabbitMQ too. Nothing was sent before
// p to a channel that was opened after p was read, as those of a node that was started again.
func (d *delivery) overtaken(p *delivery) bool {
	if p.ch.c == d.ch.c || !p.redelivered || d.ch.acts[0].sent > p.at {
		return false
	}
	if !d.redelivered {
		return d.copied.seen == 1
	}
	return d.ch.closing && d.ch.closeAt < p.at || slices.ContainsFunc(d.ch.waiting, func(a *act) bool { return a.takesBack(d) && a.sent < p.at })
}

// recovered says whether d was on its way when its channel recovered, which was asked for
// before the moment: its client hears of that only later.
func (d *delivery) recovered(at int64) bool {
	return d.settle != nil && d.settle.takesBack(d) && d.settle.sent < at
}

// takesBack says whether the act gives back what its client has of d's, and d if it is on its way: a recovery, or the end of
// d's link in AMQP 1.0.
func (a *act) takesBack(d *delivery) bool {
	return a.what == "recover" || a.link != nil && d.consumer != nil && d.consumer.link == a.link
}

// visible checks that the message may be seen by anybody at all.
func (l *ledger) visible(m *message, queue string) {
	switch {
	case m.fate == rolledBack:
		l.complain("%s: rolled back, and there in %s (BR-8.11)", m.id, queue)
	case m.fate == uncommitted && !m.committing:
		l.complain("%s: in %s before its transaction was committed (BR-8.11)", m.id, queue)
	case m.fate == returned:
		l.complain("%s: returned as unroutable, and there in %s (BR-8.2)", m.id, queue)
	}
}

// again checks what was delivered before. A copy is with one client at a time, and is
// redelivered only after it was given back or its channel went (DL-2.5, BR-4.5, BR-9.15).
func (l *ledger) again(d *delivery, redelivered bool) {
	c := d.copied
	p := c.last
	if p == nil || l.comesRound(c) {
		return
	}
	name := fmt.Sprintf("%s in %s [%s]", c.m.id, c.queue, c.sig)
	if !redelivered && !l.killedBetween(p.at, d.at) {
		l.complain("%s: delivered a second time without the flag redelivered (BR-9.15)", name)
	}
	// A channel ends there before it ends here: by its client's will, or by the server's.
	went := func() bool {
		return p.ch.ended && (p.ch.endAt < d.at || (p.ch.byPeer || p.ch.closing) && p.ch.closeAt < d.at || p.ch.unheard != 0 && p.ch.unheard < d.at)
	}
	switch {
	case p.noAck:
		if !slices.ContainsFunc(l.kills, func(at int64) bool { return p.at < at && at < d.at }) {
			l.complain("%s: delivered twice, the first time without acknowledgement (DL-2.5)", name)
		}
	case p.how == unsettled:
		l.doubts = append(l.doubts, func() string {
			// Where the server closed d's channel, d may have been sent before p (overtaken): that it was to be closed by then is known only now.
			before := d.ch.byPeer && d.ch.closeAt < p.at && p.redelivered && d.ch.c != p.ch.c && d.ch.acts[0].sent < p.at
			if went() || p.recovered(d.at) || before {
				return ""
			}
			return name + ": delivered to two clients at once (BR-9.4)"
		})
	case p.how == acked || p.how == rejected:
		settle := p.settle
		how := p.how
		durable := !l.any(c.queue, func(s *queueSpec) bool { return !s.durable })
		l.doubts = append(l.doubts, func() string {
			if p.void || settle.done == 0 && p.ch.ended && p.synced == 0 {
				return ""
			}
			if l.killedBetween(p.at, d.at) && (p.synced == 0 || l.killedBetween(p.at, p.synced) || !durable) {
				return ""
			}
			if how == rejected && slices.Contains(c.path, c.queue) {
				return "" // it came back to where it had died
			}
			return fmt.Sprintf("%s: delivered again after it was settled (%s) (DL-2.5)", name, settle.what)
		})
	}
}

func (l *ledger) killedBetween(a, b int64) bool {
	return slices.ContainsFunc(l.kills, func(at int64) bool { return a < at && at < b })
}

// moved says that messages are carried from queue to queue, where their history does not
// tell copies apart.
func (l *ledger) moved() bool { return len(l.shovels) > 0 }

// comesRound says whether the copy may have been carried to its queue, and so be delivered as
// new once more. What has died shows it, unless it was carried before.
func (l *ledger) comesRound(c *copied) bool {
	return slices.ContainsFunc(l.shovels, func(v *mover) bool { return c.sig != "" || v.to == c.queue })
}

// deliveryCount checks that no more deliveries count as failed than could fail: one for
// each basic.reject and each basic.nack with requeue, and one for each end of a channel or, with all its channels, of a
// connection (DL-11.3).
func (l *ledger) deliveryCount(d *delivery, x *content) {
	v, ok := x.props.Headers.Get("x-delivery-count")
	if !ok {
		return
	}
	count, _ := v.(int64)
	// The server sees an end before whoever asked for it hears of it.
	ending := 0
	for _, c := range l.clients {
		here, own := 0, 0
		for _, ch := range c.chans {
			if !ch.ended && ch.closing && len(ch.queues()) > 0 {
				here++
				if ch.asked() {
					own++
				}
			}
		}
		if c.ending { // all at once, but for those that were asked to close before
			here = own + min(here-own, 1)
		}
		ending += here
	}
	most := l.failures(d.copied.m) + ending
	if count <= int64(most) {
		return
	}
	at := time.Now()
	l.doubts = append(l.doubts, func() string {
		// Nobody has asked the server for the ends that it decides itself.
		for _, e := range l.ends {
			if e.byPeer && e.at > d.at && e.when.Sub(at) < time.Second && slices.Contains(e.queues, d.copied.queue) {
				most++
			}
		}
		if count <= int64(most) {
			return ""
		}
		return fmt.Sprintf("%s in %s: x-delivery-count is %d, and no more than %d deliveries can have failed (DL-11.3)", d.copied.m.id, d.copied.queue, count, most)
	})
}

// failures is how many deliveries of a message can have failed at most.
func (l *ledger) failures(m *message) int {
	n := m.failures + len(l.kills) + 2*len(l.shovels)
	for _, e := range l.ends {
		switch {
		case len(e.queues) == 0:
		case e.at < m.act.sent && m.act.sentAt.Sub(e.when) > time.Second: // the server sees an end soon after
		case l.peer:
			n += len(e.queues) // RabbitMQ's channels end one after the other
		default:
			n++
		}
	}
	return n
}

// inOrder checks that a single active consumer gets what its predecessor had not settled
// before what came later (BR-9.5, BR-9.13). It is so as long as the active consumer is the
// only one that ever held messages of the queue, and returns them by its end alone.
func (l *ledger) inOrder(d *delivery) {
	s := d.consumer
	if s == nil || d.copied.sig != "" || l.unordered[d.copied.queue] || !l.singleActive(d.copied.queue) || l.moved() {
		return
	}
	m := d.copied.m
	inTurn := l.returnedInTurn(d.copied.queue)
	if inTurn() {
		s.last[m.act.ch] = m
		return
	}
	if before := s.last[m.act.ch]; before != nil && m.act.pos < before.act.pos && m.priority == before.priority {
		queue := d.copied.queue
		l.doubts = append(l.doubts, func() string {
			if l.unordered[queue] || inTurn() {
				return ""
			}
			return fmt.Sprintf("%s: the single active consumer of %s got it after %s, which was published later (BR-9.5)", m.id, queue, before.id)
		})
	}
	s.last[m.act.ch] = m
}

// returnedInTurn says whether messages of a quorum queue may have come back more than once by
// now: they stand in the order of their returns there (BR-9.13), behind those that came back
// before and went nowhere since. What it returns may know of more ends later, of those that the
// server decides itself.
func (l *ledger) returnedInTurn(queue string) func() bool {
	now := l.ticks
	asked := 0 // the server sees an end before whoever asked for it hears of it
	for _, c := range l.clients {
		if slices.ContainsFunc(slices.Collect(maps.Values(c.chans)), func(ch *channel) bool {
			return !ch.ended && ch.closing && slices.Contains(ch.queues(), queue)
		}) {
			asked++
		}
	}
	return func() bool {
		ends := asked
		for _, e := range l.ends {
			if (e.at <= now || e.byPeer) && slices.Contains(e.queues, queue) {
				ends++
			}
		}
		return ends > 1 && slices.ContainsFunc(l.specs[queue], func(s *queueSpec) bool { return s.quorum })
	}
}

func (l *ledger) singleActive(queue string) bool {
	specs := l.specs[queue]
	for _, s := range specs {
		if !s.single && !s.policy || s.retry > 0 {
			return false
		}
	}
	return len(specs) > 0
}

// settling notes that deliveries of a channel are being settled: those up to tag, or the one.
func (l *ledger) settling(ch *channel, a *act, tag uint64, multiple bool, how settlement) {
	l.settlingThose(ch, a, how, func(d *delivery) bool { return d.tag == tag || multiple && (tag == 0 || d.tag < tag) })
}

// settlingThose is settling for those deliveries that f holds for.
func (l *ledger) settlingThose(ch *channel, a *act, how settlement, f func(*delivery) bool) {
	var kept, settled []*delivery
	for _, d := range ch.outstanding {
		if f(d) {
			settled = append(settled, d)
		} else {
			kept = append(kept, d)
		}
	}
	ch.outstanding = kept
	for _, d := range settled {
		d.settle, d.how = a, how
		if how == requeued || how == failed {
			l.unordered[d.copied.queue] = true
		}
		if a.fails || a.what == "settle reject" || a.what == "settle nack requeue" && !l.peer {
			d.copied.m.failures++
		}
	}
	ch.settled = append(ch.settled, settled...)
	if !a.inTransaction() || how == forgotten { // a recovery takes place at once (BR-9.11)
		return
	}
	for _, d := range settled {
		d.void = true
	}
	ch.inTx = append(ch.inTx, func(ok bool) {
		if ok {
			return
		}
		for _, d := range settled {
			d.void, d.settle, d.how = false, nil, unsettled
			if ch.ended {
				d.how = forgotten
			}
		}
		ch.outstanding = append(ch.outstanding, settled...)
		slices.SortFunc(ch.outstanding, func(a, b *delivery) int { return int(a.tag) - int(b.tag) })
	})
	a.onCommit(func() {
		for _, d := range settled {
			d.void = false // it may take place from now on
		}
	})
}

// finish ends the transaction that the channel has collected: the answer says how.
func (l *ledger) finish(ch *channel, a *act, commit bool) {
	work := ch.inTx
	ch.inTx = nil
	if !commit { // whatever comes of the rollback: what is settled after it finds what it puts back
		for _, f := range work {
			f(false)
		}
		work = nil
	}
	for _, b := range ch.acts[:a.pos] {
		if b.inTransaction() && b.done == 0 && !b.failed && !b.decided {
			b.decided = true
			if !commit {
				b.failed = true
				continue
			}
			b.asked, b.pos = b.pos, a.pos
			for _, f := range b.commits {
				f()
			}
			if m := b.message; m != nil {
				m.committing = true
			}
		}
	}
	a.onAnswer = func(amqp091.Method) {
		if !commit {
			return
		}
		for _, f := range work {
			f(true)
		}
		for _, b := range ch.acts[:min(a.pos, len(ch.acts))] {
			if b.inTransaction() && b.decided && !b.failed && b.done == 0 {
				b.done, b.doneAt = l.tick(), time.Now()
			}
		}
	}
}

// onCommit has f called when the commit of the act is asked for.
func (a *act) onCommit(f func()) { a.commits = append(a.commits, f) }

// takenOut notes that the drain at the end has found d.
func (l *ledger) takenOut(d *delivery) {
	d.drained = true
	l.drained++
}

func (m *message) String() string {
	how := ""
	if m.persistent {
		how = ", persistent"
	}
	if m.expiration >= 0 {
		how += ", expiration " + strconv.Itoa(m.expiration)
	}
	return fmt.Sprintf("%s (to %q/%s by %s, %s, %s%s)", m.id, m.exchange, m.key, m.act.ch.c.name, m.mode(), m.fate, how)
}
