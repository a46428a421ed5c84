package partition

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/deathstore"
	"bartleby.mq/internal/wire/amqp10"
)

// annotated are annotations as a history has them: keys, and strings or longs.
func annotated(pairs ...any) string {
	b, start := amqp10.BeginMap(nil)
	for i := 0; i < len(pairs); i += 2 {
		b = amqp10.AppendSymbol(b, pairs[i].(string))
		switch v := pairs[i+1].(type) {
		case string:
			b = amqp10.AppendString(b, v)
		case int64:
			b = amqp10.AppendLong(b, v)
		}
	}
	return string(amqp10.EndCompound(b, start, len(pairs)))
}

// annotations says whether what was merged into a message is of this message.
func (h *letterHost) annotations(d *queue.Delivery) error {
	if d.History == 0 {
		return nil
	}
	story, err := deadletter.Parse(deathstore.Bytes(h.n.bodies, d.History))
	if err != nil || story.Annotations == "" {
		return err
	}
	m, _, err := amqp10.ReadValue([]byte(story.Annotations))
	if err != nil {
		return err
	}
	v, _ := m.Lookup("x-opt-serial")
	if n, _ := v.Int64(); message.Serial(n) != h.serialOf(d.Body) {
		return fmt.Errorf("message %d has the annotations of message %d", h.serialOf(d.Body), n)
	}
	return nil
}

// history is that of the only message of a queue.
func (w *mailWorld) history(name string) (h deadletter.History) {
	w.t.Helper()
	found := 0
	_, _, err := w.n.Browse(w.queues[name], queue.Cursor{}, 2, func(_ queue.View, _ message.Record, stored []byte) bool {
		found++
		if len(stored) > 0 {
			var err error
			if h, err = deadletter.Parse(stored); err != nil {
				w.t.Error(err)
			}
		}
		return true
	})
	if err != nil || found != 1 {
		w.t.Fatalf("%s has %d messages, %v", name, found, err)
	}
	return h
}

// take gets the only message of a queue.
func (w *mailWorld) take(name string) (op Op) {
	w.t.Helper()
	d, _, ok, err := w.n.Get(w.queues[name], false)
	if !ok || err != nil {
		w.t.Fatal(ok, err)
	}
	w.n.bodies.Release(d.Body)
	w.n.bodies.Release(d.History)
	return Op{Queue: w.queues[name], ID: d.ID, Consumer: d.By}
}

func (w *mailWorld) whole(op Op) {
	w.t.Helper()
	if err := w.n.RunWhole([]Op{op}); err != nil {
		w.t.Fatal(err)
	}
}

// DL-14.6: what outcomes have merged into a message comes with its redelivery and with its death, wherever that leads: also after
// a kill, with a checkpoint before it or without, and while the death was held.
func TestDL_14_6_AnnotationsOutliveTheProcess(t *testing.T) {
	for _, target := range []queue.Config{classic, quorum} {
		for _, checkpoint := range []bool{false, true} {
			for _, held := range []bool{false, true} {
				t.Run(fmt.Sprint(target.Type, " checkpoint ", checkpoint, " held ", held), func(t *testing.T) {
					defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
					full := queue.Unlimited()
					if held {
						full.MaxLength, full.Overflow = 0, queue.RejectPublish
					}
					defs := []definition{mailQueue("source", quorum, "to", true), {"dead", target, full, DeadLetter{}}}
					fs := vfs.NewCrashableMem()
					life := uint64(0)
					var w *mailWorld
					open := func(on *vfs.MemFS) {
						life++
						w = startQueues(t, on, life, nil, defs, table{"to": {"dead"}})
					}
					crash := func() {
						if checkpoint {
							if err := w.n.Checkpoint(); err != nil {
								t.Fatal(err)
							}
						}
						if err := w.j.Sync(); err != nil {
							t.Fatal(err)
						}
						fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
						w.stop()
						open(fs)
					}
					open(fs)
					w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["source"]}, Body: w.record(1), TTL: -1, Priority: -1}})
					w.n.SettleAll()
					op := w.take("source")
					op.Kind, op.How, op.Note = Return, queue.ReturnFailed, &deadletter.Note{Annotations: annotated("x-a", "one", "x-b", int64(1))}
					w.whole(op)
					crash()
					if h := w.history("source"); h.Annotations != op.Note.Annotations || h.Placed() || !h.KeepsTTL() {
						t.Fatalf("after the return the history is %+v", h)
					}
					op = w.take("source")
					op.Kind, op.Note = Reject, &deadletter.Note{Annotations: annotated("x-b", int64(2), "x-c", "three")}
					w.whole(op)
					want := annotated("x-a", "one", "x-b", int64(2), "x-c", "three")
					if held {
						w.await("the death is held", func() bool { return w.n.Counts(w.queues["source"]).Held == 1 })
						crash()
						w.n.Configure(w.queues["dead"], queue.Unlimited(), DeadLetter{})
					}
					w.await("it has died", func() bool {
						w.n.RetryAllHeld()
						w.n.SettleAll()
						return w.n.Counts(w.queues["dead"]).Ready == 1
					})
					crash()
					h := w.history("dead")
					w.stop()
					if h.Annotations != want || len(h.Deaths) != 1 || h.Note != nil || h.Deaths[0].Exchange != "" || len(h.Deaths[0].Keys) != 1 {
						t.Errorf("the dead letter has %+v, want the annotations %q", h, want)
					}
				})
			}
		}
	}
}

