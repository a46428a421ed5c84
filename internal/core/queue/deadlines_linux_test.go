package queue

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue/index"
)

var deadlines = flag.Int("deadlines", 1_000_000, "how many messages BenchmarkDeadlines has")

// used is the processor time of this thread, whatever else runs.
func used() time.Duration {
	const threadCPUTime = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// Messages with random deadlines over two minutes expire while no consumer takes any: in memory, and with all pages
// put away except those at the ends. Deaths are picked and buried in slices, as routing does it.
func BenchmarkDeadlines(b *testing.B) {
	const over = 120_000
	for _, away := range []bool{false, true} {
		name := map[bool]string{false: "memory", true: "put away"}[away]
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				pages := &Pages{Hot: index.HotPages}
				settings := Unlimited()
				settings.DeadLetter = true
				m := New(Config{MaxPriority: -1}, settings, pages, &nobody{}, 1)
				cold := &attic{pages: map[index.PageID][]byte{}}
				if away {
					m.SetCold(cold)
					pages.Begin(1)
				}
				chance := rand.New(rand.NewPCG(1, 2))
				const start = 1_700_000_000_000
				e := Entry{Content: Content{Size: 10, Logged: true}, Priority: -1}
				for i := range *deadlines {
					e.Body, e.TTL = message.Ref(1_000_000+140*i), 1+chance.Int64N(over)
					m.Enqueue(start, &e)
					if i%20_000 == 0 {
						for m.PutAway(32, true) > 0 {
						}
					}
				}
				m.SweepAgain(true)
				for m.PutAway(32, true) > 0 {
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
				for _, p := range cold.pages {
					held -= int64(cap(p)) + 48
				}
				b.ReportMetric(float64(held)/float64(*deadlines), "B/message")
				b.ReportMetric(float64(pages.Bytes())/float64(*deadlines), "lentB/message")

				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				ticks := make([]time.Duration, 0, 2**deadlines)
				var spent, picking, burying time.Duration
				var dead []Death
				trash := make([]byte, 8<<20)
				for now := int64(start); m.Totals().Ready > 0; now = max(now+1, m.NextDue()) {
					for more := true; more; {
						begin := used()
						more = m.Tick(now, sliceLimit)
						took := used() - begin
						ticks = append(ticks, took)
						spent += took
					}
					for m.Waiting() >= sliceLimit {
						begin := used()
						dead = m.Deaths(sliceLimit, dead[:0])
						picked := used()
						for k := 0; k < len(trash); k += 64 {
							trash[k]++ // what routing does with the caches
						}
						began := used()
						looked := 0
						for k, d := range dead {
							if k == looked {
								looked += m.Glance(dead[k:])
							}
							if m.Dead(d.ID) {
								m.Bury(d.ID)
							}
						}
						picking += picked - begin
						burying += used() - began
					}
				}
				slices.Sort(ticks)
				b.ReportMetric(float64(spent.Nanoseconds())/float64(*deadlines), "ns/death")
				b.ReportMetric(float64(picking.Nanoseconds())/float64(*deadlines), "ns/pick")
				b.ReportMetric(float64(burying.Nanoseconds())/float64(*deadlines), "ns/burial")
				b.ReportMetric(float64(cold.reads)/float64(*deadlines), "reads/death")
				b.ReportMetric(float64(ticks[len(ticks)-1].Microseconds()), "µs-longest-tick")
				b.ReportMetric(float64(ticks[len(ticks)*9999/10000].Microseconds()), "µs-tick-p99.99")
			}
		})
	}
}
