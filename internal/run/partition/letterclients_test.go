package partition

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// Act implements sim.Replica: a client does something. Most clients are connected to the leader, and stay on that
// node when it no longer leads.
func (r *letterReplica) Act(rng *rand.Rand) {
	r.host.answers()
	r.hangUp(rng)
	r.goOn(rng)
	switch rng.IntN(60) {
	case 0:
		r.purge(rng)
		return
	case 1:
		r.deleteQueue(rng)
		return
	case 2, 3:
		r.host.m.configure(rng)
		return
	}
	switch rng.IntN(10) {
	case 0, 1, 2:
		r.publish(rng)
	case 3:
		r.consume(rng)
	case 4:
		r.get(rng)
	case 5:
		if rng.IntN(4) == 0 {
			r.cancel(rng)
		} else {
			r.grant(rng)
		}
	default:
		for range 1 + rng.IntN(6) {
			r.settle(rng)
		}
	}
}

// purge ends the ready messages of a queue.
func (r *letterReplica) purge(rng *rand.Rand) {
	if q := r.pick(rng); q != nil {
		r.host.ask(r.group, newAsk(), func(w *commandWriter) { w.op(cmdPurge, q.Incarnation) }, func(*ask) {})
	}
}

// deleteQueue deletes a queue that gets no deaths from its own log, and declares it again. All nodes know that at
// once.
func (r *letterReplica) deleteQueue(rng *rand.Rand) {
	name := []string{"e", "d", unseen}[rng.IntN(3)]
	i := slices.IndexFunc(letterQueues, func(d letterQueue) bool { return d.name == name })
	d, m := &letterQueues[i], r.host.m
	if d.group != r.id {
		return
	}
	old := r.host.queues[d.name]
	if _, err := r.host.n.Delete(old, nil); err != nil {
		return // there is no leader
	}
	m.policy[d.name].declared++
	m.deleted[old.Incarnation] = true
	for _, h := range m.living() {
		delete(h.n.groupByID(d.group).declared, old.Incarnation)
		h.declare(i, d)
	}
}

// configure changes a queue's settings, on all nodes at once.
func (m *letters) configure(rng *rand.Rand) {
	d := letterQueues[rng.IntN(len(letterQueues))]
	s := d.settings
	if changes := letterChanges[d.name]; len(changes) > 0 && rng.IntN(3) > 0 {
		changes[rng.IntN(len(changes))](&s)
	}
	m.policy[d.name].settings = s
	for _, h := range m.living() {
		h.n.Configure(h.queues[d.name], s, DeadLetter{Exchange: d.dead})
	}
}

// living returns the running hosts, in order.
func (m *letters) living() (list []*letterHost) {
	for _, origin := range slices.Sorted(maps.Keys(m.hosts)) {
		list = append(list, m.hosts[origin])
	}
	return list
}

// pick returns one of the group's queues.
func (r *letterReplica) pick(rng *rand.Rand) *Queue {
	queues := r.sorted()
	if len(queues) == 0 || !r.host.ready {
		return nil
	}
	q := r.host.queues[queues[rng.IntN(len(queues))].Name]
	if !q.live {
		return nil // just declared anew
	}
	return q
}

func (r *letterReplica) publish(rng *rand.Rand) {
	total := 0
	for _, q := range r.sorted() {
		c := q.counts(r.host.n.Now())
		total += c.Messages()
	}
	q, n := r.pick(rng), r.host.n
	if q == nil || total > r.host.m.backlog {
		return
	}
	var ops []Op
	for range 1 + rng.IntN(1+r.host.m.backlog/10) {
		m := r.host.m
		m.serial++
		e := message.Envelope{Serial: m.serial, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: rng.IntN(100), Persistent: true}
		ref, b := n.bodies.Alloc(e.Size())
		body := e.Put(b)
		for i := range body {
			body[i] = byte(m.serial)
		}
		message.Record(b).Seal()
		l := m.note(m.serial)
		l.queue, l.free = q, q.Name == unseen
		ttl := []int64{-1, -1, 0, 300, 3000}[rng.IntN(5)]
		if q.Name == "d" {
			ttl = -1 // it would be lost there
		}
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{q}, Body: ref, TTL: ttl, Priority: rng.IntN(4) - 1, Owner: m, Token: uint64(m.serial)})
	}
	n.Run(ops)
}

