package routing

// fanout matches everything (BR-6.5).
type fanout struct {
	all set
}

func (f *fanout) Check(*Binding) error { return nil }

func (f *fanout) Add(b *Binding) { f.all.add(b) }

func (f *fanout) Remove(b *Binding) { f.all.remove(b) }

func (f *fanout) Route(dst []Destination, _ *Message) []Destination { return f.all.appendTo(dst) }
