package session091_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/sim"
	"bartleby.mq/internal/wire/amqp091"
)

// seeds are those of the plays by chance.
var seeds = sim.SeedFlags(40)

const (
	pipeFrameMax = 4096
	pipePatience = 20 * time.Second // within which anything is answered
)

// ledger is what clients know of their messages, and what they found wrong.
type ledger struct {
	mu       sync.Mutex
	messages map[string]*ledgerEntry
	wrong    []string
}

// ledgerEntry is a message.
type ledgerEntry struct {
	queue      string // it was published to, "" for none
	tx         bool   // in a transaction
	confirmed  bool   // or committed
	rolledBack bool
	fresh      int  // deliveries that were not redelivered
	settled    int  // times that it was settled for good, and the server is known to have done it
	perhaps    bool // somebody may have settled it
	drained    int  // times that it was there in the end
	trace      []string
}

// bad notes what is wrong. REQUIRES: mu is held.
func (l *ledger) bad(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// pipeAct is something that a client has sent and that the server has yet to do.
type pipeAct struct {
	answer    string   // the method that answers it, "" for none
	method    string   // its own
	settles   []string // messages that it settles for good
	publishes []string // messages of the transaction that it ends
	noAck     bool
	all       bool // it settles all there is
}

// pipeDelivery is a delivery that the client has not settled.
type pipeDelivery struct {
	tag     uint64
	message string
}

// pipeChannel is a channel as its client knows it.
type pipeChannel struct {
	number          uint16
	open            bool // the client may use it
	closing         bool // the client has closed it
	closed          bool // so has the server, at the same time
	confirms, tx    bool
	risky           bool // something was sent that the server may close it for
	acts            []pipeAct
	tag             uint64 // of the last delivery
	unacked         []pipeDelivery
	settlesAll      int // acts under way that do: what comes meanwhile may be settled by them
	published       []string
	confirmed       int // of published
	tags            map[string]bool
	noAck           map[string]bool // by consumer tag
	txSettles, txIn []string        // of the transaction: what it settles, and publishes
	content         struct {        // that is coming in
		active, redelivered bool
		method, consumer    string
		tag, size           uint64
		body                []byte
	}
}

// pipeClient is a connection that writes anything, and reads now and then.
type pipeClient struct {
	*rand.Rand
	*ledger
	name     string
	nc       net.Conn
	in       []byte
	later    []byte // is sent with what follows
	channels map[uint16]*pipeChannel
	next     map[uint16]*pipeChannel // opened right behind the close of the one of its number
	messages int
	gates    bool // it uses limits for whole channels, and the classic queue only
	breaks   bool // it ends without a word
	ended    bool // by connection.close-ok
}

// Clients write many methods at once on several channels, cut anywhere: publishes with confirms and in transactions, gets
// and consumers with and without acknowledgements, settlements of all kinds, recover, cancel and consume with the same tag
// again, errors that close a channel in the midst of it, close and open of one number in one write; and end without a
// word, or in order. All answers come, and in order; delivery tags have no gaps; no message is delivered twice unless as
// redelivered; none that was confirmed is lost, none that was settled is there, and none of a transaction that was rolled
// back. Where one client goes on settling all that it has, nothing stays ready in a queue with a consumer. What the
// server does when is not the seed's: what has failed may need -count to fail again.
func TestPipelinedMethodsLoseAndDoubleNothing(t *testing.T) {
	for name, play := range map[string]func(*testing.T, *server, uint64, *ledger){"two clients": playTwo, "one client that settles all": playOne} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, broker.Options{GlobalQos: true, Partitions: 2})
			seeds.Run(t, "./internal/edge/session091", 4, func(t *testing.T, seed uint64) (sim.Result, error) {
				l := &ledger{messages: map[string]*ledgerEntry{}}
				play(t, s, seed, l)
				if len(l.wrong) > 0 {
					return sim.Result{}, errors.New(strings.Join(l.wrong[:min(len(l.wrong), 10)], "\n"))
				}
				return sim.Result{Counts: map[string]int{"messages": len(l.messages)}}, nil
			})
		})
	}
}

