package partition

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/sim"
)

// fanQueue is a queue in one of the three logs of a node: that of classic queues (0), or of one of two groups.
type fanQueue struct {
	definition
	log uint64
}

// fanTargets are the targets of the dead letters of all variants. Clients drain "td" and "te", which are small and
// refuse more; "tx" and "ty" are deleted and made again.
var fanTargets = []fanQueue{
	fanTarget("ta", classic, 0, -1), fanTarget("tb", quorum, 1, -1), fanTarget("tc", quorum, 2, -1),
	fanTarget("td", classic, 0, 12), fanTarget("te", quorum, 1, 12),
	fanTarget("tx", classic, 0, -1), fanTarget("ty", quorum, 2, -1),
}

var fanRoutes = table{
	"all": {"ta", "tb", "tc", "td", "te", "tx", "ty"}, "large": {"tc", "tb", "ta", "ty", "tx"}, "to tx": {"tx"}, "to ty": {"ty"},
}

func fanTarget(name string, config queue.Config, log uint64, limit int64) fanQueue {
	return fanQueue{definition{name, config, settings(func(s *queue.Settings) {
		s.MaxLength, s.Overflow = limit, queue.RejectPublish
	}), DeadLetter{}}, log}
}

func fanSource(name string, config queue.Config, log uint64, exchange string, strategy Strategy) fanQueue {
	return fanQueue{definition{name, config, settings(func(s *queue.Settings) {
		s.DeadLetter, s.AtLeastOnce = true, strategy == AtLeastOnce
	}), DeadLetter{Exchange: exchange}}, log}
}

// fanVariant says where messages begin, what is done with them besides letting them die, and where they may be then.
type fanVariant struct {
	name    string
	sources []fanQueue
	toggled []string // sources that are switched between at least once and at most once
	also    func(x *fan)
	wrong   func(x *fan, m fanned, f *fanPlaces) string
}

var (
	fanStrict       = queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1, Strict: true}
	fanSingle       = queue.Config{Type: queue.Quorum, Durable: true, MaxPriority: -1, SingleActive: true}
	fanPriorities   = queue.Config{Strict: true, Durable: true, MaxPriority: 5}
	fanDeadVariants = []fanVariant{
		{
			name: "to several",
			sources: []fanQueue{
				fanSource("r1", classic, 0, "all", AtLeastOnce), fanSource("r2", fanStrict, 1, "all", AtLeastOnce),
				fanSource("r3", fanSingle, 2, "large", AtMostOnce), fanSource("r4", fanPriorities, 0, "large", AtMostOnce),
				fanSource("r5", classic, 0, "all", AtLeastOnce), fanSource("r6", fanStrict, 2, "all", AtLeastOnce),
			},
			toggled: []string{"r5", "r6"},
			also:    func(x *fan) { x.w.n.RetryAllHeld() },
			wrong:   (*fan).wrongOfSeveral,
		},
		{
			name: "to one",
			sources: []fanQueue{
				fanSource("s1", classic, 0, "to ty", AtMostOnce), fanSource("s2", quorum, 1, "to tx", AtMostOnce),
				fanSource("s3", quorum, 2, "to tx", AtMostOnce), fanSource("s4", classic, 0, "to ty", AtLeastOnce),
				fanSource("s5", quorum, 1, "to ty", AtLeastOnce),
			},
			also:  (*fan).relocate,
			wrong: (*fan).wrongOfOne,
		},
		{
			name: "replayed to several",
			sources: []fanQueue{
				fanSource("m1", classic, 0, "all", AtLeastOnce), fanSource("m2", quorum, 1, "all", AtLeastOnce),
				fanSource("m3", quorum, 2, "large", AtMostOnce),
			},
			also:  (*fan).replay,
			wrong: (*fan).wrongOfReplayed,
		},
	}
)

const (
	fanLives = 6   // the last of them only looks
	fanSteps = 120 // in one life
)

