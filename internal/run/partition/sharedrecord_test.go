package partition

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/bodies"
)

// largestFrame is the size of the local partitions' largest frame in a journal that is not open.
func largestFrame(t *testing.T, fs vfs.FS) (largest int) {
	t.Helper()
	j, err := journal.Open(journal.Options{FS: fs, Dir: "journal", SegmentBytes: 16 << 10})
	if err == nil {
		err = j.Recover(0, func(_ journal.Pos, payload []byte) error {
			if IsFrame(payload) {
				largest = max(largest, len(payload))
			}
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return largest
}

// A stranded message goes to all its targets, in its own log and in others, in one frame. The frame has the record
// and the history once: with a copy for each target it would exceed what the journal takes.
func TestAStrandedMessageIsOnceInItsFrame(t *testing.T) {
	const targets, size = 8, frameBytes / 2
	defs := []definition{mailQueue("source", classic, "x", false), mailQueue("gone", quorum, "", false)}
	again := table{}
	for i := range targets {
		for _, config := range []queue.Config{classic, quorum} {
			name := fmt.Sprint(config.Type, i)
			defs = append(defs, mailQueue(name, config, "", false))
			again["x"] = append(again["x"], name)
		}
	}
	fs := vfs.NewMem()
	goOn := make(chan struct{})
	w := startQueues(t, fs, 1, func(step string) {
		if step == FailMailSent {
			<-goOn
		}
	}, defs, table{"x": {"gone"}})
	w.drops.Store(true)
	q := w.queues["source"]
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: heavy(w.n, 1, size), TTL: 1, Priority: -1}})
	w.await("it is on its way", func() bool { return w.n.Counts(q).Transit == 1 })
	w.rerouted.Store(&table{"x": {}})
	w.remove("gone")
	close(goOn)
	w.await("it is stranded", func() bool { return w.n.Stranded() == 1 })
	w.rerouted.Store(&again)
	w.n.RetryStranded()
	arrived := func() bool {
		for _, name := range again["x"] {
			if w.n.Counts(w.queues[name]).Ready != 1 {
				return false
			}
		}
		return w.n.Counts(q).Transit == 0
	}
	w.await("it is everywhere", arrived)
	var histories []string
	look := func() {
		for _, name := range again["x"] {
			_, _, err := w.n.Browse(w.queues[name], queue.Cursor{}, 9, func(_ queue.View, r message.Record, history []byte) bool {
				if r.Serial() != 1 || len(r) < size {
					t.Errorf("%s has message %d of %d bytes", name, r.Serial(), len(r))
				}
				histories = append(histories, string(history))
				return true
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	look()
	w.stop()
	if most := largestFrame(t, fs); most > 3*size/2 {
		t.Errorf("a frame has %d bytes, the message %d", most, size)
	}
	w = startQueues(t, fs, 2, nil, defs, table{"x": {}})
	defer w.stop()
	w.await("it is everywhere after a start", arrived)
	look()
	if h, err := deadletter.Parse([]byte(histories[0])); err != nil || len(h.Deaths) != 1 {
		t.Errorf("the history is %+v: %v", h, err)
	}
	for i, h := range histories {
		if h != histories[0] || len(histories) != 4*targets {
			t.Fatalf("history %d of %d is %x, want %x", i, len(histories), h, histories[0])
		}
	}
}

// A frame has the record and the history of several entries once: each entry reads those of the one before.
func TestRecordsAndHistoriesOnceInAFrame(t *testing.T) {
	c := choosing(1)
	record, other := c.record(), c.record()
	h := deadletter.History{Exchange: "x", Keys: []string{"k"}}
	first := h.Append(nil)
	h.Exchange = "y"
	second := h.Append(nil)
	var f frame
	f.reset()
	enter := func(id queue.ID, ref message.Ref, r []byte, historyRef message.Ref, history []byte) {
		f.enter(&entered{queue: 2, id: 4<<56 | id, history: history, historyRef: historyRef, record: r, recordRef: ref})
	}
	enter(1, 1, record, 11, first)
	enter(2, 1, record, 11, first)
	enter(3, 1, record, 0, nil)
	enter(4, 1, record, 12, second)
	enter(5, 2, other, 12, second)
	enter(6, 2, other, 11, first)
	w, err := redo(t, f.bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.j.Close() }()
	if n := bytes.Count(f.bytes(), first); n != 2 {
		t.Errorf("the first history is there %d times, want twice", n)
	}
	if n := bytes.Count(f.bytes(), second); n != 1 {
		t.Errorf("the second history is there %d times, want once", n)
	}
	m := w.queues["q"].m
	for i, want := range []struct {
		record  []byte
		history []byte
	}{{record, first}, {record, first}, {record, nil}, {record, second}, {other, second}, {other, first}} {
		v, ok := m.View(4<<56 | queue.ID(i+1))
		if !ok {
			t.Fatalf("entry %d is not there", i+1)
		}
		var window bodies.Window
		got, err := w.n.bodies.Read(v.Body, &window)
		if err != nil || message.Record(got).Serial() != message.Record(want.record).Serial() || len(got) != len(want.record) {
			t.Errorf("entry %d has another record: %v", i+1, err)
		}
		if !bytes.Equal(w.n.historyBytes(v.History), want.history) {
			t.Errorf("entry %d has the history %x, want %x", i+1, w.n.historyBytes(v.History), want.history)
		}
	}
}

// hasty is a consumer that settles everything at once.
type hasty struct {
	client
	n *Node
}

// Deliver implements Subscriber.
func (p *hasty) Deliver(_ *Queue, c *queue.Consumer, d *queue.Delivery) bool {
	if c.NoAck {
		p.n.bodies.Release(d.Body)
		p.n.bodies.Release(d.History)
	}
	return true
}

// A message from another log may leave at once, to a consumer without acknowledgements. Its history is freed then,
// and the history of the next message in the same frame may get its place in memory: it is a different one all the
// same.
func TestAHistoryInThePlaceOfAnotherIsNotLeftOut(t *testing.T) {
	defs := []definition{mailQueue("target", classic, "", false)}
	fs := vfs.NewMem()
	w := startQueues(t, fs, 1, nil, defs, nil)
	q := w.queues["target"]
	for _, noAck := range []bool{true, false} { // the second of them is served second
		if ok, err := w.n.Attach(q, &queue.Consumer{Target: &hasty{n: w.n}, Tag: fmt.Sprint(noAck), NoAck: noAck, Prefetch: 1}, func() {}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	b := load{Load: outbox.Load{To: localLog | 1}, from: 1}
	var want []string
	for i := range uint64(4) {
		h := deadletter.History{Exchange: "x", Keys: []string{fmt.Sprint("key ", i)}}
		stored := h.Append(nil)
		want = append(want, string(stored))
		b.Entries = append(b.Entries, outbox.Entry{Number: i + 1, Target: q.Incarnation, Body: w.record(message.Serial(i + 1)), History: storeHistory(w.n.bodies, stored)})
	}
	if upTo, refused, err := w.n.outboxes.receive(&b); upTo != 4 || len(refused) > 0 || err != nil {
		t.Fatal(upTo, refused, err)
	}
	w.n.outboxes.release(b.Entries)
	w.stop()
	w = startQueues(t, fs, 2, nil, defs, nil)
	defer w.stop()
	found := 0
	_, _, err := w.n.Browse(w.queues["target"], queue.Cursor{}, 9, func(_ queue.View, r message.Record, history []byte) bool {
		if found++; string(history) != want[r.Serial()-1] {
			t.Errorf("message %d has the history %x, want %x", r.Serial(), history, want[r.Serial()-1])
		}
		return true
	})
	if err != nil || found == 0 {
		t.Errorf("%d messages are there: %v", found, err)
	}
}
