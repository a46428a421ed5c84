package routing

// set is a list of bindings with cheap removal. Its order depends only on the order of its changes.
type set struct {
	list []*Binding
	// at is the place of each binding in list. Most sets hold one or two bindings, where searching is cheaper than
	// a map, so it is built only beyond indexFrom.
	at map[*Binding]int
}

const indexFrom = 16

func (s *set) add(b *Binding) {
	s.list = append(s.list, b)
	switch {
	case s.at != nil:
		s.at[b] = len(s.list) - 1
	case len(s.list) > indexFrom:
		s.at = make(map[*Binding]int, 2*len(s.list))
		for i, b := range s.list {
			s.at[b] = i
		}
	}
}

// remove puts the last binding in the place of b, which it returns: -1 if b was not there.
func (s *set) remove(b *Binding) (place int) {
	i := s.find(b)
	if i < 0 {
		return -1
	}
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[i] = moved
	s.list[last] = nil
	s.list = s.list[:last]
	if s.at != nil {
		s.at[moved] = i
		delete(s.at, b)
	}
	return i
}

func (s *set) find(b *Binding) int {
	if s.at != nil {
		if i, ok := s.at[b]; ok {
			return i
		}
		return -1
	}
	for i, c := range s.list {
		if c == b {
			return i
		}
	}
	return -1
}

func (s *set) empty() bool { return len(s.list) == 0 }

func (s *set) appendTo(dst []Destination) []Destination {
	for _, b := range s.list {
		dst = append(dst, b.Destination)
	}
	return dst
}
