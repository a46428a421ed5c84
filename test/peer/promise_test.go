package peer

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// hour is, in milliseconds, a span that no script lasts for: what it limits does not happen.
const hour = 3_600_000

// promises is what a node owes to a script: of the queues that nothing which was said may
// end, that they are there, and of the consumers whom nothing may end, that they remain.
type promises struct {
	mortal    map[string]bool // queues that may end
	transient map[string]bool // queues that no start brings back
	impatient map[string]bool // queues whose consumers may be timed out
	consumes  map[string]map[string]bool
	all       bool // anything may end

	mu       sync.Mutex
	declared map[string]bool // of which the client was told
}

func newPromises() *promises {
	return &promises{
		mortal: map[string]bool{}, transient: map[string]bool{}, impatient: map[string]bool{}, consumes: map[string]map[string]bool{}, declared: map[string]bool{},
	}
}

// hear takes in what a script says.
func (p *promises) hear(m amqp091.Method) {
	switch m := m.(type) {
	case *amqp091.QueueDeclare:
		if m.Queue == "" {
			return
		}
		p.mortal[m.Queue] = p.mortal[m.Queue] || m.Exclusive || m.AutoDelete || short(m.Arguments, "x-expires")
		p.transient[m.Queue] = p.transient[m.Queue] || !m.Durable
		p.impatient[m.Queue] = p.impatient[m.Queue] || short(m.Arguments, "x-consumer-timeout")
	case *amqp091.QueueDelete:
		p.mortal[m.Queue] = true
		p.all = p.all || m.Queue == "" // whatever was declared last
	case *amqp091.BasicConsume:
		if p.consumes[m.ConsumerTag] == nil {
			p.consumes[m.ConsumerTag] = map[string]bool{}
		}
		p.consumes[m.ConsumerTag][m.Queue] = true
		p.impatient[m.Queue] = p.impatient[m.Queue] || m.Queue == "" || short(m.Arguments, "x-consumer-timeout")
	}
}

// hearPolicy takes in a policy.
func (p *promises) hearPolicy(d topology.Definition) {
	for _, key := range []string{"expires", "consumer-timeout"} {
		n, ok := d[key].(int64)
		p.all = p.all || ok && n < hour
	}
}

// short says whether an argument may be a span that passes while a script is said.
func short(t amqp091.Table, key string) bool {
	for _, f := range t {
		if f.Key != key {
			continue
		}
		switch v := f.Value.(type) {
		case int64:
			return v < hour
		case int32:
			return v < hour
		case uint32:
			return v < hour
		default:
			return true
		}
	}
	return false
}

// told notes that a client was told of a queue's declaration.
func (p *promises) told(queue string) {
	p.mu.Lock()
	p.declared[queue] = true
	p.mu.Unlock()
}

// lasts says whether a queue, once declared, may not end.
func (p *promises) lasts(queue string) bool { return !p.all && !p.mortal[queue] }

// remains says whether a consumer with that tag may not be ended by the server.
func (p *promises) remains(tag string) bool {
	if strings.HasPrefix(tag, "amq.ctag-") && p.consumes[tag] == nil {
		tag = ""
	}
	for queue := range p.consumes[tag] {
		if !p.lasts(queue) || p.impatient[queue] {
			return false
		}
	}
	return len(p.consumes[tag]) > 0
}

// patient says whether no consumer may be timed out.
func (p *promises) patient() bool {
	for _, short := range p.impatient {
		if short {
			return false
		}
	}
	return !p.all
}

// A place is a queue that has to be there.
type place struct{ vhost, queue string }

// places are the queues that were promised, and of these those that outlast a restart.
func (p *promises) places(vhost string) (all, durable []place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for queue := range p.declared {
		if _, said := p.mortal[queue]; !said || !p.lasts(queue) || strings.HasPrefix(queue, "amq.") {
			continue // those of direct replies are none
		}
		all = append(all, place{vhost, queue})
		if !p.transient[queue] {
			durable = append(durable, place{vhost, queue})
		}
	}
	return all, durable
}

// there is nil if the node has all of these queues.
func (n *node) there(all []place) (err error) {
	n.server.Broker().Read(func(s *topology.State, _ *auth.Users) {
		for _, p := range all {
			v, ok := s.VHost(message.VHost(p.vhost))
			if !ok {
				err = fmt.Errorf("there is no virtual host %s", p.vhost)
				return
			}
			if _, ok := v.Queue(message.QueueName(p.queue)); !ok {
				err = fmt.Errorf("there is no queue %.20q of %s, which nobody has deleted", p.queue, p.vhost)
				return
			}
		}
	})
	return err
}

// policy chooses one, for all queues that are to come or for some.
func (c *choices) policy() topology.PolicyDecl {
	d := topology.Definition{}
	for _, f := range c.queueTable(c.once(2), 4) {
		switch v := f.Value.(type) {
		case int64, float64, string:
			d[strings.TrimPrefix(f.Key, "x-")] = v
		case int32:
			d[strings.TrimPrefix(f.Key, "x-")] = int64(v)
		}
	}
	if v, ok := d["delayed-retry-multiplier"].(int64); ok {
		d["delayed-retry-multiplier"] = float64(v)
	}
	for key, v := range d { // which no JSON can say
		if x, ok := v.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
			delete(d, key)
		}
	}
	return topology.PolicyDecl{
		Name: pick(c, []string{"one", "two", long}), Pattern: pick(c, []string{"", "^c", "^q", "2$", "d"}), ApplyTo: pick(c, []topology.ApplyTo{"", "queues", "quorum_queues", "classic_queues"}),
		Priority: pick(c, numbers), Definition: d,
	}
}
