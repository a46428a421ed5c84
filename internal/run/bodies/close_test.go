package bodies

import "testing"

// A store that is closed gives up all it had; its addresses may still be read.
func TestClose(t *testing.T) {
	s := New()
	small, _ := s.Alloc(100)
	large, _ := s.Alloc(largest + 1)
	gone, _ := s.Alloc(largest + 1)
	s.Release(gone)
	s.Close()
	s.Bytes(small)
	s.Bytes(large)
}
