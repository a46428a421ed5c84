package partition

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/queue"
)

// DL-13.4, DL-13.5: a death is held until all its targets have taken it. One target, in the log of the source, has no
// room; another, in another log, takes it. Whatever happens between the refusal and the answer, or after it, the
// death is still held, and goes to the first once there is room.
func TestRefusalOfAHeldDeathOutlivesTheProcess(t *testing.T) {
	defs := []definition{
		mailQueue("source", classic, "both", true),
		{"full", classic, settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish }), DeadLetter{}},
		mailQueue("far", quorum, "", false),
	}
	routes := table{"both": {"full", "far"}}
	for _, point := range []string{FailMailSent, FailMailTaken} {
		for _, end := range []string{"killed", "killed after a checkpoint", "stopped"} {
			t.Run(end+" at "+point, func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				fs := vfs.NewCrashableMem()
				var left *vfs.MemFS
				var w *mailWorld
				reachedc := make(chan struct{})
				startedc := make(chan struct{})
				w = startQueues(t, fs, 1, func(name string) {
					if name != point || left != nil {
						return
					}
					<-startedc
					if end == "killed after a checkpoint" {
						if err := w.n.Checkpoint(); err != nil {
							t.Error(err)
						}
					}
					left = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
					close(reachedc)
				}, defs, routes)
				close(startedc)
				source := w.queues["source"]
				w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{source}, Body: w.record(1), TTL: -1, Priority: -1}})
				d, _, ok, err := w.n.Get(source, false)
				if !ok || err != nil {
					t.Fatal(ok, err)
				}
				w.n.Run([]Op{{Kind: Reject, Queue: source, ID: d.ID}})
				w.n.bodies.Release(d.Body)
				<-reachedc
				w.stop() // the sender has brought the answer back
				if end == "stopped" {
					left = fs
				}

				answeredc := make(chan struct{})
				answers := 0
				w = startQueues(t, left, 2, func(name string) {
					if name == FailMailTaken {
						if answers++; answers == 1 {
							close(answeredc)
						}
					}
				}, defs, routes)
				if end != "stopped" {
					<-answeredc
				}
				w.n.Configure(w.queues["full"], queue.Unlimited(), DeadLetter{})
				w.await("it has gone on", func() bool { // another goroutine may be at it already
					w.n.RetryAllHeld()
					w.n.SettleAll()
					return w.n.Counts(w.queues["full"]).Ready > 0 && w.n.Counts(w.queues["far"]).Ready > 0
				})
				w.stop()
				if n := w.queues["full"].m.Totals().Ready; n != 1 {
					t.Errorf("it is %d times in the queue that was full, want once", n)
				}
				if n := w.queues["far"].m.Totals().Ready; n != 1 {
					t.Errorf("it is %d times in the other queue, want once", n)
				}
			})
		}
	}
}