// playTwo has two clients play at once, each of which may end without a word.
func playTwo(t *testing.T, s *server, seed uint64, l *ledger) {
	w := pipeQueues(t, s)
	var all sync.WaitGroup
	for k := range uint64(2) {
		c := dialPipe(t, s, l, rand.New(rand.NewPCG(seed, k)), string('A'+rune(k)))
		c.breaks = c.IntN(3) == 0
		all.Go(func() {
			if c.play() && !c.breaks && c.answered() {
				c.end()
			}
			_ = c.nc.Close()
		})
	}
	all.Wait()
	drainPipes(s, w, l)
}

// playOne has one client play, and then go on settling until nothing is ready where it consumes.
func playOne(t *testing.T, s *server, seed uint64, l *ledger) {
	w := pipeQueues(t, s)
	c := dialPipe(t, s, l, rand.New(rand.NewPCG(seed, 0)), "A")
	c.gates = c.IntN(2) == 0
	if c.play() && c.answered() {
		for deadline := time.Now().Add(pipePatience / 2); ; {
			c.settleAll()
			stuck := ""
			for _, q := range []string{"classic", "quorum"} {
				w.methods(1, amqp091.QueueDeclare{Queue: q, Passive: true, Durable: true})
				if d := await[*amqp091.QueueDeclareOk](w); d.ConsumerCount > 0 && d.MessageCount > 0 {
					stuck += fmt.Sprintf(" %+v", d)
				}
			}
			if stuck == "" {
				break
			}
			if time.Now().After(deadline) {
				l.bad("ready, and nobody gets it:%s", stuck)
				break
			}
		}
		c.end()
	}
	_ = c.nc.Close()
	drainPipes(s, w, l)
}

// pipeQueues makes the queues anew. What "passing" has is nobody's matter: it is deleted by clients.
func pipeQueues(t *testing.T, s *server) *wire {
	w := s.login(t)
	for name, kind := range map[string]string{"classic": "classic", "quorum": "quorum", "passing": "classic"} {
		args := amqp091.Table{{Key: "x-queue-type", Value: kind}}
		if kind == "quorum" {
			args = append(args, amqp091.Field{Key: "x-delivery-limit", Value: int64(-1)})
		}
		w.methods(1, amqp091.QueueDelete{Queue: name}, amqp091.QueueDeclare{Queue: name, Durable: true, Arguments: args})
		await[*amqp091.QueueDeclareOk](w)
	}
	return w
}

// drainPipes takes all that is left once clients are gone, and looks what is wrong with it.
func drainPipes(s *server, w *wire, l *ledger) {
	for deadline := time.Now().Add(pipePatience); len(s.b.Connections()) > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("connections do not end")
		}
	}
	for _, q := range []string{"classic", "quorum"} {
		for {
			w.methods(1, amqp091.BasicGet{Queue: q, NoAck: true})
			if _, empty := w.next().(*amqp091.BasicGetEmpty); empty {
				break
			}
			name := w.messageName()
			switch e := l.messages[name]; {
			case e == nil:
				l.bad("nobody published %q, which is in %s", name, q)
			case e.queue != q:
				l.bad("%s is in %s, and was published to %q", name, q, e.queue)
			default:
				e.drained++
			}
		}
	}
	_ = w.nc.Close()
	for name, e := range l.messages {
		switch {
		case e.queue == "":
		case e.drained > 1:
			l.bad("%s is there %d times: %v", name, e.drained, e.trace)
		case e.drained > 0 && e.settled > 0:
			l.bad("%s was settled, and is there: %v", name, e.trace)
		case e.settled > 1:
			l.bad("%s was settled %d times: %v", name, e.settled, e.trace)
		case e.drained == 0 && e.confirmed && !e.perhaps && e.settled == 0:
			l.bad("%s is lost: %v", name, e.trace)
		case e.tx && e.rolledBack && (e.drained > 0 || len(e.trace) > 0):
			l.bad("%s was rolled back, and is there: %v", name, e.trace)
		}
	}
}

