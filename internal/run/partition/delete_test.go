package partition

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/cluster"
)

// guarded is a Router that must not be called while its caller has the topology locked.
type guarded struct {
	*world
	locked bool
}

func (g *guarded) RouteDead(q *Queue, exchange string, keys []string, r message.Record, h *deadletter.History, out []*Queue) ([]*Queue, bool, bool) {
	if g.locked {
		g.t.Error("Delete routes dead letters: its caller, who has the topology locked, would wait for itself")
	}
	return g.world.RouteDead(q, exchange, keys, r, h, out)
}

// BR-7.9: what has expired when a deletion is refused dies all the same. The goroutine that wanted to delete does not
// route it.
func TestRefusedDeleteLeavesTheDead(t *testing.T) {
	w := newWorld(t, vfs.NewMem(), []definition{
		{"q", queue.Config{MaxPriority: -1}, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "dlx"}},
		{"dlq", queue.Config{MaxPriority: -1}, settings(func(*queue.Settings) {}), DeadLetter{}},
	}, table{"dlx": {"dlq"}}, 1000, nil)
	defer func() { _ = w.j.Close() }()
	g := &guarded{world: w}
	w.n.Router = g
	if err := w.n.Recover(); err != nil {
		t.Fatal(err)
	}
	q := w.queues["q"]
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(1, false, 10), TTL: 5, Priority: -1}})
	w.now += 10

	refusal := errors.New("in use")
	g.locked = true
	if _, err := w.n.Delete(q, func(Counts) error { return refusal }); !errors.Is(err, refusal) {
		t.Fatalf("Delete: %v", err)
	}
	g.locked = false
	w.settle()
	if n := w.n.Counts(w.queues["dlq"]).Ready; n != 1 {
		t.Errorf("%d dead letters arrived, want 1", n)
	}
	if _, err := w.n.Delete(q, nil); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if _, err := w.n.Delete(q, nil); !Gone(err) {
		t.Errorf("Delete of a queue that is gone: %v", err)
	}
	w.settle()
}

// A queue that is in a checkpoint and was deleted since is recovered with the journal, page by page, and then
// forgotten.
func TestAQueueDeletedSinceTheCheckpointIsForgotten(t *testing.T) {
	fs := vfs.NewCrashableMem()
	defs := []definition{
		{"stays", classic, queue.Unlimited(), DeadLetter{}},
		{"goes", classic, queue.Unlimited(), DeadLetter{}},
	}
	w := open(t, fs, defs, nil, 1000, nil)
	for serial := range message.Serial(600) { // several pages
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["goes"], w.queues["stays"]}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1}})
	}
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	goes := w.queues["goes"]
	d, _, ok, err := w.n.Get(goes, true)
	if !ok || err != nil {
		t.Fatalf("Get: %v, %v", ok, err)
	}
	w.n.bodies.Release(d.Body)
	if _, err := w.n.Delete(goes, nil); err != nil {
		t.Fatal(err)
	}
	killed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})

	w = open(t, killed, defs[:1], nil, 1000, nil)
	if n := w.n.Counts(w.queues["stays"]).Ready; n != 600 {
		t.Errorf("%d messages in the other queue, want 600", n)
	}
	w.check(0)
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := w.index.Range([]byte{keySummary}, func(key, _ []byte) error {
		if incarnation, id, _ := splitPageKey(key); incarnation != w.queues["stays"].Incarnation {
			t.Errorf("page %d of a queue that is gone is still in the index", id.Number)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Operations that were logged between the cut of a checkpoint and a queue's deletion refer to the queue at the cut.
// So the checkpoint has the queue, deleted or not.
func TestAQueueDeletedWhileACheckpointIsWritten(t *testing.T) {
	fs := vfs.NewCrashableMem()
	defs := []definition{
		{"dead", classic, queue.Unlimited(), DeadLetter{}},
		{"goes", classic, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "dlx"}},
	}
	routes := table{"dlx": {"dead"}}
	const messages = 5000
	const dying = messages/10 - 1
	var w *world
	deleted := false
	w = open(t, fs, defs, routes, 1000, func(step string) {
		if step != FailCheckpointPages || w.queues["goes"].part.store.written < saveSlice || deleted {
			return // some pages of the queue are saved, some are not
		}
		deleted = true
		w.now += 100
		w.settle()
		if n := w.n.Counts(w.queues["dead"]).Ready; n != dying {
			t.Errorf("%d messages have died since the cut, want %d", n, dying)
		}
		if _, err := w.n.Delete(w.queues["goes"], nil); err != nil {
			t.Error(err)
		}
	})
	for serial := range message.Serial(messages) {
		ttl := int64(-1)
		if serial%10 == 0 && serial > 0 {
			ttl = 50
		}
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["goes"]}, Body: w.record(serial, true, 10), TTL: ttl, Priority: -1}})
	}
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if !deleted {
		t.Fatal("the checkpoint was written in one hold")
	}
	killed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})

	w = open(t, killed, defs[:1], routes, 1000, nil)
	if n := w.n.Counts(w.queues["dead"]).Ready; n != dying {
		t.Errorf("%d dead letters are left, want %d", n, dying)
	}
	w.check(0)
}

