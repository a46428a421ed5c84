package journal

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{128, 1024} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			j, _ := open(b, vfs.NewMem(), func(o *Options) { o.SegmentBytes = maxSegmentBytes })
			defer closeUnwritten(j)
			p := payload(1, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				j.Append(p)
				if i&1023 == 1023 { // as if a leader had taken the buffer
					j.mu.Lock()
					j.active.reset()
					j.mu.Unlock()
				}
			}
		})
	}
}

// closeUnwritten closes a journal whose buffer was tampered with.
func closeUnwritten(j *Journal) {
	j.mu.Lock()
	j.stop(ErrClosed)
	j.mu.Unlock()
	j.Close()
}

// BenchmarkCommit is Append and Commit on the disk below the temporary directory, with
// so many in flight, after the recycled files are there.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{128, 1024} {
		for _, inFlight := range []int{1, 256} {
			b.Run(fmt.Sprintf("%dB/%d-in-flight", n, inFlight), func(b *testing.B) {
				j, err := Open(Options{Dir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				if err := j.Recover(0, func(Pos, []byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
				p := payload(1, n)
				for range 3 { // fill segments and free them
					for range defaultSegmentBytes/len(p) + 1 {
						j.Append(p)
					}
					if err := j.Flush(); err != nil {
						b.Fatal(err)
					}
				}
				pos := j.Append(p)
				if err := j.Commit(pos); err != nil {
					b.Fatal(err)
				}
				if err := j.Retire(pos.Segment(), nil); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(n))
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for w := range inFlight {
					wg.Go(func() {
						for i := w; i < b.N; i += inFlight {
							pos := j.Append(p)
							if err := j.Commit(pos); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				if err := j.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
