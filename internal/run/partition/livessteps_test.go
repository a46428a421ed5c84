package partition

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/bodies"
)

// livesClient consumes from a queue.
type livesClient struct {
	q  *Queue
	s  *client
	c  *queue.Consumer
	in []outstanding // deliveries that it has not settled

	// Of one that gives credit, as clients of AMQP 1.0 do.
	granted int // all in all
	used    int // by deliveries, and by the ends of drains
	lowered bool
}

// receive takes what was delivered.
func (c *livesClient) receive() {
	more := c.s.take()
	c.in, c.used = append(c.in, more...), c.used+len(more)
}

// step does something at random.
func (x *lives) step() {
	switch k := x.rng.IntN(100); {
	case k < 22:
		x.publish()
	case k < 30:
		x.attach()
	case k < 51:
		x.withClient(x.settle)
	case k < 56:
		x.withClient(x.grant)
	case k < 59:
		x.transaction()
	case k < 61:
		x.passQueue()
	case k < 65:
		x.withClient(x.quit)
	case k < 80:
		x.move()
	case k < 90:
		x.clock.Add(int64(x.rng.IntN(200)))
	case k < 91:
		x.clock.Add([]int64{-livesHour, livesHour}[x.rng.IntN(2)])
	case k < 94:
		x.must("checkpoint", x.w.n.Checkpoint())
	case k < 96:
		_, err := x.w.n.Compact()
		x.must("compaction", err)
	case k < 98:
		x.configure()
	default:
		x.sync()
	}
}

// must checks for an error, which is allowed only where reads fail.
func (x *lives) must(what string, err error) {
	if err != nil && !x.passes(err) {
		x.t.Errorf("seed %d, life %d: %s: %v", x.seed, x.life, what, err)
	}
}

func (x *lives) passes(err error) bool { return x.failing.Load() && errors.Is(err, syscall.EMFILE) }

func (x *lives) anyQueue() *Queue {
	for {
		if q := x.queues[x.defs[x.rng.IntN(len(x.defs))].name]; q != nil {
			return q
		}
	}
}

// sync makes durable what was done so far.
func (x *lives) sync() {
	x.book.sync(func() {
		x.w.n.SettleAll()
		x.must("sync", x.w.j.Sync())
	})
}

func (x *lives) release(list []outstanding) {
	for _, o := range list {
		x.w.n.bodies.Release(o.d.Body)
		x.w.n.bodies.Release(o.d.History)
	}
}

func (x *lives) serialOf(ref message.Ref) message.Serial {
	var window bodies.Window
	defer window.Free()
	for {
		b, err := x.w.n.bodies.Read(ref, &window)
		if err == nil {
			return message.Record(b).Serial()
		}
		if !x.passes(err) {
			x.t.Fatalf("seed %d, life %d: a delivery cannot be read: %v", x.seed, x.life, err)
		}
	}
}

// newMessage is a publish to any queue.
func (x *lives) newMessage(persistent bool) Op {
	x.serial++
	x.book.publishes(x.serial)
	q, size := x.anyQueue(), 64
	if x.rng.IntN(20) == 0 {
		size = 6000
	}
	x.book.note(x.serial, "life %d: published to %s, persistent %t", x.life, q.Name, persistent)
	return Op{Kind: Publish, Targets: []*Queue{q}, Body: x.w.disk.record(x.serial, persistent, size), TTL: -1, Priority: -1}
}

// publish publishes some messages and waits for the confirms.
func (x *lives) publish() {
	var ops []Op
	var serials []message.Serial // of persistent messages; 0: another
	for range 1 + x.rng.IntN(20) {
		persistent := x.rng.IntN(6) > 0
		op := x.newMessage(persistent)
		op.Priority = x.rng.IntN(6) - 1
		if x.rng.IntN(5) == 0 && !ends(op.Targets[0]) {
			op.TTL = int64(x.rng.IntN(300))
		}
		ops, serials = append(ops, op), append(serials, 0)
		if persistent { // a transient message may die from a quorum queue into a classic one, which does not log it
			serials[len(serials)-1] = x.serial
		}
	}
	x.must("publish", x.w.n.Enter(ops))
	x.confirmed(ops, serials)
}

