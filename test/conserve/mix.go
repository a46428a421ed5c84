package conserve

import "math/rand/v2"

// protocols is what seeds of episodes with both protocols have more than those of the same episodes with AMQP 0-9-1 alone: so
// a seed shows whether what fails needs the other protocol.
const protocols = 1_000_000_000_000_000

// bilingual says whether some of a seed's clients speak AMQP 1.0.
func bilingual(seed uint64) bool { return seed >= protocols }

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