// messageName reads the content of a get-ok, whose header has come or comes, and returns what its body begins with.
func (w *wire) messageName() string {
	for b := make([]byte, 1<<16); ; {
		f, n, err := amqp091.NextFrame(w.in, 1<<20)
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			k, err := w.nc.Read(b)
			if err != nil {
				w.t.Fatal(err)
			}
			w.in = append(w.in, b[:k]...)
			continue
		}
		name, _, _ := bytes.Cut(f.Payload, []byte(" "))
		w.in = w.in[n:]
		if f.Type == amqp091.FrameBody {
			return string(name)
		}
	}
}

func dialPipe(t *testing.T, s *server, l *ledger, r *rand.Rand, name string) *pipeClient {
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := amqp091.Table{{Key: "consumer_cancel_notify", Value: true}}
	b := append([]byte(amqp091.ProtocolHeader), amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{
		ClientProperties: amqp091.Table{{Key: "capabilities", Value: capabilities}}, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	})...)
	b = amqp091.AppendMethod(b, 0, amqp091.ConnectionTuneOk{ChannelMax: 2047, FrameMax: pipeFrameMax})
	b = amqp091.AppendMethod(b, 0, amqp091.ConnectionOpen{VirtualHost: "/"})
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
	return &pipeClient{Rand: r, ledger: l, name: name, nc: nc, channels: map[uint16]*pipeChannel{}, next: map[uint16]*pipeChannel{}}
}

func newPipeChannel(number uint16) *pipeChannel {
	return &pipeChannel{
		number: number, open: true, tags: map[string]bool{}, noAck: map[string]bool{}, acts: []pipeAct{{method: "channel.open", answer: "channel.open-ok"}},
	}
}

// report notes what is wrong with the client as a whole. It returns false.
func (c *pipeClient) report(format string, args ...any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bad("%s: %s", c.name, fmt.Sprintf(format, args...))
	return false
}

// play writes and reads. It returns whether the connection is still there.
func (c *pipeClient) play() bool {
	for range 10 + c.IntN(20) {
		b := append(c.later, c.methods()...)
		c.later = nil
		for len(b) > 0 {
			n := len(b)
			if c.IntN(4) == 0 {
				n = 1 + c.IntN(n)
			}
			if !c.write(b[:n]) {
				return false
			}
			if b = b[n:]; len(b) > 0 && c.IntN(2) == 0 && !c.read(time.Millisecond) {
				return false
			}
		}
		if c.IntN(3) > 0 && !c.read(time.Duration(c.IntN(3000))*time.Microsecond) {
			return false
		}
	}
	return true
}

func (c *pipeClient) write(b []byte) bool {
	_ = c.nc.SetWriteDeadline(time.Now().Add(pipePatience))
	if _, err := c.nc.Write(b); err != nil {
		return c.report("write: %v", err)
	}
	return true
}

// methods are some by chance, all for one write.
func (c *pipeClient) methods() (b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 1 + c.IntN(25) {
		number := uint16(1 + c.IntN(3))
		switch ch := c.channels[number]; {
		case ch == nil:
			c.channels[number] = newPipeChannel(number)
			b = amqp091.AppendMethod(b, number, amqp091.ChannelOpen{})
		case ch.open:
			b = append(b, c.something(ch)...)
		}
	}
	return b
}

// sends appends a method to acts, and returns its frame.
func (ch *pipeChannel) sends(m amqp091.Method, answer string) []byte {
	ch.acts = append(ch.acts, pipeAct{method: m.Name(), answer: answer})
	return amqp091.AppendMethod(nil, ch.number, m)
}

func (ch *pipeChannel) lastAct() *pipeAct { return &ch.acts[len(ch.acts)-1] }

