package topology

import (
	"math"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
)

// Router finds the queues of messages. It holds only scratch memory: each publisher has its own, and keeps it, so that
// routing does not allocate. The zero value is ready to use.
type Router struct {
	// ByKeys says whether the result of the last Route depends only on the exchange and the keys, so that it holds for
	// other messages as long as the topology does not change.
	ByKeys bool
	// Delaying is how many of the queues that the last Route has found are those of exchanges that delay the message, and
	// BadDelay why one could not tell whether it is to.
	Delaying int
	BadDelay error

	found         []routing.Destination
	exchanges     []*Exchange // the exchanges reached so far, in order; each is visited once (BR-6.3)
	asOf          []uint64    // Exchange.bound of each at its visit
	led           []bool      // whether a binding of it matched
	bound         uint64      // VHost.bound when the comparison of all with asOf began
	again         int         // number of comparisons for this message
	seen          seen[*Queue]
	seenExchanges seen[*Exchange]
}

// scanUpTo is how many queues or exchanges are searched for duplicates one by one before a map is used.
const scanUpTo = 32

// seen finds duplicates in a list.
type seen[T comparable] struct {
	set      map[T]struct{} // built beyond scanUpTo
	compared int            // number of comparisons, for tests
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

// mostRounds is how often, on average, an exchange is visited again because of new bindings while the message paused.
const mostRounds = 4

// settled replaces Exchange.bound for an exchange that is not visited again.
const settled = math.MaxUint64

// Route appends to out the queues that a message published to x reaches, each once (BR-6.4). It follows bindings between
// exchanges (BR-6.3) and alternate exchanges (BR-6.13). It only reads the topology, and others may change it where the
// message pauses. If a queue moves from one binding to another meanwhile, Route finds it by one of them: it visits an
// exchange again if it got a binding after the visit.
func (r *Router) Route(v *VHost, x *Exchange, m *routing.Message, out []*Queue) []*Queue {
	start := len(out)
	r.ByKeys, r.Delaying, r.BadDelay = true, 0, nil
	r.exchanges, r.asOf, r.led = append(r.exchanges[:0], x), r.asOf[:0], r.led[:0]
	r.bound, r.again = v.bound, 0
	for next := 0; next < len(r.exchanges); { // the first whose alternate was not followed
		out = r.rounds(v, m, out, start)
		// After all repeated visits: a binding that moved within an exchange is not a missing match.
		for ; next < len(r.led) && !r.moved(v); next++ {
			if x := r.exchanges[next]; !r.led[next] && x.Alternate != nil && v.exchanges[x.Name] == x {
				if alternate, ok := v.exchanges[*x.Alternate]; ok {
					r.visit(alternate)
				}
			}
			m.Rest(1)
		}
	}
	clear(r.found)
	clear(r.exchanges)
	r.seen.end()
	r.seenExchanges.end()
	return out
}

// moved says whether exchanges must be compared again, because the virtual host got a binding. The number of comparisons is
// limited, so Route ends however many bindings come.
func (r *Router) moved(v *VHost) bool {
	return r.bound != v.bound && r.again < mostRounds*len(r.exchanges)
}

// rounds visits the new exchanges and the exchanges that they lead to, and then again the exchanges that got a binding
// since their visit.
func (r *Router) rounds(v *VHost, m *routing.Message, out []*Queue, start int) []*Queue {
	out = r.lookAtNew(v, m, out, start)
	for r.moved(v) {
		r.bound = v.bound
		for i := 0; i < len(r.asOf); i++ {
			x := r.exchanges[i]
			r.again++
			m.Rest(1)
			if r.asOf[i] != x.bound && r.asOf[i] != settled {
				r.asOf[i] = x.bound
				out = r.look(v, i, m, out, start)
			}
		}
		out = r.lookAtNew(v, m, out, start)
	}
	return out
}

// lookAtNew visits the exchanges that were not visited yet.
func (r *Router) lookAtNew(v *VHost, m *routing.Message, out []*Queue, start int) []*Queue {
	for i := len(r.asOf); i < len(r.exchanges); i++ {
		x := r.exchanges[i]
		r.asOf, r.led = append(r.asOf, x.bound), append(r.led, x.Name == "") // the default one has no alternate
		out = r.look(v, i, m, out, start)
	}
	return out
}

// look visits an exchange.
func (r *Router) look(v *VHost, i int, m *routing.Message, out []*Queue, start int) []*Queue {
	x := r.exchanges[i]
	if x.Name == "" {
		out = r.routeDefault(v, m, out, start)
		m.Rest(1 + len(m.More))
		return out
	}
	if x.Waiting != nil && !m.Waited {
		r.ByKeys = false
		var waits bool
		if out, waits = r.delay(x, m, out, start); waits {
			r.led[i], r.asOf[i] = true, settled
			m.Rest(1)
			return out
		}
	}
	out = r.routeThrough(v, x, m, out, start)
	if len(r.found) > 0 {
		if r.led[i] = true; x.chooses() {
			r.asOf[i] = settled
		}
	}
	m.Rest(1 + len(r.found) + len(m.More))
	return out
}

// delay adds the queue of an exchange that keeps the message for now, and says whether it does. What it is bound to is
// looked at when the message has waited, and its alternate then.
func (r *Router) delay(x *Exchange, m *routing.Message, out []*Queue, start int) (_ []*Queue, waits bool) {
	ms, err := message.Delay(m.Headers)
	if err != nil {
		r.BadDelay = err
	}
	if ms == 0 {
		return out, false
	}
	if x.Waiting.unstored {
		return out, true // it is as if the exchange were declared later, and not as if the message asked for nothing
	}
	r.Delaying++ // each exchange is looked at once
	return r.seen.appendNew(out, start, x.Waiting), true
}

// routeThrough follows the bindings of one exchange that match.
func (r *Router) routeThrough(v *VHost, x *Exchange, m *routing.Message, out []*Queue, start int) []*Queue {
	r.ByKeys = r.ByKeys && x.routesByKeys()
	r.found = x.table.Route(r.found[:0], m)
	for _, d := range r.found {
		switch d := d.(type) {
		case *Queue:
			out = r.seen.appendNew(out, start, d)
		case *Exchange:
			r.visit(d)
		}
	}
	return out
}

// routeDefault uses each key as a queue's name (BR-5.3). It skips a queue that is not stored yet; no other exchange can lead
// to such a queue, because it has no bindings.
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

// chooses says whether the exchange sends a message to one of its destinations: on a second visit it might choose another.
func (x *Exchange) chooses() bool {
	switch x.acts {
	case routing.ConsistentHash, routing.ModulusHash, routing.LocalRandom, routing.Random:
		return true
	}
	return false
}

// routesByKeys says whether the exchange routes by keys only.
func (x *Exchange) routesByKeys() bool {
	switch x.acts {
	case routing.Headers, routing.LocalRandom, routing.Random:
		return false
	case routing.ConsistentHash:
		return len(x.Arguments) == 0 // with arguments it may hash a header or a property
	}
	return true
}
