package partition

import (
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
)

// Messages leave the queues of moveQueues only by the moves of moveRoutes, and each queue refuses more than its
// limit.
var (
	moveQueues = []definition{
		full("q", quorum, 1000), full("x", classic, 40), full("q2", quorum, 60), full("x2", classic, 1000), full("end", quorum, 1000),
	}
	moveRoutes = []struct {
		from string
		to   []string
	}{{"q", []string{"x"}}, {"x", []string{"q2"}}, {"q2", []string{"end", "x2"}}, {"q", []string{"end"}}, {"x", []string{"x2"}}}
)

// movePlaces is what a client knows of messages: where each is by the last answer, and where it may be by a move
// without an answer yet.
type movePlaces struct {
	mu       sync.Mutex
	told     map[message.Serial][]string
	open     map[message.Serial][]string
	done     int
	refused  int
	inFlight bool
}

// moveSome asks for moves of some ready messages of a queue.
func (w *mailWorld) moveSome(from string, to []string, known *movePlaces) {
	q := w.queues[from]
	var targets []*Queue
	for _, t := range to {
		targets = append(targets, w.queues[t])
	}
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: from}
	var moves []Move
	var serials []message.Serial
	_, _, err := w.n.Browse(q, queue.Cursor{}, 30, func(v queue.View, rec message.Record, _ []byte) bool {
		moves, serials = append(moves, Move{ID: v.ID, Targets: targets, History: h.Append(nil)}), append(serials, rec.Serial())
		return true
	})
	if err != nil || len(moves) == 0 {
		return
	}
	known.mu.Lock()
	for _, s := range serials {
		known.open[s] = to
	}
	known.mu.Unlock()
	moved, err := w.n.Move(w.t.Context(), q, moves)
	if err != nil {
		w.t.Error(err)
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	clear(known.open)
	for i, m := range moved {
		switch m.What {
		case MoveDone:
			known.told[serials[i]] = to
			known.done++
		case MoveRefused:
			known.refused++
		default:
			w.t.Errorf("message %d: %+v", serials[i], m)
		}
	}
}

// fill publishes to a queue, so that it fills up while other messages arrive.
func (w *mailWorld) fill(name string, serial *message.Serial, n int) {
	for range n {
		*serial++
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues[name]}, Body: w.record(*serial), TTL: -1, Priority: -1}})
	}
}

// DL-19.6: a node dies at some step of replays between groups and local queues. In its next life each message is
// where the last answer said, at all targets that it names, or where a move without an answer had it, and nowhere
// else. Nothing stays on its way or is stranded.
func TestDL_19_6_MovesAfterACrash(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	total := movePlaces{}
	points := slices.Concat(Failpoints, cluster.Failpoints, journal.Failpoints)
	for seed := range uint64(90) {
		rng := rand.New(rand.NewPCG(seed, 17))
		point, left := points[rng.IntN(len(points))], 1+rng.IntN(25)
		if seed%3 == 0 {
			point = []string{FailMailSent, FailMailTaken}[rng.IntN(2)]
		}
		fs := vfs.NewCrashableMem()
		chance := rand.New(rand.NewPCG(seed, 18)) // for the crash
		known := &movePlaces{told: map[message.Serial][]string{}, open: map[message.Serial][]string{}}
		var clone *vfs.MemFS
		var told, open map[message.Serial][]string
		end := func() { // REQUIRES: known.mu is held
			if clone == nil {
				clone, told, open = crash(fs, chance), maps.Clone(known.told), maps.Clone(known.open)
			}
		}
		w := startQueues(t, fs, 2*seed+1, func(name string) {
			if name != point {
				return
			}
			known.mu.Lock()
			defer known.mu.Unlock()
			if !known.inFlight {
				return
			}
			if left--; left == 0 {
				end()
			}
		}, moveQueues, table{})
		serial, filled := message.Serial(0), message.Serial(1_000_000)
		for range 12 {
			before := serial
			w.publish(&serial, 1+rng.IntN(20))
			w.waitConfirmed(int(serial))
			known.mu.Lock()
			for s := before + 1; s <= serial; s++ {
				known.told[s] = []string{"q"}
			}
			known.inFlight = true
			known.mu.Unlock()
			for range 1 + rng.IntN(5) {
				r, n := moveRoutes[rng.IntN(len(moveRoutes))], rng.IntN(30)
				var filling sync.WaitGroup
				filling.Go(func() { w.fill(r.to[0], &filled, n) })
				w.moveSome(r.from, r.to, known)
				filling.Wait()
			}
			switch rng.IntN(8) {
			case 0:
				if err := w.n.Checkpoint(); err != nil {
					t.Error("checkpoint: ", err)
				}
			case 1:
				if _, err := w.n.Compact(); err != nil {
					t.Error("compaction: ", err)
				}
			}
		}
		known.mu.Lock()
		end()
		total.done, total.refused = total.done+known.done, total.refused+known.refused
		known.mu.Unlock()
		w.stop()
		if !t.Failed() {
			verifyMoves(t, seed, point, clone, told, open)
		}
		if t.Failed() {
			return
		}
	}
	if total.done == 0 || total.refused == 0 {
		t.Errorf("%d moves are done and %d refused: that shows little", total.done, total.refused)
	}
}

