//go:build unix && !race

package bodies

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Pages come from anonymous mappings, not from Go's heap: the collector does not count
// them, and released memory goes back to the system at once. Under the race detector pages
// come from the heap, because the detector sees more there.

// regionBytes is the address space that is mapped at a time for pages of slots. It stays
// mapped; only the memory behind it comes and goes.
const regionBytes = 64 * pageBytes

// keepBig is how many bytes of mappings are kept for later large allocations.
const keepBig = 16 << 20

// memory is the source of pages.
type memory struct {
	cold [][]byte         // pages without memory behind them
	big  map[int][][]byte // mappings kept, by size
	kept int              // bytes of them
}

// page returns pageBytes bytes with undefined content.
func (m *memory) page() []byte {
	if len(m.cold) == 0 {
		region := mapped(regionBytes)
		for at := 0; at < regionBytes; at += pageBytes {
			m.cold = append(m.cold, region[at:at+pageBytes:at+pageBytes])
		}
	}
	mem := m.cold[len(m.cold)-1]
	m.cold = m.cold[:len(m.cold)-1]
	return mem
}

// dropPage releases a page's memory.
func (m *memory) dropPage(mem []byte) {
	m.forget(mem)
	m.cold = append(m.cold, mem)
}

// large returns at least n bytes.
func (m *memory) large(n int) []byte {
	n = roundLarge(n)
	if list := m.big[n]; len(list) > 0 {
		mem := list[len(list)-1]
		m.big[n] = list[:len(list)-1]
		m.kept -= n
		return mem
	}
	return mapped(n)
}

// dropLarge releases the result of large.
func (m *memory) dropLarge(mem []byte) {
	if len(mem) > keepBig/4 {
		m.unmap(mem)
		return
	}
	for size, list := range m.big {
		for m.kept+len(mem) > keepBig && len(list) > 0 {
			last := list[len(list)-1]
			list = list[:len(list)-1]
			m.kept -= size
			m.unmap(last)
		}
		m.big[size] = list
		if len(list) == 0 {
			delete(m.big, size)
		}
	}
	m.keep(mem)
}

// forget gives the memory back and keeps the addresses. It cannot fail on a mapping of
// ours; if it did, the memory would only stay in use.
func (m *memory) forget(mem []byte) { _ = unix.Madvise(mem, unix.MADV_DONTNEED) }

// forgetKept gives back the memory of mappings kept for large allocations.
func (m *memory) forgetKept() {
	for _, list := range m.big {
		for _, mem := range list {
			m.forget(mem)
		}
	}
}

func (m *memory) keep(mem []byte) {
	if m.big == nil {
		m.big = map[int][][]byte{}
	}
	m.big[len(mem)] = append(m.big[len(mem)], mem)
	m.kept += len(mem)
}

func (m *memory) unmap(mem []byte) {
	if unix.Munmap(mem) != nil {
		// The kernel cannot record the hole: keep the addresses, not the memory.
		_ = unix.Madvise(mem, unix.MADV_DONTNEED)
		m.keep(mem)
		m.kept -= len(mem)
	}
}

// roundLarge rounds up so that similar sizes share mappings: to an eighth of a power of
// two, and at least to whole pages of any machine.
func roundLarge(n int) int {
	step := max(16<<10, 1<<(bits.Len(uint(n))-4))
	return (n + step - 1) / step * step
}

func mapped(n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		// Go, too, ends a process that gets no memory.
		panic(fmt.Sprintf("bodies: no memory for %d bytes of messages: %v", n, err))
	}
	return mem
}
