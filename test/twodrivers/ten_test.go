package twodrivers

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"bartleby.mq/internal/edge/session10"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
	"bartleby.mq/test/client10"
)

// ten is a client of AMQP 1.0 of one node: a session with a link that sends to any queue, and one that receives for each queue.
type ten struct {
	conn   *client10.Conn
	gone   chan struct{} // closed when the reader has ended
	nextIn uint32        // transfer-id of the server's next transfer; guarded by mu

	mu   sync.Mutex
	told []told
}

// told is something that a client of AMQP 1.0 was told.
type told struct {
	queue   int // whose link; -1: the session
	text    string
	id      uint32 // of a delivery
	copy    string // likewise, see copyName; "" if it is none
	outcome bool
}

// tenOp is an operation of a client of AMQP 1.0. n is of messages, or of credit.
type tenOp struct {
	kind  string
	queue int
	n     int
	drain bool
	which int
	all   bool // of what the client holds of a queue up to that
	how   string
	ttl   int
	wait  time.Duration
}

// tenPlay plays operations of clients of AMQP 1.0 to two nodes.
type tenPlay struct {
	*play
	clients [2]*ten
	sent    uint32
	counts  [queues]uint32 // what each link has had, or lost by a drain
	held    [queues][]held
}

const saidKey = "x-said"

// connectTen opens a connection of AMQP 1.0 with its session and links.
func (n *node) connectTen() (*ten, error) {
	ours := n.dial(func(theirs net.Conn, first []byte) {
		if session10.Serve(theirs, first, session10.Options{Broker: n.b, Logger: slog.New(slog.DiscardHandler), Version: "4.3.6", IdleTimeout: -1}) {
			_ = theirs.Close()
		}
	})
	conn, err := client10.Open(ours, client10.Options{VHost: vhost, Container: "ten", Timeout: patience})
	if err != nil {
		return nil, err
	}
	c := &ten{conn: conn, gone: make(chan struct{})}
	go c.read()
	b := amqp10.AppendFrame(nil, 0, &amqp10.Begin{IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, HandleMax: amqp10.Some[uint32](255)})
	b = amqp10.AppendFrame(b, 0, &amqp10.Attach{
		Name: []byte("sender"), Handle: queues, Role: amqp10.RoleSender, Source: client10.Described(&amqp10.Source{}), Target: client10.Described(&amqp10.Target{}),
		InitialDeliveryCount: amqp10.Some[uint32](0),
	})
	for q := range uint32(queues) {
		b = amqp10.AppendFrame(b, 0, &amqp10.Attach{
			Name: []byte(queueName(int(q))), Handle: q, Role: amqp10.RoleReceiver, SndSettleMode: amqp10.Some(amqp10.SenderSettleModeUnsettled),
			Source: client10.Described(&amqp10.Source{Address: []byte(client10.Queue(queueName(int(q))))}), Target: client10.Described(&amqp10.Target{}),
		})
	}
	c.write(b)
	return c, nil
}

func (c *ten) write(b []byte) {
	_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
	_, _ = c.conn.Write(b) // one that fails is missed among the answers
}

func (c *ten) read() {
	defer close(c.gone)
	handles := map[uint32]int{} // the server's, to queues
	var payload []byte
	for {
		f, err := c.conn.Next()
		if err != nil {
			return
		}
		c.mu.Lock()
		switch x := f.Is.(type) {
		case *amqp10.Begin:
			c.nextIn = x.NextOutgoingID
		case *amqp10.Attach:
			handles[x.Handle] = slices.Index(queueNames, string(x.Name))
			c.told = append(c.told, told{queue: handles[x.Handle], text: "attached"})
		case *amqp10.Flow:
			if x.Drain && x.Handle.Set {
				c.told = append(c.told, told{queue: handles[x.Handle.Value], text: fmt.Sprintf("drained up to %d, credit %d", x.DeliveryCount.Value, x.LinkCredit.Value)})
			}
		case *amqp10.Transfer:
			c.nextIn++
			if payload = append(payload, f.Payload...); !x.More {
				c.told = append(c.told, delivered(handles[x.Handle], x.DeliveryID.Value, payload))
				payload = nil
			}
		case *amqp10.Disposition:
			last := x.First
			if x.Last.Set {
				last = x.Last.Value
			}
			for id := x.First; id-x.First <= last-x.First; id++ {
				c.told = append(c.told, told{queue: -1, outcome: true, text: fmt.Sprintf("%06d %v", id, x.State.Descriptor())})
			}
		default:
			c.told = append(c.told, told{queue: -1, text: fmt.Sprintf("%s %s", x.Descriptor(), client10.Said(x))})
		}
		c.mu.Unlock()
	}
}