// confirmed notes which publishes were confirmed for good.
func (x *lives) confirmed(ops []Op, serials []message.Serial) {
	for i, s := range serials {
		if s != 0 && !ops[i].Refused && !passing(ops[i].Targets[0].Name) {
			x.book.confirmed(s)
		}
	}
}

func (x *lives) attach() {
	if len(x.clients) > 6 {
		return
	}
	c := &livesClient{q: x.anyQueue(), s: &client{}}
	c.c = &queue.Consumer{Target: c.s, Tag: "t", Prefetch: x.rng.IntN(20)}
	if x.rng.IntN(3) == 0 {
		c.c.Credited, c.c.Prefetch = true, 0
	}
	if ok, err := x.w.n.Attach(c.q, c.c, func() {}); !ok || err != nil {
		x.t.Errorf("seed %d, life %d: consume: %t, %v", x.seed, x.life, ok, err)
		return
	}
	x.clients = append(x.clients, c)
	x.grant(c)
}

// grant gives a client that gives credit some more, or less, and may drain its queue.
func (x *lives) grant(c *livesClient) {
	if !c.c.Credited {
		return
	}
	more, drain := x.rng.IntN(20), x.rng.IntN(3) == 0
	if x.rng.IntN(6) == 0 {
		more, c.lowered = -more, true
	}
	drained, _, err := x.w.n.Grant(c.q, c.c, more, drain)
	if err != nil {
		x.must("grant", err)
		return
	}
	c.receive()
	c.granted += more
	if c.used += drained; !drain {
		return
	}
	// All credit ends, be it used or drained; what was used before it was taken back is more than that.
	if left := c.granted - c.used; left > 0 || left < 0 && !c.lowered {
		x.t.Errorf("seed %d, life %d: %s: %d of %d credits are used or drained after a drain", x.seed, x.life, c.q.Name, c.used, c.granted)
	}
	c.lowered = c.granted < c.used // and it stays less: the next credit pays that back
}

func (x *lives) withClient(f func(*livesClient)) {
	if len(x.clients) > 0 {
		f(x.clients[x.rng.IntN(len(x.clients))])
	}
}

// settle settles some deliveries of a client, each in any way.
func (x *lives) settle(c *livesClient) {
	c.receive()
	if len(c.in) == 0 {
		return
	}
	n := 1 + x.rng.IntN(len(c.in))
	some := c.in[:n]
	c.in = slices.Clone(c.in[n:])
	var ops []Op
	var acked []message.Serial
	for _, o := range some {
		op, s := Op{Queue: c.q, ID: o.d.ID, Consumer: c.c}, x.serialOf(o.d.Body)
		switch k := x.rng.IntN(10); {
		case k < 3:
			op.Kind = Ack
			acked = append(acked, s)
			x.book.settles(s)
		case k < 7 && !ends(c.q):
			op.Kind, op.Failed = Reject, x.rng.IntN(2) == 0
		default:
			kinds := []queue.ReturnKind{queue.ReturnNack, queue.ReturnReject, queue.ReturnRecover, queue.ReturnReleased, queue.ReturnFailed}
			op.Kind, op.How = Return, kinds[x.rng.IntN(len(kinds))]
		}
		x.book.note(s, "life %d: settled in %s by %d, %d", x.life, c.q.Name, op.Kind, op.How)
		ops = append(ops, op)
	}
	_ = x.w.n.Await(x.w.n.Run(ops))
	x.release(some)
	x.book.hasSettled(acked)
}

// quit closes a client. It gives some deliveries back itself.
func (x *lives) quit(c *livesClient) {
	x.clients = slices.DeleteFunc(x.clients, func(other *livesClient) bool { return other == c })
	c.receive()
	var returns []Delivered
	for _, o := range c.in {
		if x.rng.IntN(2) == 0 {
			returns = append(returns, Delivered{c.q, o.d.ID, c.c})
		}
	}
	x.w.n.Quit([]Seat{{c.q, c.c}}, slices.Values(returns))()
	c.receive()
	x.release(c.in)
}