// consume attaches a consumer.
func (r *letterReplica) consume(rng *rand.Rand) {
	q := r.pick(rng)
	if q == nil || len(r.consumers) > 12 {
		return
	}
	noAck := q.Name == unseen && rng.IntN(2) == 0
	c := &queue.Consumer{NoAck: noAck, Tag: "c", Prefetch: rng.IntN(6), Priority: rng.Int64N(3), Timeout: int64(rng.IntN(2) * 500)}
	if rng.IntN(3) == 0 {
		c.Credited, c.Prefetch = true, 0 // its client gives credit: see grant
	}
	c.Target = &letterClient{r}
	a, o := newAsk(), r.group.numbered(c)
	a.consumer, a.attached = c, func() {}
	r.host.ask(r.group, a, func(w *commandWriter) { o.write(w, q.Incarnation) }, func(*ask) {})
}

// grant gives consumers that their clients give credit some more or less of it, wherever their sessions are, and may drain.
func (r *letterReplica) grant(rng *rand.Rand) {
	for _, s := range r.seats() {
		if q := r.host.queues[s.q.Name]; s.c.Credited && rng.IntN(2) == 0 {
			o := flow{s.c.Number, int64(rng.IntN(20) - 4), rng.IntN(3) == 0}
			_ = q.group().tell(func(w *commandWriter) { o.write(w, q.Incarnation) })
		}
	}
}

// cancel detaches a consumer, wherever its session is.
func (r *letterReplica) cancel(rng *rand.Rand) {
	if seats := r.seats(); len(seats) > 0 {
		s := seats[rng.IntN(len(seats))]
		if q := r.host.queues[s.q.Name]; rng.IntN(3) == 0 {
			r.part(rng, seats)
		} else if rng.IntN(2) == 0 {
			r.host.n.Quit([]Seat{{q, s.c}}, nil)
		} else {
			_ = q.group().tell(func(w *commandWriter) { w.detach(q.Incarnation, s.c) })
		}
	}
}

// part begins to end a client with some of the consumers, in slices.
func (r *letterReplica) part(rng *rand.Rand, seats []*seat) {
	number := r.host.n.numbers.Add(1)
	var steps []func(*commandWriter)
	var returns []outLetter
	for _, s := range seats {
		if rng.IntN(3) == 0 {
			continue
		}
		q, by := s.q.Incarnation, s.c.Number
		steps = append(steps, func(w *commandWriter) {
			w.leave(number, 0, 1)
			w.seat(q, by)
			w.returns(0)
		})
		for _, d := range r.host.m.out[r.id] {
			if d.consumer == by && rng.IntN(3) > 0 {
				returns = append(returns, d)
			}
		}
	}
	for some := range slices.Chunk(returns, 3) {
		steps = append(steps, func(w *commandWriter) {
			w.leave(number, 0, 0)
			w.returns(len(some))
			for _, d := range some {
				w.delivery(r.host.queues[d.queue].Incarnation, d.consumer, d.id)
			}
		})
	}
	for _, queues := range []uint64{1, allQueues} {
		steps = append(steps, func(w *commandWriter) {
			w.leave(number, queues, 0)
			w.returns(0)
		})
	}
	r.partings = append(r.partings, steps)
}

// goOn continues the end of a client. Without a leader it tries again later.
func (r *letterReplica) goOn(rng *rand.Rand) {
	if len(r.partings) == 0 || rng.IntN(2) == 0 {
		return
	}
	i := rng.IntN(len(r.partings))
	if r.tell(r.partings[i][0]) != nil {
		return
	}
	if r.partings[i] = r.partings[i][1:]; len(r.partings[i]) == 0 {
		r.partings = slices.Delete(r.partings, i, i+1)
	}
}

