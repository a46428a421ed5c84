package session091

// itemList holds the items of an output. There may be millions of deliveries, because each consumer of a quorum queue may
// have its window there. They are in chunks, as in an unackedList: one slice would copy all of them when it grows, while
// other goroutines wait for the partition that delivers.
type itemList struct {
	full  [][]item // chunks of chunkItems each, before last
	last  []item
	spare [][]item // empty chunks
}

// chunkItems is the capacity of a chunk.
const chunkItems = 1024

func (l *itemList) len() int { return len(l.full)*chunkItems + len(l.last) }

// push adds an item.
func (l *itemList) push(it *item) {
	if len(l.last) == cap(l.last) {
		l.grow()
	}
	l.last = append(l.last, *it)
}

// grow makes room in the last chunk.
func (l *itemList) grow() {
	if k := len(l.last); k < chunkItems {
		l.last = append(make([]item, 0, min(max(2*k, inlineItems), chunkItems)), l.last...)
		return
	}
	l.full = append(l.full, l.last)
	if k := len(l.spare) - 1; k >= 0 {
		l.last, l.spare = l.spare[k], l.spare[:k]
		return
	}
	l.last = make([]item, 0, chunkItems)
}

// newest is the item added last, nil if the list is empty.
func (l *itemList) newest() *item {
	if k := len(l.last); k > 0 {
		return &l.last[k-1]
	}
	return nil // a chunk is made only for a following item
}

// chunk is the k-th chunk; the last has index len(l.full).
func (l *itemList) chunk(k int) []item {
	if k < len(l.full) {
		return l.full[k]
	}
	return l.last
}

// clear empties the list. It keeps memory for at most keptItems.
func (l *itemList) clear() {
	for _, chunk := range l.full {
		if len(l.spare) >= keptItems/chunkItems {
			break
		}
		clear(chunk)
		l.spare = append(l.spare, chunk[:0])
	}
	clear(l.last)
	l.full, l.last = nil, l.last[:0]
}