// transaction publishes, and acknowledges all deliveries of a client, in one transaction.
func (x *lives) transaction() {
	var ops []Op
	var published, acked []message.Serial
	for range 1 + x.rng.IntN(5) {
		ops = append(ops, x.newMessage(true))
		published = append(published, x.serial)
	}
	var all []outstanding
	x.withClient(func(c *livesClient) {
		c.receive()
		all, c.in = c.in, nil
		for _, o := range all {
			s := x.serialOf(o.d.Body)
			x.book.settles(s)
			x.book.note(s, "life %d: acknowledged in %s in a transaction", x.life, c.q.Name)
			acked = append(acked, s)
			ops = append(ops, Op{Kind: Ack, Queue: c.q, ID: o.d.ID, Consumer: c.c})
		}
	})
	x.must("transaction", x.w.n.RunWhole(ops))
	x.release(all)
	x.confirmed(ops, published)
	x.book.hasSettled(acked)
}

// move moves messages from the front of a queue to others, while other things happen.
func (x *lives) move() {
	from, to := x.anyQueue(), []*Queue{x.anyQueue()}
	if x.many && x.rng.IntN(3) == 0 {
		if more := x.anyQueue(); more != to[0] {
			to = append(to, more)
		}
	}
	w, limit := x.w, 1+x.rng.IntN(60)
	x.moves.Go(func() {
		moves, serials := x.pick(w.n, from, to, limit)
		if len(moves) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		moved, err := w.n.Move(ctx, from, moves)
		x.must("move", err)
		for i, m := range moved {
			x.book.note(serials[i], "life %d: moved from %s to %v: %+v", x.life, from.Name, names(to), m)
		}
	})
}

// pick finds messages to move.
func (x *lives) pick(n *Node, from *Queue, to []*Queue, limit int) (moves []Move, serials []message.Serial) {
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: from.Name}
	_, _, err := n.Browse(from, queue.Cursor{}, limit, func(v queue.View, rec message.Record, _ []byte) bool {
		moves = append(moves, Move{ID: v.ID, Targets: to, History: h.Append(nil)})
		serials = append(serials, rec.Serial())
		return true
	})
	if err != nil {
		if !Gone(err) {
			x.must("browse", err)
		}
		return nil, nil
	}
	if slices.ContainsFunc(names(to), passing) {
		for _, s := range serials {
			x.book.goes(s)
		}
	}
	return moves, serials
}

func names(queues []*Queue) (list []string) {
	for _, q := range queues {
		list = append(list, q.Name)
	}
	return list
}

// passQueue purges or deletes one of the queues for that, or makes it again.
func (x *lives) passQueue() {
	name := []string{"y", "z"}[x.rng.IntN(2)]
	q := x.queues[name]
	if q == nil {
		d := x.definition(name)
		q = &Queue{Incarnation: x.book.make(name), VHost: "/", Name: name, Durable: true}
		x.w.n.Create(q, d.config, d.settings, d.dead)
		x.queues[name] = q
		return
	}
	switch x.rng.IntN(3) {
	case 0:
		_, err := x.w.n.Purge(q)
		x.must("purge", err)
	case 1:
		x.w.n.SettleDeaths(q)
		x.delete(q)
	default:
		x.delete(q)
	}
}

func (x *lives) delete(q *Queue) {
	before, err := x.w.n.Delete(q, nil)
	if err != nil {
		x.must("delete", err)
		return
	}
	x.must("sync", x.w.j.Sync())
	x.book.remove(q.Name)
	delete(x.queues, q.Name)
	x.w.n.Deleted(q, before)
	x.clients = slices.DeleteFunc(x.clients, func(c *livesClient) bool {
		if c.q == q {
			c.receive()
			x.release(c.in)
		}
		return c.q == q
	})
}

func (x *lives) definition(name string) *definition {
	i := slices.IndexFunc(x.defs, func(d definition) bool { return d.name == name })
	return &x.defs[i]
}

// configure changes a setting of a queue, as a policy does.
func (x *lives) configure() {
	d := x.definition([]string{"a", "d", "e", "e", "g", "i"}[x.rng.IntN(6)])
	switch s := &d.settings; x.rng.IntN(3) {
	case 0:
		if d.name == "e" || d.name == "g" {
			s.AtLeastOnce = !s.AtLeastOnce
		}
	case 1:
		if s.TTL >= 0 {
			s.TTL = -1
		} else {
			s.TTL = int64(100 + x.rng.IntN(400))
		}
	case 2:
		if s.Retry.Min > 0 {
			s.Retry = queue.Retry{}
		} else {
			s.Retry = queue.Retry{Type: queue.RetryAll, Min: 40}
		}
	}
	x.w.n.Configure(x.queues[d.name], d.settings, d.dead)
}
