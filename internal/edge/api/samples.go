package api

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
)

// SampleEvery is how often Handler.Sample is to be called. A day of the overview takes 100 KB at most, a queue's 60 KB.
const SampleEvery = time.Minute

// watched are the queues of which somebody has drawn curves within a day, and when last: their history goes on while nobody looks.
// There are maxWatched at most; the one that was drawn longest ago goes first.
type watched struct {
	mu     sync.Mutex
	queues map[watchedQueue]time.Time
}

type watchedQueue struct {
	vhost       message.VHost
	name        message.QueueName
	incarnation uint64
}

const maxWatched, watchedFor = 64, 24 * time.Hour

func watchedOf(d *topology.Queue) watchedQueue { return watchedQueue{d.VHost, d.Name, d.Incarnation} }

// key is what the history calls a queue: another than that of a queue of this name before it.
func (q watchedQueue) key() string {
	return "queue\x00" + string(q.vhost) + "\x00" + string(q.name) + "\x00" + strconv.FormatUint(q.incarnation, 36)
}

// keys are what the history calls the groups of values of a queue.
func (q watchedQueue) keys() []string {
	key := q.key()
	return []string{key, groupKey(key, statGroup{"publish": 0}), groupKey(key, statGroup{"deliver_get": 0})}
}

// watch notes that curves of a queue are drawn. dismiss is called for what the history calls those that are watched no more.
func (w *watched) watch(q watchedQueue, now time.Time, dismiss func(string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queues == nil {
		w.queues = map[watchedQueue]time.Time{}
	}
	w.queues[q] = now
	if len(w.queues) <= maxWatched {
		return
	}
	var oldest watchedQueue
	for other, at := range w.queues {
		if !at.After(now) && other != q {
			now, oldest = at, other
		}
	}
	w.forget(oldest, dismiss)
}

// forget watches a queue no more. REQUIRES: w.mu is held.
func (w *watched) forget(q watchedQueue, dismiss func(string)) {
	delete(w.queues, q)
	for _, key := range q.keys() {
		dismiss(key)
	}
}

// find describes the queues that are watched, and forgets those that have gone or that nobody has looked at for a day.
func (w *watched) find(b *broker.Broker, now time.Time, dismiss func(string)) (found []broker.QueueInfo) {
	w.mu.Lock()
	all := maps.Clone(w.queues)
	w.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	b.Read(func(s *topology.State, _ *auth.Users) {
		for q, at := range all {
			v, ok := s.VHost(q.vhost)
			if !ok || now.Sub(at) >= watchedFor {
				continue
			}
			if d, ok := v.Queue(q.name); ok && d.Incarnation == q.incarnation {
				found = append(found, broker.Describe(d))
				delete(all, q)
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for q, at := range all {
		if w.queues[q].Equal(at) {
			w.forget(q, dismiss)
		}
	}
	return found
}

// Sample implements Handler.
func (s *server) Sample(now time.Time) {
	t := s.totals(func(f func(*topology.VHost)) {
		s.b.Read(func(state *topology.State, _ *auth.Users) {
			for _, v := range state.VHosts() {
				f(v)
			}
		})
	}, true)
	s.history.keep(overviewName, now, lengths(&t.counts))
	for _, g := range []statGroup{t.publishes, deliveries(&t.counts.Stats)} {
		s.history.keep(groupKey(overviewName, g), now, g.values())
	}
	s.history.keep(churnName, now, s.churn())
	for _, q := range s.watched.find(s.b, now, s.history.dismiss) {
		c, key := s.b.Counts(q), watchedOf(q.Decl).key()
		s.history.keep(key, now, lengths(&c))
		for _, g := range []statGroup{{"publish": c.Stats.Published}, deliveries(&c.Stats)} {
			s.history.keep(groupKey(key, g), now, g.values())
		}
	}
}
