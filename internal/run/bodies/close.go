package bodies

// Close gives up the memory of all bytes, for a process that goes on without the
// store. REQUIRES: nobody uses the store any more. Whoever reads bytes all the same
// finds zeros: the addresses stay.
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
