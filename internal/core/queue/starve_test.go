package queue

import (
	"fmt"
	"slices"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/sim"
)

// seeds are the seeds of random plays of a queue.
var seeds = sim.SeedFlags(12)

// starving returns a consumer that waits although a message is ready for it, nil if there is none. A queue that has
// more to do (NextDue), or that is hushed, may have one.
func starving(m *Machine, now int64) *Consumer {
	if m.busy || m.cs.hushed > 0 || m.Count.Ready == 0 {
		return nil
	}
	if _, p, ok := m.First(); ok && m.Moment(p) != 0 && m.Moment(p) <= now {
		return nil // it has expired by now
	}
	if b := m.breaker; b != nil && (b.state == BreakerOpen || b.trial != 0) {
		return nil // it gets something when the breaker says so
	}
	takes := func(c *Consumer) bool {
		g, gated := c.Gate.(*gate)
		return c.able() && (c.NoAck || !gated || g.room > 0)
	}
	if !m.cs.single {
		if i := slices.IndexFunc(m.cs.list, takes); i >= 0 {
			return m.cs.list[i]
		}
		return nil
	}
	a := m.cs.active
	for _, c := range m.cs.list {
		if m.config.Type == Quorum && a != nil && m.cs.belongs(c) && c.Priority > a.Priority {
			if a.out > 0 {
				return nil // the active one finishes its deliveries before a better one takes over
			}
			a = c
		}
	}
	if a != nil && takes(a) {
		return a
	}
	return nil
}

// ledger is a queue of any kind with its clients, and a Sink that counts what leaves it.
type ledger struct {
	draw
	nobody
	*Machine
	now    int64
	apsara bool
	breaks bool // its settings have breakers

	consumers []*Consumer
	room      map[*Consumer]int // deliveries until it is paused
	gates     []*gate           // limits that consumers share
	out       []Holding         // deliveries that are not settled
	hushed    int

	refs             message.Ref // the last one given out
	entered, left    int         // number of messages
	delivered, ticks int
	opened           int // how often a breaker did
}

// Deliver implements Sink.
func (q *ledger) Deliver(c *Consumer, d *Delivery) bool {
	q.delivered++
	if d.NoAck {
		q.left++
	} else {
		q.out = append(q.out, Holding{d.ID, c})
	}
	q.room[c]--
	return q.room[c] > 0
}

// Broke implements Sink.
func (q *ledger) Broke(change BreakerChange, _ Broken) {
	if change <= BreakerOpensAgain {
		q.opened++
	}
}

// Removed implements Sink.
func (q *ledger) Removed(ID, message.Ref, message.Ref, bool) { q.left++ }

const (
	ledgers     = 10 // queues of one seed
	ledgerSteps = 400
)

// Queues of any kind, with changing settings, have consumers that share limits, are paused, hushed and detached,
// settle in all ways, and let deliveries time out. After each step the number of messages in the queue is the number
// that entered minus the number that left. Whenever everything is done that NextDue asks for, no consumer lacks a
// message that it could have. Breakers open and close meanwhile.
func TestNobodyStarvesAndEachMessageIsCounted(t *testing.T) {
	seeds.Run(t, "./internal/core/queue", 2, func(_ *testing.T, seed uint64) (sim.Result, error) {
		d, count := drawing(seed), map[string]int{}
		for k := range ledgers {
			q := newLedger(d)
			for step := range ledgerSteps {
				q.now += pick[int64](d, 0, 0, 1, 3)
				q.step()
				err := q.check()
				if err == nil && q.IntN(3) > 0 {
					err = q.work()
				}
				if err != nil {
					return sim.Result{}, fmt.Errorf("queue %d, step %d: %w", k, step, err)
				}
			}
			count["messages"] += q.entered
			count["deliveries"] += q.delivered
			count["ticks"] += q.ticks
			count["opened"] += q.opened
		}
		return sim.Result{Counts: count}, nil
	})
}

func newLedger(d draw) *ledger {
	q := &ledger{draw: d, now: 1_700_000_000_000, apsara: d.IntN(3) == 0, breaks: d.IntN(3) > 0, room: map[*Consumer]int{}}
	config := Config{Type: pick(d, Classic, Quorum), Strict: d.IntN(3) == 0, Durable: true, MaxPriority: pick(d, -1, 3, 9), SingleActive: d.IntN(3) == 0}
	q.Machine = New(config, q.settings(), &Pages{}, q, q.now)
	return q
}

func (q *ledger) settings() Settings {
	s := Settings{
		DeadLetter: q.bool(), TTL: pick[int64](q.draw, -1, -1, 0, 20, 300), Expires: -1,
		MaxLength: pick[int64](q.draw, -1, -1, 0, 2, 10), MaxBytes: pick[int64](q.draw, -1, -1, 50), Overflow: pick(q.draw, DropHead, RejectPublish, RejectPublishDLX),
		DeliveryLimit: pick[int64](q.draw, -1, 2), ConsumerTimeout: pick[int64](q.draw, -1, 100),
		Retry: Retry{Type: pick(q.draw, RetryDisabled, RetryAll, RetryFailed, RetryReturned), Min: pick[int64](q.draw, 0, 5, 50)},
	}
	if q.breaks {
		s.Breaker = pick(q.draw, Breaker{}, Breaker{1, 1, 30}, Breaker{2, 50, 200}, Breaker{3, 30, 100_000})
	}
	if q.apsara {
		s.Rules = deadletter.Rules{Profile: deadletter.ApsaraMQ, MaxHops: 16, Retention: pick[int64](q.draw, 0, 400)}
	}
	return s
}

