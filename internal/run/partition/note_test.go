package partition

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// What a consumer said of a delivery is in the history of the dead letter, and its key was the one it was sent with: also
// after a kill while the death was held for a target without room, with a checkpoint in between or without.
func TestANoteOutlivesTheProcess(t *testing.T) {
	for _, kind := range []queue.Config{classic, quorum} {
		for _, checkpoint := range []bool{false, true} {
			for _, op := range []Op{{Kind: Reject}, {Kind: Reject, Failed: true}} {
				t.Run(fmt.Sprint(kind.Type, " checkpoint ", checkpoint, " failed ", op.Failed), func(t *testing.T) {
					defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
					source := mailQueue("source", kind, "to", true)
					source.dead.Key, source.dead.HasKey = "own", true
					defs := []definition{
						source, {"full", classic, settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish }), DeadLetter{}},
					}
					fs := vfs.NewCrashableMem()
					w := startQueues(t, fs, 1, nil, defs, table{"to": {"full"}})
					q := w.queues["source"]
					w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(1), TTL: -1, Priority: -1}})
					w.n.SettleAll()
					d, _, ok, err := w.n.Get(q, false)
					if !ok || err != nil {
						t.Fatal(ok, err)
					}
					w.n.bodies.Release(d.Body)
					note := &deadletter.Note{Key: "other", HasKey: true, Cause: deadletter.Cause{
						ConsumerTag: "tag", Connection: "a -> b", User: "user", Product: "product", Class: "Class", Error: "error", Detail: "detail",
					}}
					op := op
					op.Queue, op.ID, op.Consumer, op.Note = q, d.ID, d.By, note
					if err := w.n.RunWhole([]Op{op}); err != nil {
						t.Fatal(err)
					}
					w.await("the death is held", func() bool { return w.n.Counts(q).Held == 1 })
					if checkpoint {
						if err := w.n.Checkpoint(); err != nil {
							t.Fatal(err)
						}
					}
					if err := w.j.Sync(); err != nil {
						t.Fatal(err)
					}
					left := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
					w.stop()

					w = startQueues(t, left, 2, nil, defs, table{"to": {"full"}})
					full := w.queues["full"]
					w.n.Configure(full, queue.Unlimited(), DeadLetter{})
					w.await("it has gone on", func() bool {
						w.n.RetryAllHeld()
						w.n.SettleAll()
						return w.n.Counts(full).Ready == 1
					})
					var h deadletter.History
					_, _, err = w.n.Browse(full, queue.Cursor{}, 1, func(_ queue.View, _ message.Record, stored []byte) bool {
						h, err = deadletter.Parse(stored)
						return err == nil
					})
					w.stop()
					want := note.Cause
					if op.Failed {
						want.DeliveryCount = 1
					}
					if err != nil || h.Cause != want || h.Note != nil || len(h.Keys) != 1 || h.Keys[0] != "other" {
						t.Errorf("%v: the history has %+v, note %+v, keys %q; want %+v", err, h.Cause, h.Note, h.Keys, want)
					}
				})
			}
		}
	}
}

// A note that a restart has made void is not taken for what a later consumer said.
func TestANoteIsOfOneRejection(t *testing.T) {
	defs := []definition{mailQueue("source", classic, "to", false), mailQueue("dead", classic, "", false)}
	fs := vfs.NewCrashableMem()
	w := open(t, fs, defs, table{"to": {"dead"}}, 1_700_000_000_000, nil)
	q := w.queues["source"]
	noted := deadletter.Noted(nil, &deadletter.Note{Cause: deadletter.Cause{Error: "of the life before"}, Key: "k", HasKey: true})
	h := w.n.lock(q.part)
	c := &queue.Consumer{Tag: "c", Target: &client{}}
	q.m.Attach(w.now, c)
	history, b := w.n.bodies.Alloc(len(noted))
	copy(b, noted)
	id, _ := q.m.Impose(w.now, &queue.Entry{TTL: -1, Priority: -1, Content: queue.Content{Body: w.record(1, false, 10), History: history, Size: 1}})
	q.m.Flow(w.now, id)
	w.n.unlock(h)
	w.n.Run([]Op{{Kind: Reject, Queue: q, ID: id, Consumer: c}})
	w.settle()
	var cause deadletter.Cause
	_, _, err := w.n.Browse(w.queues["dead"], queue.Cursor{}, 1, func(_ queue.View, _ message.Record, stored []byte) bool {
		h, err := deadletter.Parse(stored)
		if err != nil || h.Note != nil || len(h.Deaths) != 1 {
			t.Errorf("%+v, %v", h, err)
		}
		cause = h.Cause
		return true
	})
	if err != nil || cause != (deadletter.Cause{}) {
		t.Errorf("%v: the cause is %+v", err, cause)
	}
	w.close()
}
