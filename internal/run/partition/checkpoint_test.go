package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// A checkpoint is written when enough operations are in the journal, however few bytes and however little time they
// took. The next one needs as many more.
func TestCheckpointsByOperations(t *testing.T) {
	w := open(t, vfs.NewCrashableMem(), []definition{{"q", classic, queue.Unlimited(), DeadLetter{}}}, nil, 1_700_000_000_000, nil)
	w.n.Checkpointing.Operations = 200 // a message takes two here, with the hash of its queue
	q, serial := w.queues["q"], message.Serial(0)
	publish := func(n int) {
		for range n {
			serial++
			w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 10), TTL: -1, Priority: -1}})
		}
		if err := w.j.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	written := func(want bool) {
		t.Helper()
		if got := w.n.checkpoints.ifDue(time.Now()); got != want {
			t.Errorf("after %d messages a checkpoint is written: %v", serial, got)
		}
	}
	publish(99)
	written(false)
	publish(1)
	written(true)
	written(false)
	publish(99)
	written(false)
	// Each entry of a run of settlements counts as one.
	if n, err := w.n.Purge(q); n != 199 || err != nil {
		t.Fatal(n, err)
	}
	written(true)
	w.close()
}

// When room gets short, a checkpoint is written at once, and frees what was drained before, except the newest
// segment. Another one follows soon after more was drained.
func TestShortOfRoomGivesBackAtOnce(t *testing.T) {
	fs := vfs.NewCrashableMem()
	w := open(t, fs, []definition{{"q", classic, queue.Unlimited(), DeadLetter{}}}, nil, 1_700_000_000_000, nil)
	q := w.queues["q"]
	for serial := range message.Serial(200) {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 1000), TTL: -1, Priority: -1}})
	}
	if n, err := w.n.Purge(q); n != 200 || err != nil {
		t.Fatal(n, err)
	}
	w.settle()
	due := func(last time.Time, want bool) {
		t.Helper()
		if got := w.n.checkpoints.ifDue(last); got != want {
			t.Errorf("a checkpoint is written: %v, want %v", got, want)
		}
	}
	if err := w.j.Flush(); err != nil {
		t.Fatal(err)
	}
	due(time.Now(), false)
	before := w.j.Segments()
	w.n.ShortOfRoom(true, 1<<20)
	due(time.Now(), true)
	if after := w.j.Segments(); len(before) < 2 || len(after) != 1 || after[0].Number <= before[len(before)-1].Number {
		t.Errorf("segments %v, before %v: want none of them", after, before)
	}
	w.n.ShortOfRoom(true, 1<<20)
	due(time.Now().Add(-shortEvery), false) // nothing has happened
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(200, true, 1000), TTL: -1, Priority: -1}})
	due(time.Now(), false)
	due(time.Now().Add(-shortEvery), true)
	w.n.ShortOfRoom(false, 1<<40)
	w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(201, true, 1000), TTL: -1, Priority: -1}})
	due(time.Now().Add(-shortEvery), false)
	w.close()
}

// What goes after the cut of a checkpoint, though all that was logged about it was before, is given back soon after, not with
// the next checkpoint that time brings: a client that is slow to read what it has settled, say, while publishers wait for room.
func TestShortOfRoomGivesBackWhatGoesAfterTheCut(t *testing.T) {
	w := open(t, vfs.NewCrashableMem(), []definition{{"q", classic, queue.Unlimited(), DeadLetter{}}}, nil, 1_700_000_000_000, nil)
	q := w.queues["q"]
	var out []message.Ref
	for serial := range message.Serial(200) {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 1000), TTL: -1, Priority: -1}})
	}
	for range 200 {
		d, _, ok, err := w.n.Get(q, false)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		out = append(out, d.Body)
		w.n.Run([]Op{{Kind: Ack, Queue: q, ID: d.ID}})
	}
	if err := w.j.Flush(); err != nil {
		t.Fatal(err)
	}
	c := &w.n.checkpoints
	w.n.ShortOfRoom(true, 1<<20)
	if !c.ifDue(time.Now()) {
		t.Fatal("no checkpoint is written when room gets short")
	}
	if c.dueForRoom(time.Hour, 0) {
		t.Error("a checkpoint is due that gives nothing back")
	}
	for _, body := range out {
		w.n.bodies.Release(body)
	}
	if c.dueForRoom(emptiedEvery/2, 0) || !c.dueForRoom(emptiedEvery, 0) {
		t.Error("no checkpoint is due a while after files have become empty")
	}
	if !c.ifDue(time.Now().Add(-emptiedEvery)) || c.dueForRoom(time.Hour, 0) {
		t.Error("the checkpoint that is written leaves something to be given back")
	}
	w.close()
}

// Compaction needs room for copies before files go. With little room it begins with the files that free the most, and
// takes only as many as fit.
func TestCompactionFitsIntoTheRoom(t *testing.T) {
	files := func() []sparseFile { return []sparseFile{{1, 50, 100}, {2, 10, 100}, {3, 1, 4}} }
	for _, tt := range []struct {
		room int64
		want []uint64
	}{{compactFile, []uint64{2, 3, 1}}, {compactFile / 2, []uint64{2, 3}}, {compactFile / 5, []uint64{2}}, {0, nil}} {
		var got []uint64
		for _, f := range thatFit(files(), tt.room) {
			got = append(got, f.file)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("into %d bytes fit the files %v, want %v", tt.room, got, tt.want)
		}
	}
}