// something is what a client may send on a channel that is open.
func (c *pipeClient) something(ch *pipeChannel) []byte {
	queue, noWait := []string{"classic", "quorum"}[c.IntN(2)], c.IntN(2) == 0
	if c.gates {
		queue = "classic"
	}
	unless := func(noWait bool, answer string) string {
		if noWait {
			return ""
		}
		return answer
	}
	switch k := c.IntN(100); {
	case k < 35:
		return c.publish(ch, queue)
	case k < 45:
		return c.settle(ch)
	case k < 47:
		return c.settleWhole(ch, c.IntN(2) == 0 || c.breaks)
	case k < 55:
		noAck := c.IntN(3) == 0 && !c.breaks
		b := ch.sends(amqp091.BasicGet{Queue: queue, NoAck: noAck}, "basic.get")
		ch.lastAct().noAck = noAck
		return b
	case k < 62:
		return c.consume(ch, queue, noWait, unless(noWait, "basic.consume-ok"))
	case k < 67:
		tag := []string{"a0", "a1", "a2", "n0", "n1"}[c.IntN(5)]
		delete(ch.tags, tag)
		return ch.sends(amqp091.BasicCancel{ConsumerTag: tag, NoWait: noWait}, unless(noWait, "basic.cancel-ok"))
	case k < 70:
		return ch.sends(amqp091.BasicQos{PrefetchCount: uint16(c.IntN(4) * 3), Global: c.gates && c.IntN(2) == 0}, "basic.qos-ok")
	case k < 75:
		return c.selects(ch, k < 73, noWait, unless(noWait, "confirm.select-ok"))
	case k < 80:
		return c.endTx(ch)
	case k < 83:
		ch.unacked, ch.risky = nil, true
		return ch.sends(amqp091.BasicRecover{Requeue: true}, "basic.recover-ok")
	case k < 85:
		return ch.sends(amqp091.QueueDeclare{Queue: "passing", Durable: true}, "queue.declare-ok")
	case k < 86:
		return ch.sends(amqp091.QueueDelete{Queue: "passing"}, "queue.delete-ok")
	case k < 88:
		return ch.sends(amqp091.QueueDeclare{Queue: queue, Passive: true, Durable: true}, "queue.declare-ok")
	case k < 90:
		own := fmt.Sprint("own-", c.name, c.IntN(3))
		return ch.sends(amqp091.QueueDeclare{Queue: own, Exclusive: true, NoWait: noWait}, unless(noWait, "queue.declare-ok"))
	case k < 92:
		ch.risky = true
		return ch.sends(amqp091.QueueDeclare{Queue: "missing", Passive: true}, "queue.declare-ok")
	case k < 93:
		ch.risky = true
		return ch.sends(amqp091.BasicAck{DeliveryTag: 1 << 63}, "")
	case k < 96:
		b := ch.sends(amqp091.ChannelClose{}, "channel.close-ok")
		ch.open, ch.closing = false, true
		if c.IntN(2) == 0 { // and the next one right behind
			c.next[ch.number] = newPipeChannel(ch.number)
			b = amqp091.AppendMethod(b, ch.number, amqp091.ChannelOpen{})
		}
		return b
	}
	return ch.sends(amqp091.ChannelFlow{Active: true}, "channel.flow-ok")
}

func (c *pipeClient) publish(ch *pipeChannel, queue string) []byte {
	c.messages++
	name, key := fmt.Sprintf("%s-%d", c.name, c.messages), queue
	if c.IntN(12) == 0 {
		queue, key = "", "nowhere"
	}
	c.ledger.messages[name] = &ledgerEntry{queue: queue, tx: ch.tx}
	switch {
	case ch.tx:
		ch.txIn = append(ch.txIn, name)
	case ch.confirms:
		ch.published = append(ch.published, name)
	}
	body := append([]byte(name), ' ')
	if c.IntN(6) == 0 {
		body = append(body, make([]byte, c.IntN(20_000))...)
	}
	b := amqp091.AppendPublish(nil, ch.number, amqp091.Publish{RoutingKey: []byte(key), Mandatory: c.IntN(4) == 0})
	b = amqp091.AppendContentHeader(b, ch.number, amqp091.ClassBasic, uint64(len(body)), []byte{0x10, 0, byte(1 + c.IntN(2))}) // delivery-mode
	return amqp091.AppendBody(b, ch.number, body, pipeFrameMax)
}