// Dead letters go from queues of three logs to several queues of all logs. Some targets are full; some are deleted
// while copies are on their way, and made anew. Or they go to one target, which is deleted, so that they are stranded
// and relocated. Or messages are replayed to several queues. Meanwhile the node crashes at every point. Then each
// confirmed message is once in each place where it must be and nowhere twice, nothing that has a place to go is stuck
// in an outbox or stranded, and counters agree. The goroutines do not follow the seed: a failure may need -count to
// appear again.
func TestDeadLettersToSeveralLogs(t *testing.T) {
	for _, v := range fanDeadVariants {
		t.Run(v.name, func(t *testing.T) {
			seeds.Run(t, "./internal/run/partition", 1, func(t *testing.T, seed uint64) (sim.Result, error) {
				x := newFan(t, &v, seed)
				for x.life = 1; x.life <= fanLives && !t.Failed(); x.life++ {
					x.live()
				}
				x.count["messages"] = int(x.serial)
				return sim.Result{Counts: x.count}, nil
			})
		})
	}
}

// fan is a node that is started again and again on one disk.
type fan struct {
	*fanVariant
	t      *testing.T
	rng    *rand.Rand // what clients do, and when the node crashes
	disk   *rand.Rand // what a crash leaves of what was not synced
	fs     *vfs.MemFS
	clock  atomic.Int64
	queues []fanQueue // with the present settings

	life    int
	ended   string // how the last life ended
	steps   int
	serial  message.Serial
	last    uint64                             // the last incarnation
	since   map[string]int                     // the step at which a target was last made or deleted
	drained map[message.Serial]map[string]bool // copies that clients have taken
	log     []string                           // the last steps
	count   map[string]int

	// Of the present life.
	w     *mailWorld
	r     *fanRouter
	moves sync.WaitGroup

	// Guarded by mu.
	mu    sync.Mutex
	now   fanState
	then  fanState   // at the crash
	left  *vfs.MemFS // by the crash; nil: it has not happened yet
	point string     // where it happens
	times int        // how often that point is passed before; 0: it is not time yet
}

// fanState is what a crash takes back.
type fanState struct {
	known map[message.Serial]fanned // confirmed messages
	made  map[string]uint64         // the existing queues and their incarnations
}

func (s fanState) clone() fanState { return fanState{maps.Clone(s.known), maps.Clone(s.made)} }

// fanned is a message as it was published.
type fanned struct {
	serial message.Serial
	source string
	step   int
}

// fanPlaces is where a message was found.
type fanPlaces struct {
	in   map[string]int // queues, and how often
	held bool           // in its source, until its targets have it
}

func (f *fanPlaces) total() (n int) {
	for _, k := range f.in {
		n += k
	}
	return n
}

// fanRouter keeps its own list of queues: they are deleted while something is routed.
type fanRouter struct {
	*mailWorld
	mu     sync.Mutex
	byName map[string]*Queue
}

// RouteDead implements Router.
func (r *fanRouter) RouteDead(_ *Queue, exchange string, _ []string, _ message.Record, _ *deadletter.History, out []*Queue) ([]*Queue, bool, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.routes[exchange] {
		if q := r.byName[name]; q != nil {
			out = append(out, q)
		}
	}
	return out, true, true
}

func (r *fanRouter) set(name string, q *Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[name] = q; q == nil {
		delete(r.byName, name)
	}
}

func newFan(t *testing.T, v *fanVariant, seed uint64) *fan {
	x := &fan{
		fanVariant: v, t: t, rng: rand.New(rand.NewPCG(seed, 1)), disk: rand.New(rand.NewPCG(seed, 2)), fs: vfs.NewCrashableMem(),
		queues: slices.Concat(v.sources, fanTargets), since: map[string]int{}, drained: map[message.Serial]map[string]bool{}, count: map[string]int{},
		now: fanState{map[message.Serial]fanned{}, map[string]uint64{}}, ended: "nothing",
	}
	x.clock.Store(livesBegin)
	for _, q := range x.queues {
		x.last++
		x.now.made[q.name] = x.last
	}
	return x
}

// live plays one life.
func (x *fan) live() {
	points := slices.Concat(Failpoints, cluster.Failpoints, journal.Failpoints)
	x.mu.Lock()
	x.point, x.times, x.left = points[x.rng.IntN(len(points))], 0, nil
	x.mu.Unlock()
	x.start()
	x.verify()
	if x.life == fanLives || x.t.Failed() {
		x.w.stop()
		return
	}
	x.mu.Lock()
	x.times = 1 + x.rng.IntN(60)
	x.mu.Unlock()
	for i := 0; i < fanSteps && !x.over() && !x.t.Failed(); i++ {
		x.step()
	}
	x.mu.Lock()
	x.ended = "a crash at " + x.point
	if x.left == nil {
		x.ended = "a crash at the end"
		x.crash()
	}
	x.mu.Unlock()
	x.moves.Wait()
	x.w.stop()
	x.fs, x.now = x.left, x.then
	x.count[x.ended]++
}

