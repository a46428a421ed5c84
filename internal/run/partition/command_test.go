package partition

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
	"bartleby.mq/internal/run/cluster"
)

// follower is a node whose groups follow: it applies the commands it gets.
func follower(t testing.TB) (n *Node, fatal *error) {
	t.Helper()
	j, err := journal.Open(journal.Options{FS: vfs.NewMem(), Dir: "journal"})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Recover(0, nil); err != nil {
		t.Fatal(err)
	}
	driver, err := cluster.New(cluster.Options{ID: 1, Journal: j})
	if err != nil {
		t.Fatal(err)
	}
	fatal = new(error)
	n = New(Options{
		Partitions: 1, Journal: j, Bodies: bodies.New(), Router: &fleet{}, Logger: slog.New(slog.DiscardHandler), Now: func() int64 { return 1000 },
		Cluster: driver, NodeID: 1, Origin: NewOrigin(1, 1), OnFatal: func(err error) { *fatal = err },
	})
	t.Cleanup(func() { _ = j.Close() })
	return n, fatal
}

// everyCommand writes every operation once, in an order in which each has an effect.
func everyCommand() []byte {
	var w commandWriter
	w.begin(7, 1000)
	record := func() []byte {
		e := message.Envelope{Serial: 1, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 3}
		b := make([]byte, e.Size())
		copy(e.Put(b), "abc")
		return b
	}()
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}}
	history := h.Append(nil)
	dead := queue.Unlimited()
	dead.DeadLetter, dead.DeliveryLimit = true, 2
	rules := dead
	rules.Rules = deadletter.Rules{Profile: deadletter.ApsaraMQ, ResetCounts: true, MaxHops: 16, Retention: 300, LimitReason: "limit"}
	w.create(&Queue{Incarnation: 4, VHost: "/", Name: "q", wanted: wanted{rules, DeadLetter{}}})
	w.publish(40, 3, 500, record)
	w.uint(1)
	w.uint(4)
	for inc := uint64(1); inc <= 3; inc++ {
		w.create(&Queue{Incarnation: inc, VHost: "/", Name: "q", wanted: wanted{dead, DeadLetter{Exchange: "x"}}})
	}
	w.configure(&Queue{Incarnation: 1, wanted: wanted{dead, DeadLetter{Exchange: "x", Key: "k", HasKey: true}}})
	for range 8 {
		w.publish(-1, 3, 0, record)
		w.uint(2)
		w.uint(1)
		w.uint(2)
	}
	w.attach(1, &queue.Consumer{Number: 5, Tag: "c", Priority: -1, Prefetch: 4}, 3)
	w.op(cmdCredit, 1)
	w.uint(5)
	w.uint(1)
	id := func(seq uint64) uint64 { return 3<<56 | seq }
	w.ack(1, 5, queue.ID(id(1)))
	w.op(cmdReject, 1)
	w.uint(5)
	w.uint(id(2))
	w.bool(true)
	w.op(cmdReject, 1)
	w.uint(5)
	w.uint(id(4))
	w.bool(true)
	w.op(cmdReturn, 1)
	w.uint(5)
	w.uint(id(3))
	w.b = append(w.b, byte(queue.ReturnClosed))
	w.dead(1, &plan{remote: []target{{2, 9}}}, false, history, []queue.Death{{ID: queue.ID(id(4))}})
	w.dead(1, &plan{targets: []*Queue{{Incarnation: 2}}, remote: []target{{2, 9}}}, false, history, []queue.Death{{ID: queue.ID(id(2))}})
	w.op(cmdOutAck, 2)
	w.uint(1)
	w.uint(1)
	w.uint(1)
	w.b = append(w.b, byte(outbox.Gone))
	w.op(cmdReroute, 2)
	w.uint(1)
	w.uint(5)
	w.uint(4)
	w.planTargets(&plan{targets: []*Queue{{Incarnation: 3}}})
	w.op(cmdRelocate, 2) // it is gone
	w.uint(1)
	w.uint(5)
	w.uint(4)
	w.planTargets(&plan{targets: []*Queue{{Incarnation: 3}}})
	w.op(cmdClose, 1<<32|2)
	w.op(cmdOutIn, 2)
	w.uint(0)
	w.uint(1)
	w.uint(2)
	w.uint(3)
	w.b = append(w.b, byte(outbox.Force))
	w.uint(1)
	w.raw(history)
	w.raw(record)
	w.uint(2)
	w.b = append(w.b, byte(outbox.Force)|mailAgain) // with that history and that record
	w.uint(1)
	w.raw(nil)
	w.op(cmdTake, 2)
	w.uint(id(1))
	w.raw(history)
	w.planTargets(&plan{targets: []*Queue{{Incarnation: 3}}})
	w.op(cmdGet, 2)
	w.uint(6)
	w.bool(false)
	w.op(cmdTick, 1)
	w.op(cmdTouch, 1)
	w.detach(1, &queue.Consumer{Number: 5})
	w.op(cmdQuit, 1)
	w.uint(2)
	w.uint(9) // no such consumer
	w.uint(1)
	w.uint(2)
	w.uint(9)
	w.uint(id(1))
	w.leave(11, 1, 1)
	w.seat(2, 9)
	w.returns(1)
	w.delivery(2, 9, queue.ID(id(1)))
	w.op(cmdGone, 7)
	w.op(cmdPurge, 1)
	w.op(cmdDelete, 1)
	return append([]byte(nil), w.numbered(1)...)
}

