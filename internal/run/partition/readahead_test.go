package partition

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// If much of a quorum queue is on disk, due messages are read a few pages at a time: clients of all other queues of
// its group wait while one page is read.
func TestATickOfAGroupReadsFewPagesAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const messages, ttl, most = 12_000, 60_000, 16
	var ahead atomic.Int64 // the clock
	w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}}, table{}, func(w *mailWorld) {
		w.now = func() int64 { return time.Now().UnixMilli() + ahead.Load() }
	})
	defer w.stop()
	q := w.queues["q"]
	var ops []Op
	for s := range message.Serial(messages) {
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s), TTL: ttl, Priority: -1})
	}
	w.n.Run(ops)
	w.n.Settle(q)
	_ = w.n.with(q, func(*hold) {
		for q.m.SweepAgain(true); q.m.PutAway(32, true) > 0; {
		}
	})
	q.part.mu.Lock()
	q.part.store.mostReads = 0
	q.part.mu.Unlock()
	ahead.Store(2 * ttl)
	q.part.wake()
	within(t, "all have expired", func() {
		for left := messages; left > 0; runtime.Gosched() {
			q.part.mu.Lock()
			left = q.m.Totals().Ready
			q.part.mu.Unlock()
		}
	})
	q.part.mu.Lock()
	defer q.part.mu.Unlock()
	if n := q.part.store.mostReads; n == 0 || n > most {
		t.Errorf("%d pages were read in one hold, want some and at most %d", n, most)
	}
}
