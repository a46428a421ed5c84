package partition

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// detailOf is what a consumer says of the i-th failure: another text each time.
func detailOf(i, size int) string {
	return fmt.Sprint("failure ", i, "\n") + strings.Repeat("\tat com.example.Orders.handle(Orders.java:42)\n", size/46+1)[:size]
}

// fail publishes n messages of a byte to the queue and rejects each with a detail.
func (w *mailWorld) fail(q *Queue, from, n, size int) {
	w.t.Helper()
	for i := from; i < from+n; i++ {
		e := message.Envelope{Serial: message.Serial(i), Key: []byte("k"), Properties: []byte{0, 0}, BodySize: 1, Persistent: true}
		ref, b := w.n.bodies.Alloc(e.Size())
		e.Put(b)[0] = 'x'
		message.Record(b).Seal()
		if err := w.n.Await(w.n.Run([]Op{{Kind: Publish, Targets: []*Queue{q}, Body: ref, TTL: -1, Priority: -1}})); err != nil {
			w.t.Fatal(err)
		}
		d, _, ok, err := w.n.Get(q, false)
		if !ok || err != nil {
			w.t.Fatal(ok, err)
		}
		w.n.bodies.Release(d.Body)
		w.n.bodies.Release(d.History)
		note := &deadletter.Note{Cause: deadletter.Cause{Class: "C", Error: "e", Detail: detailOf(i, size)}}
		if err := w.n.RunWhole([]Op{{Kind: Reject, Queue: q, ID: d.ID, Consumer: d.By, Note: note}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// details checks that the queue has n letters, each with what was said of it.
func (w *mailWorld) details(q *Queue, n, size int) {
	w.t.Helper()
	seen := map[int]bool{}
	for at, done := (queue.Cursor{}), false; !done; {
		var err error
		at, done, err = w.n.Browse(q, at, 256, func(v queue.View, r message.Record, stored []byte) bool {
			h, err := deadletter.Parse(stored)
			i := int(r.Serial())
			if want := detailOf(i, size); err != nil || h.Cause.Detail != want || h.Cause.Error != "e" || h.Note != nil {
				w.t.Fatalf("letter %d, %v: its detail has %d bytes, want %d", i, err, len(h.Cause.Detail), len(want))
			} else if v.Size > 3 { // a quorum queue counts properties
				w.t.Fatalf("letter %d of a byte has the size %d", i, v.Size)
			}
			seen[i] = true
			return true
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if len(seen) != n {
		w.t.Errorf("%d letters, want %d", len(seen), n)
	}
}

// What consumers say of their failures lies on disk, as bodies do. 12,000 letters with a stack trace of 64 KiB each, 790 MB, take
// less than 16 MiB of memory while they come. After a checkpoint, while somebody reads them all, and after a start they take less than
// 192 MiB, however many they are: the store of the index writes a page of 256 letters, here 16 MiB, in one piece, and has several of them at a time.
func TestDetailsOfLettersTakeNoMemory(t *testing.T) {
	const size, mostComing, mostSaved = 64 << 10, 16 << 20, 192 << 20
	memory := func(w *mailWorld) int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) + w.n.bodies.Memory()
	}
	for _, c := range []struct {
		kind    queue.Config
		letters int
	}{{classic, 4000}, {quorum, 4000}} {
		kind, letters := c.kind, c.letters
		if testing.Short() || inspected {
			letters = min(letters, 2000)
		}
		t.Run(fmt.Sprint(kind.Type), func(t *testing.T) {
			t.Chdir(t.TempDir())
			defs := []definition{mailQueue("source", kind, "x", false), mailQueue("dead", kind, "", false)}
			start := func(life uint64) *mailWorld {
				w := openMail(t, nil, life, nil, table{"x": {"dead"}}, func(w *mailWorld) { w.files, w.large = vfs.Default, true })
				w.n.Budget.Index, w.n.Budget.Bodies = awayIndex, awayBudget
				for i := range defs {
					w.create(&defs[i], uint64(i+1))
				}
				w.start()
				return w
			}
			w := start(1)
			base := memory(w)
			check := func(when string, most int64) {
				t.Helper()
				took := memory(w) - base
				if t.Logf("%s they take %.1f MiB", when, float64(took)/(1<<20)); took > most {
					t.Errorf("%s they take %d bytes, want less than %d", when, took, most)
				}
			}
			for i := 0; i < letters; i += 2000 {
				w.fail(w.queues["source"], i, 2000, size)
				check(fmt.Sprint("after ", i+2000), mostComing)
			}
			dead := w.queues["dead"]
			w.await("all have arrived", func() bool { return w.n.Counts(dead).Ready == letters })
			began := time.Now()
			if err := w.n.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprint("after a checkpoint of ", time.Since(began)), mostSaved)
			w.details(dead, letters, size)
			check("after all were read", mostSaved)
			w.stop()
			w = start(2)
			check("after a start", mostSaved)
			w.details(w.queues["dead"], letters, size)
			check("after all were read again", mostSaved)
			w.stop()
		})
	}
}

// A detail takes no room in a queue: a consumer that says much of a failure must neither push letters out of a queue with a limit of
// bytes, nor make the letter too large for it, nor fill the queue that it consumes from.
func TestDetailsTakeNoRoom(t *testing.T) {
	const size, most = 64 << 10, 10_000
	limited := func(name string, kind queue.Config, overflow queue.Overflow, dead string, atLeastOnce bool) definition {
		return definition{name, kind, settings(func(s *queue.Settings) {
			s.MaxBytes, s.Overflow, s.DeadLetter, s.AtLeastOnce = most, overflow, dead != "", atLeastOnce
		}), DeadLetter{Exchange: dead}}
	}
	for _, kind := range []queue.Config{classic, quorum} {
		for _, atLeastOnce := range []bool{false, true} {
			t.Run(fmt.Sprint(kind.Type, " at least once ", atLeastOnce), func(t *testing.T) {
				defs := []definition{limited("source", kind, queue.RejectPublish, "x", atLeastOnce), limited("dead", kind, queue.DropHead, "", false), limited("full", kind, queue.RejectPublish, "", false)}
				w := startQueues(t, vfs.NewCrashableMem(), 1, nil, defs, table{"x": {"dead", "full"}})
				defer w.stop()
				w.fail(w.queues["source"], 1, 20, size)
				w.await("all are in both", func() bool {
					left := w.n.Counts(w.queues["source"])
					return w.n.Counts(w.queues["dead"]).Ready == 20 && w.n.Counts(w.queues["full"]).Ready == 20 && left.Messages()+left.Held == 0
				})
				w.details(w.queues["dead"], 20, size)
				if c := w.n.Counts(w.queues["dead"]); c.ReadyBytes > most {
					t.Errorf("they count %d bytes", c.ReadyBytes)
				}
			})
		}
	}
}

// Whatever was synced is there after a crash, with its detail: in the journal, in a checkpoint, and while a death is
// held for a target without room; between logs of both kinds.
func TestDetailsOutliveTheProcess(t *testing.T) {
	const size, letters = 3 << 10, 12
	noRoom := settings(func(s *queue.Settings) { s.MaxLength, s.Overflow = 0, queue.RejectPublish })
	for _, from := range []queue.Config{classic, quorum} {
		for _, to := range []queue.Config{classic, quorum} {
			for _, checkpoint := range []bool{false, true} {
				t.Run(fmt.Sprint(from.Type, " to ", to.Type, " checkpoint ", checkpoint), func(t *testing.T) {
					defs := []definition{mailQueue("source", from, "x", true), {"dead", to, noRoom, DeadLetter{}}}
					fs := vfs.NewCrashableMem()
					w := startQueues(t, fs, 1, nil, defs, table{"x": {"dead"}})
					w.fail(w.queues["source"], 1, letters, size)
					crash := func(life uint64) {
						t.Helper()
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
						w = startQueues(t, fs, life, nil, defs, table{"x": {"dead"}})
					}
					if to.Type == queue.Classic {
						w.await("the deaths are held", func() bool { return w.n.Counts(w.queues["source"]).Held == letters })
						crash(2)
					}
					w.n.Configure(w.queues["dead"], queue.Unlimited(), DeadLetter{})
					w.await("they have gone on", func() bool {
						w.n.RetryAllHeld()
						w.n.SettleAll()
						return w.n.Counts(w.queues["dead"]).Ready == letters
					})
					w.details(w.queues["dead"], letters, size)
					crash(3)
					w.details(w.queues["dead"], letters, size)
					w.stop()
				})
			}
		}
	}
}
