package partition

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// DL-22.2: a cancelled consumer whose deliveries have timed out is forgotten by its group. Requests of its session
// while a checkpoint is made have no effect, and the checkpoint can be read.
func TestDL_22_2_WhoHasTimedOutIsForgotten(t *testing.T) {
	fs := vfs.NewCrashableMem()
	var atCut atomic.Pointer[func()]
	def := definition{"q", quorum, settings(func(s *queue.Settings) {
		s.ConsumerTimeout, s.Rules.Profile = 1, deadletter.ApsaraMQ
	}), DeadLetter{}}
	w := startQueues(t, fs, 1, func(point string) {
		if point == FailCheckpointCut {
			if f := atCut.Swap(nil); f != nil {
				(*f)()
			}
		}
	}, []definition{def}, table{})
	q := w.queues["q"]
	s := &slow{client: client{arrivedc: make(chan struct{}, 1)}}
	s.limit.Store(1)
	c := &queue.Consumer{Tag: "c", Target: s}
	if ok, err := w.n.Attach(q, c, func() {}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for serial := range message.Serial(1500) {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial + 1), TTL: -1, Priority: -1}})
	}
	w.n.Settle(q)
	w.n.Detach(q, c, func() {})
	w.await("what it held has come back", func() bool { return w.n.Counts(q).Out == 0 })
	h := w.n.lock(q.part)
	known := q.part.group.consumers[c.Number] != nil
	w.n.unlock(h)
	if known || !c.Idle() {
		t.Errorf("known %v, idle %v", known, c.Idle())
	}
	readsOn := func() { w.n.Resume(q, c); w.n.Settle(q) }
	atCut.Store(&readsOn)
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	w.stop()
	startQueues(t, after, 2, nil, []definition{def}, table{}).stop()
}
