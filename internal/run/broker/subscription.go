package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/safety/held"
)

// Subscription is a consumer for callers without a session, such as a shovel on this node. One goroutine at a time
// may use its methods.
type Subscription struct {
	c        *Connection
	info     ConsumerInfo
	consumer queue.Consumer
	q        *partition.Queue

	mu      held.Mutex // guards what follows; taken while the partition is locked
	waiting []queue.Delivery
	ended   error
	wakec   chan struct{} // has one token if something was added
}

// Taken is a message from a Subscription. It must be settled.
type Taken struct {
	Shown
	delivery queue.Delivery
}

// ErrQueueGone is what Next returns after the queue was deleted.
var ErrQueueGone = errors.New("the queue was deleted")

// Subscribe consumes from a queue under a tag. prefetch limits the unsettled messages, 0 meaning no limit. The caller
// calls Cancel at the end.
func (c *Connection) Subscribe(name message.QueueName, tag string, prefetch int) (*Subscription, error) {
	s := &Subscription{c: c, wakec: make(chan struct{}, 1), info: ConsumerInfo{Connection: c.Name, User: c.User}}
	s.consumer = queue.Consumer{Target: s, Tag: tag, Prefetch: prefetch}
	q, err := c.Consume(name, &s.consumer, func(q *partition.Queue) { s.q = q })
	if err != nil {
		return nil, err
	}
	s.q = q
	return s, nil
}

var _ partition.Subscriber = (*Subscription)(nil)

// Deliver implements partition.Subscriber.
func (s *Subscription) Deliver(_ *partition.Queue, _ *queue.Consumer, d *queue.Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, *d)
	return s.consumer.Prefetch > 0 || len(s.waiting) < unsettledLimit
}

// unsettledLimit is how many messages a subscription without a prefetch limit may have waiting before it pauses.
const unsettledLimit = 1000

// Flush implements partition.Subscriber.
func (s *Subscription) Flush() {
	select {
	case s.wakec <- struct{}{}:
	default:
	}
}

// QueueGone implements partition.Subscriber.
func (s *Subscription) QueueGone(*partition.Queue, *queue.Consumer) { s.end(ErrQueueGone) }

// TimedOut implements partition.Subscriber.
func (s *Subscription) TimedOut(*partition.Queue, *queue.Consumer, int) {
	s.end(errors.New("delivery acknowledgement timed out"))
}

func (s *Subscription) end(err error) {
	s.mu.Lock()
	s.ended = err
	s.mu.Unlock()
	s.Flush()
}

// Info implements Informant.
func (s *Subscription) Info() ConsumerInfo { return s.info }

// Cause implements partition.Culprit.
func (s *Subscription) Cause() deadletter.Cause {
	return deadletter.Cause{ConsumerTag: s.consumer.Tag, Connection: s.info.Connection, User: s.info.User}
}

// shownBytes is how much a subscription shows at a time, and so reads into memory, unless a single message is larger.
const shownBytes = 8 << 20

// DecodedTimes is how many times its size in bytes a message's properties may take in memory once they are decoded:
// headers are many small values.
const DecodedTimes = 16