// at crashes the node if it is time. The node goes on, but nothing of that is ever seen.
func (x *fan) at(point string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if point != x.point || x.times == 0 {
		return
	}
	if x.times--; x.times == 0 && x.left == nil {
		x.crash()
	}
}

// crash notes what a crash now would leave, and what is known now. REQUIRES: mu is held.
func (x *fan) crash() { x.left, x.then = crash(x.fs, x.disk), x.now.clone() }

// over says whether the node has crashed.
func (x *fan) over() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.left != nil
}

func (x *fan) start() {
	x.w = openMail(x.t, x.fs, uint64(x.life), x.at, fanRoutes, func(w *mailWorld) { w.now = x.clock.Load })
	x.w.drops.Store(true)
	x.w.n.Budget.Bodies, x.w.n.DeadLettering.RetryEvery = 1<<13, time.Hour
	x.r = &fanRouter{mailWorld: x.w, byName: map[string]*Queue{}}
	x.w.n.Router = x.r
	for _, q := range x.queues {
		if incarnation := x.now.made[q.name]; incarnation != 0 {
			x.create(q.name, incarnation)
		}
	}
	x.w.start()
}

func (x *fan) definition(name string) *fanQueue {
	return &x.queues[slices.IndexFunc(x.queues, func(q fanQueue) bool { return q.name == name })]
}

func (x *fan) create(name string, incarnation uint64) {
	d := x.definition(name)
	q := &Queue{Incarnation: incarnation, VHost: "/", Name: name, Durable: true, Group: d.log}
	x.w.n.Create(q, d.config, d.settings, d.dead)
	x.w.queues[name] = q
	x.r.set(name, q)
}

// must checks for an error, of which there must be none.
func (x *fan) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Errorf("life %d: %v", x.life, err)
	}
}

// step does something at random.
func (x *fan) step() {
	x.steps++
	source, k := x.sources[x.rng.IntN(len(x.sources))].name, x.rng.IntN(100)
	x.log = append(x.log[max(0, len(x.log)-30):], fmt.Sprintf("%s:%d", source, k))
	n := x.w.n
	switch {
	case k < 25:
		x.publish(source)
	case k < 55:
		x.reject(x.w.queues[source])
	case k < 65:
		x.drain([]string{"td", "te"}[x.rng.IntN(2)])
	case k < 72:
		if len(x.toggled) > 0 {
			d := x.definition(x.toggled[x.rng.IntN(len(x.toggled))])
			d.settings.AtLeastOnce = !d.settings.AtLeastOnce
			n.Configure(x.w.queues[d.name], d.settings, d.dead)
		}
	case k < 80:
		x.must(n.Checkpoint())
	case k < 83:
		_, err := n.Compact()
		x.must(err)
	case k < 90:
		x.clock.Add(int64(x.rng.IntN(100)))
	case k < 93:
		x.passQueue([]string{"tx", "ty"}[x.rng.IntN(2)])
	case k < 95:
		n.SettleAll()
		x.must(x.w.j.Sync())
	default:
		x.also(x)
	}
}

// publish publishes some messages and waits for the confirms.
func (x *fan) publish(source string) {
	var ops []Op
	for range 1 + x.rng.IntN(6) {
		x.serial++
		size := []int{64, 64, 64, 64, 64, 64, 64, 64, 0, 5000}[x.rng.IntN(10)]
		op := Op{Kind: Publish, Targets: []*Queue{x.w.queues[source]}, Body: x.w.disk.record(x.serial, true, size), TTL: -1, Priority: x.rng.IntN(6) - 1}
		if x.rng.IntN(5) == 0 {
			op.TTL = int64(x.rng.IntN(100))
		}
		ops = append(ops, op)
	}
	x.must(x.w.n.Enter(ops))
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, op := range ops {
		if s := x.serial - message.Serial(len(ops)-1-i); !op.Refused {
			x.now.known[s] = fanned{s, source, x.steps}
		}
	}
}

