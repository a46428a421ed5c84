package partition

import "slices"

// A targetSet is a few queues, or very many where a dead-letter exchange is a fanout, by incarnation. It is sorted.
type targetSet []uint64

func (s targetSet) has(target uint64) bool {
	_, ok := slices.BinarySearch(s, target)
	return ok
}

func (s targetSet) with(target uint64) targetSet {
	i, ok := slices.BinarySearch(s, target)
	if ok {
		return s
	}
	return slices.Insert(s, i, target)
}

func (s targetSet) without(target uint64) targetSet {
	if i, ok := slices.BinarySearch(s, target); ok {
		return slices.Delete(s, i, i+1)
	}
	return s
}
