package partition

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/safety/held"
	"bartleby.mq/internal/sim"
)

// letterHost is a Node on a simulated machine. Nothing waits in it: a caller that asks a group looks for the answer
// later.
type letterHost struct {
	m        *letters
	env      sim.HostEnv
	n        *Node
	disk     *world
	queues   map[string]*Queue
	replicas []*letterReplica
	asked    []asked
	sending  map[[2]uint64]bool // from log to log: on its way
	window   bodies.Window      // of serialOf
	ready    bool               // recovered: the disk can be read
	err      error              // a broken invariant
}

// asked is a question to a group, and what to do with the answer.
type asked struct {
	a    *ask
	then func(a *ask)
}

// Start implements sim.Hosts.
func (m *letters) Start(env sim.HostEnv) (sim.Host, error) {
	h := &letterHost{m: m, env: env, queues: map[string]*Queue{}, sending: map[[2]uint64]bool{}, disk: &world{fs: env.FS, disk: env.FS, j: env.Journal}}
	defer func() {
		if !h.ready { // it has crashed during its start
			h.closeDisk()
		}
	}()
	if err := h.disk.openDisk(env.Failpoint); err != nil {
		return nil, err
	}
	m.origins++
	h.n = New(Options{
		Partitions: 1, Journal: env.Journal, Bodies: h.disk.bodies, Index: h.disk.index, Keep: h.disk.keep, Budget: Budget{Index: 1, Bodies: 1 << 12, HotPages: 1},
		StateHash: true, Router: h, Logger: slog.New(slog.DiscardHandler), Now: func() int64 { return 1_700_000_000_000 + env.Now() },
		Failpoint: env.Failpoint, Cluster: env.Driver, NodeID: env.Node, Origin: NewOrigin(env.Node, int64(m.origins)*1000),
		OnFatal: h.fail, Forwarder: h,
		OpenGroup: func(id uint64, machine cluster.Machine, st *cluster.State) (*cluster.Group, error) {
			r := &letterReplica{group: machine.(*group), host: h}
			h.replicas = append(h.replicas, r)
			return env.Open(id, r, st)
		},
	})
	for i, d := range letterQueues {
		h.declare(i, &d)
	}
	m.hosts[h.n.Origin] = h
	if err := h.n.redo(); err != nil {
		return nil, err
	}
	h.ready = true
	return h, nil
}

// declare makes a queue known on this node, as it is now.
func (h *letterHost) declare(i int, d *letterQueue) {
	policy := h.m.policy[d.name]
	q := &Queue{Incarnation: letterIncarnation(i, policy.declared), VHost: letterVHost, Name: d.name, Durable: true, Group: d.group}
	config := quorum
	if config.SingleActive = d.single; d.group == 0 {
		config, q.Incarnation = classic, 100+h.env.Node
	}
	h.n.Create(q, config, policy.settings, DeadLetter{Exchange: d.dead})
	h.queues[d.name] = q
}

// Stop implements sim.Host.
func (h *letterHost) Stop() {
	delete(h.m.hosts, h.n.Origin)
	for _, p := range h.n.all { // the garbage collector does not free the memory of bodies
		hold := h.n.lock(p)
		if p.group != nil {
			p.group.forgetState()
		}
		h.n.finishHold(hold)
		for p.bury() {
		}
	}
	h.window.Free()
	h.closeDisk()
}

func (h *letterHost) closeDisk() {
	if h.disk.index != nil {
		_ = h.disk.index.Close()
	}
	if h.disk.keep != nil {
		h.disk.keep.Close()
	}
}

func (h *letterHost) fail(err error) {
	if h.err == nil {
		h.err = err
	}
}

// Checkpoint implements sim.Host.
func (h *letterHost) Checkpoint(rng *rand.Rand) error {
	if err := h.n.Checkpoint(); err != nil || rng.IntN(3) > 0 {
		return err
	}
	_, err := h.n.Compact()
	return err
}

// Work implements sim.Host.
func (h *letterHost) Work(rng *rand.Rand) {
	h.answers()
	for _, id := range h.m.lost {
		h.n.ForgetNode(id)
	}
	for _, p := range h.n.all {
		if p.group != nil {
			p.tickReplicated()
		} else {
			p.tick()
		}
		p.routeLater()
		p.bury()
		p.relief.work()
	}
	if rng.IntN(20) == 0 {
		h.n.ForwardAgain()
	}
	if rng.IntN(20) == 0 {
		h.relocate(rng)
	}
	switch rng.IntN(8) {
	case 0:
		h.n.RetryAllHeld()
	case 1, 2, 3:
		h.send(h.n.outboxes)
	default:
		g := h.n.groups[rng.IntN(Groups)].group
		if rng.IntN(20) == 0 {
			g.p.mu.Lock()
			g.p.outboxes.Resend() // so it is sent again
			g.p.mu.Unlock()
		}
		h.send(g.p.outboxes)
	}
}

