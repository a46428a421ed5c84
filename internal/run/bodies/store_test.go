package bodies

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"bartleby.mq/internal/core/message"
)

// Every allocation keeps its own bytes whatever is allocated and released around it.
func TestBytesStayApart(t *testing.T) {
	s := New()
	rnd := rand.New(rand.NewPCG(1, 2))
	type held struct {
		ref  message.Ref
		fill byte
		n    int
	}
	var all []held
	for i := range 50_000 {
		if len(all) > 2000 || i > 40_000 && len(all) > 0 {
			k := rnd.IntN(len(all))
			h := all[k]
			if b := s.Bytes(h.ref); len(b) != h.n || bytes.Count(b, []byte{h.fill}) != h.n {
				t.Fatalf("allocation of %d bytes was overwritten", h.n)
			}
			s.Release(h.ref)
			all[k] = all[len(all)-1]
			all = all[:len(all)-1]
			continue
		}
		n := rnd.IntN(300)
		if rnd.IntN(200) == 0 {
			n = rnd.IntN(100_000)
		}
		ref, b := s.Alloc(n)
		fill := byte(i)
		for k := range b {
			b[k] = fill
		}
		all = append(all, held{ref, fill, n})
	}
	for _, h := range all {
		s.Release(h.ref)
	}
	if m := s.Memory(); m > int64(len(s.classes))*pageBytes {
		t.Errorf("%d bytes of pages are held for nothing", m)
	}
}

// The last reference frees, and not before, on any goroutine.
func TestReferences(t *testing.T) {
	s := New()
	ref, b := s.Alloc(100)
	copy(b, "hello")
	s.Retain(ref, 1000)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 100 {
				if string(s.Bytes(ref)[:5]) != "hello" {
					t.Error("the bytes changed")
				}
				s.Release(ref)
			}
		})
	}
	wg.Wait()
	if s.Refs(ref) != 1 {
		t.Errorf("%d references are left, want 1", s.Refs(ref))
	}
	s.Release(ref)
	again, _ := s.Alloc(100)
	if again != ref {
		t.Error("the slot was not used again")
	}
}

func BenchmarkAllocRelease(b *testing.B) {
	s := New()
	b.ReportAllocs()
	for b.Loop() {
		ref, _ := s.Alloc(200)
		s.Release(ref)
	}
}