// verifyMoves starts a node on what a crash left, and checks where its messages are.
func verifyMoves(t *testing.T, seed uint64, point string, fs *vfs.MemFS, told, open map[message.Serial][]string) {
	t.Helper()
	w := startQueues(t, fs, 2*seed+2, nil, moveQueues, table{})
	defer w.stop()
	w.await("nothing is on its way", func() bool {
		for _, q := range w.queues {
			if c := w.n.Counts(q); c.Transit > 0 {
				return false
			}
		}
		return true
	})
	if n := w.n.Stranded(); n > 0 {
		t.Errorf("seed %d, %s: %d messages are stranded", seed, point, n)
	}
	found := map[message.Serial][]string{}
	for _, d := range moveQueues {
		var cursor queue.Cursor
		for done := false; !done; {
			var err error
			cursor, done, err = w.n.Browse(w.queues[d.name], cursor, 256, func(_ queue.View, r message.Record, _ []byte) bool {
				found[r.Serial()] = append(found[r.Serial()], d.name)
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for s, want := range told {
		got := slices.Sorted(slices.Values(found[s]))
		if !slices.Equal(got, slices.Sorted(slices.Values(want))) && !slices.Equal(got, slices.Sorted(slices.Values(open[s]))) {
			t.Errorf("seed %d, %s: message %d is in %v, the last answer said %v, the open move %v", seed, point, s, got, want, open[s])
		}
	}
}

// Large messages on disk are moved a few at a time, and the first may have arrived before the next are asked for. The
// caller waits for all of them, and messages that have arrived take their room once.
func TestMovesOfWhichSomeAreAnsweredBeforeOthersAreOffered(t *testing.T) {
	const messages, size = 4, warmBytes * 3 / 4
	defs := []definition{mailQueue("source", classic, "", false), full("target", quorum, messages)}
	fs := vfs.NewMem()
	w := startQueues(t, fs, 1, nil, defs, table{})
	source := w.queues["source"]
	for s := range message.Serial(messages) {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{source}, Body: heavy(w.n, s+1, size), TTL: -1, Priority: -1}})
	}
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	w.stop()

	var armed atomic.Bool
	w = startQueues(t, fs, 2, nil, defs, table{}, func(w *mailWorld) {
		w.files = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			bySender := strings.Contains(string(debug.Stack()), "(*outboxes)") // it reads messages that have not arrived
			if armed.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasPrefix(op.Path, "keep") && !bySender {
				w.await("what was offered before has arrived", func() bool { return w.n.Counts(source).Transit == 0 })
			}
			return nil
		}))
	})
	defer w.stop()
	source = w.queues["source"]
	known := &movePlaces{told: map[message.Serial][]string{}, open: map[message.Serial][]string{}}
	armed.Store(true)
	w.moveSome("source", []string{"target"}, known)
	if arrived, left := w.n.Counts(w.queues["target"]), w.n.Counts(source); known.done != messages || arrived.Ready != messages || left.Messages() != 0 {
		t.Errorf("%d of %d moves are done, %d messages have arrived, %d are left", known.done, messages, arrived.Ready, left.Messages())
	}
}