// settle settles a delivery, or all up to it.
func (c *pipeClient) settle(ch *pipeChannel) []byte {
	if len(ch.unacked) == 0 {
		return nil
	}
	i, multiple, kind := c.IntN(len(ch.unacked)), c.IntN(2) == 0, c.IntN(5)
	from := i
	if multiple {
		from = 0
	}
	some, tag := slices.Clone(ch.unacked[from:i+1]), ch.unacked[i].tag
	ch.unacked = slices.Delete(ch.unacked, from, i+1)
	var m amqp091.Method = amqp091.BasicAck{DeliveryTag: tag, Multiple: multiple}
	if kind > 2 {
		m = amqp091.BasicNack{DeliveryTag: tag, Multiple: multiple, Requeue: kind == 4}
	}
	var names []string
	for _, d := range some {
		e := c.ledger.messages[d.message]
		e.trace = append(e.trace, fmt.Sprintf("%s/%d %s", c.name, ch.number, m.Name()))
		e.perhaps = e.perhaps || kind < 4 || ch.tx // a rollback gives it back, and it may be settled again
		if kind < 4 {
			names = append(names, d.message)
		}
	}
	b := ch.sends(m, "")
	if ch.tx {
		ch.txSettles = append(ch.txSettles, names...)
	} else {
		ch.lastAct().settles = names
	}
	return b
}

// settleWhole acknowledges or gives back all that the channel has, and what may be on its way.
func (c *pipeClient) settleWhole(ch *pipeChannel, requeue bool) []byte {
	for _, d := range ch.unacked {
		c.ledger.messages[d.message].perhaps = true
	}
	ch.unacked, ch.risky = nil, true
	if ch.settlesAll++; ch.tx {
		ch.settlesAll += 1000 // until the end: it comes with a commit
	}
	var m amqp091.Method = amqp091.BasicAck{Multiple: true}
	if requeue {
		m = amqp091.BasicNack{Multiple: true, Requeue: true}
	}
	b := ch.sends(m, "")
	ch.lastAct().all = true
	return b
}

func (c *pipeClient) consume(ch *pipeChannel, queue string, noWait bool, answer string) []byte {
	noAck := c.IntN(4) == 0 && !c.breaks
	tag := fmt.Sprint("a", c.IntN(3))
	if noAck {
		tag = fmt.Sprint("n", c.IntN(2))
	}
	if ch.tags[tag] {
		return nil // it would end the connection
	}
	if queue == "classic" && c.IntN(5) == 0 {
		queue, ch.risky = "passing", true
	}
	ch.tags[tag], ch.noAck[tag] = true, noAck
	return ch.sends(amqp091.BasicConsume{Queue: queue, ConsumerTag: tag, NoAck: noAck, NoWait: noWait}, answer)
}

// selects has the channel confirm publishes, or do them in transactions, unless it does either.
func (c *pipeClient) selects(ch *pipeChannel, confirms, noWait bool, answer string) []byte {
	switch {
	case ch.confirms || ch.tx:
		return nil
	case confirms:
		ch.confirms = true
		return ch.sends(amqp091.ConfirmSelect{NoWait: noWait}, answer)
	}
	ch.tx = true
	return ch.sends(amqp091.TxSelect{}, "tx.select-ok")
}

func (c *pipeClient) endTx(ch *pipeChannel) (b []byte) {
	if !ch.tx {
		return nil
	}
	if c.IntN(3) > 0 {
		b = ch.sends(amqp091.TxCommit{}, "tx.commit-ok")
		ch.lastAct().settles = ch.txSettles
	} else {
		b = ch.sends(amqp091.TxRollback{}, "tx.rollback-ok")
		ch.risky = true
	}
	ch.lastAct().publishes = ch.txIn
	ch.txSettles, ch.txIn = nil, nil
	return b
}

// read takes what comes within a moment. It returns whether the connection is still there.
func (c *pipeClient) read(within time.Duration) bool {
	_ = c.nc.SetReadDeadline(time.Now().Add(within))
	b := make([]byte, 1<<16)
	n, err := c.nc.Read(b)
	c.in = append(c.in, b[:n]...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		f, k, wrong := amqp091.NextFrame(c.in, pipeFrameMax-8)
		if wrong != nil {
			c.bad("%s: a bad frame: %v", c.name, wrong)
			return false
		}
		if k == 0 {
			break
		}
		c.in = c.in[k:]
		if wrong := c.frame(&f); wrong != nil {
			c.bad("%s/%d: %v", c.name, f.Channel, wrong)
			return false
		}
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		if !c.ended {
			c.bad("%s: the connection ends: %v", c.name, err)
		}
		return false
	}
	return true
}

