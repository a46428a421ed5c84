//go:build !race

package journal

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A frame goes into the buffer without an allocation, once that has grown; the race
// detector makes some of its own.
func TestAppendDoesNotAllocate(t *testing.T) {
	j, _ := open(t, vfs.NewMem(), func(o *Options) { o.SegmentBytes = maxSegmentBytes })
	defer closeUnwritten(j)
	p := payload(1, 1024)
	turn := func() {
		for range 100 {
			j.Append(p)
		}
		j.mu.Lock() // as if a leader had taken the buffer
		j.active.reset()
		j.mu.Unlock()
	}
	if n := testing.AllocsPerRun(100, turn); n != 0 {
		t.Errorf("%v allocations for a hundred frames", n)
	}
}
