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
			} else if v.Size != uint32(len(want)+1) && v.Size != uint32(len(want)+3) { // a quorum queue counts properties
				w.t.Fatalf("letter %d has the size %d, want its body and %d", i, v.Size, len(want))
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
// 128 MiB, however many they are: the store of the index writes a page of 256 letters, here 16 MiB, in one piece.
func TestDetailsOfLettersTakeNoMemory(t *testing.T) {
	const size, mostComing, mostSaved = 64 << 10, 16 << 20, 128 << 20
	memory := func(w *mailWorld) int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) + w.n.bodies.Memory()
	}
	for _, c := range []struct {
		kind    queue.Config
		letters int
	}{{classic, 12_000}, {quorum, 4000}} {
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
			if c := w.n.Counts(dead); c.ReadyBytes < int64(letters*size) {
				t.Errorf("the queue counts %d bytes", c.ReadyBytes)
			}
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

// A queue counts the details of its letters as it counts bodies: x-max-length-bytes and the room for an operator's move heed them.
func TestLimitsOfBytesHeedDetails(t *testing.T) {
	const size = 10 << 10
	for _, kind := range []queue.Config{classic, quorum} {
		t.Run(fmt.Sprint(kind.Type), func(t *testing.T) {
			full := definition{"dead", kind, settings(func(s *queue.Settings) { s.MaxBytes = 5 * (size + 100) }), DeadLetter{}}
			defs := []definition{mailQueue("source", kind, "x", false), full, {"free", kind, queue.Unlimited(), DeadLetter{}}}
			w := startQueues(t, vfs.NewCrashableMem(), 1, nil, defs, table{"x": {"dead"}})
			defer w.stop()
			w.drops.Store(true)
			dead, free := w.queues["dead"], w.queues["free"]
			w.fail(w.queues["source"], 1, 20, size)
			w.await("the queue has dropped its oldest", func() bool {
				left := w.n.Counts(w.queues["source"])
				return w.n.Counts(dead).Ready == 5 && left.Messages() == 0
			})
			w.details(dead, 5, size)
			w.n.Configure(dead, queue.Unlimited(), DeadLetter{})

			// A move takes the detail along and a replay ends it: the size follows.
			move := func(from, to *Queue, history func(h *deadletter.History) deadletter.History) Moved {
				t.Helper()
				var moves []Move
				_, _, err := w.n.Browse(from, queue.Cursor{}, 1, func(v queue.View, _ message.Record, stored []byte) bool {
					h, err := deadletter.Parse(stored)
					if err != nil {
						t.Fatal(err)
					}
					h = history(&h)
					moves = append(moves, Move{ID: v.ID, Targets: []*Queue{to}, History: h.Append(nil)})
					return true
				})
				if err != nil || len(moves) != 1 {
					t.Fatal(len(moves), err)
				}
				moved, err := w.n.Move(t.Context(), from, moves)
				if err != nil {
					t.Fatal(err)
				}
				return moved[0]
			}
			same := func(h *deadletter.History) deadletter.History { return *h }
			before := w.n.Counts(dead).ReadyBytes
			if m := move(dead, free, same); m.What != MoveDone {
				t.Fatal(m)
			}
			if moved, left := w.n.Counts(free).ReadyBytes, w.n.Counts(dead).ReadyBytes; moved < size || moved+left != before {
				t.Errorf("%d bytes have moved and %d are left of %d", moved, left, before)
			}
			limit := queue.Unlimited()
			limit.MaxBytes, limit.Overflow = size, queue.RejectPublish
			w.n.Configure(dead, limit, DeadLetter{})
			if m := move(free, dead, same); m.What != MoveRefused {
				t.Errorf("a move into a queue without room for the detail: %v", m.What)
			}
			w.n.Configure(dead, queue.Unlimited(), DeadLetter{})
			if m := move(free, dead, func(h *deadletter.History) deadletter.History {
				return deadletter.History{ReplayedFrom: "free", Keys: h.Keys, Marks: h.Replayed(1)}
			}); m.What != MoveDone {
				t.Fatal(m)
			}
			if c := w.n.Counts(dead); c.Ready != 5 || c.ReadyBytes > before-size || c.ReadyBytes < 4*size {
				t.Errorf("after a replay %d messages have %d bytes", c.Ready, c.ReadyBytes)
			}
			if c := w.n.Counts(free); c.ReadyBytes != 0 {
				t.Errorf("the queue that they left has %d bytes", c.ReadyBytes)
			}
		})
	}
}

// Whatever was synced is there after a crash, with its detail and its size: in the journal, in a checkpoint, and while a death is
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
						if c := w.n.Counts(w.queues["source"]); c.HeldBytes < letters*size {
							t.Errorf("held deaths have %d bytes", c.HeldBytes)
						}
						crash(2)
						if c := w.n.Counts(w.queues["source"]); c.HeldBytes < letters*size {
							t.Errorf("after a crash, held deaths have %d bytes", c.HeldBytes)
						}
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

// A detail counts since version 12 of commands. What earlier ones let in keeps its size, and counts from its next move on: a log that
// both have written gives each replica the same.
func TestDetailsCountSinceVersion12(t *testing.T) {
	const size = 5000
	var defs []definition
	for i := range Groups + 1 {
		defs = append(defs, definition{fmt.Sprint(i), quorum, queue.Unlimited(), DeadLetter{}})
	}
	f := newFleet(t, defs, nil)
	here, there := f.queues["0"], (*Queue)(nil)
	for name, q := range f.queues {
		if name != "0" && !here.apart(q) {
			there = q
		}
	}
	if there == nil {
		t.Fatal("no two queues are in the same group")
	}
	f.publish("0", nil, -1)
	f.quiesce()
	bare := here.m.Totals().ReadyBytes
	h := deadletter.History{Keys: []string{"k"}, ReplayedFrom: "a", Cause: deadletter.Cause{Detail: detailOf(1, size)}}
	detail := int64(len(h.Cause.Detail))
	for i, c := range []struct {
		version  byte
		from, to *Queue
		detail   bool
		want     int64
	}{
		{detailVersion - 1, here, there, true, bare}, {detailVersion - 1, there, here, true, bare},
		{detailVersion, here, there, true, bare + detail}, {detailVersion, there, here, true, bare + detail}, {detailVersion, here, there, false, bare},
	} {
		from, to, moved := c.from, c.to, h
		if !c.detail {
			moved.Cause = deadletter.Cause{}
		}
		_ = from.group().tell(func(w *commandWriter) {
			w.b[0] = c.version
			from.m.Browse(queue.Cursor{}, 1, func(v queue.View) bool {
				w.take(from.Incarnation, v.ID, moved.Append(nil), &plan{targets: []*Queue{to}})
				return true
			})
		})
		f.quiesce()
		if got := to.m.Totals(); got.Ready != 1 || got.ReadyBytes != c.want || from.m.Totals().Ready != 0 {
			t.Errorf("move %d, version %d: %d messages with %d bytes, want one with %d", i, c.version, got.Ready, got.ReadyBytes, c.want)
		}
		f.agree()
	}
}