// frame takes a frame. An error is one that the client does not go on after.
func (c *pipeClient) frame(f *amqp091.Frame) error {
	ch := c.channels[f.Channel]
	switch {
	case f.Channel == 0:
		m, err := amqp091.DecodeMethod(f.Payload)
		switch m := m.(type) {
		case *amqp091.ConnectionClose:
			return fmt.Errorf("the connection is closed: %d %s", m.ReplyCode, m.ReplyText)
		case *amqp091.ConnectionCloseOk:
			c.ended = true
		}
		return err
	case ch == nil:
		return errors.New("a frame on a channel that is not open")
	case f.Type != amqp091.FrameMethod && !ch.content.active:
		return errors.New("a frame of a content without a method")
	case f.Type == amqp091.FrameHeader:
		_, ch.content.size, _, _ = amqp091.ParseContentHeader(f.Payload)
		ch.content.body = nil
		return nil
	case f.Type == amqp091.FrameBody:
		if ch.content.body = append(ch.content.body, f.Payload...); uint64(len(ch.content.body)) == ch.content.size {
			return c.arrives(ch)
		}
		return nil
	case ch.content.active:
		return errors.New("a method within a content")
	}
	m, err := amqp091.DecodeMethod(f.Payload)
	if err != nil {
		return err
	}
	return c.method(ch, m)
}

func (c *pipeClient) method(ch *pipeChannel, m amqp091.Method) error {
	content := &ch.content
	switch m := m.(type) {
	case *amqp091.BasicDeliver:
		content.active, content.method, content.consumer, content.redelivered, content.tag = true, "deliver", m.ConsumerTag, m.Redelivered, m.DeliveryTag
		return ch.follows(m.DeliveryTag)
	case *amqp091.BasicGetOk:
		content.active, content.method, content.redelivered, content.tag = true, "get", m.Redelivered, m.DeliveryTag
		return ch.follows(m.DeliveryTag)
	case *amqp091.BasicReturn:
		content.active, content.method = true, "return"
	case *amqp091.BasicGetEmpty:
		_, err := c.answer(ch, "basic.get")
		return err
	case *amqp091.BasicAck:
		return c.confirm(ch, m.DeliveryTag, m.Multiple)
	case *amqp091.BasicNack:
		return fmt.Errorf("publish %d is refused", m.DeliveryTag)
	case *amqp091.BasicCancel: // of a queue that was deleted; the tag may be in use again by now
	case *amqp091.ChannelClose:
		if !ch.risky {
			return fmt.Errorf("the channel is closed: %d %s", m.ReplyCode, m.ReplyText)
		}
		c.closed(ch)
	case *amqp091.ChannelCloseOk:
		var err error
		if !ch.closed {
			_, err = c.answer(ch, "channel.close-ok")
		}
		delete(c.channels, ch.number)
		if next := c.next[ch.number]; next != nil {
			c.channels[ch.number] = next
			delete(c.next, ch.number)
		}
		return err
	default:
		_, err := c.answer(ch, m.Name())
		return err
	}
	return nil
}

// closed notes that the server has closed a channel. If the client has, too, it gets its close-ok still.
func (c *pipeClient) closed(ch *pipeChannel) {
	if ch.closing {
		ch.closed, ch.acts = true, nil
		return // a close-ok of the client would come on the next channel of the number
	}
	c.later = append(c.later, amqp091.AppendMethod(nil, ch.number, amqp091.ChannelCloseOk{})...)
	delete(c.channels, ch.number)
}

// follows notes a delivery tag, which has to be the next.
func (ch *pipeChannel) follows(tag uint64) error {
	if ch.tag++; tag != ch.tag {
		return fmt.Errorf("delivery tag %d comes, want %d", tag, ch.tag)
	}
	return nil
}

// answer notes an answer, which has to be to the first act that has one: all before it is done, too.
func (c *pipeClient) answer(ch *pipeChannel, name string) (act pipeAct, err error) {
	i := slices.IndexFunc(ch.acts, func(a pipeAct) bool { return a.answer != "" })
	if i < 0 {
		return act, fmt.Errorf("%s answers nothing", name)
	}
	if act = ch.acts[i]; act.answer != name {
		return act, fmt.Errorf("%s comes, want %s", name, act.answer)
	}
	for _, a := range ch.acts[:i+1] {
		if a.all {
			ch.settlesAll--
		}
		for _, m := range a.settles {
			c.ledger.messages[m].settled++
		}
		for _, m := range a.publishes {
			e := c.ledger.messages[m]
			e.confirmed, e.rolledBack = a.method == "tx.commit", a.method == "tx.rollback"
		}
	}
	ch.acts = ch.acts[i+1:]
	return act, nil
}

