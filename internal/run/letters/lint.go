package letters

import (
	"context"
	"sync"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/lint"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// Lint examines the declarations of a virtual host, or some of its queues. It locks the topology for a few milliseconds at a time. Nothing is
// found in a virtual host that is not there.
func Lint(ctx context.Context, b *broker.Broker, vhost message.VHost, queues ...*topology.Queue) ([]lint.Finding, error) {
	p, err := examine(ctx, b, vhost, queues)
	if p == nil {
		return nil, err
	}
	return p.Finish(linted{b}), nil
}

// DeadLetterMap draws the ways of dead letters in a virtual host. It locks as Lint does.
func DeadLetterMap(ctx context.Context, b *broker.Broker, vhost message.VHost) (m lint.Map, queues map[*topology.Queue]broker.QueueInfo, err error) {
	p, err := examine(ctx, b, vhost, nil)
	if err != nil {
		return m, nil, err
	}
	if p == nil {
		return m, nil, topology.Refuse(topology.NotFound, "vhost %s not found", vhost)
	}
	b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(vhost); ok {
			p.Bindings(v)
		}
	})
	m = p.Map()
	queues = map[*topology.Queue]broker.QueueInfo{}
	b.Read(func(*topology.State, *auth.Users) {
		for i := range m.Nodes {
			if q := m.Nodes[i].Queue; q != nil {
				queues[q] = broker.Describe(q)
			}
		}
	})
	return m, queues, nil
}

// examine takes a pass to its last step. It is nil if there is no such virtual host.
func examine(ctx context.Context, b *broker.Broker, vhost message.VHost, queues []*topology.Queue) (p *lint.Pass, err error) {
	const soon = 2 * time.Millisecond
	b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(vhost); ok {
			p = lint.New(v, queues...)
			p.FindsLost = b.FindsLost
		}
	})
	if p == nil {
		return nil, nil
	}
	p.Order()
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		began := time.Now()
		b.Read(func(s *topology.State, _ *auth.Users) {
			v, ok := s.VHost(vhost)
			more = ok && p.Step(v, func() bool { return time.Since(began) > soon }, b.LetIn)
		})
	}
	return p, nil
}

// linted tells lint of messages.
type linted struct{ b *broker.Broker }

// Urgent implements lint.Contents.
func (c linted) Urgent(q *topology.Queue) (ready, urgent int) {
	for level, n := range c.b.ReadyByPriority(q) {
		ready += n
		if level > 0 {
			urgent += n
		}
	}
	return ready, urgent
}

// maxDeclared is how many queues wait to be examined. Of more at a time the rest is not.
const maxDeclared = 1000

// Declared are queues with a dead-letter exchange that were declared, or got another policy.
type Declared struct {
	wake chan struct{}

	mu      sync.Mutex
	waiting map[*topology.Queue]bool
}

// WatchDeclared begins to note them. It is called once, before the node serves.
func WatchDeclared(b *broker.Broker) *Declared {
	d := &Declared{wake: make(chan struct{}, 1), waiting: map[*topology.Queue]bool{}}
	b.OnDeadLetters(d.note)
	return d
}

// note notes a queue. It does not block.
func (d *Declared) note(q *topology.Queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= maxDeclared {
		return
	}
	d.waiting[q] = true
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Wake gets a value when Take has some.
func (d *Declared) Wake() <-chan struct{} { return d.wake }

// Take returns these queues, by virtual host, since the last call: at most 1,000.
func (d *Declared) Take() map[message.VHost][]*topology.Queue {
	d.mu.Lock()
	taken := d.waiting
	d.waiting = map[*topology.Queue]bool{}
	d.mu.Unlock()
	found := map[message.VHost][]*topology.Queue{}
	for q := range taken {
		found[q.VHost] = append(found[q.VHost], q)
	}
	return found
}