// A transient message from a client has no check. A command goes to disk, so its copy is sealed; the message itself
// is not changed, because others read it.
func TestARecordGetsItsCheckInACommand(t *testing.T) {
	e := message.Envelope{Serial: 7, Exchange: []byte("x"), Key: []byte("key"), Properties: []byte{0, 0}, BodySize: 300}
	record := make(message.Record, e.Size())
	e.Put(record)
	for name, write := range map[string]func(w *commandWriter){
		"publish": func(w *commandWriter) { w.publish(0, -1, 0, record) },
		"delayed": func(w *commandWriter) { w.publish(0, -1, 1, record) },
		"mail":    func(w *commandWriter) { w.sent(&incoming{record: record}) },
		"state":   func(w *commandWriter) { w.record(record) },
	} {
		var w commandWriter
		w.begin(1, 1)
		write(&w)
		at := bytes.Index(w.b, record[:20])
		if at < 0 {
			t.Fatalf("%s: the command %x does not have the record", name, w.b)
		}
		if got := message.Record(w.b[at:][:len(record)]); !got.Sealed() || message.Verify(got) != nil || record.Sealed() {
			t.Errorf("%s: sealed in the command: %v, %v, outside: %v", name, got.Sealed(), message.Verify(got), record.Sealed())
		}
	}
}

// Every operation of a command is read as it was written.
func TestEveryCommand(t *testing.T) {
	n, fatal := follower(t)
	g := n.groups[0].group
	g.Apply([]cluster.Entry{{Index: 1, Term: 1, Data: everyCommand()}})
	if *fatal != nil {
		t.Fatal(*fatal)
	}
	if q := g.p.queues[4]; q.m.Rules().LimitReason != "limit" || q.m.Rules().Retention != 300 || q.m.NotBefore(3<<56|1) != 1501 {
		t.Errorf("the delayed message waits until %d by %+v", q.m.NotBefore(3<<56|1), q.m.Rules())
	}
	if len(g.p.queues) != 3 || len(g.consumers) != 0 {
		t.Errorf("%d queues and %d consumers are left, want 3 and none", len(g.p.queues), len(g.consumers))
	}
	// q2: 8 published, one moved away, one more dead letter, one of the other log, one came back from a get.
	// q3: the stranded one, the other one of the other log, the moved one.
	for inc, want := range map[uint64]int{2: 9, 3: 3} {
		if got := g.p.queues[inc].m.Totals().Ready; got != want {
			t.Errorf("queue %d has %d messages ready, want %d", inc, got, want)
		}
	}
	if box := g.p.outboxes.To(2); box.Acknowledged() != 1 || len(box.Waiting()) != 1 || len(box.Stranded()) > 0 || g.p.outboxes.From(2).Last() != 2 {
		t.Errorf("the outboxes are %+v, %+v", box, g.p.outboxes.From(2))
	}
}

// A nonsensical command stops the replica, whatever it is, and breaks nothing.
func FuzzCommand(f *testing.F) {
	all := everyCommand()
	f.Add(all[commandHead:])
	for _, cut := range []int{30, 100, 300, len(all) - 10} {
		f.Add(all[commandHead : commandHead+min(cut, len(all)-commandHead)])
	}
	f.Fuzz(func(t *testing.T, operations []byte) {
		n, fatal := follower(t)
		g := n.groups[0].group
		g.Apply([]cluster.Entry{{Index: 1, Term: 1, Data: append(append([]byte(nil), all[:commandHead]...), operations...)}})
		if *fatal != nil && !errors.Is(*fatal, ErrLaterRelease) {
			t.Fatal(*fatal)
		}
		for _, q := range g.p.queues {
			if err := q.m.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A nonsensical snapshot of a group is refused.
func FuzzSnapshot(f *testing.F) {
	n, _ := follower(f)
	g := n.groups[0].group
	all := everyCommand()
	g.Apply([]cluster.Entry{{Index: 1, Term: 1, Data: all[:len(all)-20]}})
	state, err := g.Snapshot()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state)
	f.Fuzz(func(t *testing.T, state []byte) {
		n, _ := follower(t)
		g := n.groups[0].group
		if g.Restore(state, 0) != nil {
			return
		}
		again, err := g.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		other, _ := follower(t)
		if err := other.groups[0].group.Restore(again, 0); err != nil {
			t.Fatalf("its own snapshot is refused: %v", err)
		}
		if one, two := g.hash(), other.groups[0].group.hash(); one != two {
			t.Fatalf("restored from its snapshot it is another: %x, %x", one, two)
		}
	})
}
