package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/sim"
)

const (
	killedNodes = 8   // of one seed
	killedSteps = 200 // of one node
	killedEvery = 25  // number of steps after which it is killed
)

// killedRoutes sends the dead of each queue to others, and those of the last one back to itself.
var killedRoutes = table{"to b": {"b"}, "to c and d": {"c", "d"}, "to d": {"d"}}

// killed is a node with classic queues. Again and again the test looks at what a start after a kill would find; the
// node itself goes on.
type killed struct {
	t      *testing.T
	rng    *rand.Rand
	apsara bool // queues follow ApsaraMQ's rules
	defs   []definition
	w      *world

	serial     message.Serial
	persistent map[message.Serial]bool
	clients    []*livesClient
	out        []outstanding // deliveries that are not settled
	log        []string
	count      map[string]int
}

// Classic queues of several kinds: with and without ApsaraMQ's rules, with priorities, delays, retries, replays, and
// dead letters at most once and at least once. Their pages are put away and saved. A persistent message that is
// neither out nor dead at a kill is the same afterwards in each field. No message is where it was not before.
func TestAClassicQueueIsAfterAKillWhatItWas(t *testing.T) {
	seeds.Run(t, "./internal/run/partition", 1, func(t *testing.T, seed uint64) (sim.Result, error) {
		rng, count := rand.New(rand.NewPCG(seed, 3)), map[string]int{}
		for k := 0; k < killedNodes && !t.Failed(); k++ {
			x := newKilled(t, rng, k%3 > 0, count)
			for i := range killedSteps {
				x.step()
				x.w.settle()
				if i%killedEvery == killedEvery-1 && !t.Failed() {
					x.kill()
				}
			}
			x.w.close()
			count["messages"] += int(x.serial)
		}
		return sim.Result{Counts: count}, nil
	})
}

func newKilled(t *testing.T, rng *rand.Rand, apsara bool, count map[string]int) *killed {
	x := &killed{t: t, rng: rng, apsara: apsara, persistent: map[message.Serial]bool{}, count: count}
	x.defs = []definition{
		{"a", classic, x.settings(true), DeadLetter{Exchange: "to b"}},
		{"b", queue.Config{Durable: true, MaxPriority: 3}, x.settings(true), DeadLetter{Exchange: "to c and d"}},
		{"c", classic, x.settings(true), DeadLetter{Exchange: "to d"}},
		{"d", queue.Config{Durable: true, MaxPriority: -1, SingleActive: true}, x.settings(false), DeadLetter{}},
	}
	x.w = open(t, vfs.NewCrashableMem(), x.defs, killedRoutes, 1_700_000_000_000, nil)
	x.w.lenient.Store(true)
	return x
}

const killedDay = 24 * livesHour

func (x *killed) pick(of ...int64) int64 { return of[x.rng.IntN(len(of))] }

func (x *killed) settings(dead bool) queue.Settings {
	return settings(func(s *queue.Settings) {
		s.DeadLetter = dead
		s.TTL, s.MaxLength, s.Overflow = x.pick(-1, -1, 0, 5, 100, 2000, 60*killedDay), x.pick(-1, -1, -1, 5, 20), queue.Overflow(x.pick(int64(queue.RejectPublish), int64(queue.RejectPublishDLX)))
		s.Retry = queue.Retry{
			Type: []queue.RetryType{queue.RetryDisabled, queue.RetryAll, queue.RetryFailed, queue.RetryReturned}[x.rng.IntN(4)],
			Min:  x.pick(0, 20, 300, 51*killedDay), Max: x.pick(0, 1000),
		}
		s.DeliveryLimit, s.ConsumerTimeout = x.pick(-1, 1, 3), x.pick(-1, 50, 500)
		if x.rng.IntN(3) == 0 {
			s.Breaker = queue.Breaker{Deaths: 2, Percent: 20, Window: x.pick(50, 1000)}
		}
		s.AtLeastOnce = !x.apsara && x.rng.IntN(3) == 0
		if x.apsara {
			s.Rules = deadletter.Rules{
				Profile: deadletter.ApsaraMQ, MaxHops: 16, ExpireDead: x.rng.IntN(2) == 0, Retention: x.pick(0, 3000, 70*killedDay), LimitReason: "l",
			}
		}
	})
}

