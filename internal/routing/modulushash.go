package routing

import (
	"slices"
	"strings"
)

// modulusHash sends each message to one destination: the hash of its keys modulo the number of bindings (BR-6.12).
type modulusHash struct {
	list []*Binding // by name and key, so that the choice survives a restart
}

func (t *modulusHash) Check(*Binding) error { return nil }

func (t *modulusHash) Add(b *Binding) {
	i, _ := slices.BinarySearchFunc(t.list, b, compareBindings)
	t.list = slices.Insert(t.list, i, b)
}

func (t *modulusHash) Remove(b *Binding) {
	if i := slices.Index(t.list, b); i >= 0 {
		t.list = slices.Delete(t.list, i, i+1)
	}
}

func compareBindings(a, b *Binding) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Key, b.Key)
}

func (t *modulusHash) Route(dst []Destination, m *Message) []Destination {
	if len(t.list) == 0 {
		return dst
	}
	return append(dst, t.list[hashKeys(m)%uint64(len(t.list))].Destination)
}