// get gets a message, and returns its serial too.
func (x *fan) get(q *Queue, noAck bool) (d queue.Delivery, s message.Serial, ok bool) {
	n := x.w.n
	d, _, ok, err := n.Get(q, noAck)
	x.must(err)
	if !ok || err != nil {
		return d, 0, false
	}
	record, err := n.bodies.Warm(d.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	s = message.Record(n.bodies.Bytes(record)).Serial()
	n.bodies.Release(record)
	n.bodies.Release(d.History)
	return d, s, true
}

// reject gets some messages and rejects most of them.
func (x *fan) reject(q *Queue) {
	var ops []Op
	for range 1 + x.rng.IntN(8) {
		d, _, ok := x.get(q, false)
		if !ok {
			break
		}
		kind := Reject
		if x.rng.IntN(5) == 0 {
			kind = Return
		}
		ops = append(ops, Op{Kind: kind, Queue: q, ID: d.ID, Consumer: d.By})
	}
	if x.rng.IntN(4) == 0 {
		x.must(x.w.n.RunWhole(ops))
	} else {
		x.must(x.w.n.Await(x.w.n.Run(ops)))
	}
}

// drain takes copies out of a queue.
func (x *fan) drain(target string) {
	for range 1 + x.rng.IntN(15) {
		_, s, ok := x.get(x.w.queues[target], true)
		if !ok {
			return
		}
		if x.drained[s] == nil {
			x.drained[s] = map[string]bool{}
		}
		x.drained[s][target] = true
	}
}

// passQueue deletes a target, or makes it again.
func (x *fan) passQueue(name string) {
	x.since[name] = x.steps
	q := x.w.queues[name]
	if q == nil {
		x.mu.Lock()
		x.last++
		x.now.made[name] = x.last
		x.mu.Unlock()
		x.create(name, x.last)
		return
	}
	x.r.set(name, nil)
	before, err := x.w.n.Delete(q, nil)
	x.must(err)
	x.must(x.w.j.Sync())
	x.mu.Lock()
	delete(x.now.made, name)
	x.mu.Unlock()
	delete(x.w.queues, name)
	x.w.n.Deleted(q, before)
	x.count["deletions"]++
}

// relocate relocates stranded messages, or tries their exchange again.
func (x *fan) relocate() {
	if x.rng.IntN(2) == 0 {
		x.w.n.RetryAllHeld()
		return
	}
	var to *Queue
	if x.rng.IntN(2) == 0 {
		to = x.w.queues[[]string{"s1", "s2", "ta", "tb", "tc", "td", "te"}[x.rng.IntN(7)]]
	}
	_, err := x.w.n.Relocate(context.Background(), Relocation{VHost: "/", Target: to, Limit: x.rng.IntN(10)})
	x.must(err)
}

// replay moves messages from the front of a source to several queues, while other things happen.
func (x *fan) replay() {
	q := x.w.queues[x.sources[x.rng.IntN(len(x.sources))].name]
	var to []*Queue
	for _, name := range [][]string{{"ta", "tb", "tc"}, {"tb", "tc"}, {"tc"}, {"ta"}, {"tb", "tc", "ta", "td", "te"}, {"tx", "ty", "ta"}}[x.rng.IntN(6)] {
		if x.w.queues[name] != nil {
			to = append(to, x.w.queues[name])
		}
	}
	var moves []Move
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: q.Name}
	_, _, err := x.w.n.Browse(q, queue.Cursor{}, 1+x.rng.IntN(40), func(v queue.View, _ message.Record, _ []byte) bool {
		moves = append(moves, Move{ID: v.ID, Targets: to, History: h.Append(nil)})
		return true
	})
	x.must(err)
	if len(moves) == 0 {
		return
	}
	n := x.w.n
	x.moves.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := n.Move(ctx, q, moves)
		x.must(err)
	})
}

// verify waits until messages are where they must be.
func (x *fan) verify() {
	x.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		wrong := x.look()
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			x.t.Errorf("life %d, after %s, the last steps %v:\n%s", x.life, x.ended, x.log, strings.Join(wrong[:min(len(wrong), 20)], "\n"))
			return
		}
	}
}