func (x *killed) anyQueue() *Queue { return x.w.queues[x.defs[x.rng.IntN(len(x.defs))].name] }

func (x *killed) note(format string, args ...any) {
	x.log = append(x.log, fmt.Sprintf("at %d: %s", x.w.now, fmt.Sprintf(format, args...)))
}

func (x *killed) step() {
	switch k := x.rng.IntN(20); {
	case k < 6:
		x.publish()
	case k < 8:
		x.attach()
	case k < 9:
		x.quit()
		for _, c := range x.clients {
			x.grant(c)
		}
	case k < 11:
		x.get()
	case k < 15:
		x.settle()
	case k < 18:
		x.w.now += x.pick(1, 10, 50, 200, 1000)
	case k < 19:
		x.manage()
	default:
		if x.rng.IntN(2) == 0 {
			x.w.putAway(true)
		}
		if err := x.w.n.Checkpoint(); err != nil {
			x.t.Error(err)
		}
	}
}

func (x *killed) publish() {
	ops := make([]Op, 1+x.rng.IntN(6))
	for i := range ops {
		x.serial++
		persistent := x.rng.IntN(6) > 0
		x.persistent[x.serial] = persistent
		ops[i] = Op{
			Kind: Publish, Targets: []*Queue{x.anyQueue()}, TTL: x.pick(-1, -1, 0, 3, 50, 1000, 70*killedDay), Priority: x.rng.IntN(6) - 1,
			Body: x.w.record(x.serial, persistent, x.rng.IntN(300)),
		}
		if x.apsara && x.rng.IntN(3) == 0 {
			ops[i].Delay = x.pick(1, 40, 500, 60*killedDay)
		}
		x.note("publish %d to %s, ttl %d, delay %d", x.serial, ops[i].Targets[0].Name, ops[i].TTL, ops[i].Delay)
	}
	x.w.n.Run(ops)
}

func (x *killed) attach() {
	if len(x.clients) == 5 {
		return
	}
	c := &livesClient{q: x.anyQueue(), s: &client{}}
	c.c = &queue.Consumer{Target: c.s, Tag: "t", Prefetch: x.rng.IntN(6), NoAck: x.rng.IntN(8) == 0, Priority: x.rng.Int64N(2)}
	if x.rng.IntN(3) == 0 {
		c.c.Credited, c.c.Prefetch = true, 0
	}
	if ok, err := x.w.n.Attach(c.q, c.c, func() {}); ok && err == nil { // otherwise another consumer is the only one
		x.clients = append(x.clients, c)
		x.grant(c)
	}
}

// grant gives a client that gives credit some more, or less, and may drain its queue.
func (x *killed) grant(c *livesClient) {
	if !c.c.Credited {
		return
	}
	more, drain := x.rng.IntN(12)-2, x.rng.IntN(3) == 0
	x.note("credit for %s: %d, drain %t", c.q.Name, more, drain)
	if _, _, err := x.w.n.Grant(c.q, c.c, more, drain); err != nil {
		x.t.Error(err)
	}
}

func (x *killed) quit() {
	if len(x.clients) == 0 {
		return
	}
	k := x.rng.IntN(len(x.clients))
	c := x.clients[k]
	x.clients = slices.Delete(x.clients, k, k+1)
	x.w.n.Quit([]Seat{{c.q, c.c}}, nil)()
}

func (x *killed) get() {
	q := x.anyQueue()
	d, _, ok, err := x.w.n.Get(q, x.rng.IntN(5) == 0)
	if err != nil {
		x.t.Error(err)
	}
	if ok && !d.NoAck {
		x.out = append(x.out, outstanding{q: q, d: d})
	}
}

