package store

import (
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Several at once may find the log too long: the store can be opened again all the same.
func TestManyShortenTheLogAtOnce(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	value := strings.Repeat("v", walSegment/4)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				apply(t, s, true, "key", value)
			}
		})
	}
	all.Wait()
	closed(t, s)
	closed(t, open(t, fs))
}
