package conserve

import "math/rand/v2"

// protocols is what seeds of episodes with both protocols have more than those of the same episodes with AMQP 0-9-1 alone: so
// a seed shows whether what fails needs the other protocol.
const protocols = 1_000_000_000_000_000

// bilingual says whether some of a seed's clients speak AMQP 1.0.
func bilingual(seed uint64) bool { return seed >= protocols }

// annotating is the first seed of those with scenes about annotations behind the operations of both protocols: they are those of
// both protocols with protocols added once more.
const annotating = 2 * protocols

func (w *world) speaksTen(client int) bool { return client < len(w.tens) && w.tens[client] }

// mixProtocols has some clients speak AMQP 1.0, at least one, and say what that protocol alone can.
func (w *world) mixProtocols() {
	r := rand.New(rand.NewPCG(w.seed, 0x10))
	w.tens = make([]bool, len(w.clients))
	for i := range w.tens {
		w.tens[i] = r.IntN(2) == 0
	}
	w.tens[r.IntN(len(w.tens))] = true
	for i, p := range w.clients {
		for c, m := range p {
			if w.tens[i] && m == transactional { // there are none
				p[c] = confirming
			}
		}
	}
	var ops []op
	add := func(o op) {
		o.index = len(ops)
		ops = append(ops, o)
	}
	for _, o := range w.ops {
		add(o)
		about := o.verb == doConsume || o.verb == doSettle || o.verb == doPublish || o.verb == doCancel
		if !about || !w.speaksTen(o.client) || r.IntN(3) > 0 {
			continue
		}
		queue := o.queue
		if w.slot(queue) == nil {
			queue = w.slots[r.IntN(len(w.slots))].name
		}
		add(op{
			verb: doCredit, client: o.client, channel: o.channel, queue: queue, expiration: -1, hold: r.IntN(2) == 0,
			prefetch: []int{0, 1, 2, 3, 10, 1000}[r.IntN(6)], multiple: r.IntN(3) == 0,
		})
	}
	w.ops = ops
}

// annotate adds scenes in which messages of a quorum queue are settled as modified again and again, by clients of AMQP 1.0, and seen
// by all. By chance this is too seldom.
func (w *world) annotate(kills bool) {
	r := rand.New(rand.NewPCG(w.seed, 0xa0))
	s := w.slots[r.IntN(len(w.slots))]
	dead := w.slots[r.IntN(len(w.slots))].name
	for _, v := range s.variants {
		v.quorum, v.durable, v.exclusive, v.autoDelete, v.maxPriority = true, true, false, false, 0
		if v.dlx == "none" {
			v.dlx, v.dlrk = "", dead
		}
		if v.ttl >= 0 && v.ttl < 50 { // else nobody sees them twice
			v.ttl = 50
		}
	}
	var ten []int
	for i := range w.clients {
		if w.speaksTen(i) {
			ten = append(ten, i)
		}
	}
	add := func(client int, v verb, queue string, fill func(*op)) {
		o := op{index: len(w.ops), verb: v, client: client, channel: r.IntN(len(w.clients[client])), queue: queue, expiration: -1}
		if fill != nil {
			fill(&o)
		}
		w.ops = append(w.ops, o)
	}
	// round has a client get some messages of a queue and settle them. What is confirmed after that shows that it holds over a kill.
	round := func(client int, queue string, how settlement, ends bool) {
		channel := r.IntN(len(w.clients[client]))
		same := func(o *op) { o.channel = channel }
		add(client, doGet, queue, func(o *op) { o.channel, o.count = channel, 1+r.IntN(4) })
		add(client, doAwait, "", nil)
		for range 1 + r.IntN(2) {
			add(client, doSettle, "", func(o *op) { o.channel, o.how, o.multiple, o.pick = channel, how, r.IntN(2) == 0, r.IntN(8) })
		}
		if w.clients[client][channel] == transactional {
			add(client, doCommit, "", same)
		}
		if r.IntN(2) == 0 {
			add(client, doPublish, queue, func(o *op) { o.channel, o.key, o.count, o.size, o.persistent = channel, queue, 1, 10, true })
			add(client, doAwait, "", nil)
		}
		if ends {
			add(client, doKill, "", func(o *op) { o.pause = r.IntN(2) * 60000 })
		}
	}
	outcomes := []settlement{failed, failed, requeued, rejected, rejected}
	for range 1 + r.IntN(4) {
		by := ten[r.IntN(len(ten))]
		add(by, doDeclare, s.name, nil)
		add(by, doPublish, s.name, func(o *op) { o.key, o.count, o.size, o.persistent = s.name, 1+r.IntN(4), 10, r.IntN(8) > 0 })
		add(by, doAwait, "", nil)
		for range 1 + r.IntN(4) {
			round(ten[r.IntN(len(ten))], s.name, outcomes[r.IntN(len(outcomes))], kills && r.IntN(5) == 0)
			if r.IntN(2) == 0 {
				queue := []string{s.name, s.variants[0].dlrk}[r.IntN(2)]
				if w.slot(queue) != nil {
					round(r.IntN(len(w.clients)), queue, []settlement{requeued, failed, acked}[r.IntN(3)], false)
				}
			}
		}
	}
}
