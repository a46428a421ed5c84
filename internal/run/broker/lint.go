package broker

import (
	"context"
	"sync"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/lint"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

// Lint examines the declarations of a virtual host, or some of its queues. It locks the topology for a few milliseconds at a time. Nothing is
// found in a virtual host that is not there.
func (b *Broker) Lint(ctx context.Context, vhost message.VHost, queues ...*topology.Queue) ([]lint.Finding, error) {
	p, err := b.examine(ctx, vhost, queues)
	if p == nil {
		return nil, err
	}
	return p.Finish(linted{b}), nil
}

// DeadLetterMap draws the ways of dead letters in a virtual host. It locks as Lint does.
func (b *Broker) DeadLetterMap(ctx context.Context, vhost message.VHost) (m lint.Map, queues map[*topology.Queue]QueueInfo, err error) {
	p, err := b.examine(ctx, vhost, nil)
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
	queues = map[*topology.Queue]QueueInfo{}
	b.Read(func(*topology.State, *auth.Users) {
		for i := range m.Nodes {
			if q := m.Nodes[i].Queue; q != nil {
				queues[q] = Describe(q)
			}
		}
	})
	return m, queues, nil
}

// examine takes a pass to its last step. It is nil if there is no such virtual host.
func (b *Broker) examine(ctx context.Context, vhost message.VHost, queues []*topology.Queue) (p *lint.Pass, err error) {
	const soon = 2 * time.Millisecond
	b.Read(func(s *topology.State, _ *auth.Users) {
		if v, ok := s.VHost(vhost); ok {
			p = lint.New(v, queues...)
			p.FindsLost = b.findsLost
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
			more = ok && p.Step(v, func() bool { return time.Since(began) > soon }, b.onPause)
		})
	}
	return p, nil
}

// linted tells lint of messages.
type linted struct{ b *Broker }

// Urgent implements lint.Contents.
func (c linted) Urgent(q *topology.Queue) (ready, urgent int) {
	c.b.node.RangeLevels(runtimeOf(q), func(level, n int) {
		ready += n
		if level > 0 {
			urgent += n
		}
	})
	return ready, urgent
}

// maxUnlinted is how many queues wait to be looked at. Of more at a time the rest is not.
const maxUnlinted = 1000

// unlinted are queues with a dead-letter exchange that were declared, or got another policy.
type unlinted struct {
	mu      sync.Mutex
	waiting map[*topology.Queue]bool
	wake    chan struct{} // nil: nobody wants to know
}

// note notes a queue. It does not block.
func (u *unlinted) note(q *topology.Queue) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wake == nil || len(u.waiting) >= maxUnlinted {
		return
	}
	u.waiting[q] = true
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// WatchDeclared begins to note queues with a dead-letter exchange that are declared, or get another policy. The channel gets a value when
// TakeDeclared has some. It is called once, before the node serves.
func (b *Broker) WatchDeclared() <-chan struct{} {
	u := &b.unlinted
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wake, u.waiting = make(chan struct{}, 1), map[*topology.Queue]bool{}
	return u.wake
}

// TakeDeclared returns these queues, by virtual host, since the last call: at most 1,000.
func (b *Broker) TakeDeclared() map[message.VHost][]*topology.Queue {
	u := &b.unlinted
	u.mu.Lock()
	taken := u.waiting
	u.waiting = map[*topology.Queue]bool{}
	u.mu.Unlock()
	found := map[message.VHost][]*topology.Queue{}
	for q := range taken {
		found[q.VHost] = append(found[q.VHost], q)
	}
	return found
}
