//go:build !unix || race

package bodies

import "unsafe"

// memory is where pages come from: Go's heap.
type memory struct{}

func (*memory) page() []byte       { return aligned(pageBytes) }
func (*memory) dropPage([]byte)    {}
func (*memory) large(n int) []byte { return aligned(n) }
func (*memory) dropLarge([]byte)   {}
func (*memory) forget([]byte)      {}
func (*memory) forgetKept()        {}

// aligned returns n bytes, rounded up, beginning at a multiple of 8.
func aligned(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
}