func (q *ledger) step() {
	switch k := q.IntN(24); {
	case k < 6:
		for range pick(q.draw, 1, 1, 3, 20) {
			q.publish()
		}
	case k < 8:
		if q.IntN(5) == 0 {
			q.ResetBreaker()
		}
		q.attach()
	case k < 9:
		if n := len(q.consumers); n > 0 {
			i := q.IntN(n)
			q.Detach(q.now, q.consumers[i])
			q.consumers = slices.Delete(q.consumers, i, i+1)
			q.Pump(q.now, sliceLimit)
		}
	case k < 15:
		for range 1 + q.IntN(5) {
			q.settle()
		}
		for _, g := range q.gates {
			q.Open(g) // it may have room again
		}
		q.Pump(q.now, sliceLimit)
	case k < 18:
		q.get()
	case k < 20:
		q.resume()
	case k < 21:
		q.hush()
	case k < 22:
		q.Configure(q.now, q.settings())
		q.Trim(q.now, sliceLimit)
	case k < 23:
		for _, d := range q.Deaths(5, nil) {
			if q.IntN(3) == 0 {
				q.Hold(d.ID)
			} else if _, _, ok := q.Bury(d.ID); ok {
				q.left++
			}
		}
	default:
		q.now += pick[int64](q.draw, 1, 10, 100)
	}
}

func (q *ledger) publish() {
	q.refs++
	e := Entry{Content: Content{Body: q.refs, Size: q.Uint32N(20), Logged: true}, Priority: q.IntN(5) - 1, TTL: pick[int64](q.draw, -1, -1, 0, 1, 30, 500)}
	switch q.IntN(6) {
	case 0:
		e.Delay = pick[int64](q.draw, 1, 30, 200)
	case 1:
		e.Redelivered, e.Counts.Deliveries = true, 1
	}
	enter := pick(q.draw, q.Enqueue, q.Enqueue, q.Enqueue, q.Enqueue, q.Force, q.Impose)
	if id, result := enter(q.now, &e); result != Refused {
		q.entered++
		q.Flow(q.now, id)
	}
}

func (q *ledger) attach() {
	if len(q.consumers) == 6 {
		return
	}
	c := &Consumer{Tag: "t", NoAck: q.IntN(4) == 0, Prefetch: q.IntN(4), Priority: q.Int64N(2), Timeout: pick[int64](q.draw, 0, 0, 60)}
	if q.config.Type == Classic && q.IntN(3) == 0 && !c.NoAck {
		if len(q.gates) == 0 || q.bool() {
			q.gates = append(q.gates, &gate{q.IntN(4)})
		}
		c.Gate = pick(q.draw, q.gates...)
	}
	q.room[c] = 1 + q.IntN(20)
	if q.Attach(q.now, c) {
		q.consumers = append(q.consumers, c)
		q.Pump(q.now, sliceLimit)
	}
}

// settle settles one of the deliveries, perhaps of a detached consumer.
func (q *ledger) settle() {
	if len(q.out) == 0 {
		return
	}
	i := q.IntN(len(q.out))
	h := q.out[i]
	q.out = slices.Delete(q.out, i, i+1)
	if h.By != nil && h.By.Gate != nil {
		h.By.Gate.(*gate).room++
	}
	switch q.IntN(4) {
	case 0:
		q.Ack(q.now, h.ID, h.By)
	case 1:
		q.Reject(q.now, h.ID, h.By, q.bool())
	default:
		q.Return(q.now, h.ID, h.By, ReturnKind(q.IntN(int(ReturnFailed)+1)))
	}
	q.Flow(q.now, 0)
}

func (q *ledger) get() {
	noAck := q.bool()
	switch d, ok := q.Get(q.now, noAck); {
	case ok && noAck:
		q.left++
	case ok:
		q.out = append(q.out, Holding{d.ID, nil})
	}
	if q.bool() {
		q.Expire(q.now) // as when somebody looks at the counters
	}
}

// resume resumes some of the paused consumers.
func (q *ledger) resume() {
	for _, c := range q.consumers {
		if q.room[c] <= 0 && q.bool() {
			q.room[c] = 1 + q.IntN(10)
			q.Resume(c)
			q.Pump(q.now, sliceLimit)
		}
	}
}

func (q *ledger) hush() {
	switch {
	case q.hushed < 2 && q.bool():
		q.Hush()
		q.hushed++
	case q.hushed > 0:
		q.Speak()
		q.hushed--
		q.Flow(q.now, 0)
	}
}

// work does what is due, as the worker of a partition.
func (q *ledger) work() error {
	for n := 0; q.NextDue() <= q.now; n++ {
		if n == 1000 {
			return fmt.Errorf("a tick is due for ever, at %d", q.NextDue())
		}
		q.Tick(q.now, sliceLimit)
		q.ticks++
	}
	if c := starving(q.Machine, q.now); c != nil {
		return fmt.Errorf("%d messages are ready, nothing is due, and a consumer waits: %+v", q.Count.Ready, *c)
	}
	return nil
}

// check looks for faults, and for each message that entered.
func (q *ledger) check() error {
	if err := q.Check(); err != nil {
		return err
	}
	n := q.Count
	there := n.Ready + n.Out + n.Delayed + n.Dying + n.Held + n.Offered
	if q.entered != there+q.left {
		return fmt.Errorf("%d messages entered, %d are there (%+v), %d have left", q.entered, there, n, q.left)
	}
	return nil
}
