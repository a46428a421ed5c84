package partition

import "slices"

// A targetSet is a sorted set of queues by incarnation: mostly few, very many if a dead-letter exchange is a fanout.
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

// union is with for each of more, and sorts more. Insertion one by one would copy a large set each time.
func (s targetSet) union(more []uint64) targetSet {
	switch len(more) {
	case 0:
		return s
	case 1:
		return s.with(more[0])
	}
	slices.Sort(more)
	all := make(targetSet, 0, len(s)+len(more))
	for len(s) > 0 || len(more) > 0 {
		var next uint64
		if len(more) == 0 || len(s) > 0 && s[0] <= more[0] {
			next, s = s[0], s[1:]
		} else {
			next, more = more[0], more[1:]
		}
		if len(all) == 0 || all[len(all)-1] != next {
			all = append(all, next)
		}
	}
	return all
}

func (s targetSet) without(target uint64) targetSet {
	if i, ok := slices.BinarySearch(s, target); ok {
		return slices.Delete(s, i, i+1)
	}
	return s
}