// delivered shows a delivery, without what only one type counts or takes.
func delivered(queue int, id uint32, payload []byte) told {
	r, err := client10.Read(payload)
	if err != nil {
		return told{queue: queue, text: err.Error()}
	}
	var deaths amqp091.Array
	for _, d := range r.Deaths {
		deaths = append(deaths, amqp091.Table{{Key: "queue", Value: d.Queue}, {Key: "reason", Value: d.Reason}, {Key: "count", Value: d.Count}})
	}
	props := &amqp091.PropertyList{}
	if deaths != nil {
		props.Headers = amqp091.Table{{Key: "x-death", Value: deaths}}
		count("dead letters of AMQP 1.0 compared")
	}
	annotations := ""
	for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
		if slices.Contains(counted, key) && except("DL-11.2") || key == saidKey && except("DL-14.6") {
			continue
		}
		annotations += fmt.Sprintf(" %s=%v", key, r.Annotations[key])
	}
	return told{
		queue: queue, id: id, copy: copyName(props, r.Body),
		text: fmt.Sprintf("%s first=%v durable=%v priority=%d ttl=%d%s %v %v", r.Body, r.FirstAcquirer, r.Durable, r.Priority, r.TTL, annotations, r.Properties, r.Deaths),
	}
}

func drawTenOp(t *rapid.T) tenOp {
	o := tenOp{kind: among(t, "kind", []string{"publish", "publish", "credit", "credit", "settle", "settle", "settle", "settle", "advance"})}
	o.queue = uniform(t, "queue", queues)
	switch o.kind {
	case "publish":
		o.n = 1 + uniform(t, "n", 4)
		o.ttl = among(t, "ttl", []int{-1, -1, -1, 30, 500})
	case "credit":
		o.n, o.drain = among(t, "credit", []int{0, 1, 2, 5, 100}), uniform(t, "drain", 3) == 0
	case "settle":
		o.how = among(t, "how", outcomes)
		o.which, o.all = uniform(t, "which", 8), uniform(t, "all", 2) == 0
	case "advance":
		o.wait = among(t, "ms", []time.Duration{1, 10, 40, 600}) * time.Millisecond
	}
	return o
}

// Operations of clients of AMQP 1.0 on a classic and on a quorum queue give the same deliveries, drains, outcomes and counts, but for
// what the table of differences names.
func TestClientsOfAMQP10GetTheSame(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1) // election times
	if difference := playTenList(t, everyOutcome()); difference != "" {
		t.Fatal(difference)
	}
	if tally.by["dead letters of AMQP 1.0 compared"] == 0 || tally.by["except DL-14.6"] == 0 {
		t.Error("no dead letter was compared, or no annotation seen")
	}
	rapid.Check(t, func(rt *rapid.T) {
		var ops []tenOp
		rt.Repeat(map[string]func(*rapid.T){
			"":          func(*rapid.T) {},
			"operation": func(t *rapid.T) { ops = append(ops, rapid.Custom(drawTenOp).Draw(t, "operation")) },
		})
		if difference := playTenList(t, ops); difference != "" {
			rt.Fatal(difference)
		}
	})
	for what, n := range tally.by {
		t.Logf("%s: %d", what, n)
	}
}

var outcomes = []string{"accepted", "rejected", "released", "failed", "undeliverable", "modified"}

