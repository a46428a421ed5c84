package partition

import (
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// busyOwner blocks the goroutine that gives it an answer.
type busyOwner struct{ told, goOn chan struct{} }

// Answered implements Owner.
func (o *busyOwner) Answered([]Answer) {
	close(o.told)
	<-o.goOn
}

// A caller that waits for a group's commands begins to wait after a stop has abandoned later ones, while earlier ones
// are still being applied. It goes on: nothing else would ever wake it. The stop waits for it, as for the removal of
// a queue whose x-expires has passed.
func TestNobodyWaitsForAGroupThatAStopHasLetGo(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := startQueues(t, vfs.NewCrashableMem(), 1, func(string) {}, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}}, table{})
	defer w.stop()
	q := w.queues["q"]
	publish := func(s message.Serial, owner Owner) {
		_ = w.n.Await(w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(s), TTL: -1, Priority: -1, Owner: owner}}))
	}
	owner := &busyOwner{make(chan struct{}), make(chan struct{})}
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		publish(1, owner)
	}()
	<-owner.told
	publish(2, nil) // waits until the first is applied
	g := q.group()
	g.abandon(true)
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		w.n.Settle(q)
	}()
	within(t, "it waits, or goes on", func() {
		for waits := false; !waits; runtime.Gosched() {
			select {
			case <-settled:
				return
			default:
			}
			g.proposals.mu.Lock()
			waits = len(g.proposals.barriers) > 0
			g.proposals.mu.Unlock()
		}
	})
	close(owner.goOn)
	<-applied
	within(t, "whoever waits goes on", func() { <-settled })
}

// A node that begins to lead a group while it stops is asked nothing any longer: no answer would come.
func TestANodeThatStopsAsksNoNewLeader(t *testing.T) {
	f, there, _ := twoNodes(t)
	q := f.queueAt(there, "q")
	there.Stop()
	q.group().Following(1)
	within(t, "it is told that nobody leads", func() {
		if err := q.group().question(newAsk(), func(w *commandWriter) { w.op(cmdTouch, q.Incarnation) }); !Lost(err) {
			t.Errorf("it got %v", err)
		}
	})
}
