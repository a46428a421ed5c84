package topology

import (
	"slices"

	"bartleby.mq/internal/message"
	"bartleby.mq/internal/routing"
)

// Router finds the queues of messages. It holds only scratch memory: each publisher has its own, and keeps it, so that
// routing does not allocate. The zero value is ready to use.
type Router struct {
	// ByKeys says of the last Route whether its result depends on nothing but the exchange and the keys, so that it holds
	// for other messages as long as the topology does not change.
	ByKeys bool

	found         []routing.Destination
	exchanges     []*Exchange // those reached so far, in order; each is visited once (BR-6.3)
	seen          seen[*Queue]
	seenExchanges seen[*Exchange]
}

// scanUpTo is how many queues or exchanges are searched for duplicates one by one before a map is used.
const scanUpTo = 32

// seen tells what is in a list already.
type seen[T comparable] struct {
	set      map[T]struct{} // built beyond scanUpTo
	compared int            // how much was looked at, for tests
}

// appendNew appends x to the list, which begins at start, unless it is there already.
func (s *seen[T]) appendNew(list []T, start int, x T) []T {
	if len(list)-start < scanUpTo {
		s.compared += len(list) - start
		if slices.Contains(list[start:], x) {
			return list
		}
		return append(list, x)
	}
	if s.set == nil {
		s.set = make(map[T]struct{}, 4*scanUpTo)
	}
	if len(s.set) == 0 {
		s.compared += len(list) - start
		for _, other := range list[start:] {
			s.set[other] = struct{}{}
		}
	}
	s.compared++
	if _, ok := s.set[x]; ok {
		return list
	}
	s.set[x] = struct{}{}
	return append(list, x)
}

// end is the end of a list.
func (s *seen[T]) end() {
	if len(s.set) > 0 {
		clear(s.set)
	}
}

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
				out = r.seen.appendNew(out, start, d)
			case *Exchange:
				r.visit(d)
			}
		}
	}
	clear(r.found)
	clear(r.exchanges)
	r.seen.end()
	r.seenExchanges.end()
	return out
}

// routeDefault takes each key for a queue's name (BR-5.3). No other exchange can lead to a queue that is not stored yet,
// for nothing is bound to it.
func (r *Router) routeDefault(v *VHost, m *routing.Message, out []*Queue, start int) []*Queue {
	if q, ok := v.queues[message.QueueName(m.Key)]; ok && !q.unstored {
		out = r.seen.appendNew(out, start, q)
	}
	for _, key := range m.More {
		if q, ok := v.queues[message.QueueName(key)]; ok && !q.unstored {
			out = r.seen.appendNew(out, start, q)
		}
	}
	return out
}

func (r *Router) visit(x *Exchange) {
	r.exchanges = r.seenExchanges.appendNew(r.exchanges, 0, x)
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