// relocate does what Node.Relocate does, without waiting.
func (h *letterHost) relocate(rng *rand.Rand) {
	for _, o := range h.n.allOutboxes() {
		found := o.pinStranded(o.Numbers(), func(*outbox.Entry) bool { return true }, 0, 1+rng.IntN(3))
		for i := range found {
			s, to := &found[i], h.queues["d"]
			if rng.IntN(2) == 0 {
				to = s.source()
			}
			if to == nil || !s.warm() {
				continue
			}
			p := s.planTo(to)
			if o.g == nil {
				s.reroute(p, outbox.Move)
				continue
			}
			h.ask(o.g, newAsk(), func(w *commandWriter) { s.write(w, cmdRelocate, p) }, func(*ask) {})
		}
		for i := range found {
			found[i].release()
		}
	}
}

// ask proposes a command, and calls then when it was answered or lost.
func (h *letterHost) ask(g *group, a *ask, build func(*commandWriter), then func(*ask)) (proposed bool) {
	w := h.n.writer()
	build(w)
	_, err := g.propose(w, &proposal{ask: a}, false)
	h.n.writers.Put(w)
	if err == nil {
		h.asked = append(h.asked, asked{a, then})
	}
	return err == nil
}

// answers looks for answers.
func (h *letterHost) answers() {
	list := h.asked
	h.asked = nil
	for _, each := range list {
		select {
		case <-each.a.done:
			each.then(each.a)
		default:
			h.asked = append(h.asked, each)
		}
	}
}

// send does what a sender does, but over the network and without waiting.
func (h *letterHost) send(s *outboxes) {
	for k := 0; ; k++ {
		b, ok := s.load(k)
		if !ok {
			return
		}
		if len(b.Entries) == 0 {
			continue
		}
		err := s.warm(&b)
		if err == nil && s.g == nil && b.pos != 0 {
			err = h.n.Journal.Commit(b.pos)
		}
		h.n.at(FailMailSent)
		if err != nil {
			h.fail(err)
		} else {
			h.carry(s, &b)
		}
		s.release(b.Entries)
	}
}

// Forward implements Forwarder.
func (h *letterHost) Forward(to uint64, f Forwarded) {
	h.env.Send(to, func(there sim.Host) { there.(*letterHost).n.Forwarded(f) })
}

// carry brings a load to its destination, and the answer back.
func (h *letterHost) carry(s *outboxes, b *load) {
	origin := h.n.Origin
	answered := func(upTo uint64, refused outbox.Refusals) {
		if s.g == nil || s.g.leads {
			s.sent(b.To, upTo)
			_ = s.acknowledge(b.To, upTo, refused)
		}
	}
	if b.To < localLog {
		way := [2]uint64{b.from, b.To}
		if h.sending[way] {
			return
		}
		h.sending[way] = h.ask(h.n.groupByID(b.To), newAsk(), func(w *commandWriter) { s.write(w, b) }, func(a *ask) {
			delete(h.sending, way)
			if a.err == nil {
				answered(a.last, a.refusals)
			}
		})
		return
	}
	back := func(there *letterHost, upTo uint64, refused outbox.Refusals) {
		there.env.Send(h.env.Node, func(back sim.Host) {
			if back.(*letterHost).n.Origin == origin {
				answered(upTo, refused)
			}
		})
	}
	records := make([][2][]byte, len(b.Entries))
	for i, e := range b.Entries {
		records[i] = [2][]byte{slices.Clone(h.n.bodies.Bytes(e.Body)), slices.Clone(h.n.historyBytes(e.History))}
	}
	mail := *b
	mail.Entries = slices.Clone(b.Entries)
	h.env.Send(b.To&^localLog, func(to sim.Host) {
		there := to.(*letterHost)
		upTo, refused, err := there.take(mail, records)
		if err != nil {
			there.fail(err)
			return
		}
		back(there, upTo, refused)
	})
}

// take lets a load into the classic queues.
func (h *letterHost) take(b load, records [][2][]byte) (uint64, outbox.Refusals, error) {
	b.Entries = slices.Clone(b.Entries)
	for i, r := range records {
		ref, mem := h.n.bodies.Alloc(len(r[0]))
		copy(mem, r[0])
		b.Entries[i].Body, b.Entries[i].History = ref, storeHistory(h.n.bodies, r[1])
		h.m.note(message.Record(r[0]).Serial()).classic = h.env.Node
	}
	defer h.n.outboxes.release(b.Entries)
	return h.n.outboxes.receive(&b)
}

