package partition

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
)

// A file that is emptying quickly is left alone, because it is empty soon. A file that has stayed half empty is not.
func TestCompactionLeavesFilesThatEmptyThemselves(t *testing.T) {
	w := open(t, vfs.NewCrashableMem(), []definition{{"q", classic, queue.Unlimited(), DeadLetter{}}}, nil, 1000, nil)
	q := w.queues["q"]
	const n = 200
	for serial := range message.Serial(n) {
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(serial, true, 1000), TTL: -1, Priority: -1}})
	}
	var ids []queue.ID
	for range n {
		d, _, ok, err := w.n.Get(q, false)
		if !ok || err != nil {
			t.Fatalf("Get: %v, %v", ok, err)
		}
		w.n.bodies.Release(d.Body)
		ids = append(ids, d.ID)
	}
	settle := func(from, to int) { // of every ten
		for i, id := range ids {
			if i%10 >= from && i%10 < to {
				w.n.Run([]Op{{Kind: Ack, Queue: q, ID: id}})
			}
		}
	}
	compacts := func(when string, want bool) {
		t.Helper()
		if err := w.n.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if did, err := w.n.Compact(); did != want || err != nil {
			t.Errorf("%s: Compact says %v, %v, want %v", when, did, err, want)
		}
	}
	settle(0, 2)
	compacts("8 of 10 live", false)
	settle(2, 5)
	compacts("5 of 10, it were 8", false)
	compacts("still 5", true)
	if c := w.n.Counts(q); c.Out != n/2 {
		t.Errorf("%d messages are out, want %d", c.Out, n/2)
	}
	w.check(0)
}

// A dense file is full at its size, even within what one hold has found: a few hundred large messages would exceed a
// file.
func TestCompactionFillsFilesUpToTheirSize(t *testing.T) {
	const pairs, size = 60, compactFile / 40
	fs := vfs.NewMem()
	defs := []definition{{"stays", classic, queue.Unlimited(), DeadLetter{}}, {"goes", classic, queue.Unlimited(), DeadLetter{}}}
	w := open(t, fs, defs, nil, 1000, nil)
	w.halfGone(pairs, size) // each pair is in a segment of its own
	if did, err := w.n.Compact(); !did || err != nil {
		t.Fatalf("Compact: %v, %v", did, err)
	}
	if err := w.n.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	files, err := w.keep.List()
	if err != nil {
		t.Fatal(err)
	}
	dense := 0
	for _, f := range files {
		if f.Kind != bodyfile.Dense {
			t.Errorf("file %d is still there as it was retired", f.Number)
			continue
		}
		if dense++; f.Bytes > compactFile+2*size {
			t.Errorf("a file has %d bytes, and is full at %d", f.Bytes, compactFile)
		}
	}
	if dense < 2 {
		t.Errorf("%d dense files", dense)
	}
	w.close()
	w = open(t, fs, defs, nil, 1000, nil)
	if found := w.find(); len(found) != pairs {
		t.Errorf("%d messages are left, want %d", len(found), pairs)
	}
	w.check(0)
}

// A record that cannot be read, for a reason that may pass, keeps its own file from being freed, and no other.
func TestCompactionPassesUnreadRecord(t *testing.T) {
	const pairs, size = 60, 1000
	fs := vfs.NewMem()
	left := -1 // reads left until one fails
	defs := []definition{{"stays", classic, queue.Unlimited(), DeadLetter{}}, {"goes", classic, queue.Unlimited(), DeadLetter{}}}
	w := &world{t: t, fs: fs, now: 1000, queues: map[string]*Queue{}}
	w.disk = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileReadAt || strings.HasPrefix(op.Path, "index") || left < 0 {
			return nil
		}
		if left--; left >= 0 {
			return nil
		}
		return syscall.EMFILE
	}))
	w.make(defs, nil)
	if err := w.n.Recover(); err != nil {
		t.Fatal(err)
	}
	w.halfGone(pairs, size)
	left = 0
	if did, err := w.n.Compact(); !did || err != nil || left >= 0 {
		t.Fatalf("Compact: %v, %v, %d reads left", did, err, left)
	}
	old := 0
	w.n.bodies.RangeSegments(func(space message.Space, segment uint32, live, _ int64) bool {
		if space == message.InJournal && live > 0 && segment < journal.Pos(w.n.checkpoints.cut.Load()).Segment() {
			old++
		}
		return true
	})
	if old != 1 {
		t.Errorf("%d old files are left, want that of the record that could not be read", old)
	}
	w.check(0)
	w.close()
	w = open(t, fs, defs, nil, 1000, nil)
	if found := w.find(); len(found) != pairs {
		t.Errorf("%d messages are left, want %d", len(found), pairs)
	}
}

// halfGone publishes pairs of messages, one to the queue "stays" and one to "goes", which is purged. So each of their
// files is half needed. It ends with a checkpoint.
func (w *world) halfGone(pairs message.Serial, size int) {
	w.t.Helper()
	for serial := range pairs {
		w.n.Run([]Op{
			{Kind: Publish, Targets: []*Queue{w.queues["stays"]}, Body: w.record(serial, true, size), TTL: -1, Priority: -1},
			{Kind: Publish, Targets: []*Queue{w.queues["goes"]}, Body: w.record(serial, true, size), TTL: -1, Priority: -1},
		})
	}
	if n, err := w.n.Purge(w.queues["goes"]); n != int(pairs) || err != nil {
		w.t.Fatal(n, err)
	}
	w.settle()
	if err := w.n.Checkpoint(); err != nil {
		w.t.Fatal(err)
	}
}