// everyOutcome is a list with each outcome on each queue, in which dead letters are delivered, with annotations, however few lists
// are drawn.
func everyOutcome() (ops []tenOp) {
	ops = []tenOp{{kind: "publish", n: len(outcomes), ttl: -1}}
	for q := range queues {
		ops = append(ops, tenOp{kind: "credit", queue: q, n: 100})
		for _, how := range outcomes {
			ops = append(ops, tenOp{kind: "settle", queue: q, how: how})
		}
	}
	return ops
}

// playTenList plays a list to two nodes in a bubble of its own, and says where they differ.
func playTenList(t *testing.T, ops []tenOp) (difference string) {
	synctest.Test(t, func(*testing.T) {
		p := &tenPlay{play: newPlay(episode{})}
		p.credited = true
		difference = p.run(ops)
	})
	return difference
}

func (p *tenPlay) run(ops []tenOp) (difference string) {
	if difference = p.start(); difference != "" {
		return difference
	}
	defer func() {
		for _, c := range p.clients {
			if c != nil {
				_ = c.conn.Close()
				<-c.gone
			}
		}
		if d := p.stop(); difference == "" {
			difference = d
		}
	}()
	if difference = p.prepare(); difference != "" {
		return difference
	}
	for q := queues - 1; q >= 0; q-- { // dead letters of q0 go to q1, and those of q1 to q2
		args := none
		if q+1 < queues {
			args.dlx, args.dlk = 1, 1+slices.Index(deadKeys, queueName(q+1))
		}
		if difference = p.step(op{kind: "declare", queue: q, args: args}); difference != "" {
			return difference
		}
	}
	for i, n := range p.nodes {
		var err error
		if p.clients[i], err = n.connectTen(); err != nil {
			return err.Error()
		}
	}
	if difference = p.hear(); difference != "" {
		return difference
	}
	for i, o := range ops {
		count("operations of AMQP 1.0")
		untilNext()
		p.say(o)
		if difference = p.hear(); difference != "" {
			return fmt.Sprintf("operation %d of these:\n%s\n%s", i, tenList(ops[:i+1]), difference)
		}
		if p.ended {
			return ""
		}
	}
	return ""
}

func tenList(ops []tenOp) string {
	var b strings.Builder
	for i, o := range ops {
		fmt.Fprintf(&b, "  %d: %+v\n", i, o)
	}
	return b.String()
}

// say says an operation to both nodes.
func (p *tenPlay) say(o tenOp) {
	switch o.kind {
	case "publish":
		var b []byte
		for range o.n {
			p.bodies++
			m := client10.Message{
				ID: fmt.Sprint(p.bodies), Durable: true, Priority: -1, TTL: o.ttl, To: client10.Queue(queueName(o.queue)),
				Properties: map[string]string{"n": fmt.Sprint(p.bodies)}, Data: [][]byte{fmt.Appendf(nil, "m%d", p.bodies)},
			}
			t := amqp10.Transfer{Handle: queues, DeliveryID: amqp10.Some(p.sent), DeliveryTag: fmt.Append(nil, p.sent), MessageFormat: amqp10.Some[uint32](0)}
			b, _ = amqp10.AppendTransfer(b, 0, &t, frameMax, 0, m.Append(nil))
			p.sent++
		}
		for _, c := range p.clients {
			c.write(b)
		}
	case "credit":
		for _, c := range p.clients {
			c.mu.Lock()
			f := amqp10.Flow{NextIncomingID: amqp10.Some(c.nextIn), IncomingWindow: 1 << 20, NextOutgoingID: p.sent, OutgoingWindow: 1 << 20}
			c.mu.Unlock()
			f.Handle, f.DeliveryCount, f.LinkCredit, f.Drain = amqp10.Some(uint32(o.queue)), amqp10.Some(p.counts[o.queue]), amqp10.Some(uint32(o.n)), o.drain
			c.write(amqp10.AppendFrame(nil, 0, &f))
		}
		if o.drain {
			p.counts[o.queue] += uint32(o.n)
		}
	case "settle":
		p.settleTen(o)
	case "advance":
		time.Sleep(o.wait)
	}
}

