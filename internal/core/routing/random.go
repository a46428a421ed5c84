package routing

// random sends each message to one of its destinations, drawn by Message.Chance, whatever the binding keys are: the
// plugin exchange type x-random of RabbitMQ.
type random struct {
	all set
}

// Check allows every binding.
func (t *random) Check(*Binding) error { return nil }

func (t *random) Add(b *Binding) { t.all.add(b) }

func (t *random) Remove(b *Binding) { t.all.remove(b) }

func (t *random) Route(dst []Destination, m *Message) []Destination {
	if t.all.empty() {
		return dst
	}
	return append(dst, t.all.list[m.Chance%uint64(len(t.all.list))].Destination)
}
