package broker

import (
	"sync"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/safety/held"
)

// makings makes queues that dead letters need, in goroutines of its own: a declaration waits for the disk, and for what was
// declared before, and whoever routes dead letters may be the one for whom that waits.
//
// Invariant: whoever has been told to wait is called once, when the queue is there or could not be made, unless the node
// ends before.
type makings struct {
	b    *Broker
	done sync.WaitGroup // the goroutines

	mu      held.Mutex // guards what follows; no other lock is taken under it
	under   map[queueName]*making
	waiting []*making
	running int
	failed  map[queueName]time.Time // when a queue could not be made
	ended   bool
}

// queueName names a queue of the node.
type queueName struct {
	vhost message.VHost
	name  message.QueueName
}

// making is a queue that is being made, or waits for that.
type making struct {
	decl  topology.QueueDecl
	ready []func()
}

const (
	// mostMaking is how many queues are made at a time: they share the store's syncs.
	mostMaking = 16
	// makeAgain is how long a queue that could not be made is not tried again. Until then its dead letters go on without it.
	makeAgain = 10 * time.Second
	// failedKept is how many of these are remembered before those that may be tried again are forgotten.
	failedKept = 1024
)

func newMakings(b *Broker) *makings {
	m := &makings{b: b, under: map[queueName]*making{}, failed: map[queueName]time.Time{}}
	held.Name(&m.mu, "the queues that are being made")
	return m
}

// need has a queue made. It returns false if that has failed a moment ago; otherwise ready, if not nil, is called when the
// queue is there or could not be made. REQUIRES: topo is not held.
func (m *makings) need(d topology.QueueDecl, ready func()) (waits bool) {
	name := queueName{d.VHost, d.Name}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return true // what waits is found again by the next start
	}
	if at, failed := m.failed[name]; failed && time.Since(at) < makeAgain {
		return false
	}
	is := m.under[name]
	if is == nil {
		is = &making{decl: d}
		m.under[name] = is
		m.waiting = append(m.waiting, is)
		if m.running < mostMaking {
			m.running++
			m.done.Go(bug.Guarded(m.b.Logger, "making queues for dead letters", m.work))
		}
	}
	if ready != nil {
		is.ready = append(is.ready, ready)
	}
	return true
}

// work makes queues until none waits.
func (m *makings) work() {
	for {
		m.mu.Lock()
		if len(m.waiting) == 0 || m.ended {
			m.running--
			m.mu.Unlock()
			return
		}
		is := m.waiting[0]
		m.waiting = m.waiting[1:]
		m.mu.Unlock()
		err := m.make(is.decl)
		for _, ready := range m.made(queueName{is.decl.VHost, is.decl.Name}, err) {
			ready()
		}
	}
}

func (m *makings) make(d topology.QueueDecl) error {
	_, err := m.b.AsOperator("dead-lettering", d.VHost).DeclareQueue(d)
	if err != nil && m.b.unmade.first(string(d.VHost)+"\x00"+string(d.Name)) {
		m.b.Logger.Warn("A queue for dead letters cannot be made. This is logged once", "vhost", string(d.VHost), "queue", string(d.Name), "error", err)
	}
	return err
}

// made notes the result, and returns whom to tell.
func (m *makings) made(name queueName, err error) []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.failed, name); err != nil {
		if len(m.failed) >= failedKept {
			for n, at := range m.failed {
				if time.Since(at) >= makeAgain {
					delete(m.failed, n)
				}
			}
		}
		m.failed[name] = time.Now()
	}
	ready := m.under[name].ready
	delete(m.under, name)
	return ready
}

// stop returns when no queue is being made.
func (m *makings) stop() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.done.Wait()
}