// Next waits for messages and returns at most limit of them, or about 8 MiB. When ctx has ended it returns ctx's
// error even if there are messages, because some queues are never empty.
func (s *Subscription) Next(ctx context.Context, limit int) ([]Taken, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		n := min(limit, len(s.waiting))
		batch := slices.Clone(s.waiting[:n])
		s.waiting = slices.Delete(s.waiting, 0, n)
		ended, left := s.ended, len(s.waiting)
		s.mu.Unlock()
		if n > 0 {
			if s.consumer.Prefetch == 0 && left < unsettledLimit/2 {
				s.c.Resume(s.q, &s.consumer)
			}
			if taken, err := s.show(batch); len(taken) > 0 || err != nil {
				return taken, err
			}
			continue // all of them were lost
		}
		if ended != nil {
			return nil, ended
		}
		select {
		case <-s.wakec:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// show reads the first messages of a batch, as many as are shown at a time; the others go on waiting. The results are
// copies, so the references are released. A message that is lost on disk is set aside and left out. If one cannot be
// read for another reason, all go back.
func (s *Subscription) show(batch []queue.Delivery) (taken []Taken, err error) {
	b := s.c.b
	var window bodies.Window
	defer window.Free()
	size := 0
	for i := range batch {
		g := Got{Queue: s.q, Delivery: batch[i]}
		if size += int(batch[i].Size); i > 0 && size > shownBytes {
			batch = s.wait(batch, i)
			break
		}
		var m *Shown
		if err == nil {
			var failed error
			if m, failed = b.shown(&g, &window); failed != nil {
				if b.node.SetAside(s.q, &batch[i], &s.consumer, failed) {
					continue
				}
				err = failed
			}
		}
		t := Taken{delivery: batch[i]}
		if m != nil {
			if size += DecodedTimes * len(m.Properties); i > 0 && size > shownBytes {
				batch = s.wait(batch, i)
				break
			}
			s.c.traceShown(&g, m)
			t.Shown = *m
			t.record, t.Body, t.Properties = nil, slices.Clone(m.Body), slices.Clone(m.Properties)
		}
		taken = append(taken, t)
	}
	for i := range batch {
		b.release(&batch[i])
	}
	if err != nil {
		s.Return(taken)
		return nil, err
	}
	return taken, nil
}

// wait puts the batch from index n on back in front of the waiting messages, and returns the rest.
func (s *Subscription) wait(batch []queue.Delivery, n int) []queue.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.Insert(s.waiting, 0, batch[n:]...)
	return batch[:n]
}

func (b *Broker) release(d *queue.Delivery) {
	b.bodies.Release(d.Body)
	b.bodies.Release(d.History)
}

// Ack settles messages.
func (s *Subscription) Ack(taken []Taken) {
	s.settle(taken, partition.Op{Kind: partition.Ack})
}

// Return puts messages back. It counts as no failure: a target that is full must not kill what waits for it.
func (s *Subscription) Return(taken []Taken) {
	s.settle(taken, partition.Op{Kind: partition.Return, How: queue.ReturnReleased})
}

func (s *Subscription) settle(taken []Taken, op partition.Op) {
	ops := make([]partition.Op, len(taken))
	for i := range taken {
		ops[i] = op
		ops[i].Queue, ops[i].ID, ops[i].Consumer = s.q, taken[i].delivery.ID, &s.consumer
	}
	s.c.Run(ops)
}

// Cancel ends the subscription. Unsettled messages go back to their places.
func (s *Subscription) Cancel() {
	s.c.Quit([]partition.Seat{{Queue: s.q, Consumer: &s.consumer}}, nil)()
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for i := range waiting {
		s.c.b.release(&waiting[i])
	}
}

// PublishAll publishes messages and waits until they are durable. It says of each whether a queue refused it. An
// unroutable message is dropped, or is an error if mandatory is set. After an error, the messages before it are
// published, and the result covers them.
func (c *Connection) PublishAll(list []Publication, mandatory bool) (refused []bool, err error) {
	refused = make([]bool, len(list))
	var ops []partition.Op
	var of []int
	for i := range list {
		p := &list[i]
		var targets []*partition.Queue
		if err = c.Check(p); err == nil {
			targets, err = c.Route(p)
		}
		if err == nil && mandatory && len(targets) == 0 {
			err = fmt.Errorf("no queue for exchange '%s' and key '%s' in vhost '%s'", p.Exchange, p.Key, c.VHost)
		}
		if err != nil {
			refused = refused[:i]
			break
		}
		if len(targets) == 0 {
			c.CountUnroutable(false)
			continue
		}
		ops = append(ops, c.Op(p, targets))
		of = append(of, i)
	}
	if failed := c.Enter(ops); failed != nil {
		return nil, errors.Join(err, failed)
	}
	for k := range ops {
		refused[of[k]] = ops[k].Refused
	}
	return refused, err
}