func (p *tenPlay) settleTen(o tenOp) {
	list := p.held[o.queue]
	if len(list) == 0 {
		return
	}
	first, last := o.which%len(list), o.which%len(list)
	if o.all {
		first = 0
	}
	settled := slices.Clone(list[first : last+1])
	var state amqp10.Composite
	returns := false
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendString(amqp10.AppendSymbol(b, saidKey), o.how)
	annotations := amqp10.MustValue(amqp10.EndCompound(b, start, 2))
	switch o.how {
	case "accepted":
		state = &amqp10.Accepted{}
	case "rejected":
		state = &amqp10.Rejected{Error: &amqp10.Error{Condition: []byte("test:failed"), Description: []byte("it failed")}}
	case "undeliverable":
		state = &amqp10.Modified{UndeliverableHere: true, MessageAnnotations: annotations}
	case "released":
		state, returns = &amqp10.Released{}, true
	case "failed":
		state, returns = &amqp10.Modified{DeliveryFailed: true, MessageAnnotations: annotations}, true
	default:
		state, returns = &amqp10.Modified{MessageAnnotations: annotations}, true
	}
	if returns && !p.mayReturn(settled) {
		return
	}
	p.held[o.queue] = slices.Delete(slices.Clone(list), first, last+1)
	for i, c := range p.clients {
		var b []byte
		for _, h := range settled { // ids of other links may be between them
			b = amqp10.AppendFrame(b, 0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: uint32(h.tags[i]), Settled: true, State: client10.Described(state)})
		}
		c.write(b)
	}
}

// hear lets everything come to rest and compares what the clients were told, and what queues hold.
func (p *tenPlay) hear() string {
	time.Sleep(pause)
	synctest.Wait()
	var heard [2][]told
	for i, c := range p.clients {
		c.mu.Lock()
		heard[i], c.told = c.told, nil
		c.mu.Unlock()
	}
	difference := ""
	var fresh [queues]uint64 // dead letters that were delivered for the first time
	for q := -1; q < queues && difference == ""; q++ {
		var texts [2][]string
		var deliveries [2][]told
		for i := range heard {
			for _, e := range heard[i] {
				if e.queue != q {
					continue
				}
				texts[i] = append(texts[i], e.text)
				if e.copy != "" {
					deliveries[i] = append(deliveries[i], e)
				}
			}
			if q < 0 { // which publishes share a disposition, and when each has its outcome, is a matter of time
				slices.Sort(texts[i])
			}
		}
		if difference = differ(fmt.Sprintf("what link %d was told", q), strings.Join(texts[0], "\n           "), strings.Join(texts[1], "\n           ")); difference != "" {
			break
		}
		for k, d := range deliveries[0] {
			count("messages of AMQP 1.0 compared")
			if key := queueName(q) + " " + d.copy; strings.Contains(d.copy, "<") && !p.delivered[key] {
				p.delivered[key] = true
				fresh[q]++
			}
			p.held[q] = append(p.held[q], held{tags: [2]uint64{uint64(d.id), uint64(deliveries[1][k].id)}, queue: queueName(q), copy: d.copy})
		}
	}
	traffic := func(n *node) string {
		t := &n.b.Totals.Traffic[broker.LoginAMQP10]
		return fmt.Sprintf("published=%d routed=%d confirmed=%d refused=%d", t.Published.Load(), t.Routed.Load(), t.Confirmed.Load(), t.Refused.Load())
	}
	if difference == "" {
		difference = p.each(traffic)
	}
	for q, n := range fresh { // a classic queue hands them to a client that waits as if they had never been delivered (DL-6.14)
		redelivered := func(n *node) uint64 { return n.b.Counts(*n.declared(queueName(q))).Stats.Redelivered }
		more := redelivered(p.nodes[1]) - redelivered(p.nodes[0]) - p.forgiven[queueName(q)]
		if more > 0 && more <= n && except("DL-6.14") {
			p.forgiven[queueName(q)] += more
		}
	}
	if difference == "" {
		difference = p.compareQueues()
	}
	var nothing [connections][2][]event // clients of AMQP 0-9-1 hear nothing; what is delivered still has its place
	for _, name := range p.meeting(&nothing) {
		if (difference != "" || p.nodes[0].order(name) != p.nodes[1].order(name)) && except("DL-1.9") {
			p.ended = true
			return ""
		}
	}
	return difference
}
