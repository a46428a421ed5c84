package broker

import (
	"sync"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
)

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
