package bodies

// Close releases the memory of all bytes, for a process that continues without the store.
// REQUIRES: no goroutine uses the store any more. A read that comes too late finds zeros,
// because the addresses stay mapped.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := uint32(1); n < s.pages; n++ {
		if p := s.page(n); p.mem != nil {
			s.memory.forget(p.mem)
		}
	}
	for _, mem := range s.empty {
		s.memory.forget(mem)
	}
	s.memory.forgetKept()
}