// DL-14.6: a classic queue takes no annotations, whatever its consumer says.
func TestDL_14_6_AClassicQueueTakesNoAnnotations(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := startQueues(t, vfs.NewCrashableMem(), 1, nil, []definition{mailQueue("q", classic, "", false)}, nil)
	defer w.stop()
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["q"]}, Body: w.record(1), TTL: -1, Priority: -1}})
	op := w.take("q")
	op.Kind, op.How, op.Note = Return, queue.ReturnFailed, &deadletter.Note{Annotations: annotated("x-a", "one")}
	w.whole(op)
	if h := w.history("q"); h.Annotations != "" {
		t.Errorf("the message has the annotations %q", h.Annotations)
	}
}

// A message that a client modifies again and again takes no more annotations than there may be; it keeps those that it has, and the
// queue counts what had no room.
func TestDL_14_6_AnnotationsAreBounded(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := startQueues(t, vfs.NewCrashableMem(), 1, nil, []definition{mailQueue("q", quorum, "", false)}, nil)
	defer w.stop()
	q := w.queues["q"]
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(1), TTL: -1, Priority: -1}})
	w.n.SettleAll()
	const times, size = 100, 1000
	for k := range times {
		op := w.take("q")
		op.Kind, op.How = Return, queue.ReturnReleased
		op.Note = &deadletter.Note{Annotations: annotated(fmt.Sprint("x-", k), strings.Repeat("a", size))}
		w.whole(op)
	}
	h := w.history("q")
	v, _, err := amqp10.ReadValue([]byte(h.Annotations))
	if err != nil || len(h.Annotations) > convert.MaxAnnotations || len(h.Annotations) < convert.MaxAnnotations-2*size {
		t.Errorf("the message has %d bytes of annotations, %v", len(h.Annotations), err)
	}
	if first, _ := v.Lookup("x-0"); first.IsNull() {
		t.Error("the first annotation is gone")
	}
	if n := w.n.Counts(q).Stats.Unmerged; n+uint64(v.Len()/2) != times {
		t.Errorf("%d outcomes are counted, %d annotations are there", n, v.Len()/2)
	}
}

// DL-14.6: annotations are merged only by whoever holds the delivery.
func TestDL_14_6_OnlyTheHolderAnnotates(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := startQueues(t, vfs.NewCrashableMem(), 1, nil, []definition{mailQueue("q", quorum, "", false)}, nil)
	defer w.stop()
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["q"]}, Body: w.record(1), TTL: -1, Priority: -1}})
	w.n.SettleAll()
	late := w.take("q")
	late.Kind, late.How, late.Note = Return, queue.ReturnReleased, &deadletter.Note{Annotations: annotated("x-a", "late")}
	first := late
	first.Note = nil
	w.whole(first)
	second := w.take("q")
	w.whole(late)
	second.Kind, second.How = Return, queue.ReturnReleased
	w.whole(second)
	if h := w.history("q"); h.Annotations != "" {
		t.Errorf("the message has the annotations %q", h.Annotations)
	}
}
