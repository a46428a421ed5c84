package partition

import (
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/queue/index"
)

// reads counts the reads of files.
type reads struct{ n atomic.Int64 }

func (r *reads) String() string { return "reads" }

func (r *reads) MaybeError(op errorfs.Op) error {
	if op.Kind == errorfs.OpFileReadAt {
		r.n.Add(1)
	}
	return nil
}

// If reading takes a disk, messages that are due soon are read before that, in few parts and only once.
func TestWhatIsDueSoonIsReadAhead(t *testing.T) {
	const n, size = 2000, 100
	fs := vfs.NewCrashableMem()
	r := new(reads)
	w := &world{t: t, fs: fs, disk: errorfs.Wrap(fs, r), now: 1_700_000_000_000, queues: map[string]*Queue{}}
	dies := settings(func(s *queue.Settings) { s.DeadLetter = true })
	w.make([]definition{{name: "waits", config: classic, settings: dies}}, nil)
	if err := w.n.Recover(); err != nil {
		t.Fatal(err)
	}
	q := w.queues["waits"]
	for k := range n {
		// Messages that are due one after the other are far apart on disk.
		ttl := int64(10_000 + k*7919%n)
		w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: w.record(message.Serial(k+1), true, size), TTL: ttl, Priority: -1}})
	}
	if err := w.j.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		w.putAway(false)
	}
	f := &foresight{n: w.n}
	foresee := func() (got int64, more bool) {
		r.n.Store(0)
		q.part.eachDue(w.now+foreseeAhead, func(found *Queue) { more = found == q })
		if more != f.ahead(q) {
			t.Errorf("the queue is found: %v", more)
		}
		return r.n.Load(), more
	}
	if got, more := foresee(); got > 0 || more {
		t.Errorf("%d reads for what is not due soon", got)
	}
	w.now += 10_000 - foreseeAhead + n/4
	w.n.diskTakes = 1 << 40
	if got, more := foresee(); got == 0 || got > foreseeSamples || !more {
		t.Errorf("%d reads where the system has all in memory", got)
	}
	w.n.diskTakes = 0
	if got, _ := foresee(); got == 0 || got > n/20 {
		t.Errorf("%d reads for %d messages", got, n/4)
	}
	if got, _ := foresee(); got > 0 {
		t.Errorf("%d reads for what has been read ahead", got)
	}
	w.now += n / 4
	if got, _ := foresee(); got == 0 {
		t.Error("no reads for the next")
	}
}

func TestStretches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) index.Coming {
			at := message.MakeLocation(message.InJournal, rapid.Uint32Range(1, 2).Draw(t, "segment"), rapid.Uint32Range(0, 4<<20).Draw(t, "offset"))
			return index.Coming{At: at, Size: rapid.Uint32Range(0, 400_000).Draw(t, "size")}
		}), 1, 200).Draw(t, "entries")
		parts := stretches(list)
		read := uint64(0)
		for k, s := range parts {
			read += s.n
			if s.n > foreseeRead || k > 0 && s.at <= parts[k-1].at {
				t.Fatalf("part %d of %v is too long, or not behind the one before", k, parts)
			}
		}
		most := uint64(0)
		for _, c := range list { // they are in their order now
			need := min(uint64(c.Size)+foreseeExtra, foreseeRead)
			most += need + foreseeGap
			covered := false
			for _, s := range parts {
				covered = covered || s.at <= c.At && uint64(c.At)+need <= uint64(s.at)+s.n
			}
			if !covered {
				t.Fatalf("%+v is in none of %+v", c, parts)
			}
		}
		if read > most {
			t.Fatalf("%d bytes are read where %d are wanted", read, most)
		}
	})
}
