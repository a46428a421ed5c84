package topology

import (
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/routing"
)

// Router finds the queues of messages. It holds only scratch memory: each publisher has its own, and keeps it, so that
// routing does not allocate. The zero value is ready to use.
type Router struct {
	// ByKeys says of the last Route whether its result depends on nothing but the exchange and the keys, so that it holds
	// for other messages as long as the topology does not change.
	ByKeys bool

	found     []routing.Destination
	exchanges []*Exchange         // those reached so far, in order; each is visited once (BR-6.3)
	seen      map[*Queue]struct{} // built beyond scanUpTo queues
}

// scanUpTo is how many queues are searched for duplicates one by one before a map is used.
const scanUpTo = 32

// Route appends to out the queues that a message published to x reaches, each once (BR-6.4), following bindings between
// exchanges (BR-6.3) and alternate exchanges (BR-6.13). It only reads the topology.
func (r *Router) Route(v *VHost, x *Exchange, m *routing.Message, out []*Queue) []*Queue {
	start := len(out)
	r.ByKeys = true
	r.exchanges = append(r.exchanges[:0], x)
	for i := 0; i < len(r.exchanges); i++ {
		x := r.exchanges[i]
		if x.Name == "" {
			out = r.routeDefault(v, m, out, start)
			continue
		}
		r.ByKeys = r.ByKeys && x.routesByKeys()
		r.found = x.table.Route(r.found[:0], m)
		// Only what the exchange itself matched counts: a bound exchange that leads nowhere is a match.
		if len(r.found) == 0 && x.Alternate != nil {
			if alternate, ok := v.exchanges[*x.Alternate]; ok {
				r.visit(alternate)
			}
		}
		for _, d := range r.found {
			switch d := d.(type) {
			case *Queue:
				out = r.add(out, start, d)
			case *Exchange:
				r.visit(d)
			}
		}
	}
	clear(r.found)
	clear(r.exchanges)
	if len(r.seen) > 0 {
		clear(r.seen)
	}
	return out
}

// routeDefault takes each key for a queue's name (BR-5.3). No other exchange can lead to a queue that is not stored yet,
// for nothing is bound to it.
func (r *Router) routeDefault(v *VHost, m *routing.Message, out []*Queue, start int) []*Queue {
	if q, ok := v.queues[message.QueueName(m.Key)]; ok && !q.unstored {
		out = r.add(out, start, q)
	}
	for _, key := range m.More {
		if q, ok := v.queues[message.QueueName(key)]; ok && !q.unstored {
			out = r.add(out, start, q)
		}
	}
	return out
}

func (r *Router) visit(x *Exchange) {
	for _, seen := range r.exchanges {
		if seen == x {
			return
		}
	}
	r.exchanges = append(r.exchanges, x)
}

// add appends q unless it is in out already, from start on.
func (r *Router) add(out []*Queue, start int, q *Queue) []*Queue {
	if len(out)-start < scanUpTo {
		for _, other := range out[start:] {
			if other == q {
				return out
			}
		}
		return append(out, q)
	}
	if r.seen == nil {
		r.seen = make(map[*Queue]struct{}, 4*scanUpTo)
	}
	if len(r.seen) == 0 {
		for _, other := range out[start:] {
			r.seen[other] = struct{}{}
		}
	}
	if _, ok := r.seen[q]; ok {
		return out
	}
	r.seen[q] = struct{}{}
	return append(out, q)
}

// routesByKeys says whether the exchange looks at nothing of a message but its keys.
func (x *Exchange) routesByKeys() bool {
	switch x.Type {
	case routing.Headers, routing.LocalRandom, routing.Random:
		return false
	case routing.ConsistentHash:
		return len(x.Arguments) == 0 // else it may hash a header or a property
	}
	return true
}
