// Package bodies keeps the bytes of messages, reference-counted, in memory or on disk.
// Memory is divided into slabs of size classes outside of Go's heap. Handles are not Go
// pointers, so a million queued messages cost the garbage collector nothing. A record that
// is also on disk may leave memory; its handle is then its place on disk.
//
// Partitions and sessions call it, from any number of goroutines. Invariant: the bytes of a
// Ref do not change while there is a reference to it. The store owns the bytes and counts
// the references to each file. It never decides when records move or which files are
// dropped; partitions do. It writes scratch files and no other files.
package bodies

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"bartleby.mq/internal/core/message"
)

// The layout of memory:
//
//	Ref     page number | offset of the slot in the page, 14 bits, in units of 16 bytes
//	page    256 KiB: slot, slot, slot ..., all of one class; or one large slot
//	slot    references u32 | size and kind u32 | location or base u64 | bytes
const (
	offsetBits = 14
	unit       = 16
	pageBytes  = unit << offsetBits // 256 KiB
	chunkBits  = 10                 // pages of a directory chunk
	chunks     = 1 << 12            // at most 4 Mi pages
	largest    = 32 << 10           // a larger slot gets its own page
	keepFree   = 64                 // empty pages kept for later allocations
	big        = 0xff               // the class of a page with one large slot
)

// slot is the head of every allocation; the bytes follow it.
type slot struct {
	refs atomic.Uint32
	size uint32        // and the kind, see shared.go; in a free slot the next free one
	at   atomic.Uint64 // message.Location of the bytes, 0 if they are only in memory; or the base
}

const slotHead = int(unsafe.Sizeof(slot{}))

// page is a run of equal slots, or one large slot.
type page struct {
	mem   []byte // aligned to 8 bytes; nil while the number is unused
	class uint8

	// Guarded by the class's mutex.
	free  uint32 // first free slot: its offset in units, plus one; 0 = none
	fresh uint32 // start of the slots that were never used, in units
	used  uint32
	// The class's list of pages with room; number plus one, 0 = none.
	next, prev uint32
	listed     bool
}

type chunk [1 << chunkBits]page

// class is one size of slots.
type class struct {
	mu    sync.Mutex
	units uint32 // of a slot, head included
	room  uint32 // first page with room, number plus one
	pages int
}

// Store keeps bytes. The zero value is not ready; use New.
type Store struct {
	dir     [chunks]atomic.Pointer[chunk]
	classes []class
	classOf [largest/unit + 2]uint8 // by units of the bytes and the head together

	mu     sync.Mutex // guards what follows
	pages  uint32     // page numbers used so far
	unused []uint32   // page numbers to use again
	empty  [][]byte   // empty pages whose memory is kept
	memory memory

	bytes atomic.Int64 // memory of pages in use

	bases bases

	disk     Disk
	segments segments
	windows  sync.Pool // for Warm

	scratching sync.Mutex // guards appending to scratch files, and dropping them
	sealing    []byte     // memory for ToScratch
}

// New returns an empty store.
func New() *Store {
	s := &Store{}
	s.bases.seed = maphash.MakeSeed()
	last := uint32(0)
	for u := uint32(2); ; {
		for i := last + 1; i <= u && int(i) < len(s.classOf); i++ {
			s.classOf[i] = uint8(len(s.classes))
		}
		s.classes = append(s.classes, class{units: u})
		if int(u) >= len(s.classOf)-1 {
			break
		}
		last = u
		u += max(1, u/8)
		u = min(u, uint32(len(s.classOf)-1))
	}
	s.windows.New = func() any { return new(Window) }
	s.pages = 1 // page 0 is never used, so that no Ref is 0
	return s
}

// Memory is the size of the pages in use, in bytes.
func (s *Store) Memory() int64 { return s.bytes.Load() }

func (s *Store) page(n uint32) *page {
	return &s.dir[n>>chunkBits].Load()[n&(1<<chunkBits-1)]
}

func (s *Store) slot(ref message.Ref) *slot {
	if ref.OnDisk() {
		panic("bodies: a record on disk was asked for in memory")
	}
	p := s.page(uint32(ref >> offsetBits))
	return (*slot)(unsafe.Pointer(&p.mem[int(ref&(1<<offsetBits-1))*unit]))
}

// Alloc returns n bytes with one reference. Their content is undefined. No other goroutine
// sees them until the caller hands the Ref on.
func (s *Store) Alloc(n int) (message.Ref, []byte) {
	units := (n + slotHead + unit - 1) / unit
	if units >= len(s.classOf) {
		return s.allocBig(n)
	}
	c := &s.classes[s.classOf[units]]
	c.mu.Lock()
	if c.room == 0 {
		s.addPage(c, s.classOf[units])
	}
	number := c.room - 1
	p := s.page(number)
	var off uint32
	if p.free != 0 {
		off = p.free - 1
		p.free = (*slot)(unsafe.Pointer(&p.mem[off*unit])).size // the link of a free slot
	} else {
		off = p.fresh
		p.fresh += c.units
	}
	p.used++
	if p.free == 0 && p.fresh+c.units > 1<<offsetBits {
		s.unlist(c, p)
	}
	c.mu.Unlock()
	h := (*slot)(unsafe.Pointer(&p.mem[off*unit]))
	h.refs.Store(1)
	h.size = uint32(n)
	h.at.Store(0)
	at := int(off)*unit + slotHead
	return message.Ref(number)<<offsetBits | message.Ref(off), p.mem[at : at+n : at+n]
}

