package partition

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/outbox"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
)

// heavy makes a message with a body of size bytes, with one reference.
func heavy(n *Node, s message.Serial, size int) message.Ref {
	e := message.Envelope{Serial: s, Key: []byte("k"), Properties: []byte{0, 0}, BodySize: size, Persistent: true}
	body, b := n.bodies.Alloc(e.Size())
	e.Put(b)
	message.Record(b).Seal()
	return body
}

// A load of an outbox is one frame or one command, and all of it is in memory. So the bytes of its records limit it,
// wherever they are: after a start all are on disk.
func TestALoadOfRecordsOnDiskIsBoundedInBytes(t *testing.T) {
	const messages, size = 64, sendBytes / 4
	blocked, release := make(chan struct{}, messages), make(chan struct{})
	w := startQueues(t, vfs.NewMem(), 1, func(step string) {
		if step == FailMailSent {
			blocked <- struct{}{}
			<-release
		}
	}, []definition{mailQueue("source", quorum, "x", false), mailQueue("target", classic, "", false)}, table{"x": {"target"}})
	defer w.stop()
	source := w.queues["source"]
	var ops []Op
	for s := range message.Serial(messages) {
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{source}, Body: heavy(w.n, s, size), TTL: 1, Priority: -1})
	}
	_ = w.n.Await(w.n.Run(ops))
	<-blocked
	w.await("all are on their way", func() bool { return w.n.Counts(source).Transit == messages })

	g := source.part.group
	g.p.mu.Lock()
	box := g.p.outboxes.Outboxes()[0]
	for i := range box.Waiting() {
		box.Waiting()[i].Body, _ = w.n.bodies.Cool(box.Waiting()[i].Body)
	}
	g.p.mu.Unlock()
	s := g.p.outboxes
	b, _ := s.load(0)
	if err := s.warm(&b); err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for i := range b.Entries {
		bytes += w.n.bodies.Size(b.Entries[i].Body)
	}
	if len(b.Entries) == 0 || bytes > sendBytes+2*size {
		t.Errorf("a load has %d messages of %d bytes together, want no more than about %d bytes", len(b.Entries), bytes, sendBytes)
	}
	s.release(b.Entries)
	close(release)
	w.await("all have arrived", func() bool { return w.n.Counts(w.queues["target"]).Ready == messages })
}

// No outbox waits until another is empty, which may never happen.
func TestOutboxesTakeTurns(t *testing.T) {
	const messages, targets = 4 * sendEntries, 8
	defs := []definition{mailQueue("source", classic, "x", false)}
	var names []string
	for i := range targets {
		names = append(names, fmt.Sprint("target-", i))
		defs = append(defs, mailQueue(names[i], quorum, "", false))
	}
	var w *mailWorld
	began, goOn, seen := make(chan struct{}), make(chan struct{}), make(chan map[uint64]int, 1)
	sends := 0
	w = startQueues(t, vfs.NewMem(), 1, func(step string) {
		if step != FailMailSent {
			return
		}
		switch sends++; sends {
		case 1:
			close(began)
			<-goOn
		case 3: // two loads were sent
			got := map[uint64]int{}
			for _, name := range names {
				c := w.n.Counts(w.queues[name])
				got[w.queues[name].group().id] += c.Ready
			}
			seen <- got
		}
	}, defs, table{"x": names})
	defer w.stop()
	source := w.queues["source"]
	var ops []Op
	for s := range message.Serial(messages) {
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{source}, Body: w.record(s), TTL: 1, Priority: -1})
	}
	w.n.Run(ops)
	<-began
	w.await("all are on their way", func() bool { return w.n.Counts(source).Transit == messages*targets })
	close(goOn)
	got := <-seen
	if len(got) != 2 {
		t.Fatalf("the targets are in %d groups, want 2", len(got))
	}
	for id, n := range got {
		if n == 0 {
			t.Errorf("group %d waits until another has all: %v", id, got)
		}
	}
	for _, name := range names {
		w.await("all have arrived", func() bool { return w.n.Counts(w.queues[name]).Ready == messages })
	}
}