// letterReplica is a group of such a node.
type letterReplica struct {
	*group
	host *letterHost

	partings  [][]func(*commandWriter) // clients that end in slices: what is still to be proposed
	hashed    bool
	hashedAt  uint64
	hashValue uint64
}

// Apply implements sim.Replica. It notes which messages a purge or a deletion ends.
func (r *letterReplica) Apply(entries []cluster.Entry) {
	for len(entries) > 0 {
		n := 0
		for n < len(entries) && !endsQueue(entries[n].Data) {
			n++
		}
		if n > 0 {
			r.group.Apply(entries[:n])
			entries = entries[n:]
			continue
		}
		r.end(entries[:1])
		entries = entries[1:]
	}
}

func endsQueue(command []byte) bool {
	return len(command) > commandHead && (command[commandHead] == cmdPurge || command[commandHead] == cmdDelete)
}

// end applies a command that ends messages.
func (r *letterReplica) end(entry []cluster.Entry) {
	m, e := r.host.m, ending{r.id, entry[0].Index}
	if !r.host.ready { // the disk cannot be read yet
		if !m.ends[e] {
			m.ends[e] = false // known, and seen by nobody
		}
		r.group.Apply(entry)
		return
	}
	inc, _ := binary.Uvarint(entry[0].Data[commandHead+1:])
	before, _ := r.contents(inc)
	r.group.Apply(entry)
	after, live := r.contents(inc)
	for s, purged := range before {
		if _, is := after[s]; is {
			continue
		}
		if live && !purged {
			r.host.fail(fmt.Errorf("message %d was out or dying, and a purge took it", s))
		}
		m.note(s).settled = true
	}
	m.ends[e] = true
}

// contents returns the messages of a queue, and for each whether a purge removes it (DL-2.1).
func (r *letterReplica) contents(inc uint64) (list map[message.Serial]bool, live bool) {
	q := r.p.queues[inc]
	if q == nil {
		return nil, false
	}
	list = map[message.Serial]bool{}
	q.m.Browse(queue.Cursor{}, 1<<30, func(v queue.View) bool {
		_, held := q.m.Held(v.ID)
		list[r.host.serialOf(v.Body)] = !v.Out && (!v.Dead || held)
		return true
	})
	return list, true
}

// Joined implements sim.Replica.
func (r *letterReplica) Joined(*cluster.Group) {}

// Checkpoint implements sim.Replica; the host has its own.
func (r *letterReplica) Checkpoint() []byte { panic("the host has checkpoints") }

// hashEvery is the number of commands between two states that replicas compare.
const hashEvery = 8

// Hash implements sim.Replica.
func (r *letterReplica) Hash() (applied, hash uint64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.applied%hashEvery != 0 || !r.host.ready {
		return r.applied, 0
	}
	if !r.hashed || r.hashedAt != r.applied {
		r.hashed, r.hashedAt = true, r.applied
		held.Apart(func() { r.hashValue = r.hash() }) // it reads bodies; no other goroutine runs that could wait
		for _, q := range r.sorted() {
			list := q.m.Attached()
			queue.SortAttached(list)
			for _, c := range list {
				r.hashValue = r.hashValue*31 + c.Number
				if c.Active {
					r.hashValue++
				}
			}
		}
	}
	return r.applied, r.hashValue
}

// Check implements sim.Replica.
func (r *letterReplica) Check() error {
	if r.host.err != nil {
		return r.host.err
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.applied%hashEvery != 0 || !r.host.ready {
		return nil
	}
	found := map[message.Serial]string{}
	see := func(s message.Serial, where string) error {
		if other, twice := found[s]; twice {
			return fmt.Errorf("message %d is in %s and in %s", s, other, where)
		}
		found[s] = where
		return nil
	}
	for _, q := range r.sorted() {
		if err := q.m.Check(); err != nil {
			return fmt.Errorf("queue %s: %w", q.Name, err)
		}
		active := 0
		for _, c := range q.m.Attached() {
			if c.Active {
				active++
			}
		}
		if q.config.SingleActive && active > 1 {
			return fmt.Errorf("queue %s has %d active consumers", q.Name, active)
		}
		var err error
		q.m.Browse(queue.Cursor{}, 1<<30, func(v queue.View) bool {
			if len(q.waiting.asked[v.ID]) > 0 {
				return true // its target may have it, and pass it on; the answer is on its way
			}
			err = see(r.host.serialOf(v.Body), q.Name)
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	for _, b := range r.p.outboxes.Outboxes() {
		for _, e := range b.Stranded() { // an entry that waits for an answer may be in its target, and have gone on; see End
			if err := see(r.host.serialOf(e.Body), fmt.Sprintf("the outbox to %d", b.To())); err != nil {
				return err
			}
		}
	}
	return nil
}
