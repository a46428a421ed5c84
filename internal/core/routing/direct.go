package routing

// direct matches the exact routing key (BR-6.5).
type direct struct {
	byKey map[string]*set
}

func newDirect() *direct { return &direct{byKey: map[string]*set{}} }

func (d *direct) Check(*Binding) error { return nil }

func (d *direct) Add(b *Binding) {
	s := d.byKey[b.Key]
	if s == nil {
		s = &set{}
		d.byKey[b.Key] = s
	}
	s.add(b)
}

func (d *direct) Remove(b *Binding) {
	s := d.byKey[b.Key]
	if s == nil {
		return
	}
	s.remove(b)
	if s.empty() {
		delete(d.byKey, b.Key)
	}
}

func (d *direct) Route(dst []Destination, m *Message) []Destination {
	dst = d.match(dst, m.Key)
	for _, key := range m.distinct() {
		dst = d.match(dst, key)
	}
	return dst
}

func (d *direct) match(dst []Destination, key []byte) []Destination {
	if s := d.byKey[string(key)]; s != nil {
		dst = s.appendTo(dst)
	}
	return dst
}