// Stranded messages are read one after the other.
func TestStrandedRecordsOnDiskAreReadOneByOne(t *testing.T) {
	const messages, size = 64, warmBytes / 8
	for _, source := range []queue.Config{classic, quorum} {
		t.Run(source.Type.String(), func(t *testing.T) {
			other := quorum
			if source.Type == queue.Quorum {
				other = classic
			}
			goOn := make(chan struct{})
			var peak atomic.Int64
			w := startQueues(t, vfs.NewMem(), 1, func(step string) {
				if step == FailMailSent {
					<-goOn
				}
			}, []definition{mailQueue("source", source, "x", false), mailQueue("goes", other, "", false)}, table{"x": {"goes"}}, func(w *mailWorld) {
				w.drops.Store(true)
				w.route = func(*Queue) { peak.Store(max(peak.Load(), w.n.bodies.Memory())) }
			})
			defer w.stop()
			q := w.queues["source"]
			var ops []Op
			for s := range message.Serial(messages) {
				ops = append(ops, Op{Kind: Publish, Targets: []*Queue{q}, Body: heavy(w.n, s, size), TTL: 1, Priority: -1})
			}
			_ = w.n.Await(w.n.Run(ops))
			w.await("all are on their way", func() bool { return w.n.Counts(q).Transit == messages })
			w.remove("goes")
			w.rerouted.Store(&table{"x": {}})
			close(goOn)
			w.await("all are stranded", func() bool { return w.n.Stranded() == messages })
			eachOutbox(w.n, func(b *outbox.Outbox) {
				for i := range b.Stranded() {
					e := &b.Stranded()[i]
					e.Body, _ = w.n.bodies.Cool(e.Body)
				}
			})
			w.await("nobody reads them", func() bool { return w.n.bodies.Memory() < warmBytes })
			peak.Store(0)
			w.n.RetryStranded()
			if most := int64(2 * warmBytes); peak.Load() == 0 || peak.Load() > most {
				t.Errorf("%d bytes were in memory at once, want %d at most", peak.Load(), most)
			}
		})
	}
}

// weigher is a log that notes the size of the largest proposal.
type weigher struct {
	Log
	most int
}

func (w *weigher) Append(data []byte) (journal.Pos, error) {
	w.most = max(w.most, len(data))
	return w.Log.Append(data)
}

// Publishes that a caller waits for become commands that a group takes, however large the messages are.
func TestManyLargePublishesAreSeveralCommands(t *testing.T) {
	const messages, size = 16, frameBytes / 4
	f := newFleet(t, []definition{{"q", quorum, queue.Unlimited(), DeadLetter{}}}, nil)
	q := f.queues["q"]
	log := &weigher{Log: q.group().log}
	q.group().log = log
	var ops []Op
	for s := range message.Serial(messages) {
		ops = append(ops, Op{Kind: Publish, Targets: []*Queue{q}, Body: heavy(f.leader, s, size), TTL: -1, Priority: -1})
	}
	if err := f.leader.Enter(ops); err != nil {
		t.Fatal(err)
	}
	if log.most > frameBytes+2*size {
		t.Errorf("a command has %d bytes, want about %d", log.most, frameBytes)
	}
	if n := f.ready("q"); n != messages {
		t.Errorf("%d messages are there, want %d", n, messages)
	}
}

// The journal has no copy of a message that dies unlogged. Its frame has one for all targets together.
func TestTheRecordOfADeathThatWasNotLoggedIsOnceInItsFrame(t *testing.T) {
	const targets, size = 16, frameBytes / 4
	defs := []definition{{"source", transient, settings(func(s *queue.Settings) { s.DeadLetter = true }), DeadLetter{Exchange: "x"}}}
	routes := table{}
	for i := range targets {
		name := fmt.Sprint("target ", i)
		defs = append(defs, definition{name, classic, queue.Unlimited(), DeadLetter{}})
		routes["x"] = append(routes["x"], name)
	}
	fs := vfs.NewMem()
	w := open(t, fs, defs, routes, 1000, nil)
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["source"]}, Body: w.record(1, true, size), TTL: 10, Priority: -1}})
	w.now += 20
	w.settle()
	if err := w.j.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.j.Segments() { // a large frame has a segment of its own
		if s.Bytes > frameBytes+2*size {
			t.Errorf("a frame of %d bytes, want about %d", s.Bytes, frameBytes)
		}
	}
	w.close()
	w = open(t, fs, defs, routes, w.now, nil)
	if found := w.find()[1]; len(found) != targets {
		t.Errorf("the message is in %d queues, want %d", len(found), targets)
	}
}

// A dead message on disk is read into memory for routing. If it goes to another log, it does not stay in memory until
// that log has taken it: many may wait.
func TestDeathsOnDiskWaitForAnotherLogOnDisk(t *testing.T) {
	const messages, size = 64, warmBytes / 8
	fs := vfs.NewMem()
	goOn := make(chan struct{})
	defs := []definition{mailQueue("source", classic, "x", false), mailQueue("target", quorum, "", false)}
	w := startQueues(t, fs, 1, nil, defs, table{"x": {"target"}})
	for s := range message.Serial(messages) {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{w.queues["source"]}, Body: heavy(w.n, s, size), TTL: -1, Priority: -1}})
	}
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	w.stop()

	w = startQueues(t, fs, 2, func(step string) {
		if step == FailMailSent {
			<-goOn
		}
	}, defs, table{"x": {"target"}})
	defer w.stop()
	source := w.queues["source"]
	w.n.Configure(source, settings(func(s *queue.Settings) { s.MaxLength, s.DeadLetter = 0, true }), DeadLetter{Exchange: "x"})
	w.await("all are on their way", func() bool { return w.n.Counts(source).Transit == messages })
	if most := int64(2 * warmBytes); w.n.bodies.Memory() > most {
		t.Errorf("%d bytes are in memory, want %d at most", w.n.bodies.Memory(), most)
	}
	close(goOn)
	w.await("all have arrived", func() bool { return w.n.Counts(w.queues["target"]).Ready == messages })
}