// A transient message is on offer when its node dies. Its number is given again in the next life, and the old answer
// says nothing about the new holder of the number.
func TestAnAnswerForATransientMessageOfAnEarlierLife(t *testing.T) {
	defs := []definition{mailQueue("source", classic, "", false), full("target", quorum, 1)}
	begin := func(fs *vfs.MemFS, life uint64) (w *mailWorld, goOn chan struct{}) {
		goOn = make(chan struct{})
		return startQueues(t, fs, life, func(step string) {
			if step == FailMailSent {
				<-goOn
			}
		}, defs, table{}), goOn
	}
	offer := func(w *mailWorld) (e *errand) {
		var id queue.ID
		_, _, err := w.n.Glance(w.queues["source"], queue.Cursor{}, 1, func(v queue.View) bool {
			id = v.ID
			return true
		})
		if err == nil {
			e, err = w.n.move(w.queues["source"], []Move{{ID: id, Targets: []*Queue{w.queues["target"]}, History: []byte{1}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	fs := vfs.NewCrashableMem()
	w, goOn := begin(fs, 1)
	envelope := message.Envelope{Serial: 1, Key: []byte("k"), Properties: []byte{0, 0}}
	body, b := w.n.bodies.Alloc(envelope.Size())
	envelope.Put(b)
	message.Record(b).Seal()
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["source"]}, Body: body, TTL: -1, Priority: -1}})
	offer(w)
	if err := w.j.Sync(); err != nil {
		t.Fatal(err)
	}
	fs = fs.CrashClone(vfs.CrashCloneCfg{})
	close(goOn)
	w.stop()

	w, goOn = begin(fs, 2)
	defer w.stop()
	source := w.queues["source"]
	if err := w.n.Enter([]Op{{Kind: Publish, Targets: []*Queue{source}, Body: w.record(2), TTL: -1, Priority: -1}}); err != nil {
		t.Fatal(err)
	}
	e := offer(w)
	close(goOn)
	if err := w.n.await(t.Context(), source, e); err != nil {
		t.Fatal(err)
	}
	if e.moved[0].What != MoveRefused || w.n.Counts(source).Ready != 1 || w.n.Counts(w.queues["target"]).Ready != 1 {
		t.Errorf("%+v; %d are in the source, %d in the target, want one each", e.moved[0], w.n.Counts(source).Ready, w.n.Counts(w.queues["target"]).Ready)
	}
}

// A message goes to several logs, and a consumer without acknowledgements has the copy of the local target, which is
// therefore in no log. The journal records that this target has it: if the other targets are gone after a crash, the
// message is nowhere else, and nobody gets it again.
func TestATargetThatKeepsNothingHasAnsweredAfterACrash(t *testing.T) {
	for name, atLeastOnce := range map[string]bool{"moved": false, "dead": true} {
		t.Run(name, func(t *testing.T) {
			exchange := ""
			if atLeastOnce {
				exchange = "x"
			}
			defs := []definition{mailQueue("source", classic, exchange, atLeastOnce), mailQueue("local", classic, "", false), mailQueue("there", quorum, "", false)}
			fs := vfs.NewCrashableMem()
			goOn := make(chan struct{})
			w := startQueues(t, fs, 1, func(step string) {
				if step == FailMailSent {
					<-goOn
				}
			}, defs, table{"x": {"local", "there"}})
			s := &client{arrivedc: make(chan struct{}, 1)}
			if ok, err := w.n.Attach(w.queues["local"], &queue.Consumer{Target: s, Tag: "c", NoAck: true}, func() {}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			source, ttl := w.queues["source"], int64(-1)
			if atLeastOnce {
				ttl = 1
			}
			if err := w.n.Enter([]Op{{Kind: Publish, Targets: []*Queue{source}, Body: w.record(1), TTL: ttl, Priority: -1}}); err != nil {
				t.Fatal(err)
			}
			if !atLeastOnce {
				var id queue.ID
				_, _, err := w.n.Glance(source, queue.Cursor{}, 1, func(v queue.View) bool {
					id = v.ID
					return true
				})
				if err == nil {
					_, err = w.n.move(source, []Move{{ID: id, Targets: []*Queue{w.queues["local"], w.queues["there"]}, History: []byte{1}}})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			<-s.arrivedc
			w.n.Counts(source) // the hold that delivered has written its frame when it releases the queue
			w.remove("there")
			if err := w.j.Sync(); err != nil {
				t.Fatal(err)
			}
			fs = fs.CrashClone(vfs.CrashCloneCfg{})
			close(goOn)
			w.stop()

			w = startQueues(t, fs, 2, nil, defs[:2], table{"x": {"local"}})
			defer w.stop()
			source = w.queues["source"]
			w.await("all have answered", func() bool {
				c := w.n.Counts(source)
				return c.Transit == 0 && c.Held == 0
			})
			if left, again := w.n.Counts(source), w.n.Counts(w.queues["local"]); left.Messages() != 0 || again.Messages() != 0 {
				t.Errorf("it is in its queue %d times, and in the target that had it %d times", left.Messages(), again.Messages())
			}
		})
	}
}
