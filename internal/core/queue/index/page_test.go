package index

import (
	"testing"
	"unsafe"
)

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"page", pageHead, int(unsafe.Sizeof(page{}))},
		{"side row", sideBytes, int(unsafe.Sizeof(Side{}))},
		{"before-image", beforeBytes, int(unsafe.Sizeof(before{}))},
		{"counts", countsBytes, int(unsafe.Sizeof(Counts{}))},
	} {
		if c.got != c.want {
			t.Errorf("the %s takes %d bytes, is said to take %d", c.what, c.want, c.got)
		}
	}
}
