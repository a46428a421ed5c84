package serving

// List holds what waits for a client. There may be millions of deliveries, because each consumer of a quorum queue may
// have its window there. They are in chunks: one slice would copy all of them when it grows, while other goroutines wait
// for the partition that delivers. The zero value is empty.
type List[T any] struct {
	full  [][]T // chunks of chunkItems each, before last
	last  []T
	first int   // index in the first chunk; what is before was shifted out
	spare [][]T // empty chunks
}

const (
	// chunkItems is the capacity of a chunk.
	chunkItems = 1024
	// fewItems is the capacity of the first chunk of a short list.
	fewItems = 8
	// keptItems is the number of items for which an empty list keeps memory.
	keptItems = 32 << 10
)

// Len is the number of items.
func (l *List[T]) Len() int { return len(l.full)*chunkItems + len(l.last) - l.first }

// Push adds an item.
func (l *List[T]) Push(it *T) { *l.Add() = *it }

// Add adds an item, for the caller to set. It is zero, and valid until the next Add.
func (l *List[T]) Add() *T {
	if len(l.last) == cap(l.last) {
		l.grow()
	}
	k := len(l.last)
	l.last = l.last[:k+1]
	return &l.last[k]
}

// grow makes room in the last chunk.
func (l *List[T]) grow() {
	if k := len(l.last); k < chunkItems {
		l.last = append(make([]T, 0, min(max(2*k, fewItems), chunkItems)), l.last...)
		return
	}
	l.full = append(l.full, l.last)
	if k := len(l.spare) - 1; k >= 0 {
		l.last, l.spare = l.spare[k], l.spare[:k]
		return
	}
	l.last = make([]T, 0, chunkItems)
}

// Newest is the item added last, nil if the list is empty.
func (l *List[T]) Newest() *T {
	if k := len(l.last); k > 0 {
		return &l.last[k-1]
	}
	return nil // a chunk is made only for a following item
}

// Oldest is the item added first, nil if the list is empty.
func (l *List[T]) Oldest() *T {
	if l.Len() == 0 {
		return nil
	}
	return &l.Chunk(0)[0]
}

// Shift takes the oldest item out. It moves no other, and gives back the memory of a chunk whose last item leaves. REQUIRES: the
// list is not empty.
func (l *List[T]) Shift() {
	var zero T
	*l.Oldest() = zero
	l.first++
	switch {
	case len(l.full) == 0 && l.first == len(l.last):
		l.first, l.last = 0, l.last[:0]
	case len(l.full) > 0 && l.first == chunkItems:
		if len(l.spare) == 0 {
			l.spare = append(l.spare, l.full[0][:0])
		}
		l.first, l.full[0], l.full = 0, nil, l.full[1:]
	}
}

// Chunks is the number of chunks. The last may be empty.
func (l *List[T]) Chunks() int { return len(l.full) + 1 }

// Chunk is the k-th chunk, from 0.
func (l *List[T]) Chunk(k int) []T {
	chunk := l.last
	if k < len(l.full) {
		chunk = l.full[k]
	}
	if k == 0 {
		return chunk[l.first:]
	}
	return chunk
}

// Clear empties the list. It keeps memory for at most keptItems.
func (l *List[T]) Clear() {
	for _, chunk := range l.full {
		if len(l.spare) >= keptItems/chunkItems {
			break
		}
		clear(chunk)
		l.spare = append(l.spare, chunk[:0])
	}
	clear(l.last)
	l.full, l.last, l.first = nil, l.last[:0], 0
}