// So has a queue to which nothing happened between the cut and its deletion.
func TestAQueueDeletedRightAfterTheCut(t *testing.T) {
	fs := vfs.NewCrashableMem()
	defs := []definition{{"stays", classic, queue.Unlimited(), DeadLetter{}}, {"goes", classic, queue.Unlimited(), DeadLetter{}}}
	var w *world
	deleted := false
	w = open(t, fs, defs, nil, 1000, func(step string) {
		if step != FailCheckpointCut || deleted {
			return
		}
		deleted = true
		if _, err := w.n.Delete(w.queues["goes"], nil); err != nil {
			t.Error(err)
		}
	})
	for serial := range message.Serial(600) {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["goes"], w.queues["stays"]}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1}})
	}
	if err := w.n.Checkpoint(); err != nil || !deleted {
		t.Fatal(err, deleted)
	}
	killed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	w = open(t, killed, defs[:1], nil, 1000, nil)
	if n := w.n.Counts(w.queues["stays"]).Ready; n != 600 {
		t.Errorf("%d messages in the other queue, want 600", n)
	}
	w.check(0)
}

// The deletion of a replicated queue removes its own consumers, including those that only hold a message, and looks
// at no others: its group may have very many.
func TestTheDeletionOfAQueueLooksAtItsOwnConsumersOnly(t *testing.T) {
	n, fatal := follower(t)
	g := n.groups[0].group
	var w commandWriter
	w.begin(NewOrigin(2, 1), 1000)
	e := message.Envelope{Serial: 1, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 3}
	record := make([]byte, e.Size())
	e.Put(record)
	for inc := uint64(1); inc <= 2; inc++ {
		w.create(&Queue{Incarnation: inc, VHost: "/", Name: string(rune('a' + inc)), wanted: wanted{settings: queue.Unlimited()}})
		w.publish(-1, -1, 0, record)
		w.uint(1)
		w.uint(inc)
		w.get(inc, 10*inc, false)
		w.attach(inc, &queue.Consumer{Number: 10*inc + 1, Tag: "c"}, 0)
	}
	apply := func(number uint64) {
		g.Apply([]cluster.Entry{{Index: number, Term: 1, Data: slices.Clone(w.numbered(number))}})
		if *fatal != nil {
			t.Fatal(*fatal)
		}
	}
	apply(1)
	if len(g.consumers) != 4 {
		t.Fatalf("%d consumers", len(g.consumers))
	}
	g.consumers[99] = nil // looking at it fails
	w.begin(NewOrigin(2, 1), 1000)
	w.op(cmdDelete, 1)
	apply(2)
	if len(g.consumers) != 3 || g.consumers[20] == nil || g.consumers[21] == nil {
		t.Errorf("%d consumers are left, want those of the other queue", len(g.consumers)-1)
	}
}