// look finds messages in wrong places.
func (x *fan) look() (wrong []string) {
	n := x.w.n
	for _, o := range n.Outboxes() {
		if o.Waiting > 0 {
			return []string{fmt.Sprintf("an outbox: %+v", o)}
		}
	}
	if x.w.queues["tx"] != nil && x.w.queues["ty"] != nil && n.Stranded() > 0 {
		n.RetryAllHeld()
		return []string{fmt.Sprintf("%d are stranded, and each has a queue to go to", n.Stranded())}
	}
	found := map[message.Serial]*fanPlaces{}
	for _, name := range slices.Sorted(maps.Keys(x.w.queues)) {
		c := n.Counts(x.w.queues[name])
		if c.Dying > 0 || c.Transit > 0 {
			return []string{fmt.Sprintf("queue %s has %+v, %d in transit and %d stranded", name, c.Totals, c.Transit, c.Stranded)}
		}
		if n := x.browse(name, found); n+c.Stranded != c.Messages() {
			wrong = append(wrong, fmt.Sprintf("queue %s has %d messages, and says %+v", name, n, c))
		}
	}
	for _, s := range slices.Sorted(maps.Keys(x.now.known)) {
		m, f := x.now.known[s], found[s]
		if f == nil {
			f = &fanPlaces{}
		}
		what := x.wrong(x, m, f)
		for name, n := range f.in {
			if n > 1 {
				what += fmt.Sprintf(" %d times in %s", n, name)
			}
		}
		if what != "" {
			wrong = append(wrong, fmt.Sprintf("message %d of %s, published in step %d: found in %v, held %t, drained from %v:%s", s, m.source, m.step, f.in, f.held, x.drained[s], what))
		}
	}
	return wrong
}

// browse adds the messages of a queue to found, and returns how many there are.
func (x *fan) browse(name string, found map[message.Serial]*fanPlaces) (n int) {
	var cursor queue.Cursor
	for done := false; !done; {
		var err error
		cursor, done, err = x.w.n.Browse(x.w.queues[name], cursor, 256, func(v queue.View, r message.Record, _ []byte) bool {
			s := r.Serial()
			for _, b := range r.Body() {
				if b != byte(s) {
					x.t.Fatalf("life %d: message %d in %s has another's body", x.life, s, name)
				}
			}
			f := found[s]
			if f == nil {
				f = &fanPlaces{in: map[string]int{}}
				found[s] = f
			}
			n++
			f.in[name]++
			f.held = f.held || v.Held != 0
			return true
		})
		if err != nil {
			x.t.Fatal(err)
		}
	}
	return n
}

// wrongOfSeveral: the message is in its source, and nowhere else unless it is held there; or it is in all its
// targets, except those deleted since it was published, those that were drained, and those that may have refused it
// since it died at most once.
func (x *fan) wrongOfSeveral(m fanned, f *fanPlaces) (wrong string) {
	if f.in[m.source] > 0 {
		if !f.held && f.total() > 1 {
			return " ready in its source, and elsewhere"
		}
		return ""
	}
	d := x.definition(m.source)
	for _, name := range fanRoutes[d.dead.Exchange] {
		must := true
		switch name {
		case "td", "te":
			must = !slices.Contains(x.toggled, m.source) && !x.drained[m.serial][name]
		case "tx", "ty":
			must = x.lasts(name, m)
		}
		if must && f.in[name] == 0 {
			wrong += " not in " + name
		}
	}
	return wrong
}

// lasts says whether a target has existed since the message was published.
func (x *fan) lasts(target string, m fanned) bool {
	return x.now.made[target] != 0 && x.since[target] < m.step
}

// wrongOfOne: the message is in one place, unless it was drained from where it was relocated to, or its target was
// deleted since it was published.
func (x *fan) wrongOfOne(m fanned, f *fanPlaces) string {
	target := fanRoutes[x.definition(m.source).dead.Exchange][0]
	switch n := f.total(); {
	case n == 2 && f.held && f.in[m.source] == 1:
		// A deleted target was asked as well: the message is buried at the next retry.
		x.w.n.RetryAllHeld()
		return " in its target, and held"
	case n > 1:
		return " more than once"
	case n == 0 && x.lasts(target, m) && len(x.drained[m.serial]) == 0:
		return " lost"
	}
	return ""
}

// wrongOfReplayed: the message is somewhere, or was drained. If it is in its source, it is nowhere else unless it is
// held there.
func (x *fan) wrongOfReplayed(m fanned, f *fanPlaces) string {
	switch n := f.total(); {
	case n == 0 && len(x.drained[m.serial]) == 0:
		return " lost"
	case f.in[m.source] > 0 && n > 1 && !f.held:
		return " in its source, and elsewhere"
	}
	return ""
}