func (c *pipeClient) confirm(ch *pipeChannel, tag uint64, multiple bool) error {
	first := uint64(ch.confirmed) + 1
	if tag < first || tag > first && !multiple || tag > uint64(len(ch.published)) {
		return fmt.Errorf("a confirm of %d, multiple %t, after %d of %d", tag, multiple, ch.confirmed, len(ch.published))
	}
	for ; ch.confirmed < int(tag); ch.confirmed++ {
		c.ledger.messages[ch.published[ch.confirmed]].confirmed = true
	}
	return nil
}

// arrives takes a message that has come whole.
func (c *pipeClient) arrives(ch *pipeChannel) error {
	content := &ch.content
	content.active = false
	name, _, _ := strings.Cut(string(content.body), " ")
	e := c.ledger.messages[name]
	if e == nil {
		return fmt.Errorf("nobody published %q", name)
	}
	if content.method == "return" {
		return nil
	}
	e.trace = append(e.trace, fmt.Sprintf("%s/%d %s %d redelivered %t", c.name, ch.number, content.method, content.tag, content.redelivered))
	if !content.redelivered {
		if e.fresh++; e.fresh > 1 {
			c.bad("%s is delivered twice and not as redelivered: %v", name, e.trace)
		}
	}
	noAck := ch.noAck[content.consumer]
	if content.method == "get" {
		act, err := c.answer(ch, "basic.get")
		if err != nil {
			return err
		}
		noAck = act.noAck
	}
	recovers := slices.ContainsFunc(ch.acts, func(a pipeAct) bool { return a.method == "basic.recover" })
	switch {
	case noAck, ch.settlesAll > 0:
		e.perhaps = true
	case ch.open && !recovers: // else it goes back
		ch.unacked = append(ch.unacked, pipeDelivery{content.tag, name})
	}
	return nil
}

// answered waits until all is answered and confirmed.
func (c *pipeClient) answered() bool {
	for _, ch := range c.channels {
		if ch.open {
			c.later = append(c.later, ch.sends(amqp091.ChannelFlow{Active: true}, "channel.flow-ok")...)
		}
	}
	for deadline := time.Now().Add(pipePatience); ; {
		if !c.write(c.later) {
			return false
		}
		c.later = nil
		left := ""
		for _, ch := range c.channels {
			asked := slices.ContainsFunc(ch.acts, func(a pipeAct) bool { return a.answer != "" })
			if asked || ch.open && ch.confirmed < len(ch.published) {
				left += fmt.Sprintf(" channel %d: %+v, %d of %d confirmed", ch.number, ch.acts, ch.confirmed, len(ch.published))
			}
		}
		if left == "" {
			return true
		}
		if time.Now().After(deadline) {
			return c.report("never answered:%s", left)
		}
		if !c.read(10 * time.Millisecond) {
			return false
		}
	}
}

// settleAll acknowledges all that has come, on every channel.
func (c *pipeClient) settleAll() {
	c.mu.Lock()
	var b []byte
	for _, ch := range c.channels {
		if ch.open {
			b = append(b, c.settleWhole(ch, false)...)
			if ch.tx {
				b = append(b, ch.sends(amqp091.TxCommit{}, "tx.commit-ok")...)
			}
		}
	}
	c.mu.Unlock()
	if c.write(b) {
		c.read(4 * time.Millisecond)
	}
}

// end ends the connection in order.
func (c *pipeClient) end() {
	if !c.write(amqp091.AppendMethod(c.later, 0, amqp091.ConnectionClose{})) {
		return
	}
	for deadline := time.Now().Add(pipePatience); !c.ended && c.read(10*time.Millisecond); {
		if time.Now().After(deadline) {
			c.report("connection.close is not answered")
			return
		}
	}
}
