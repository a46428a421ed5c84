package routing

import (
	"slices"
	"strings"
)

// modulusHash sends each message to one destination: the hash of its keys modulo the number of bindings (BR-6.12).
type modulusHash struct {
	// list has the bindings by name and key, so that the choice survives a restart. It is in pieces, none of which is
	// empty or longer than twice pieceSize: a change moves what is in one of them, and the pieces.
	list  [][]*Binding
	count int
	moved int // how much changes have moved, for tests
}

const pieceSize = 256

func (t *modulusHash) Check(*Binding) error { return nil }

func (t *modulusHash) Add(b *Binding) {
	t.count++
	i, j, _ := t.find(b)
	if i == len(t.list) { // behind all others
		if i == 0 {
			t.list = [][]*Binding{{b}}
			return
		}
		i, j = i-1, len(t.list[i-1])
	}
	piece := slices.Insert(t.list[i], j, b)
	t.list[i], t.moved = piece, t.moved+len(piece)-j
	if len(piece) > 2*pieceSize {
		t.list[i] = slices.Clone(piece[:pieceSize])
		t.list = slices.Insert(t.list, i+1, slices.Clone(piece[pieceSize:]))
		t.moved += len(piece) + len(t.list) - i
	}
}

// Remove may take out another binding with the same name and key, and so the same destination: the choices are the same.
func (t *modulusHash) Remove(b *Binding) {
	i, j, ok := t.find(b)
	if !ok {
		return
	}
	t.count--
	t.list[i], t.moved = slices.Delete(t.list[i], j, j+1), t.moved+len(t.list[i])-j
	if len(t.list[i]) == 0 {
		t.list = slices.Delete(t.list, i, i+1)
		t.moved += len(t.list) - i
	}
}

// find returns the piece and the place in it where b belongs, and whether one with its name and key is there.
func (t *modulusHash) find(b *Binding) (piece, place int, ok bool) {
	piece, _ = slices.BinarySearchFunc(t.list, b, func(p []*Binding, b *Binding) int { return compareBindings(p[len(p)-1], b) })
	if piece == len(t.list) {
		return piece, 0, false
	}
	place, ok = slices.BinarySearchFunc(t.list[piece], b, compareBindings)
	return piece, place, ok
}

func compareBindings(a, b *Binding) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Key, b.Key)
}

func (t *modulusHash) Route(dst []Destination, m *Message) []Destination {
	if t.count == 0 {
		return dst
	}
	i := int(hashKeys(m) % uint64(t.count))
	for _, piece := range t.list {
		if i < len(piece) {
			return append(dst, piece[i].Destination)
		}
		i -= len(piece)
	}
	return dst
}