// settle settles some deliveries in any way, including deliveries that were taken back.
func (x *killed) settle() {
	for _, c := range x.clients {
		for _, o := range c.s.take() {
			if !o.d.NoAck {
				o.d.By = c.c
				x.out = append(x.out, o)
			}
		}
	}
	for range x.rng.IntN(1 + min(len(x.out), 5)) {
		k := x.rng.IntN(len(x.out))
		o := x.out[k]
		x.out = slices.Delete(x.out, k, k+1)
		op := Op{Queue: o.q, ID: o.d.ID, Consumer: o.d.By}
		switch x.rng.IntN(5) {
		case 0:
			op.Kind = Ack
		case 1, 2:
			op.Kind, op.Failed = Reject, x.rng.IntN(2) == 0
		default:
			op.Kind, op.How = Return, queue.ReturnKind(x.pick(int64(queue.ReturnNack), int64(queue.ReturnReject), int64(queue.ReturnRecover), int64(queue.ReturnClosed), int64(queue.ReturnReleased), int64(queue.ReturnFailed)))
		}
		if op.Kind != Ack && x.rng.IntN(2) == 0 {
			op.Note, op.Wait = &deadletter.Note{Cause: deadletter.Cause{User: "u", Error: fmt.Sprint(op.ID)}}, x.pick(0, 1, 1000)
			x.count["noted"]++
		}
		x.note("settle %d of %s by %d, %d, wait %d", op.ID, op.Queue.Name, op.Kind, op.How, op.Wait)
		x.w.n.Run([]Op{op})
	}
}

// manage does what an operator does: held deaths are retried, a queue is purged, messages are replayed.
func (x *killed) manage() {
	x.w.n.RetryAllHeld()
	if x.rng.IntN(6) == 0 {
		q := x.anyQueue()
		x.note("purge %s", q.Name)
		if _, err := x.w.n.Purge(q); err != nil {
			x.t.Error(err)
		}
	}
	if x.rng.IntN(3) > 0 {
		return
	}
	from := x.anyQueue()
	var moves []Move
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: from.Name}
	_, _, err := x.w.n.Browse(from, queue.Cursor{}, 5, func(v queue.View, _ message.Record, _ []byte) bool {
		moves = append(moves, Move{ID: v.ID, Targets: []*Queue{x.anyQueue()}, History: h.Append(nil)})
		return true
	})
	if err == nil && len(moves) > 0 {
		x.note("replay %d of %s", len(moves), from.Name)
		_, err = x.w.n.Move(context.Background(), from, moves)
	}
	if err != nil {
		x.t.Error(err)
	}
}

// kill looks at what a start after a kill finds.
func (x *killed) kill() {
	if err := x.w.j.Sync(); err != nil {
		x.t.Fatal(err)
	}
	was := x.w.find()
	again := newWorld(x.t, x.w.fs.CrashClone(vfs.CrashCloneCfg{}), x.defs, killedRoutes, x.w.now, nil)
	again.lenient.Store(true)
	if err := again.n.Recover(); err != nil {
		x.t.Fatal(err)
	}
	is := again.find()
	var wrong []string
	for s, places := range was {
		if !x.persistent[s] {
			continue
		}
		for _, p := range places {
			if passes(p) {
				continue
			}
			x.count["compared"]++
			if now, ok := p.in(is[s]); !ok || !p.equal(now) {
				wrong = append(wrong, fmt.Sprintf("message %d was %v %+v, and is in %v", s, p, p.history, is[s]))
			}
		}
	}
	for s, places := range is {
		if len(places) > len(was[s]) && !slices.ContainsFunc(was[s], passes) {
			wrong = append(wrong, fmt.Sprintf("message %d was in %v, and is in %v", s, was[s], places))
		}
	}
	if len(wrong) > 0 {
		x.t.Errorf("%s\nafter\n%s", strings.Join(wrong, "\n"), strings.Join(x.log[max(0, len(x.log)-10):], "\n"))
	}
	again.settle()
	again.check(0)
	again.close()
	x.count["kills"]++
}

// passes says whether a kill changes what a message is: a delivery comes back, and a dead message goes on.
func passes(p place) bool { return p.view.Out || p.view.Dead }

// in finds the same entry.
func (p place) in(list []place) (place, bool) {
	k := slices.IndexFunc(list, func(o place) bool { return o.queue == p.queue && o.view.ID == p.view.ID })
	if k < 0 {
		return place{}, false
	}
	return list[k], true
}

// equal compares two states of the same entry. The place of its bytes does not matter, and earlier deliveries are not
// recorded.
func (p place) equal(o place) bool {
	a, b := p.view, o.view
	a.Body, a.History, a.Redelivered = b.Body, b.History, b.Redelivered
	return a == b && reflect.DeepEqual(p.history, o.history)
}