func (s *Store) allocBig(n int) (message.Ref, []byte) {
	s.mu.Lock()
	mem := s.memory.large(n + slotHead)
	number := s.number()
	p := s.page(number)
	*p = page{mem: mem, class: big}
	s.mu.Unlock()
	s.bytes.Add(int64(len(mem)))
	h := (*slot)(unsafe.Pointer(&mem[0]))
	h.refs.Store(1)
	h.size = uint32(n)
	h.at.Store(0)
	return message.Ref(number) << offsetBits, mem[slotHead : slotHead+n : slotHead+n]
}

// number returns an unused page number. REQUIRES: s.mu is held.
func (s *Store) number() uint32 {
	if n := len(s.unused); n > 0 {
		number := s.unused[n-1]
		s.unused = s.unused[:n-1]
		return number
	}
	number := s.pages
	if number>>chunkBits >= chunks {
		panic("bodies: a terabyte of message pages is in use")
	}
	s.pages++
	if d := &s.dir[number>>chunkBits]; d.Load() == nil {
		d.Store(new(chunk))
	}
	return number
}

// addPage gives the class a page. REQUIRES: c.mu is held.
func (s *Store) addPage(c *class, index uint8) {
	s.mu.Lock()
	var mem []byte
	if n := len(s.empty); n > 0 {
		mem = s.empty[n-1]
		s.empty = s.empty[:n-1]
	} else {
		mem = s.memory.page()
	}
	number := s.number()
	p := s.page(number)
	*p = page{mem: mem, class: index}
	s.mu.Unlock()
	s.bytes.Add(pageBytes)
	c.pages++
	s.list(c, p, number)
}

func (s *Store) list(c *class, p *page, number uint32) {
	p.next, p.prev, p.listed = c.room, 0, true
	if c.room != 0 {
		s.page(c.room - 1).prev = number + 1
	}
	c.room = number + 1
}

func (s *Store) unlist(c *class, p *page) {
	if p.prev != 0 {
		s.page(p.prev - 1).next = p.next
	} else {
		c.room = p.next
	}
	if p.next != 0 {
		s.page(p.next - 1).prev = p.prev
	}
	p.next, p.prev, p.listed = 0, 0, false
}

// Size is the length of the bytes of ref. REQUIRES: ref is in memory.
func (s *Store) Size(ref message.Ref) int { return int(s.slot(ref).size & sizeMask) }

// Bytes returns the bytes of ref. REQUIRES: ref is in memory, the caller holds a reference,
// and does not write to the bytes unless it has just allocated them.
func (s *Store) Bytes(ref message.Ref) []byte {
	h := s.slot(ref)
	p := s.page(uint32(ref >> offsetBits))
	at := int(ref&(1<<offsetBits-1))*unit + slotHead
	n := int(h.size & sizeMask)
	return p.mem[at : at+n : at+n]
}

// Retain adds n references.
func (s *Store) Retain(ref message.Ref, n int) {
	switch {
	case ref == 0 || n <= 0:
	case ref.OnDisk():
		s.segments.add(ref.Location(), int64(n))
	default:
		s.slot(ref).refs.Add(uint32(n))
	}
}

// Refs is the number of references to bytes in memory, for checks.
func (s *Store) Refs(ref message.Ref) int { return int(s.slot(ref).refs.Load()) }

// Held is the number of allocations with references, for checks. REQUIRES: no other
// goroutine allocates or releases.
func (s *Store) Held() (n int) {
	for number := uint32(1); number < s.pages; number++ {
		switch p := s.page(number); {
		case p.mem == nil:
		case p.class == big:
			n++
		default:
			n += int(p.used)
		}
	}
	return n
}

// Release gives up one reference. The last reference frees the bytes in memory.
func (s *Store) Release(ref message.Ref) {
	if ref == 0 {
		return
	}
	if ref.OnDisk() {
		s.leave(ref.Location())
		return
	}
	h := s.slot(ref)
	left := h.refs.Add(^uint32(0))
	if left > 0 {
		if left == ^uint32(0) {
			panic("bodies: released more often than retained")
		}
		return
	}
	if h.size&interned != 0 {
		s.forget(ref)
	}
	switch at := h.at.Load(); {
	case h.size&onBase != 0:
		defer s.Release(message.Ref(at))
	case at != 0:
		s.leave(message.Location(at))
	}
	number := uint32(ref >> offsetBits)
	p := s.page(number)
	if p.class == big {
		s.bytes.Add(-int64(len(p.mem)))
		s.mu.Lock()
		s.memory.dropLarge(p.mem)
		p.mem = nil
		s.unused = append(s.unused, number)
		s.mu.Unlock()
		return
	}
	c := &s.classes[p.class]
	c.mu.Lock()
	h.size = p.free
	p.free = uint32(ref&(1<<offsetBits-1)) + 1
	p.used--
	if !p.listed {
		s.list(c, p, number)
	}
	if p.used > 0 || c.pages == 1 {
		c.mu.Unlock()
		return
	}
	s.unlist(c, p)
	c.pages--
	c.mu.Unlock()
	s.bytes.Add(-pageBytes)
	s.mu.Lock()
	if len(s.empty) < keepFree {
		s.empty = append(s.empty, p.mem)
	} else {
		s.memory.dropPage(p.mem)
	}
	p.mem = nil
	s.unused = append(s.unused, number)
	s.mu.Unlock()
}