// get takes one message.
func (r *letterReplica) get(rng *rand.Rand) {
	q := r.pick(rng)
	if q == nil {
		return
	}
	noAck := q.Name == unseen && rng.IntN(2) == 0
	a, o := newAsk(), r.group.getting(noAck)
	r.host.ask(r.group, a, func(w *commandWriter) { o.write(w, q.Incarnation) }, func(a *ask) {
		if a.err != nil || !a.ok {
			return
		}
		if noAck {
			r.host.n.bodies.Release(a.delivery.Body)
			r.host.n.bodies.Release(a.delivery.History)
			return
		}
		r.note(q, a.delivery.By, &a.delivery)
		r.host.n.bodies.Release(a.delivery.Body)
		r.host.n.bodies.Release(a.delivery.History)
	})
}

// note remembers a delivery as not answered.
func (r *letterReplica) note(q *Queue, c *queue.Consumer, d *queue.Delivery) {
	m := r.host.m
	m.out[r.id] = append(m.out[r.id], outLetter{r.host.n.Origin, q.Name, d.ID, c.Number, r.host.serialOf(d.Body)})
}

// settle answers a delivery, through the leader.
func (r *letterReplica) settle(rng *rand.Rand) {
	m := r.host.m
	out := m.out[r.id]
	if len(out) == 0 {
		return
	}
	i := rng.IntN(len(out))
	d := out[i]
	m.out[r.id] = slices.Delete(out, i, i+1)
	op := Op{Queue: r.host.queues[d.queue], ID: d.id, Consumer: &queue.Consumer{Number: d.consumer}}
	switch kind := rng.IntN(6); {
	case kind == 0 || kind == 1 && (d.queue == "d" || d.queue == unseen):
		op.Kind = Ack
		m.note(d.serial).settled = true
	case kind < 4 && d.queue != "d" && d.queue != unseen:
		op.Kind, op.Failed = Reject, rng.IntN(2) == 0
	default:
		op.Kind, op.How = Return, queue.ReturnKind(rng.IntN(int(queue.ReturnFailed)+1))
	}
	if op.Kind != Ack && rng.IntN(3) == 0 {
		op.Note = &deadletter.Note{Annotations: annotated("x-opt-serial", int64(d.serial), fmt.Sprint("x-opt-", rng.IntN(3)), rng.Int64N(100))}
	}
	r.host.n.Run([]Op{op})
}

// hangUp forgets clients of dead processes, some time after their end.
func (r *letterReplica) hangUp(rng *rand.Rand) {
	m := r.host.m
	m.out[r.id] = slices.DeleteFunc(m.out[r.id], func(d outLetter) bool { return m.hosts[d.origin] == nil })
	if rng.IntN(10) > 0 {
		return
	}
	for _, s := range r.seats() {
		if m.hosts[s.c.Origin] == nil {
			_ = r.tell(func(w *commandWriter) { w.op(cmdGone, s.c.Origin) })
			return
		}
	}
	for _, d := range r.departures {
		if m.hosts[d.origin] == nil {
			_ = r.tell(func(w *commandWriter) { w.op(cmdGone, d.origin) })
			return
		}
	}
}

// letterClient is the session of a consumer.
type letterClient struct{ r *letterReplica }

// Deliver implements Subscriber.
func (s *letterClient) Deliver(q *Queue, c *queue.Consumer, d *queue.Delivery) bool {
	if err := s.r.host.m.delivered(s.r.group, q, d); err != nil {
		s.r.host.fail(err)
	}
	if err := s.r.host.annotations(d); err != nil {
		s.r.host.fail(err)
	}
	if !d.NoAck {
		s.r.note(q, c, d)
	}
	s.r.host.n.bodies.Release(d.Body)
	s.r.host.n.bodies.Release(d.History)
	return true
}

// Flush implements Subscriber.
func (s *letterClient) Flush() {}

// QueueGone implements Subscriber.
func (s *letterClient) QueueGone(*Queue, *queue.Consumer) {}

// TimedOut implements Subscriber.
func (s *letterClient) TimedOut(*Queue, *queue.Consumer, int) {}
