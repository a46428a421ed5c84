//go:build linux && !race

package bodies

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
)

// resident is the process's memory in bytes.
func resident(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// Memory given up leaves the process at once, without a collection, and the same
// addresses serve again.
func TestMemoryReturns(t *testing.T) {
	for name, size := range map[string]int{"small": 200, "large": 100_000, "very large": 8 << 20} {
		t.Run(name, func(t *testing.T) {
			s := New()
			const total = 128 << 20
			for range 2 {
				before := resident(t)
				var refs []message.Ref
				for range total / size {
					ref, b := s.Alloc(size)
					for i := 0; i < len(b); i += 1024 {
						b[i] = 1
					}
					refs = append(refs, ref)
				}
				if grown := resident(t) - before; grown < total*3/4 {
					t.Fatalf("resident memory grew by %d bytes, want about %d: the test measures nothing", grown, total)
				}
				for _, ref := range refs {
					s.Release(ref)
				}
				const kept = keepFree*pageBytes + keepBig + 16<<20
				if grown := resident(t) - before; grown > kept {
					t.Errorf("%d bytes are still resident, want at most %d", grown, kept)
				}
			}
		})
	}
}
